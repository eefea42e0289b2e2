//! How the model sees a cluster: nodes and pods from caches, controllers from their manager, events as they are written.
//!
//! ```text
//!   API ──► caches ──┬─► rows of nodes ───────────────┐
//!                    ├─► events ──► Happening::Said ──┼──► Model (the front's)
//!   Manager ─► Controllers::status ──► rows, rates ───┘
//!                    └─► pulse: something has changed, look again ──► the story's checks
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use windlass::{
    cache::{Cacheable, Caches, Change, Handler, Lister, Query, Selection, Subscription},
    k8s_openapi::api::core::v1::{Event, Node, Pod},
    kube::{Client, Resource, ResourceExt},
    runtime::{
        Controllers, Outcome,
        serving::{ControllerState, ControllerStatus},
    },
};

use super::model::{ControllerRow, Happening, LastRow, Model, NodeRow, NodeState};
use crate::embedded::is_ready;

/// How long the caches may take to be complete.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sees what there is and what changes.
pub(super) struct Sight {
    caches: Caches,
    nodes: Lister<Node>,
    pods: Lister<Pod>,
    events: Subscription<Event>,
    /// What is told by other ways than the API.
    notices: mpsc::Receiver<Happening>,
    controllers: Controllers,
    rates: Rates,
    pulse: watch::Sender<()>,
    /// They beat the pulse.
    handlers: Vec<Handler>,
}

impl Sight {
    pub(super) async fn open(
        client: Client,
        controllers: Controllers,
        notices: mpsc::Receiver<Happening>,
        pulse: watch::Sender<()>,
    ) -> anyhow::Result<Self> {
        let caches = Caches::new(client);
        let all = Selection::all();
        let nodes = caches.get::<Node>(&all).synced(PATIENCE).await?;
        let pods = caches.get::<Pod>(&all).synced(PATIENCE).await?;
        let events = caches.get::<Event>(&all).subscribe();
        let mut sight = Self {
            caches,
            nodes,
            pods,
            events,
            notices,
            controllers,
            rates: Rates::default(),
            pulse,
            handlers: Vec::new(),
        };
        sight.feels::<Node>();
        sight.feels::<Pod>();
        Ok(sight)
    }

    /// The pulse beats with changes of this kind too.
    pub(super) fn feels<K>(&mut self)
    where
        K: Cacheable + Resource<DynamicType = ()>,
    {
        let pulse = self.pulse.clone();
        let changes = self.caches.get::<K>(&Selection::all()).subscribe();
        self.handlers.push(changes.handle(move |_| {
            pulse.send_replace(());
        }));
    }

    /// Beats after something has changed.
    pub(super) fn pulse(&self) -> watch::Receiver<()> {
        self.pulse.subscribe()
    }

    /// What the next event or notice tells that a person should hear; never if there are no more. Cancellation-safe.
    pub(super) async fn next(&mut self) -> Happening {
        loop {
            let change = tokio::select! {
                Some(notice) = self.notices.recv() => return notice,
                Some(change) = self.events.next() => change,
                else => std::future::pending().await,
            };
            if let Change::Applied { new, .. } = change
                && let Some(told) = new.object().ok().and_then(|event| told(&event))
            {
                return told;
            }
        }
    }

    /// Brings the rows up to date.
    pub(super) fn look(&mut self, model: &mut Model) {
        let now = Instant::now();
        model.nodes = nodes(&self.nodes.list(&Query::all()), &self.pods.list(&Query::all()));
        model.controllers = self
            .controllers
            .status()
            .into_iter()
            .map(|status| self.rates.row(status, now))
            .collect();
    }

    pub(super) async fn close(self) {
        drop(self.handlers);
        self.caches.close().await;
    }
}

/// What an event says to a person; `None` for the many that only say that a pod goes its usual way.
fn told(event: &Event) -> Option<Happening> {
    let about = &event.involved_object;
    let kind = about.kind.as_deref()?;
    let reason = event.reason.as_deref()?;
    let usual = match kind {
        "Pod" => reason != "TaintManagerEviction",
        "ReplicaSet" => true,
        "Node" => matches!(reason, "RegisteredNode" | "Starting"),
        _ => false,
    };
    if usual {
        return None;
    }
    let source = event
        .source
        .as_ref()
        .and_then(|source| source.component.as_deref());
    let who = source
        .or(event.reporting_component.as_deref())
        .filter(|who| !who.is_empty())?;
    let name = about.name.as_deref().unwrap_or_default();
    let object = match about.namespace.as_deref().filter(|_| kind != "Node") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    };
    let message = event.message.as_deref().unwrap_or_default();
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(Happening::Said {
        who: who.to_owned(),
        topic: reason.to_owned(),
        text: format!("{reason} {object}: {message}"),
    })
}

/// The nodes by number, with their pods that have not ended.
fn nodes(nodes: &[impl AsRef<Node>], pods: &[impl AsRef<Pod>]) -> Vec<NodeRow> {
    let mut on: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for pod in pods.iter().map(AsRef::as_ref) {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
            continue;
        };
        let (ready, waiting) = on.entry(node).or_default();
        *(if pod_is_ready(pod) { ready } else { waiting }) += 1;
    }
    let mut rows: Vec<_> = nodes
        .iter()
        .map(AsRef::as_ref)
        .map(|node| {
            let name = node.name_any();
            let (pods_ready, pods_waiting) = on.get(&*name).copied().unwrap_or_default();
            NodeRow {
                state: state(node),
                name,
                pods_ready,
                pods_waiting,
            }
        })
        .collect();
    // `node-10` comes after `node-9`.
    rows.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
    rows
}

fn state(node: &Node) -> NodeState {
    let spec = node.spec.as_ref();
    let mut taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    if !is_ready(node) {
        NodeState::NotReady
    } else if taints.any(|taint| taint.effect == "NoExecute") {
        NodeState::Tainted
    } else if spec.is_some_and(|spec| spec.unschedulable == Some(true)) {
        NodeState::Cordoned
    } else {
        NodeState::Ready
    }
}

/// Whether a pod says that it is ready, and is not about to end.
pub(super) fn pod_is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// How far back a rate looks.
const WINDOW: Duration = Duration::from_secs(1);

/// From counts that only grow to counts a second. Each controller's samples are of one window, and one older.
#[derive(Default)]
struct Rates(BTreeMap<String, VecDeque<(Instant, u64)>>);

impl Rates {
    fn row(&mut self, status: ControllerStatus, now: Instant) -> ControllerRow {
        let counts = status.outcomes;
        let total = counts.done
            + counts.requeued
            + counts.failed
            + counts.terminal
            + counts.panicked
            + counts.timed_out;
        ControllerRow {
            rate: self.rate(&status.name, total, now),
            name: status.name,
            state: match status.state {
                ControllerState::Starting => "starting",
                ControllerState::Syncing { .. } => "syncing",
                ControllerState::Standby => "standby",
                ControllerState::Running => "running",
                ControllerState::Stopping => "stopping",
            },
            queued: status.queued + status.delayed,
            running: status.running.len(),
            total,
            failing: status.failing.len(),
            last: status.last.map(|last| LastRow {
                well: matches!(last.outcome, Outcome::Done | Outcome::Requeued),
                outcome: last.outcome.to_string(),
                key: last.key,
                took: Duration::try_from_secs_f64(last.seconds).unwrap_or_default(),
            }),
        }
    }

    fn rate(&mut self, name: &str, total: u64, now: Instant) -> f64 {
        let samples = self.0.entry(name.to_owned()).or_default();
        samples.push_back((now, total));
        while samples.get(1).is_some_and(|(at, _)| now - *at >= WINDOW) {
            samples.pop_front();
        }
        let (since, before) = samples[0];
        let seconds = (now - since).max(WINDOW).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a count within seconds")]
        let more = total.saturating_sub(before) as f64;
        more / seconds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass::{
        prelude::from_value,
        serde_json::{Value, json},
    };

    use super::*;

    fn node(name: &str, ready: &str, spec: &Value) -> Arc<Node> {
        let status = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
        let node = json!({ "metadata": { "name": name }, "spec": spec, "status": status });
        Arc::new(from_value(node).expect("a node"))
    }

    fn pod(node: Option<&str>, ready: &str, extra: &Value) -> Arc<Pod> {
        let status = json!({ "conditions": [{ "type": "Ready", "status": ready }] });
        let spec = json!({ "nodeName": node, "containers": [] });
        let pod = json!({ "metadata": extra, "spec": spec, "status": status });
        Arc::new(from_value(pod).expect("a pod"))
    }

    #[test]
    fn nodes_are_in_the_order_of_their_numbers_with_what_is_on_them() {
        let taint = |effect: &str| json!({ "taints": [{ "key": "k", "effect": effect }] });
        let found = nodes(
            &[
                node("node-10", "True", &json!({})),
                node("node-2", "Unknown", &taint("NoExecute")),
                node("node-3", "True", &taint("NoExecute")),
                node(
                    "node-4",
                    "True",
                    &json!({ "unschedulable": true, "taints": [{ "key": "k", "effect": "NoSchedule" }] }),
                ),
            ],
            &[
                pod(Some("node-10"), "True", &json!({})),
                pod(Some("node-10"), "False", &json!({})),
                pod(
                    Some("node-2"),
                    "True",
                    &json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }),
                ),
                pod(None, "False", &json!({})),
            ],
        );
        let row = |name: &str, state, pods_ready, pods_waiting| NodeRow {
            name: name.to_owned(),
            state,
            pods_ready,
            pods_waiting,
        };
        assert_eq!(
            found,
            [
                row("node-2", NodeState::NotReady, 0, 1),
                row("node-3", NodeState::Tainted, 0, 0),
                row("node-4", NodeState::Cordoned, 0, 0),
                row("node-10", NodeState::Ready, 1, 1),
            ]
        );
    }

    #[test]
    fn a_rate_is_of_the_last_second_and_ends_at_nothing() {
        let mut rates = Rates::default();
        let start = Instant::now();
        let mut at = |millis, total| rates.rate("foo", total, start + Duration::from_millis(millis));
        let found = [
            at(0, 0),
            at(500, 10),
            at(1_000, 30),
            at(1_500, 30),
            at(2_500, 30),
            at(9_000, 30),
        ];
        assert_eq!(
            found.map(|rate| format!("{rate:.1}")),
            ["0.0", "10.0", "30.0", "20.0", "0.0", "0.0"]
        );
    }

    #[test]
    fn an_event_tells_who_why_and_about_what_unless_it_is_a_pods_usual_way() {
        let event = |kind: &str, reason: &str| -> Event {
            from_value(json!({
                "metadata": { "name": "e", "namespace": "default" },
                "involvedObject": { "kind": kind, "name": "a", "namespace": "shop" },
                "reason": reason,
                "message": "because\n  of it",
                "source": { "component": "sample-controller" },
            }))
            .expect("an event")
        };
        for (kind, reason) in [
            ("Pod", "Scheduled"),
            ("ReplicaSet", "SuccessfulCreate"),
            ("Node", "Starting"),
        ] {
            assert!(told(&event(kind, reason)).is_none(), "{kind} {reason}");
        }
        let Some(Happening::Said { who, topic, text }) = told(&event("Foo", "Synced")) else {
            panic!("nobody is told");
        };
        assert_eq!((&*who, &*topic), ("sample-controller", "Synced"));
        assert_eq!(text, "Synced Foo shop/a: because of it");
        let Some(Happening::Said { text, .. }) = told(&event("Node", "Rebooted")) else {
            panic!("nobody is told");
        };
        assert!(text.starts_with("Rebooted Node a:"), "{text}");
    }
}
