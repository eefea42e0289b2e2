//! The pod garbage collector: deletes pods whose node no longer exists.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use tokio::time::Instant;
use windlass_cache::CachedObject;
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, ObjectKey, Predicate, Reconciler, Request, Watch,
};

use super::{COMPONENT, patch_pod_status, pods_on};
use crate::control_plane::settings::Settings;

/// How long a node must be missing before its pods are deleted.
const QUARANTINE: Duration = Duration::from_secs(40);

pub(super) fn add(manager: Manager, settings: &Settings) -> Manager {
    let orphans = PodGarbageCollector {
        settings: settings.clone(),
        missing: Arc::default(),
    };
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let placed = Predicate::new(move |old: Option<&CachedObject<Pod>>, new: &CachedObject<Pod>| {
        let of = |pod: &CachedObject<Pod>| pod.object().ok().and_then(|pod| node(&pod));
        old.is_none_or(|old| of(old) != of(new))
    });
    let pods = Watch::<Pod>::new()
        .filter(placed)
        .mapped(move |pod| node(pod).map(ObjectKey::cluster_scoped).into_iter().collect());
    let controller = Controller::<Node>::new("pod-garbage-collector")
        .field_manager(COMPONENT)
        .watch(pods)
        .reconcile(orphans);
    manager.controller(controller)
}

struct PodGarbageCollector {
    settings: Settings,
    /// Since when the nodes of existing pods have been missing.
    missing: Arc<Mutex<HashMap<ObjectKey, Instant>>>,
}

impl Reconciler for PodGarbageCollector {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = &request.key;
        let is_there = ctx.lister::<Node>()?.get(key).is_some();
        let pods = if is_there {
            Vec::new()
        } else {
            pods_on(ctx.lister::<Pod>()?, key.name())
        };
        if pods.is_empty() {
            self.missing.lock().expect("no panic while locked").remove(key);
            return Ok(Action::done());
        }
        let now = Instant::now();
        let since = {
            let mut missing = self.missing.lock().expect("no panic while locked");
            *missing.entry(key.clone()).or_insert(now)
        };
        let left = self.settings.scale_wait(QUARANTINE).saturating_sub(now - since);
        if !left.is_zero() {
            return Ok(Action::requeue_after(left));
        }
        for pod in pods {
            self.delete_pod(&pod, &ctx).await?;
        }
        Ok(Action::done())
    }
}

impl PodGarbageCollector {
    async fn delete_pod(&self, pod: &Pod, ctx: &Context) -> Result<(), Error> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !matches!(phase, Some("Succeeded" | "Failed")) {
            let mut condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastProbeTime": null,
                "lastTransitionTime": Clock::system().now().to_string(),
            });
            if let Some(generation) = pod.metadata.generation {
                condition["observedGeneration"] = generation.into();
            }
            patch_pod_status(pod, &json!({"phase": "Failed", "conditions": [condition]}), ctx).await?;
        }
        crate::control_plane::nodes::delete_immediately(pod, ctx).await
    }
}
