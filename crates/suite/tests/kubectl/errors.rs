//! kubectl's error messages and exit codes.

use anyhow::Result;
use windlass_suite::Context;

use crate::kubectl::{command::Kubectl, objects};

pub(crate) async fn missing_objects_and_kinds_are_reported(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    for (line, complaint) in [
        (
            "get pod none",
            "Error from server (NotFound): pods \"none\" not found",
        ),
        (
            "get deploy/none",
            "Error from server (NotFound): deployments.apps \"none\" not found",
        ),
        (
            "get nopes",
            "error: the server doesn't have a resource type \"nopes\"",
        ),
        (
            "patch cm none -p {}",
            "Error from server (NotFound): configmaps \"none\" not found",
        ),
        (
            "label cm none a=b",
            "Error from server (NotFound): configmaps \"none\" not found",
        ),
        (
            "scale deploy none --replicas=1",
            "Error from server (NotFound): deployments.apps \"none\" not found",
        ),
        (
            "logs none",
            "error: error from server (NotFound): pods \"none\" not found in namespace \"NS\"",
        ),
        (
            "get cm --namespace=no-such-namespace none",
            "Error from server (NotFound): namespaces \"no-such-namespace\" not found",
        ),
    ] {
        let complaint = complaint.replace("NS", &kubectl.namespace);
        kubectl.run(line).await?.assert_fails(1, &complaint);
    }
    Ok(())
}

pub(crate) async fn bad_requests_are_explained(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.run("create configmap Bad_Name").await?.assert_fails(
        1,
        "error: failed to create configmap: ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": \
         a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
         and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    );
    kubectl
        .run("get cm -l =")
        .await?
        .assert_fails(
            1,
            "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match label selector \"=\", \
             field selector \"\": found '=', expected: !, identifier, or 'end of string'",
        );
    kubectl.run("get cm --field-selector data.a=1").await?.assert_fails(
        1,
        "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match label selector \"\", field \
         selector \"data.a=1\": \"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    );
    kubectl
        .run_with_input("create -f -", &objects::DEPLOYMENT.replace("replicas: 2", "replicas: two"))
        .await?
        .assert_fails(
            1,
            "Error from server (BadRequest): error when creating \"STDIN\": Deployment in version \"v1\" cannot be handled \
             as a Deployment: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        );
    kubectl
        .run_with_input("create -f -", "{apiVersion: example.com/v1, kind: Nope, metadata: {name: a}}")
        .await?
        .assert_fails(
            1,
            "error: resource mapping not found for name: \"a\" namespace: \"\" from \"STDIN\": no matches for kind \"Nope\" \
             in version \"example.com/v1\"\nensure CRDs are installed first",
        );
    kubectl.run("get cm --nonsense").await?.assert_fails(
        1,
        "error: unknown flag: --nonsense\nSee 'kubectl get --help' for usage.",
    );
    Ok(())
}
