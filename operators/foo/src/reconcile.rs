//! What is done for one Foo.

use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::apps::v1::Deployment,
    kube::{
        self, Api,
        api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    },
    prelude::*,
};

use crate::{
    FIELD_MANAGER,
    deployment::{desired, is_controlled_by},
    drift,
    types::Foo,
};

/// Why a Foo could not be brought to what it asks for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FooError {
    /// The Deployment is somebody else's; it is not touched. The reason `ErrResourceExists` and the text are upstream's.
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    ResourceExists(String),
    /// A request to the API failed.
    #[error("cannot {action} {kind} {key}")]
    Api {
        /// What was tried.
        action: &'static str,
        /// The kind of the object.
        kind: &'static str,
        /// Which object.
        key: ObjectKey,
        /// What the server said.
        #[source]
        cause: kube::Error,
    },
}

/// Keeps each Foo's Deployment as the Foo asks, and the Foo's status as the Deployment is.
pub struct FooReconciler;

impl Reconciler for FooReconciler {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let Some(foo) = ctx.lister::<Foo>()?.get(&request.key) else {
            tracing::info!("the Foo is gone; its Deployment is collected with it");
            return Ok(Action::done());
        };
        if foo.spec.deployment_name.is_empty() {
            tracing::error!("spec.deploymentName must be set; waiting for it");
            return Ok(Action::done());
        }
        if foo.meta().deletion_timestamp.is_some() {
            // What is made now would be collected at once, or hold up the deletion.
            return Ok(Action::done());
        }
        let namespace = foo.namespace().unwrap_or_default();
        let deployments = Api::<Deployment>::namespaced(ctx.client().clone(), &namespace);
        let cached = ctx.lister::<Deployment>()?;

        let key = ObjectKey::namespaced(namespace.as_str(), foo.spec.deployment_name.as_str());
        let existing = cached.get(&key);
        let deployment = match existing.as_deref() {
            Some(existing) => keep(&deployments, &foo, existing).await?,
            None => create(&deployments, &foo, &key).await?,
        };
        for other in cached.list(&Query::all().namespace(namespace.as_str())) {
            if is_controlled_by(&other, &foo) && other.name_any() != foo.spec.deployment_name {
                remove(&deployments, &other).await?;
            }
        }
        let available = deployment
            .status
            .and_then(|status| status.available_replicas)
            .unwrap_or(0);
        report(&ctx, &foo, available).await?;
        Ok(Action::done())
    }
}

async fn create(deployments: &Api<Deployment>, foo: &Foo, key: &ObjectKey) -> Result<Deployment, FooError> {
    let error = |action, cause| FooError::Api {
        action,
        kind: "Deployment",
        key: key.clone(),
        cause,
    };
    let manager = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match deployments.create(&manager, &desired(foo)).await {
        Ok(created) => {
            tracing::info!(deployment = %key, "created the Deployment");
            Ok(created)
        }
        // The cache is behind: either it is somebody else's, or our own from a moment ago.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let existing = deployments
                .get(key.name())
                .await
                .map_err(|cause| error("read", cause))?;
            keep(deployments, foo, &existing).await
        }
        Err(cause) => Err(error("create", cause)),
    }
}

/// Repairs whatever differs from what the Foo asks for, if the Deployment is ours.
async fn keep(
    deployments: &Api<Deployment>,
    foo: &Foo,
    existing: &Deployment,
) -> Result<Deployment, FooError> {
    if !is_controlled_by(existing, foo) {
        return Err(FooError::ResourceExists(existing.name_any()));
    }
    let Some(mut change) = drift::patch(&comparable(&desired(foo)), &comparable(existing)) else {
        return Ok(existing.clone());
    };
    // The change is meant for exactly the object that was looked at.
    change["metadata"]["uid"] = json!(existing.meta().uid);
    change["metadata"]["resourceVersion"] = json!(existing.meta().resource_version);
    let name = existing.name_any();
    let repaired = deployments
        .patch(&name, &manager(), &Patch::Merge(&change))
        .await
        .map_err(|cause| FooError::Api {
            action: "update",
            kind: "Deployment",
            key: ObjectKey::of(existing),
            cause,
        })?;
    tracing::info!(deployment = name, %change, "updated the Deployment");
    Ok(repaired)
}

/// The part of a Deployment that a Foo decides about.
fn comparable(deployment: &Deployment) -> Value {
    json!({ "spec": deployment.spec })
}

/// Removes a Deployment that has the name of a former spec, if it is still the one we saw.
async fn remove(deployments: &Api<Deployment>, former: &Deployment) -> Result<(), FooError> {
    if former.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let preconditions = Preconditions {
        uid: former.meta().uid.clone(),
        resource_version: former.meta().resource_version.clone(),
    };
    let parameters = DeleteParams::background().preconditions(preconditions);
    match deployments.delete(&former.name_any(), &parameters).await {
        Ok(_) => {
            tracing::info!(
                deployment = former.name_any(),
                "removed the Deployment of the former name"
            );
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(cause) => Err(FooError::Api {
            action: "delete",
            kind: "Deployment",
            key: ObjectKey::of(former),
            cause,
        }),
    }
}

/// Writes the status if it says something else.
async fn report(ctx: &Context, foo: &Foo, available_replicas: i32) -> Result<(), FooError> {
    if foo
        .status
        .as_ref()
        .is_some_and(|status| status.available_replicas == available_replicas)
    {
        return Ok(());
    }
    let key = ObjectKey::of(foo);
    let api = Api::<Foo>::namespaced(ctx.client().clone(), key.namespace().unwrap_or_default());
    // The UID keeps it from a Foo that was made again under the same name.
    let change = json!({
        "metadata": { "uid": foo.meta().uid },
        "status": { "availableReplicas": available_replicas },
    });
    let written = api
        .patch_status(key.name(), &manager(), &Patch::Merge(&change))
        .await;
    written.map_err(|cause| FooError::Api {
        action: "write the status of",
        kind: "Foo",
        key,
        cause,
    })?;
    Ok(())
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
