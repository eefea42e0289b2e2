//! The taint eviction controller: deletes pods that do not tolerate the `NoExecute` taints of their node, or only for a
//! limited time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::api::{Api, DeleteParams};
use serde_json::json;
use tokio::time::Instant;
use windlass_cache::CachedObject;
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, ObjectKey, Predicate, Reconciler, Request, Watch,
};

use super::{COMPONENT, patch_pod_status, pods_on};
use crate::control_plane::{nodes::schedule::node_matching::tolerates, settings::Settings};

/// Source of the events.
const SOURCE: &str = "taint-eviction-controller";

pub(super) fn add(manager: Manager, settings: &Settings) -> Manager {
    let eviction = Eviction {
        settings: settings.clone(),
        pending_evictions: Arc::default(),
    };
    // Only when a pod is bound to a node, or its tolerations change.
    let moved = Predicate::new(|old: Option<&CachedObject<Pod>>, new: &CachedObject<Pod>| {
        let place = |pod: &CachedObject<Pod>| {
            let spec = pod
                .object()
                .ok()
                .and_then(|pod| pod.spec.clone())
                .unwrap_or_default();
            (spec.node_name, spec.tolerations)
        };
        old.is_none_or(|old| place(old) != place(new))
    });
    let pods = Watch::<Pod>::new().filter(moved).mapped(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.map(ObjectKey::cluster_scoped).into_iter().collect()
    });
    let controller = Controller::<Node>::new(SOURCE)
        .field_manager(COMPONENT)
        .watch(pods)
        .reconcile(eviction);
    manager.controller(controller)
}

struct Eviction {
    settings: Settings,
    /// Since when each pod, by node and UID, has been waiting for its eviction.
    pending_evictions: Arc<Mutex<HashMap<ObjectKey, HashMap<String, Instant>>>>,
}

impl Reconciler for Eviction {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = &request.key;
        let node = ctx.lister::<Node>()?.get(key);
        let taints: Vec<Taint> = node
            .as_ref()
            .and_then(|node| node.spec.as_ref()?.taints.clone())
            .unwrap_or_default()
            .into_iter()
            .filter(|taint| taint.effect == "NoExecute")
            .collect();
        let before = self
            .pending_evictions
            .lock()
            .expect("no panic while locked")
            .remove(key)
            .unwrap_or_default();
        if taints.is_empty() && before.is_empty() {
            return Ok(Action::done());
        }
        let now = Instant::now();
        let (mut pending_evictions, mut next) = (HashMap::new(), None::<Duration>);
        for pod in pods_on(ctx.lister::<Pod>()?, key.name()) {
            if pod.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let known = before.get(&uid).copied();
            let tolerations = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.tolerations.as_deref())
                .unwrap_or_default();
            match stay_duration(&taints, tolerations) {
                StayDuration::Forever => {
                    if known.is_some() {
                        record_event(&pod, "Cancelling deletion of", &ctx);
                    }
                }
                StayDuration::For(seconds) => {
                    let since = known.unwrap_or(now);
                    let left = self.settings.scale_wait(seconds).saturating_sub(now - since);
                    if left.is_zero() {
                        self.evict(&pod, &ctx).await?;
                    } else {
                        pending_evictions.insert(uid, since);
                        next = Some(next.map_or(left, |next| next.min(left)));
                    }
                }
            }
        }
        if !pending_evictions.is_empty() {
            let mut all = self.pending_evictions.lock().expect("no panic while locked");
            all.insert(key.clone(), pending_evictions);
        }
        Ok(next.map_or_else(Action::done, Action::requeue_after))
    }
}

impl Eviction {
    async fn evict(&self, pod: &Pod, ctx: &Context) -> Result<(), Error> {
        record_event(pod, "Marking for deletion", ctx);
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastProbeTime": null,
            "lastTransitionTime": Clock::system().now().to_string(),
        });
        if let Some(generation) = pod.metadata.generation {
            condition["observedGeneration"] = generation.into();
        }
        patch_pod_status(pod, &json!({"conditions": [condition]}), ctx).await?;
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let pods = Api::<Pod>::namespaced(ctx.client().clone(), namespace.unwrap_or_default());
        let deleted = pods
            .delete(name.unwrap_or_default(), &DeleteParams::default())
            .await;
        crate::control_plane::nodes::ignore_gone(deleted)
    }
}

fn record_event(pod: &Pod, what: &str, ctx: &Context) {
    let text = format!("{what} Pod {}", ObjectKey::of(pod));
    ctx.recorder()
        .source(SOURCE)
        .normal(pod, "TaintManagerEviction", text);
}

/// How long a pod may stay on its node.
#[derive(Debug, PartialEq, Eq)]
enum StayDuration {
    Forever,
    For(Duration),
}

/// Returns the shortest `tolerationSeconds` of the matching tolerations, or zero if a taint is not tolerated.
fn stay_duration(taints: &[Taint], tolerations: &[Toleration]) -> StayDuration {
    let covering = |taint: &Taint| {
        tolerations
            .iter()
            .filter(|toleration| tolerates(toleration, taint))
            .collect::<Vec<_>>()
    };
    let used: Vec<_> = taints.iter().map(covering).collect();
    if used.iter().any(Vec::is_empty) {
        return StayDuration::For(Duration::ZERO);
    }
    let limits = used
        .iter()
        .flatten()
        .filter_map(|toleration| toleration.toleration_seconds);
    match limits.min() {
        Some(seconds) => StayDuration::For(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
        None => StayDuration::Forever,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_stays_for_its_shortest_toleration() {
        let taint = |key: &str| Taint {
            key: key.into(),
            effect: "NoExecute".into(),
            ..Taint::default()
        };
        let toleration = |key: &str, seconds: Option<i64>| Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            toleration_seconds: seconds,
            ..Toleration::default()
        };
        let seconds = |seconds| StayDuration::For(Duration::from_secs(seconds));
        for (taints, tolerations, expected) in [
            (vec![], vec![], StayDuration::Forever),
            (vec![taint("a")], vec![], seconds(0)),
            (
                vec![taint("a")],
                vec![toleration("a", None)],
                StayDuration::Forever,
            ),
            (vec![taint("a")], vec![toleration("a", Some(300))], seconds(300)),
            (vec![taint("a")], vec![toleration("a", Some(-1))], seconds(0)),
            (
                vec![taint("a"), taint("b")],
                vec![
                    toleration("a", Some(300)),
                    toleration("b", Some(5)),
                    toleration("c", Some(1)),
                ],
                seconds(5),
            ),
            (
                vec![taint("a"), taint("b")],
                vec![toleration("a", None)],
                seconds(0),
            ),
        ] {
            assert_eq!(stay_duration(&taints, &tolerations), expected, "{taints:?}");
        }
    }
}
