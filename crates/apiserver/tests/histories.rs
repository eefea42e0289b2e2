//! Random histories: a watch opened at any time, folded, is the list at the end; a list in pages is one snapshot,
//! whoever writes in between.

mod asking;

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_apiserver::{Body, Server};

use asking::{read, send};

const NAMESPACES: [&str; 2] = ["default", "kube-public"];
const NAMES: [&str; 4] = ["a", "b", "b-c", "z"];

/// One thing that somebody does.
#[derive(Clone, Debug)]
enum Step {
    Create(Place, Labels),
    /// A whole new state, whatever there was.
    Update(Place, Labels, u8),
    /// A merge patch; one that changes nothing is no event.
    Patch(Place, u8),
    Delete(Place),
    Hold(Place),
    Release(Place),
    /// Something elsewhere: the revision moves on.
    Elsewhere,
    Watch(Scope, From),
}

#[derive(Clone, Copy, Debug)]
struct Place(&'static str, &'static str);

/// Whether the object has the label `app=web`, and another one.
#[derive(Clone, Copy, Debug)]
struct Labels(bool, bool);

/// Where and what a watch or list is about.
#[derive(Clone, Copy, Debug)]
struct Scope {
    namespace: Option<&'static str>,
    selector: &'static str,
}

/// What a watch begins with.
#[derive(Clone, Copy, Debug)]
enum From {
    /// A list, then what comes after it.
    List,
    /// What is there, as events.
    Start,
    /// The same, closed by a bookmark.
    WatchList,
}

fn place() -> impl Strategy<Value = Place> {
    (
        prop::sample::select(&NAMESPACES[..]),
        prop::sample::select(&NAMES[..]),
    )
        .prop_map(|(namespace, name)| Place(namespace, name))
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
        4 => (place(), labels()).prop_map(|(place, labels)| Step::Create(place, labels)),
        3 => (place(), labels(), 0..3_u8).prop_map(|(place, labels, data)| Step::Update(place, labels, data)),
        2 => (place(), 0..3_u8).prop_map(|(place, data)| Step::Patch(place, data)),
        2 => place().prop_map(Step::Delete),
        1 => place().prop_map(Step::Hold),
        1 => place().prop_map(Step::Release),
        1 => Just(Step::Elsewhere),
        2 => (scope(), prop::sample::select(vec![From::List, From::Start, From::WatchList]))
            .prop_map(|(scope, from)| Step::Watch(scope, from)),
    ]
}

impl Place {
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

async fn ask(server: &Server, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    read(send(server, method, path, None, body).await).await
}

fn object(place: Place, labels: Labels, data: u8) -> Value {
    let mut object = json!({"metadata": {"name": place.1, "labels": {}}, "data": {"n": data.to_string()}});
    if labels.0 {
        object["metadata"]["labels"]["app"] = "web".into();
    }
    if labels.1 {
        object["metadata"]["labels"]["other"] = "x".into();
    }
    object
}

/// Does a step; what the state does not allow is refused by the server, which is as good.
async fn act(server: &Server, step: &Step) {
    match *step {
        Step::Create(place, labels) => {
            ask(
                server,
                "POST",
                &place.collection(),
                Some(object(place, labels, 0)),
            )
            .await;
        }
        Step::Update(place, labels, data) => {
            ask(server, "PUT", &place.path(), Some(object(place, labels, data))).await;
        }
        Step::Patch(place, data) => {
            let patch = json!({"data": {"n": data.to_string()}});
            ask(server, "PATCH", &place.path(), Some(patch)).await;
        }
        Step::Delete(place) => {
            ask(server, "DELETE", &place.path(), None).await;
        }
        Step::Hold(place) => {
            let patch = json!({"metadata": {"finalizers": ["example.com/hold"]}});
            ask(server, "PATCH", &place.path(), Some(patch)).await;
        }
        Step::Release(place) => {
            ask(
                server,
                "PATCH",
                &place.path(),
                Some(json!({"metadata": {"finalizers": null}})),
            )
            .await;
        }
        Step::Elsewhere => {
            let secret = json!({"metadata": {"generateName": "elsewhere-"}});
            ask(server, "POST", "/api/v1/namespaces/default/secrets", Some(secret)).await;
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

/// The items of a list, as a watch shows them.
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

/// Somebody who watches, and what they know.
struct Watcher {
    scope: Scope,
    from: From,
    known: State,
    seen: u64,
    body: Body,
}

impl Watcher {
    async fn open(server: &Server, scope: Scope, from: From) -> Self {
        let (known, seen, query) = match from {
            From::List => {
                let (_, list) = ask(server, "GET", &scope.path(""), None).await;
                let version = revision(&list);
                (
                    state(&list),
                    version,
                    format!("watch=1&resourceVersion={version}"),
                )
            }
            From::Start => (State::new(), 0, "watch=1".to_owned()),
            From::WatchList => (
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
            seen,
            body: response.into_body(),
        }
    }

    /// Reads to the end of the watch and folds every event, checking that each makes sense where it comes.
    async fn fold(mut self) -> Result<State, String> {
        let bytes = self.body.collect().await.expect("never fails").to_bytes();
        let mut initial = !matches!(self.from, From::List);
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
                    if at < self.seen {
                        return Err(format!("a bookmark goes back from {}: {event}", self.seen));
                    }
                    self.seen = at;
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
            // What is there at the start comes in the order of keys; then everything in the order of revisions.
            if !initial && at <= self.seen && !matches!(self.from, From::Start) {
                return Err(format!("out of order after {}: {event}", self.seen));
            }
            self.seen = self.seen.max(at);
        }
        if matches!(self.from, From::WatchList) && !bookmarked {
            return Err("the initial events have no end".to_owned());
        }
        Ok(self.known)
    }
}

fn on_a_paused_clock<T>(work: impl Future<Output = T>) -> T {
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
    fn a_watch_folds_to_the_list(story in prop::collection::vec(step(), 1..60)) {
        let outcome: Result<(), String> = on_a_paused_clock(async {
            let server = Server::seeded(1).build();
            let mut watchers = Vec::new();
            for step in &story {
                match *step {
                    Step::Watch(scope, from) => watchers.push(Watcher::open(&server, scope, from).await),
                    _ => act(&server, step).await,
                }
            }
            for watcher in watchers {
                let (scope, from) = (watcher.scope, watcher.from);
                let (_, list) = ask(&server, "GET", &scope.path(""), None).await;
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
    fn pages_are_one_snapshot(
        before in prop::collection::vec(step(), 0..40),
        between in prop::collection::vec(prop::collection::vec(step(), 0..6), 8),
        scope in scope(),
        limit in 1..4_usize,
    ) {
        let outcome: Result<(), String> = on_a_paused_clock(async {
            let server = Server::seeded(1).build();
            for step in &before {
                act(&server, step).await;
            }
            let (_, whole) = ask(&server, "GET", &scope.path(""), None).await;
            let mut read = Vec::new();
            let mut query = format!("limit={limit}");
            let mut writers = between.iter();
            loop {
                let (code, page) = ask(&server, "GET", &scope.path(&query), None).await;
                if code != 200 || revision(&page) != revision(&whole) {
                    return Err(format!("page of another time: {page}"));
                }
                let items = page["items"].as_array().expect("a list");
                read.extend(items.iter().cloned());
                let left = page["metadata"]["remainingItemCount"].as_u64();
                let all = whole["items"].as_array().expect("a list").len() as u64;
                if left.is_some_and(|left| left + read.len() as u64 != all) {
                    return Err(format!("wrong count of what is left: {page}"));
                }
                let Some(token) = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else {
                    break;
                };
                if items.len() != limit {
                    return Err(format!("a page of {} that goes on", items.len()));
                }
                query = format!("limit={limit}&continue={token}");
                for step in writers.next().into_iter().flatten() {
                    act(&server, step).await;
                }
            }
            // The same state can be asked for by its number, too.
            let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", revision(&whole));
            let (_, exact) = ask(&server, "GET", &scope.path(&exact), None).await;
            if Value::from(read.clone()) != whole["items"] || exact["items"] != whole["items"] {
                return Err(format!("read {read:?}\n of {whole}"));
            }
            // And a list that may be of any time is no older than what was seen.
            let any = format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", revision(&whole));
            let (_, any) = ask(&server, "GET", &scope.path(&any), None).await;
            if revision(&any) < revision(&whole) {
                return Err(format!("older than asked for: {any}"));
            }
            Ok(())
        });
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }
}
