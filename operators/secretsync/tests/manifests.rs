//! The shipped manifests are complete and consistent.

use std::collections::BTreeMap;

use windlass::{
    k8s_openapi::{
        api::{
            apps::v1::Deployment,
            core::v1::ServiceAccount,
            rbac::v1::{ClusterRoleBinding, RoleBinding},
        },
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    prelude::*,
    serde::{Deserialize, Serialize, de::DeserializeOwned},
    serde_json::{Value, from_value, to_value},
    webhook::{WebhookAddress, WebhookOptions, Webhooks},
};
use windlass_secretsync::{Arguments, SecretSync, add_webhooks_as};
use windlass_suite::{output, program};

fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents
        .map(|document| Value::deserialize(document).expect("YAML"))
        .collect()
}

/// Parses it as its kind, and checks that no field was dropped.
fn read<K: Serialize + DeserializeOwned>(value: &Value) -> K {
    let object: K = from_value(value.clone()).expect("an object of its kind");
    assert_eq!(&to_value(&object).expect("JSON"), value, "an unknown field");
    object
}

#[test]
fn crd_yaml_matches_the_code() {
    let file = include_str!("../manifests/crd.yaml");
    let shipped: CustomResourceDefinition = serde_yaml_ng::from_str(file).expect("a definition");
    let ours = SecretSync::crd();
    assert!(
        shipped == ours,
        "manifests/crd.yaml is old; it should be:\n{}",
        serde_yaml_ng::to_string(&ours).expect("YAML")
    );
}

/// The objects that `--webhooks` needs, with and without `--protect-copies`.
fn webhook_objects(own_name: Option<&str>) -> Vec<Value> {
    let (namespace, name) = ("secretsync", "secretsync");
    let webhooks = || add_webhooks_as(Webhooks::new(name), &Arguments::default(), own_name);
    let configurations = webhooks().configurations(&WebhookAddress::service(namespace, name));
    let rights = webhooks().rights(&WebhookOptions::default(), false);
    let roles = "secretsync-webhooks";
    let object = |kind: &str, namespace: Option<&str>, name: &str| {
        let group = match kind {
            "Service" => "v1",
            "ValidatingWebhookConfiguration" => "admissionregistration.k8s.io/v1",
            _ => "rbac.authorization.k8s.io/v1",
        };
        let mut metadata = json!({ "name": name });
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        json!({ "apiVersion": group, "kind": kind, "metadata": metadata })
    };
    let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": namespace }]);
    let reference = |kind| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": roles });
    let mut service = object("Service", Some(namespace), name);
    service["spec"] = json!({
        "selector": { "app.kubernetes.io/name": name },
        "ports": [{ "name": "webhooks", "port": 443, "targetPort": 9443 }],
        "publishNotReadyAddresses": true,
    });
    let mut role = object("Role", Some(namespace), roles);
    role["rules"] = json!(rights.namespaced);
    let mut role_binding = object("RoleBinding", Some(namespace), roles);
    role_binding["roleRef"] = reference("Role");
    role_binding["subjects"] = subjects.clone();
    let mut cluster_role = object("ClusterRole", None, roles);
    cluster_role["rules"] = json!(rights.cluster);
    let mut cluster_role_binding = object("ClusterRoleBinding", None, roles);
    cluster_role_binding["roleRef"] = reference("ClusterRole");
    cluster_role_binding["subjects"] = subjects;
    let mut configuration = object("ValidatingWebhookConfiguration", None, name);
    configuration["webhooks"] = json!(configurations.validating.expect("validators").webhooks);
    vec![
        service,
        role,
        role_binding,
        cluster_role,
        cluster_role_binding,
        configuration,
    ]
}

#[test]
fn webhooks_yaml_matches_the_code() {
    let account = Some("system:serviceaccount:secretsync:secretsync");
    for (file, shipped, own_name) in [
        ("webhooks.yaml", include_str!("../manifests/webhooks.yaml"), None),
        (
            "webhooks-protect-copies.yaml",
            include_str!("../manifests/webhooks-protect-copies.yaml"),
            account,
        ),
    ] {
        let expected = webhook_objects(own_name);
        let texts = expected
            .iter()
            .map(|object| serde_yaml_ng::to_string(object).expect("YAML"));
        assert!(
            documents(shipped) == expected,
            "manifests/{file} is old; it should be:\n{}",
            texts.collect::<Vec<_>>().join("---\n")
        );
    }
}

#[tokio::test]
async fn deployment_uses_existing_roles_and_flags() {
    let roles = documents(include_str!("../rbac.yaml"));
    let named = |kind: &str| {
        let mut roles = roles.iter().filter(|role| role["kind"] == kind);
        let name = roles.next().map(|role| role["metadata"]["name"].clone());
        name.unwrap_or_default()
    };
    let all = documents(include_str!("../manifests/deployment.yaml"));
    let by_kind: BTreeMap<_, _> = all
        .iter()
        .map(|object| (object["kind"].as_str().unwrap_or_default(), object))
        .collect();
    let account: ServiceAccount = read(by_kind["ServiceAccount"]);
    let everywhere: ClusterRoleBinding = read(by_kind["ClusterRoleBinding"]);
    let within: RoleBinding = read(by_kind["RoleBinding"]);
    let deployment: Deployment = read(by_kind["Deployment"]);
    assert_eq!(by_kind.len(), 4);

    assert_eq!(everywhere.role_ref.name, named("ClusterRole"));
    assert_eq!(within.role_ref.name, named("Role"));
    for subject in everywhere.subjects.iter().chain(&within.subjects).flatten() {
        assert_eq!(Some(&subject.name), account.metadata.name.as_ref());
        assert_eq!(subject.namespace, account.metadata.namespace);
    }
    let pod = deployment
        .spec
        .and_then(|spec| spec.template.spec)
        .expect("a pod");
    assert_eq!(pod.service_account_name, account.metadata.name);
    for container in &pod.containers {
        let limits = container
            .resources
            .as_ref()
            .and_then(|resources| resources.limits.as_ref());
        for limited in ["cpu", "memory"] {
            assert!(
                limits.is_some_and(|limits| limits.contains_key(limited)),
                "{} has no limit of {limited}",
                container.name
            );
        }
    }
    let (_, help, _) = output(program(env!("CARGO_BIN_EXE_secretsync"), &["--help"])).await;
    let arguments = pod.containers[0].args.iter().flatten();
    for flag in arguments.filter(|argument| argument.starts_with("--")) {
        assert!(help.contains(flag.as_str()), "{flag}");
    }
}
