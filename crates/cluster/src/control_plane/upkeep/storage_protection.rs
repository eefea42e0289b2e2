//! Storage protection: a deleted claim waits for the pods that use it, a deleted volume for its claim.
//!
//! ```text
//!   PersistentVolumeClaim ── deleted, and no scheduled pod uses it ──► finalizer removed
//!   PersistentVolume ─────── deleted, and not bound ─────────────────► finalizer removed
//! ```
//!
//! The API server adds the finalizers on creation.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use windlass_cache::{ObjectKey, Query};
use windlass_runtime::{
    Action, Context, Controller, Error, Manager, Predicate, Request, Watch, Writable, WriteError,
};

use super::FIELD_MANAGER;
use crate::control_plane::pod_claims::claims_of;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

pub(super) fn add(manager: Manager) -> Manager {
    let waiting = WaitingClaims::default();
    let (filter, map) = (waiting.clone(), waiting.clone());
    let pods = Watch::<Pod>::new()
        .filter(Predicate::new(move |_, new| {
            filter.any_in(new.meta().key().namespace())
        }))
        .mapped(move |pod| map.used_by(pod));
    let claims = Controller::<PersistentVolumeClaim>::new("persistentvolumeclaim-protection")
        .watch(pods)
        .field_manager(FIELD_MANAGER)
        .reconcile(move |request, ctx| protect_claim(request, ctx, waiting.clone()));
    let volumes = Controller::<PersistentVolume>::new("persistentvolume-protection")
        .field_manager(FIELD_MANAGER)
        .reconcile(protect_volume);
    manager.controller(claims).controller(volumes)
}

/// The deleted claims that wait for pods. Changes of other pods are not looked at.
#[derive(Clone, Default)]
struct WaitingClaims(Arc<Mutex<HashSet<ObjectKey>>>);

impl WaitingClaims {
    fn keys(&self) -> MutexGuard<'_, HashSet<ObjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn any_in(&self, namespace: Option<&str>) -> bool {
        self.keys().iter().any(|key| key.namespace() == namespace)
    }

    fn used_by(&self, pod: &Pod) -> Vec<ObjectKey> {
        let keys = self.keys();
        if keys.is_empty() {
            return Vec::new();
        }
        let namespace = pod.namespace().unwrap_or_default();
        claims_of(pod)
            .map(|claim| ObjectKey::namespaced(namespace.as_str(), claim.name))
            .filter(|key| keys.contains(key))
            .collect()
    }
}

async fn protect_claim(request: Request, ctx: Context, waiting: WaitingClaims) -> Result<Action, Error> {
    let claim = ctx.lister::<PersistentVolumeClaim>()?.try_get(&request.key)?;
    // Before the pods are read, so that a pod that is deleted meanwhile reconciles the claim again.
    let deleted = claim
        .as_ref()
        .is_some_and(|claim| claim.metadata.deletion_timestamp.is_some());
    if deleted {
        waiting.keys().insert(request.key.clone());
    } else {
        waiting.keys().remove(&request.key);
    }
    let Some(claim) = claim else {
        return Ok(Action::done());
    };
    let in_use = deleted && is_used(&request.key, &ctx).await?;
    update_finalizer(&*claim, CLAIM_FINALIZER, in_use, &ctx).await?;
    Ok(Action::done())
}

/// Whether a pod on a node uses the claim. A kubelet does not start a pod whose claim is being deleted, so pods without
/// a node do not count.
///
/// The cache of pods may be behind that of claims, so the server is asked before a claim counts as unused, as
/// kube-controller-manager does.
async fn is_used(claim: &ObjectKey, ctx: &Context) -> Result<bool, Error> {
    let namespace = claim.namespace().unwrap_or_default();
    let uses = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| !node.is_empty()) && claims_of(pod).any(|used| used.name == claim.name())
    };
    let cached = ctx
        .lister::<Pod>()?
        .try_list(&Query::all().namespace(namespace))?;
    if cached.iter().any(|pod| uses(pod)) {
        return Ok(true);
    }
    let pods = Api::<Pod>::namespaced(ctx.client().clone(), namespace);
    Ok(pods.list(&ListParams::default()).await?.iter().any(uses))
}

async fn protect_volume(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(volume) = ctx.lister::<PersistentVolume>()?.try_get(&request.key)? else {
        return Ok(Action::done());
    };
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    update_finalizer(&*volume, VOLUME_FINALIZER, phase == Some("Bound"), &ctx).await?;
    Ok(Action::done())
}

/// Adds a missing finalizer, or removes it from a deleted object that is not in use.
async fn update_finalizer<K>(
    object: &K,
    finalizer: &str,
    in_use: bool,
    ctx: &Context,
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + Writable<DynamicType = ()> + Clone,
{
    let deleted = object.meta().deletion_timestamp.is_some();
    let has = object.finalizers().iter().any(|known| known == finalizer);
    let mut wanted = object.clone();
    match (deleted, has) {
        (false, false) => wanted.finalizers_mut().push(finalizer.to_owned()),
        (true, true) if !in_use => wanted.finalizers_mut().retain(|known| known != finalizer),
        _ => return Ok(()),
    }
    ctx.writer().replace(&wanted).await.map(drop)
}
