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
};
use windlass_secretsync::SecretSync;
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
