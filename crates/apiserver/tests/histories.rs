//! Random histories. A watch opened at any time, folded, equals the list at the end. A paged list is one snapshot,
//! whatever is written between its pages.

use crate::client;

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_apiserver::{Body, Server};

use client::{read, send};

const NAMESPACES: [&str; 2] = ["default", "kube-public"];
const NAMES: [&str; 4] = ["a", "b", "b-c", "z"];

/// One request of a client.
#[derive(Clone, Debug)]
enum Step {
    Create(ObjectKey, Labels),
    /// An unconditional replacement.
    Update(ObjectKey, Labels, u8),
    /// A merge patch; one that changes nothing causes no event.
    Patch(ObjectKey, u8),
    Delete(ObjectKey),
    AddFinalizer(ObjectKey),
    RemoveFinalizers(ObjectKey),
    /// A write to another resource, which advances the revision.
    WriteElsewhere,
    Watch(Scope, InitialState),
}

#[derive(Clone, Copy, Debug)]
struct ObjectKey(&'static str, &'static str);

/// Whether the object has the labels `app=web` and `other=x`.
#[derive(Clone, Copy, Debug)]
struct Labels(bool, bool);

/// Namespace and selector of a watch or list.
#[derive(Clone, Copy, Debug)]
struct Scope {
    namespace: Option<&'static str>,
    selector: &'static str,
}

/// How a watch gets its initial state.
#[derive(Clone, Copy, Debug)]
enum InitialState {
    /// A list; the watch starts at its resource version.
    List,
    /// Synthetic `ADDED` events.
    Start,
    /// Initial events that end with a bookmark (`sendInitialEvents`).
    WatchList,
}

fn any_key() -> impl Strategy<Value = ObjectKey> {
    (
        prop::sample::select(&NAMESPACES[..]),
        prop::sample::select(&NAMES[..]),
    )
        .prop_map(|(namespace, name)| ObjectKey(namespace, name))
}

fn scope() -> impl Strategy<Value = Scope> {
    let selectors = vec![
        "",
        "",
        "labelSelector=app%3Dweb",
        "labelSelector=app!%3Dweb",
        "labelSelector=other",
        "labelSelector=!other,app",
        "fieldSelector=metadata.name%3Db",
        "labelSelector=app%20in%20(web,api)&fieldSelector=metadata.name!%3Da",
    ];
    (
        prop::option::of(prop::sample::select(&NAMESPACES[..])),
        prop::sample::select(selectors),
    )
        .prop_map(|(namespace, selector)| Scope { namespace, selector })
}

fn step() -> impl Strategy<Value = Step> {
    let labels = || any::<(bool, bool)>().prop_map(|(app, other)| Labels(app, other));
    prop_oneof![
        4 => (any_key(), labels()).prop_map(|(key, labels)| Step::Create(key, labels)),
        3 => (any_key(), labels(), 0..3_u8).prop_map(|(key, labels, data)| Step::Update(key, labels, data)),
        2 => (any_key(), 0..3_u8).prop_map(|(key, data)| Step::Patch(key, data)),
        2 => any_key().prop_map(Step::Delete),
        1 => any_key().prop_map(Step::AddFinalizer),
        1 => any_key().prop_map(Step::RemoveFinalizers),
        1 => Just(Step::WriteElsewhere),
        2 => (scope(), prop::sample::select(vec![InitialState::List, InitialState::Start, InitialState::WatchList]))
            .prop_map(|(scope, from)| Step::Watch(scope, from)),
    ]
}

impl ObjectKey {
    fn collection(self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.0)
    }

    fn path(self) -> String {
        format!("{}/{}", self.collection(), self.1)
    }
}

impl Scope {
    fn path(self, query: &str) -> String {
        let collection = match self.namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/configmaps"),
            None => "/api/v1/configmaps".to_owned(),
        };
        format!("{collection}?{}&{query}", self.selector)
    }
}

async fn call(server: &Server, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    read(send(server, method, path, None, body).await).await
}

fn object(key: ObjectKey, labels: Labels, data: u8) -> Value {
    let mut object = json!({"metadata": {"name": key.1, "labels": {}}, "data": {"n": data.to_string()}});
    if labels.0 {
        object["metadata"]["labels"]["app"] = "web".into();
    }
    if labels.1 {
        object["metadata"]["labels"]["other"] = "x".into();
    }
    object
}

/// Performs a step. The server rejects steps that the current state does not allow; that is fine.
async fn perform(server: &Server, step: &Step) {
    match *step {
        Step::Create(key, labels) => {
            call(server, "POST", &key.collection(), Some(object(key, labels, 0))).await;
        }
        Step::Update(key, labels, data) => {
            call(server, "PUT", &key.path(), Some(object(key, labels, data))).await;
        }
        Step::Patch(key, data) => {
            let patch = json!({"data": {"n": data.to_string()}});
            call(server, "PATCH", &key.path(), Some(patch)).await;
        }
        Step::Delete(key) => {
            call(server, "DELETE", &key.path(), None).await;
        }
        Step::AddFinalizer(key) => {
            let patch = json!({"metadata": {"finalizers": ["example.com/hold"]}});
            call(server, "PATCH", &key.path(), Some(patch)).await;
        }
        Step::RemoveFinalizers(key) => {
            call(
                server,
                "PATCH",
                &key.path(),
                Some(json!({"metadata": {"finalizers": null}})),
            )
            .await;
        }
        Step::WriteElsewhere => {
            let secret = json!({"metadata": {"generateName": "elsewhere-"}});
            call(server, "POST", "/api/v1/namespaces/default/secrets", Some(secret)).await;
        }
        Step::Watch(..) => {}
    }
}

type State = BTreeMap<(String, String), Value>;

fn key(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().expect("a version");
    text.parse().expect("a number")
}

/// The items of a list in the form of watch events, with `kind` and `apiVersion`.
fn state(list: &Value) -> State {
    let items = list["items"].as_array().expect("a list").iter();
    items
        .map(|item| {
            let mut item = item.clone();
            item["kind"] = "ConfigMap".into();
            item["apiVersion"] = "v1".into();
            (key(&item), item)
        })
        .collect()
}

/// An open watch with the client's view of the state.
struct Watcher {
    scope: Scope,
    from: InitialState,
    known: State,
    last_revision: u64,
    body: Body,
}

impl Watcher {
    async fn open(server: &Server, scope: Scope, from: InitialState) -> Self {
        let (known, last_revision, query) = match from {
            InitialState::List => {
                let (_, list) = call(server, "GET", &scope.path(""), None).await;
                let version = revision(&list);
                (
                    state(&list),
                    version,
                    format!("watch=1&resourceVersion={version}"),
                )
            }
            InitialState::Start => (State::new(), 0, "watch=1".to_owned()),
            InitialState::WatchList => (
                State::new(),
                0,
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
                    .to_owned(),
            ),
        };
        let path = scope.path(&format!("{query}&timeoutSeconds=100"));
        let response = send(server, "GET", &path, None, "").await;
        assert_eq!(response.status(), 200, "{path}");
        Self {
            scope,
            from,
            known,
            last_revision,
            body: response.into_body(),
        }
    }

    /// Reads the watch to its end and folds the events, checking that each is valid after the previous ones.
    async fn fold(mut self) -> Result<State, String> {
        let bytes = self.body.collect().await.expect("never fails").to_bytes();
        let mut initial = !matches!(self.from, InitialState::List);
        let mut bookmarked = false;
        for event in serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>() {
            let event = event.map_err(|error| error.to_string())?;
            let object = &event["object"];
            let (key, at) = (key(object), revision(object));
            match event["type"].as_str().unwrap_or_default() {
                "BOOKMARK" => {
                    let end = object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
                    bookmarked |= end;
                    if end {
                        initial = false;
                    }
                    if at < self.last_revision {
                        return Err(format!("bookmark is older than {}: {event}", self.last_revision));
                    }
                    self.last_revision = at;
                    continue;
                }
                "ADDED" => {
                    if self.known.insert(key, object.clone()).is_some() {
                        return Err(format!("added twice: {event}"));
                    }
                }
                "MODIFIED" => {
                    initial = false;
                    if self.known.insert(key, object.clone()).is_none() {
                        return Err(format!("modified before it was added: {event}"));
                    }
                }
                "DELETED" => {
                    initial = false;
                    if self.known.remove(&key).is_none() {
                        return Err(format!("deleted before it was added: {event}"));
                    }
                }
                other => return Err(format!("{other}: {event}")),
            }
            // Initial events are in key order; all later ones are in revision order.
            if !initial && at <= self.last_revision && !matches!(self.from, InitialState::Start) {
                return Err(format!("out of order after {}: {event}", self.last_revision));
            }
            self.last_revision = self.last_revision.max(at);
        }
        if matches!(self.from, InitialState::WatchList) && !bookmarked {
            return Err("no bookmark ended the initial events".to_owned());
        }
        Ok(self.known)
    }
}

fn with_paused_clock<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(work)
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn watch_events_fold_to_the_list(steps in prop::collection::vec(step(), 1..60)) {
        let outcome: Result<(), String> = with_paused_clock(async {
            let server = Server::seeded(1).build();
            let mut watchers = Vec::new();
            for step in &steps {
                match *step {
                    Step::Watch(scope, from) => watchers.push(Watcher::open(&server, scope, from).await),
                    _ => perform(&server, step).await,
                }
            }
            for watcher in watchers {
                let (scope, from) = (watcher.scope, watcher.from);
                let (_, list) = call(&server, "GET", &scope.path(""), None).await;
                let folded = watcher.fold().await.map_err(|why| format!("{scope:?} {from:?}: {why}"))?;
                let listed = state(&list);
                if folded != listed {
                    return Err(format!("{scope:?} {from:?}\n folded {folded:?}\n listed {listed:?}"));
                }
            }
            Ok(())
        });
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }

    #[test]
    fn paged_list_is_one_snapshot(
        before in prop::collection::vec(step(), 0..40),
        between in prop::collection::vec(prop::collection::vec(step(), 0..6), 8),
        scope in scope(),
        limit in 1..4_usize,
    ) {
        let outcome: Result<(), String> = with_paused_clock(async {
            let server = Server::seeded(1).build();
            for step in &before {
                perform(&server, step).await;
            }
            let (_, whole) = call(&server, "GET", &scope.path(""), None).await;
            let mut read = Vec::new();
            let mut query = format!("limit={limit}");
            let mut writers = between.iter();
            loop {
                let (code, page) = call(&server, "GET", &scope.path(&query), None).await;
                if code != 200 || revision(&page) != revision(&whole) {
                    return Err(format!("page of another revision: {page}"));
                }
                let items = page["items"].as_array().expect("a list");
                read.extend(items.iter().cloned());
                let left = page["metadata"]["remainingItemCount"].as_u64();
                let all = whole["items"].as_array().expect("a list").len() as u64;
                if left.is_some_and(|left| left + read.len() as u64 != all) {
                    return Err(format!("wrong remainingItemCount: {page}"));
                }
                let Some(token) = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else {
                    break;
                };
                if items.len() != limit {
                    return Err(format!("page of {} items has a continue token", items.len()));
                }
                query = format!("limit={limit}&continue={token}");
                for step in writers.next().into_iter().flatten() {
                    perform(&server, step).await;
                }
            }
            // A list at the exact revision returns the same state.
            let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", revision(&whole));
            let (_, exact) = call(&server, "GET", &scope.path(&exact), None).await;
            if Value::from(read.clone()) != whole["items"] || exact["items"] != whole["items"] {
                return Err(format!("read {read:?}\n of {whole}"));
            }
            // A `NotOlderThan` list is not older than the revision requested.
            let any = format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", revision(&whole));
            let (_, any) = call(&server, "GET", &scope.path(&any), None).await;
            if revision(&any) < revision(&whole) {
                return Err(format!("older than the requested revision: {any}"));
            }
            Ok(())
        });
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }
}
