//! The cluster's state for the model: nodes and pods from caches, controllers from their manager, and Kubernetes events.
//!
//! ```text
//!   API ──► caches ──┬─► rows of nodes ────────────────────┐
//!                    ├─► events ──► DemoEvent::Message ────┼──► Model (owned by the front end)
//!   Manager ─► Controllers::status ──► rows, rates ────────┘
//!                    └─► wake: something changed ──► the scenario's checks
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
    api::conditions,
    cache::{CacheSet, Cacheable, Change, Lister, Query, SubscriberHandle, Subscription, WatchScope},
    k8s_openapi::api::core::v1::{Event, Node, Pod},
    kube::{Client, Resource, ResourceExt},
    runtime::{
        Controllers, ReconcileOutcome,
        serving::{ControllerState, ControllerStatus},
    },
};

use super::model::{ControllerRow, DemoEvent, LastRow, Model, NodeRow, NodeState};
use crate::embedded::is_ready;

/// How long the caches may take to sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(20);

/// The state of the cluster and its changes.
pub(super) struct ClusterView {
    caches: CacheSet,
    nodes: Lister<Node>,
    pods: Lister<Pod>,
    events: Subscription<Event>,
    /// Messages from other sources than Kubernetes events.
    messages: mpsc::Receiver<DemoEvent>,
    controllers: Controllers,
    rates: Rates,
    wake: watch::Sender<()>,
    /// The subscriptions that notify `wake`.
    handlers: Vec<SubscriberHandle>,
}

impl ClusterView {
    pub(super) async fn open(
        client: Client,
        controllers: Controllers,
        messages: mpsc::Receiver<DemoEvent>,
        wake: watch::Sender<()>,
    ) -> anyhow::Result<Self> {
        let caches = CacheSet::new(client);
        let all = WatchScope::all();
        let nodes = caches.get::<Node>(&all).synced(SYNC_TIMEOUT).await?;
        let pods = caches.get::<Pod>(&all).synced(SYNC_TIMEOUT).await?;
        let events = caches.get::<Event>(&all).subscribe();
        let mut view = Self {
            caches,
            nodes,
            pods,
            events,
            messages,
            controllers,
            rates: Rates::default(),
            wake,
            handlers: Vec::new(),
        };
        view.watch_kind::<Node>();
        view.watch_kind::<Pod>();
        Ok(view)
    }

    /// Notifies `wake` of changes of this kind too.
    pub(super) fn watch_kind<K>(&mut self)
    where
        K: Cacheable + Resource<DynamicType = ()>,
    {
        let wake = self.wake.clone();
        let changes = self.caches.get::<K>(&WatchScope::all()).subscribe();
        self.handlers.push(changes.handle(move |_| {
            wake.send_replace(());
        }));
    }

    /// Notified after any change.
    pub(super) fn wake(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    /// The next message worth showing; pending forever if there are no more. Cancellation-safe.
    pub(super) async fn next(&mut self) -> DemoEvent {
        loop {
            let change = tokio::select! {
                Some(message) = self.messages.recv() => return message,
                Some(change) = self.events.next() => change,
                else => std::future::pending().await,
            };
            if let Change::Applied { new, .. } = change
                && let Some(message) = new.object().ok().and_then(|event| describe(&event))
            {
                return message;
            }
        }
    }

    /// Updates the model's rows.
    pub(super) fn refresh(&mut self, model: &mut Model) {
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

/// Describes a Kubernetes event; `None` for routine ones, such as those of a pod's normal lifecycle.
fn describe(event: &Event) -> Option<DemoEvent> {
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
    Some(DemoEvent::Message {
        component: who.to_owned(),
        topic: reason.to_owned(),
        text: format!("{reason} {object}: {message}"),
    })
}

/// The nodes sorted by number, with their pods.
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
    // Sorts `node-10` after `node-9`.
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

/// Whether a pod is ready and not terminating.
pub(super) fn pod_is_ready(pod: &Pod) -> bool {
    conditions::is_true(pod, "Ready") && pod.metadata.deletion_timestamp.is_none()
}

/// The window over which a rate is computed.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Turns growing counts into rates per second. Keeps each controller's samples of one window, and one older.
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
                succeeded: matches!(last.outcome, ReconcileOutcome::Done | ReconcileOutcome::Requeued),
                outcome: last.outcome.to_string(),
                key: last.key,
                took: Duration::try_from_secs_f64(last.seconds).unwrap_or_default(),
            }),
        }
    }

    fn rate(&mut self, name: &str, total: u64, now: Instant) -> f64 {
        let samples = self.0.entry(name.to_owned()).or_default();
        samples.push_back((now, total));
        while samples.get(1).is_some_and(|(at, _)| now - *at >= RATE_WINDOW) {
            samples.pop_front();
        }
        let (since, before) = samples[0];
        let seconds = (now - since).max(RATE_WINDOW).as_secs_f64();
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
    fn nodes_are_sorted_by_number_with_state_and_pods() {
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
    fn rate_covers_the_last_second_and_drops_to_zero() {
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
    fn event_shows_source_reason_and_object_unless_routine() {
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
            assert!(describe(&event(kind, reason)).is_none(), "{kind} {reason}");
        }
        let Some(DemoEvent::Message {
            component: who,
            topic,
            text,
        }) = describe(&event("Foo", "Synced"))
        else {
            panic!("no message");
        };
        assert_eq!((&*who, &*topic), ("sample-controller", "Synced"));
        assert_eq!(text, "Synced Foo shop/a: because of it");
        let Some(DemoEvent::Message { text, .. }) = describe(&event("Node", "Rebooted")) else {
            panic!("no message");
        };
        assert!(text.starts_with("Rebooted Node a:"), "{text}");
    }
}
