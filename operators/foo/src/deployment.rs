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
