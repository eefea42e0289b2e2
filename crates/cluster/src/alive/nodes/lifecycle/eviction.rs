//! Moves pods off nodes whose `NoExecute` taints they do not tolerate, or not for so long.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::api::{Api, DeleteParams};
use serde_json::json;
use tokio::time::Instant;
use windlass_cache::Stored;
use windlass_runtime::{
    Action, Context, Controller, Error, Manager, ObjectKey, Predicate, Reconciler, Request, Watch,
};

use super::{COMPONENT, pods_on, set_status};
use crate::alive::{nodes::schedule::place::tolerates, settings::Settings};

/// Who the events come from.
const SOURCE: &str = "taint-eviction-controller";

pub(super) fn add(manager: Manager, settings: &Settings) -> Manager {
    let eviction = Eviction {
        settings: settings.clone(),
        doomed: Arc::default(),
    };
    // Only that a pod comes to a node, or tolerates something else.
    let moved = Predicate::new(|old: Option<&Stored<Pod>>, new: &Stored<Pod>| {
        let place = |pod: &Stored<Pod>| {
            let spec = pod
                .object()
                .ok()
                .and_then(|pod| pod.spec.clone())
                .unwrap_or_default();
            (spec.node_name, spec.tolerations)
        };
        old.is_none_or(|old| place(old) != place(new))
    });
    let pods = Watch::<Pod>::new().when(moved).mapped(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.map(ObjectKey::cluster).into_iter().collect()
    });
    let controller = Controller::<Node>::new(SOURCE)
        .component(COMPONENT)
        .watch(pods)
        .reconcile(eviction);
    manager.controller(controller)
}

struct Eviction {
    settings: Settings,
    /// Since when each pod, by node and UID, stays only for a while.
    doomed: Arc<Mutex<HashMap<ObjectKey, HashMap<String, Instant>>>>,
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
            .doomed
            .lock()
            .expect("nobody panics with it")
            .remove(key)
            .unwrap_or_default();
        if taints.is_empty() && before.is_empty() {
            return Ok(Action::done());
        }
        let now = Instant::now();
        let (mut doomed, mut next) = (HashMap::new(), None::<Duration>);
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
            match stays(&taints, tolerations) {
                Stay::Always => {
                    if known.is_some() {
                        say(&pod, "Cancelling deletion of", &ctx);
                    }
                }
                Stay::For(seconds) => {
                    let since = known.unwrap_or(now);
                    let left = self.settings.pause(seconds).saturating_sub(now - since);
                    if left.is_zero() {
                        self.evict(&pod, &ctx).await?;
                    } else {
                        doomed.insert(uid, since);
                        next = Some(next.map_or(left, |next| next.min(left)));
                    }
                }
            }
        }
        if !doomed.is_empty() {
            let mut all = self.doomed.lock().expect("nobody panics with it");
            all.insert(key.clone(), doomed);
        }
        Ok(next.map_or_else(Action::done, Action::requeue_after))
    }
}

impl Eviction {
    async fn evict(&self, pod: &Pod, ctx: &Context) -> Result<(), Error> {
        say(pod, "Marking for deletion", ctx);
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastProbeTime": null,
            "lastTransitionTime": self.settings.clock.now().to_string(),
        });
        if let Some(generation) = pod.metadata.generation {
            condition["observedGeneration"] = generation.into();
        }
        set_status(pod, &json!({"conditions": [condition]}), ctx).await?;
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let pods = Api::<Pod>::namespaced(ctx.client().clone(), namespace.unwrap_or_default());
        let deleted = pods
            .delete(name.unwrap_or_default(), &DeleteParams::default())
            .await;
        crate::alive::nodes::unless_gone(deleted)
    }
}

fn say(pod: &Pod, what: &str, ctx: &Context) {
    let text = format!("{what} Pod {}", ObjectKey::of(pod));
    ctx.recorder()
        .source(SOURCE)
        .normal(pod, "TaintManagerEviction", text);
}

/// For how long a pod may stay.
#[derive(Debug, PartialEq, Eq)]
enum Stay {
    Always,
    For(Duration),
}

/// A pod may stay for as long as the shortest of the tolerations that it makes use of says, and not at all if there is a
/// taint without one.
fn stays(taints: &[Taint], tolerations: &[Toleration]) -> Stay {
    let covering = |taint: &Taint| {
        tolerations
            .iter()
            .filter(|toleration| tolerates(toleration, taint))
            .collect::<Vec<_>>()
    };
    let used: Vec<_> = taints.iter().map(covering).collect();
    if used.iter().any(Vec::is_empty) {
        return Stay::For(Duration::ZERO);
    }
    let limits = used
        .iter()
        .flatten()
        .filter_map(|toleration| toleration.toleration_seconds);
    match limits.min() {
        Some(seconds) => Stay::For(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
        None => Stay::Always,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_stays_as_long_as_its_shortest_toleration() {
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
        let seconds = |seconds| Stay::For(Duration::from_secs(seconds));
        for (taints, tolerations, expected) in [
            (vec![], vec![], Stay::Always),
            (vec![taint("a")], vec![], seconds(0)),
            (vec![taint("a")], vec![toleration("a", None)], Stay::Always),
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
            assert_eq!(stays(&taints, &tolerations), expected, "{taints:?}");
        }
    }
}
