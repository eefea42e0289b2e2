//! How many pods the controllers of a budget's pods want.

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
use windlass_cache::{Cacheable, ObjectKey};
use windlass_runtime::{Context, Error};

use super::super::kinds::Served;

/// What was counted.
pub(super) struct Expected {
    pub(super) scale: i32,
    /// Pods without a controller, which count for nothing.
    pub(super) unmanaged: bool,
}

/// Why it could not be: for people, or the server did not answer.
pub(super) enum Trouble {
    Told(String),
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Each controller counts once, by UID.
pub(super) async fn expected(ctx: &Context, namespace: &str, pods: &[Arc<Pod>]) -> Result<Expected, Trouble> {
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
            return Err(Trouble::Told(format!(
                "found no controllers for pod {:?}",
                pod.name_any()
            )));
        };
        scales.insert(uid, scale);
    }
    Ok(Expected {
        scale: scales.into_values().sum(),
        unmanaged,
    })
}

fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// The UID and the wanted pods of what a reference means; of a ReplicaSet's Deployment rather than of itself.
async fn scale(
    ctx: &Context,
    namespace: &str,
    reference: &OwnerReference,
) -> Result<Option<(String, i32)>, Trouble> {
    if is(reference, "ReplicaSet") {
        if let Some(set) = referred::<ReplicaSet>(ctx, namespace, reference)? {
            let of = controller(set.owner_references()).filter(|owner| owner.kind == "Deployment");
            let Some(of) = of else {
                let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
                return Ok(Some((reference.uid.clone(), replicas.unwrap_or(0))));
            };
            if is(of, "Deployment")
                && let Some(deployment) = referred::<Deployment>(ctx, namespace, of)?
            {
                let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
                return Ok(Some((of.uid.clone(), replicas.unwrap_or(0))));
            }
        }
    }
    asked(ctx, namespace, reference).await
}

fn is(reference: &OwnerReference, kind: &str) -> bool {
    reference.kind == kind && reference.api_version.starts_with("apps/")
}

/// The object that a reference means, from the cache.
fn referred<K: Cacheable + Resource<DynamicType: Default>>(
    ctx: &Context,
    namespace: &str,
    reference: &OwnerReference,
) -> Result<Option<Arc<K>>, Error> {
    let key = ObjectKey::namespaced(namespace, reference.name.as_str());
    let found = ctx.lister::<K>()?.try_get(&key)?;
    Ok(found.filter(|found| found.meta().uid.as_ref() == Some(&reference.uid)))
}

/// What the server says, of any kind that can be scaled.
async fn asked(
    ctx: &Context,
    namespace: &str,
    reference: &OwnerReference,
) -> Result<Option<(String, i32)>, Trouble> {
    let served = Served::discover(ctx.client()).await?;
    let Some(kind) = served.find(&reference.api_version, &reference.kind) else {
        let OwnerReference {
            kind, api_version, ..
        } = reference;
        return Err(Trouble::Told(format!(
            "no matches for kind {kind:?} in version {api_version:?}"
        )));
    };
    let resource = &kind.resource;
    if !kind.scales {
        let name = [&*resource.plural, &*resource.group].join(".");
        let name = name.trim_end_matches('.');
        return Err(Trouble::Told(format!(
            "{name} does not implement the scale subresource"
        )));
    }
    let path = kube::core::DynamicObject::url_path(resource, Some(namespace));
    let request = ApiRequest::new(path)
        .get_subresource("scale", &reference.name)
        .map_err(kube::Error::BuildRequest)?;
    let scale = match ctx.client().request::<Scale>(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        other => other?,
    };
    if scale.metadata.uid.as_ref() != Some(&reference.uid) {
        return Ok(None);
    }
    let replicas = scale.spec.and_then(|spec| spec.replicas);
    Ok(Some((reference.uid.clone(), replicas.unwrap_or(0))))
}
