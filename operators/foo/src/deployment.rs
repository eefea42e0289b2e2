//! What a Foo's Deployment should look like.

use std::collections::BTreeMap;

use windlass::{
    k8s_openapi::{
        api::{
            apps::v1::{Deployment, DeploymentSpec},
            core::v1::{Container, PodSpec, PodTemplateSpec},
        },
        apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
    },
    prelude::*,
};

use crate::types::Foo;

/// The Deployment that `foo` asks for. `foo` must come from the server: its UID is the Deployment's owner.
pub fn desired(foo: &Foo) -> Deployment {
    let labels: BTreeMap<_, _> = [
        ("app".to_owned(), "nginx".to_owned()),
        ("controller".to_owned(), foo.name_any()),
    ]
    .into();
    Deployment {
        metadata: ObjectMeta {
            name: Some(foo.spec.deployment_name.clone()),
            namespace: foo.namespace(),
            owner_references: foo.controller_owner_ref(&()).map(|mut owner| {
                // As upstream: a foreground deletion of the Foo waits for its Deployment.
                owner.block_owner_deletion = Some(true);
                vec![owner]
            }),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: foo.spec.replicas,
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                match_expressions: None,
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![Container {
                        name: "nginx".to_owned(),
                        image: Some("nginx:latest".to_owned()),
                        ..Container::default()
                    }],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// Whether `foo` controls the Deployment. By UID: a Foo of the same name that was deleted is somebody else.
pub fn is_controlled_by(deployment: &Deployment, foo: &Foo) -> bool {
    let owners = deployment.owner_references();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| foo.meta().uid.as_deref() == Some(owner.uid.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::FooSpec;

    fn foo(replicas: Option<i32>) -> Foo {
        let mut foo = Foo::new(
            "example",
            FooSpec {
                deployment_name: "web".to_owned(),
                replicas,
            },
        );
        foo.metadata.namespace = Some("shop".to_owned());
        foo.metadata.uid = Some("1-2-3".to_owned());
        foo
    }

    /// Statement 3.
    #[test]
    fn the_deployment_is_upstreams() {
        let labels = json!({ "app": "nginx", "controller": "example" });
        let expected = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "ownerReferences": [{
                    "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "name": "example", "uid": "1-2-3",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "replicas": 3,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "nginx", "image": "nginx:latest" }] },
                },
            },
        });
        assert_eq!(
            serde_json::to_value(desired(&foo(Some(3)))).expect("it serialises"),
            expected
        );
        assert_eq!(
            desired(&foo(None)).spec.and_then(|spec| spec.replicas),
            None,
            "the server decides"
        );
    }

    /// Statement 6: control is by UID.
    #[test]
    fn only_the_foo_with_the_uid_controls_it() {
        let mine = desired(&foo(None));
        assert!(is_controlled_by(&mine, &foo(None)));
        let mut namesake = foo(None);
        namesake.metadata.uid = Some("other".to_owned());
        assert!(!is_controlled_by(&mine, &namesake));
        let mut unsaved = foo(None);
        unsaved.metadata.uid = None;
        assert!(!is_controlled_by(&mine, &unsaved));
        let mut not_controller = mine.clone();
        not_controller
            .metadata
            .owner_references
            .as_mut()
            .expect("it has one")[0]
            .controller = Some(false);
        assert!(!is_controlled_by(&not_controller, &foo(None)));
        assert!(!is_controlled_by(&Deployment::default(), &foo(None)));
    }
}
