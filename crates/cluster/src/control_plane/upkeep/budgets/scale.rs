//! Sums up the scale of the controllers of a budget's pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        autoscaling::v1::Scale,
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Resource, ResourceExt, api::Request as ApiRequest};
use windlass_api::status::StatusClass;
use windlass_cache::{Cacheable, ObjectKey};
use windlass_runtime::{Context, Error};

use super::super::kinds::ServedKinds;

/// The total scale of the pods' controllers.
pub(super) struct ExpectedPods {
    pub(super) scale: i32,
    /// Whether there are pods without a controller, which do not count.
    pub(super) unmanaged: bool,
}

/// Why the scale is unknown: a message for the user, or a failed request.
pub(super) enum ScaleError {
    Unsupported(String),
    Request(Error),
}

impl<E: Into<Error>> From<E> for ScaleError {
    fn from(error: E) -> Self {
        Self::Request(error.into())
    }
}

/// Computes the total scale. Each controller counts once, by UID.
pub(super) async fn expected(
    ctx: &Context,
    namespace: &str,
    pods: &[Arc<Pod>],
) -> Result<ExpectedPods, ScaleError> {
    let mut scales = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut unmanaged = false;
    for pod in pods {
        let Some(controller) = controller(pod.owner_references()) else {
            unmanaged = true;
            continue;
        };
        if !seen.insert(controller.uid.clone()) {
            continue;
        }
        let Some((uid, scale)) = scale(ctx, namespace, controller).await? else {
            return Err(ScaleError::Unsupported(format!(
                "found no controllers for pod {:?}",
                pod.name_any()
            )));
        };
        scales.insert(uid, scale);
    }
    Ok(ExpectedPods {
        scale: scales.into_values().sum(),
        unmanaged,
    })
}

fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// Returns UID and scale of a controller; for a ReplicaSet of a Deployment, those of the Deployment.
async fn scale(
    ctx: &Context,
    namespace: &str,
    reference: &OwnerReference,
) -> Result<Option<(String, i32)>, ScaleError> {
    if is_apps_kind(reference, "ReplicaSet")
        && let Some(set) = get_referenced::<ReplicaSet>(ctx, namespace, reference)?
    {
        let of = controller(set.owner_references()).filter(|owner| owner.kind == "Deployment");
        let Some(of) = of else {
            let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
            return Ok(Some((reference.uid.clone(), replicas.unwrap_or(0))));
        };
        if is_apps_kind(of, "Deployment")
            && let Some(deployment) = get_referenced::<Deployment>(ctx, namespace, of)?
        {
            let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            return Ok(Some((of.uid.clone(), replicas.unwrap_or(0))));
        }
    }
    scale_subresource(ctx, namespace, reference).await
}

fn is_apps_kind(reference: &OwnerReference, kind: &str) -> bool {
    reference.kind == kind && reference.api_version.starts_with("apps/")
}

/// Returns the referenced object from the cache, if its UID matches.
fn get_referenced<K: Cacheable + Resource<DynamicType: Default>>(
    ctx: &Context,
    namespace: &str,
    reference: &OwnerReference,
) -> Result<Option<Arc<K>>, Error> {
    let key = ObjectKey::namespaced(namespace, reference.name.as_str());
    let found = ctx.lister::<K>()?.try_get(&key)?;
    Ok(found.filter(|found| found.meta().uid.as_ref() == Some(&reference.uid)))
}

/// Reads the `scale` subresource of a controller of any kind.
async fn scale_subresource(
    ctx: &Context,
    namespace: &str,
    reference: &OwnerReference,
) -> Result<Option<(String, i32)>, ScaleError> {
    let served = ServedKinds::discover(ctx.client()).await?;
    let Some(kind) = served.find(&reference.api_version, &reference.kind) else {
        let OwnerReference {
            kind, api_version, ..
        } = reference;
        return Err(ScaleError::Unsupported(format!(
            "no matches for kind {kind:?} in version {api_version:?}"
        )));
    };
    let resource = &kind.resource;
    if !kind.has_scale {
        let name = [&*resource.plural, &*resource.group].join(".");
        let name = name.trim_end_matches('.');
        return Err(ScaleError::Unsupported(format!(
            "{name} does not implement the scale subresource"
        )));
    }
    let path = kube::core::DynamicObject::url_path(resource, Some(namespace));
    let request = ApiRequest::new(path)
        .get_subresource("scale", &reference.name)
        .map_err(kube::Error::BuildRequest)?;
    let scale = match ctx.client().request::<Scale>(request).await {
        Err(kube::Error::Api(status)) if StatusClass::of(&status) == StatusClass::NotFound => {
            return Ok(None);
        }
        other => other?,
    };
    if scale.metadata.uid.as_ref() != Some(&reference.uid) {
        return Ok(None);
    }
    let replicas = scale.spec.and_then(|spec| spec.replicas);
    Ok(Some((reference.uid.clone(), replicas.unwrap_or(0))))
}
