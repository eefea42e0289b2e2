//! Watch: a cursor into a table's history, encoded as frames.
//!
//! All watches share the bytes of an object; each adds only the few bytes around it.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{ListOptions, options::ResourceVersionMatch, read::MissingEntries, render_entry};
use crate::{
    crd, depth, json,
    large_work::LargeWork,
    object_store::ObjectStore,
    request::Target,
    request_metrics::LongRunning,
    selector::Selector,
    status::Status,
    storage::{Entry, Event, Expired, Key, Revision},
    view::View,
    webhook::WebhookClient,
};

/// Interval of bookmarks on an idle watch, as in the real server.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// How long before its end a watch sends its last bookmark.
const LAST_BOOKMARK_LEAD: Duration = Duration::from_secs(2);

/// The longest watch, whatever its client asks for: tokio cannot wait beyond the clock's range.
const MAX_DURATION: Duration = Duration::from_hours(24 * 365);

/// How long a watch continues after its kind was changed or removed, as in the real server (`crdHandler.tearDown`).
const TEARDOWN_DELAY: Duration = Duration::from_secs(1);

/// How long a watch waits for the webhook that converts its objects.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// How many events are read from the history at a time.
const BATCH: usize = 64;

/// How many bytes of objects are read from the history at a time, but for the last one. Those that are read stay in memory
/// until the client has read them, even if the history drops them.
const BATCH_BYTES: usize = 1024 * 1024;

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END_ANNOTATION: &str = "k8s.io/initial-events-end";

/// One watch: yields frames until it ends.
pub(crate) struct WatchStream {
    store: Arc<ObjectStore>,
    /// Asked if a webhook converts the objects.
    webhooks: Arc<WebhookClient>,
    /// What it has converted last, so that it stays in the cache until it is sent. Empty while the watch waits for changes.
    converted: Vec<Arc<Entry>>,
    target: Target,
    selector: Selector,
    view: View,
    /// Whether the column definitions of a table were sent.
    columns_sent: bool,
    bookmarks: bool,
    /// Every event up to this revision was sent or is irrelevant to this watch.
    cursor: Revision,
    /// Events to send, in order. Entries are those of the storage, not copies: they are converted when they are sent.
    backlog: VecDeque<BacklogItem>,
    /// Remaining pieces of the current frame.
    frame_pieces: VecDeque<Bytes>,
    changes: tokio::sync::watch::Receiver<Revision>,
    deadline: Instant,
    next_bookmark: Instant,
    last_bookmark: Option<Instant>,
    failed: bool,
    large_work: LargeWork,
    /// How many bytes were rendered since other tasks could run.
    rendered_bytes: usize,
    /// Counts it in the metrics.
    _open: LongRunning,
    /// Closes when a custom resource's definition changes or is deleted; none for built-in kinds, and afterwards.
    definition: Option<tokio::sync::watch::Receiver<()>>,
}

/// An entry of the backlog.
enum BacklogItem {
    Change(EventType, Arc<Entry>),
    /// An object that existed when the watch began. There can be many, and a slow client must not keep states in memory that
    /// the storage has dropped.
    Initial {
        key: Key,
        revision: Revision,
        entry: Weak<Entry>,
    },
    /// A complete frame: a bookmark or an error.
    Frame(Bytes),
}

/// The type of an event, from the watcher's point of view.
#[derive(Clone, Copy)]
enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    /// The bytes before the object.
    fn opening(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        })
    }
}

/// The bytes after the object.
const CLOSING: &[u8] = b"}\n";

impl WatchStream {
    pub(crate) fn open(
        open: LongRunning,
        (store, webhooks): (Arc<ObjectStore>, Arc<WebhookClient>),
        target: &Target,
        options: &ListOptions,
        selector: Selector,
        view: View,
        large_work: LargeWork,
    ) -> Result<Self, Status> {
        let selector = if target.name.is_empty() {
            selector
        } else {
            selector.with_name(&target.name)
        };
        let now = Instant::now();
        let length = options
            .timeout_seconds
            .map_or_else(|| store.environment.watch_timeout(), Duration::from_secs)
            .min(MAX_DURATION);
        let deadline = now + length;
        // Subscribe first: every later commit wakes the watch.
        let changes = store
            .storage
            .subscribe(&target.resource.table, namespace_of(target));
        let mut stream = Self {
            target: target.clone(),
            selector,
            view,
            columns_sent: false,
            bookmarks: options.allow_bookmarks,
            cursor: Revision(0),
            backlog: VecDeque::new(),
            frame_pieces: VecDeque::new(),
            changes,
            deadline,
            next_bookmark: now + BOOKMARK_INTERVAL,
            last_bookmark: options
                .allow_bookmarks
                .then(|| deadline.checked_sub(LAST_BOOKMARK_LEAD).unwrap_or(now).max(now)),
            failed: false,
            large_work,
            rendered_bytes: 0,
            _open: open,
            definition: target.resource.crd.as_ref().map(|defined| defined.alive.clone()),
            store,
            webhooks,
            converted: Vec::new(),
        };
        match (options.version_match, options.send_initial_events) {
            (
                ResourceVersionMatch::NotOlderThan(revision) | ResourceVersionMatch::Exact(revision),
                None | Some(false),
            ) => {
                stream.cursor = revision;
                // There is no history of a custom resource from before its current definition.
                let since = target.resource.crd.as_ref().map(|defined| defined.served_since);
                if let Some(oldest) = since.filter(|since| revision < *since) {
                    stream.expire(Expired {
                        requested: revision,
                        oldest,
                    });
                }
            }
            // Neither a revision nor initial events: from now on.
            (_, Some(false)) => stream.cursor = stream.store.storage.revision(),
            (_, wish) => stream.queue_initial_events(wish == Some(true))?,
        }
        Ok(stream)
    }

    /// Queues the current objects as `ADDED` events.
    fn queue_initial_events(&mut self, announce_end: bool) -> Result<(), Status> {
        let snapshot = self.store.snapshot(&self.target, None)?;
        let (mut bytes, mut missing) = (0, MissingEntries::default());
        for entry in snapshot.range(namespace_of(&self.target), None) {
            let is_match = self.selector.matches_entry(&self.target.resource, entry);
            if missing.collect(is_match)? != Some(true) {
                continue;
            }
            bytes += entry.object.json().len();
            self.backlog.push_back(if bytes <= BATCH_BYTES {
                BacklogItem::Change(EventType::Added, entry.clone())
            } else {
                BacklogItem::Initial {
                    key: entry.key.clone(),
                    revision: entry.revision,
                    entry: Arc::downgrade(entry),
                }
            });
        }
        missing.finish()?;
        self.cursor = snapshot.revision;
        if announce_end && self.bookmarks {
            let bookmark = self.bookmark(json!({INITIAL_EVENTS_END_ANNOTATION: "true"}));
            self.backlog.push_back(BacklogItem::Frame(bookmark));
        }
        Ok(())
    }

    /// The next piece of a frame; `None` at the end of the watch.
    pub(crate) async fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.frame_pieces.pop_front() {
                return Some(piece);
            }
            match self.backlog.pop_front() {
                Some(BacklogItem::Frame(frame)) => return Some(frame),
                Some(BacklogItem::Initial { key, revision, entry }) => {
                    match self.initial_entry(&key, revision, &entry) {
                        Some(entry) => self
                            .backlog
                            .push_front(BacklogItem::Change(EventType::Added, entry)),
                        None => {
                            self.backlog.clear();
                            self.expire(Expired {
                                requested: self.cursor,
                                oldest: self.store.storage.revision(),
                            });
                        }
                    }
                    continue;
                }
                Some(BacklogItem::Change(kind, entry)) => {
                    let entry = match self.convert_backlog(entry).await {
                        Ok(entry) => entry,
                        Err(status) => {
                            self.backlog.clear();
                            self.fail(&status);
                            continue;
                        }
                    };
                    let object = self.render_in_turn(entry).await;
                    self.frame_pieces.extend([object, Bytes::from_static(CLOSING)]);
                    return Some(kind.opening());
                }
                None if self.failed => return None,
                None => {}
            }
            self.changes.mark_unchanged();
            match self.events(BATCH) {
                Ok(events) => match self.convert_events(&events).await {
                    Ok(()) => {
                        if let Err(status) = self.enqueue(&events) {
                            self.fail(&status);
                        }
                    }
                    Err(status) => self.fail(&status),
                },
                Err(expired) => self.expire(expired),
            }
            if !self.backlog.is_empty() {
                continue;
            }
            self.converted = Vec::new();
            let bookmark_at = match self.last_bookmark {
                Some(last) => last.min(self.next_bookmark),
                None => self.deadline,
            };
            tokio::select! {
                biased;
                changed = self.changes.changed() => changed.ok()?,
                () = closed(&mut self.definition) => {
                    self.definition = None;
                    self.deadline = self.deadline.min(Instant::now() + TEARDOWN_DELAY);
                }
                () = sleep_until(self.deadline) => return None,
                () = sleep_until(bookmark_at), if self.bookmarks => self.send_bookmark(),
            }
        }
    }

    /// Lets a webhook convert the next object, together with those after it. Other conversions follow when it is rendered.
    async fn convert_backlog(&mut self, entry: Arc<Entry>) -> Result<Arc<Entry>, Status> {
        let resource = &self.target.resource;
        if !crd::has_webhook(resource) {
            return Ok(entry);
        }
        if let Ok(converted) = crd::convert_for_read(resource, entry.clone()) {
            return Ok(converted);
        }
        let later = self.backlog.iter().filter_map(|item| match item {
            BacklogItem::Change(_, entry) => Some(entry.clone()),
            BacklogItem::Initial { key, revision, entry } => self.initial_entry(key, *revision, entry),
            BacklogItem::Frame(_) => None,
        });
        let mut bytes = entry.object.json().len();
        let fitting = later.take(BATCH).take_while(|entry| {
            bytes += entry.object.json().len();
            bytes <= BATCH_BYTES
        });
        let entries = std::iter::once(entry.clone()).chain(fitting).collect();
        self.convert(entries).await?;
        crd::convert_for_read(&self.target.resource, entry)
    }

    /// Lets a webhook convert what the selector has to see of events.
    async fn convert_events(&mut self, events: &[Arc<Event>]) -> Result<(), Status> {
        if self.selector.is_empty() || !crd::has_webhook(&self.target.resource) {
            return Ok(());
        }
        let relevant = events.iter().filter(|event| self.is_relevant(event));
        let states = relevant.flat_map(|event| {
            let current = (!event.deleted).then_some(&event.entry);
            event.previous.iter().chain(current).cloned()
        });
        let entries = states.collect();
        self.convert(entries).await
    }

    /// Lets a webhook convert those of these entries that it has not converted yet. All of them stay in its cache until the
    /// next call.
    async fn convert(&mut self, entries: Vec<Arc<Entry>>) -> Result<(), Status> {
        let (mut known, mut missing) = (Vec::new(), MissingEntries::default());
        for entry in entries {
            known.extend(missing.collect(crd::convert_for_read(&self.target.resource, entry))?);
        }
        if let Err(status) = missing.finish() {
            let deadline = Instant::now() + CONVERSION_TIMEOUT;
            let entries = status.into_unconverted()?;
            let entries = entries.convert(&self.webhooks, deadline, &self.large_work);
            known.extend(entries.await?);
        }
        self.converted = known;
        Ok(())
    }

    /// An object in the requested view. A client may ask for large objects in a view that shows little of them, so other
    /// tasks run in between.
    async fn render_in_turn(&mut self, entry: Arc<Entry>) -> Bytes {
        let is_first = !std::mem::replace(&mut self.columns_sent, true);
        let resource = &self.target.resource;
        if self.view != View::Object || crd::needs_conversion(resource, &entry) {
            self.rendered_bytes += entry.object.json().len();
        }
        if self.large_work.is_large(self.rendered_bytes) {
            self.rendered_bytes = 0;
            let this = &*self;
            return this.large_work.run_part(|| this.render(entry, is_first)).await;
        }
        self.render(entry, is_first)
    }

    /// An object in the requested view. The default view shares its bytes. The first row of a table has the columns.
    fn render(&self, entry: Arc<Entry>, is_first: bool) -> Bytes {
        // What a webhook converts was converted before; other conversions do not fail.
        let entry = match crd::convert_for_read(&self.target.resource, entry) {
            Ok(entry) => entry,
            Err(status) => return status.to_value().to_string().into(),
        };
        if entry.object.is_deep() {
            return depth::with_large_stack(|| self.render_view(&entry, is_first));
        }
        self.render_view(&entry, is_first)
    }

    fn render_view(&self, entry: &Entry, is_first: bool) -> Bytes {
        let json = render_entry(entry, &self.target.resource);
        if self.view == View::Object {
            return json;
        }
        let object = json::parse_bytes(&json).unwrap_or_else(|error| {
            Status::internal(format!("a stored object cannot be read: {error}")).to_value()
        });
        self.view
            .render(
                &self.target.resource,
                &object,
                self.store.environment.now(),
                is_first,
            )
            .to_string()
            .into()
    }

    /// An object at the revision of the initial events, while the storage has it: as the current one, or in its history.
    fn initial_entry(&self, key: &Key, revision: Revision, entry: &Weak<Entry>) -> Option<Arc<Entry>> {
        entry.upgrade().or_else(|| {
            let current = self.store.storage.get(&self.target.resource.table, key)?;
            (current.revision == revision).then_some(current)
        })
    }

    /// The next events after the cursor.
    fn events(&self, limit: usize) -> Result<Vec<Arc<Event>>, Expired> {
        let (table, storage) = (&self.target.resource.table, &self.store.storage);
        storage.events(table, namespace_of(&self.target), self.cursor, limit)
    }

    fn enqueue(&mut self, events: &[Arc<Event>]) -> Result<(), Status> {
        let mut bytes = 0;
        for event in events {
            if self.is_relevant(event) {
                let item = self.to_backlog_item(event)?;
                if let Some(BacklogItem::Change(_, entry)) = &item {
                    bytes += entry.object.json().len();
                }
                self.backlog.extend(item);
            }
            self.cursor = event.revision;
            if bytes > BATCH_BYTES {
                break;
            }
        }
        Ok(())
    }

    fn is_relevant(&self, event: &Event) -> bool {
        event.revision > self.cursor
            && (self.target.namespace.is_empty() || *event.entry.key.namespace == *self.target.namespace)
    }

    /// Converts an event as the selector sees it: an object that starts to match is `ADDED`, one that stops is `DELETED`.
    fn to_backlog_item(&self, event: &Event) -> Result<Option<BacklogItem>, Status> {
        let current = event.entry.clone();
        let matches = |entry: &Arc<Entry>| self.selector.matches_entry(&self.target.resource, entry);
        let mut previous = event.previous.as_ref();
        if let Some(entry) = previous
            && !matches(entry)?
        {
            previous = None;
        }
        let was = previous.is_some();
        let is = !event.deleted && matches(&current)?;
        let (kind, entry) = match (was, is) {
            (false, true) => (EventType::Added, current),
            (true, true) => (EventType::Modified, current),
            (true, false) if event.deleted => (EventType::Deleted, current),
            // It no longer matches: deleted for this watcher, with its last matching state at the new revision.
            (true, false) => {
                let Some(previous) = previous else { return Ok(None) };
                let previous = crd::convert_for_read(&self.target.resource, previous.clone())?;
                let encode = || {
                    let last = previous.object.decode();
                    let fields = &self.target.resource.selectable_fields;
                    let encoded = last.map(|mut last| last.encode(event.revision, fields));
                    encoded.map(|encoded| encoded.with_schema_hash(previous.object.schema_hash()))
                };
                let object = if previous.object.is_deep() {
                    depth::with_large_stack(encode)
                } else {
                    encode()
                };
                let object = object?;
                let (key, revision) = (event.entry.key.clone(), event.revision);
                (
                    EventType::Deleted,
                    Arc::new(Entry {
                        key,
                        revision,
                        object,
                    }),
                )
            }
            (false, false) => return Ok(None),
        };
        Ok(Some(BacklogItem::Change(kind, entry)))
    }

    fn send_bookmark(&mut self) {
        let now = Instant::now();
        if self.last_bookmark.is_some_and(|last| now >= last) {
            self.last_bookmark = Some(self.deadline + BOOKMARK_INTERVAL);
        }
        self.next_bookmark = now + BOOKMARK_INTERVAL;
        // The table has nothing newer than the cursor, so the bookmark may have the server's revision.
        let current = self.store.storage.revision();
        if self.events(1).is_ok_and(|events| events.is_empty()) {
            self.cursor = self.cursor.max(current);
            let bookmark = self.bookmark(json!(null));
            self.backlog.push_back(BacklogItem::Frame(bookmark));
        }
    }

    fn bookmark(&self, annotations: Value) -> Bytes {
        let resource = &self.target.resource;
        let mut object = json!({
            "kind": &*resource.kind,
            "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.cursor.to_string()},
        });
        if !annotations.is_null() {
            object["metadata"]["annotations"] = annotations;
        }
        let shown = self
            .view
            .render(resource, &object, self.store.environment.now(), false);
        frame("BOOKMARK", &shown)
    }

    fn expire(&mut self, expired: Expired) {
        let Expired { requested, oldest } = expired;
        let status = Status::expired(format!("too old resource version: {requested} ({oldest})"));
        self.fail(&status);
    }

    /// Ends the watch with an error.
    fn fail(&mut self, status: &Status) {
        self.backlog
            .push_back(BacklogItem::Frame(frame("ERROR", &status.to_value())));
        self.failed = true;
    }
}

/// The namespace that a watch is limited to.
fn namespace_of(target: &Target) -> Option<&str> {
    Some(&*target.namespace).filter(|namespace| !namespace.is_empty())
}

impl ListOptions {
    /// Whether a watch begins with the current objects.
    pub(crate) fn wants_initial_events(&self) -> bool {
        use ResourceVersionMatch::{Exact, NotOlderThan};
        !matches!(
            (self.version_match, self.send_initial_events),
            (_, Some(false)) | (NotOlderThan(_) | Exact(_), None)
        )
    }
}

/// Waits until the definition changes or is deleted. Never returns for built-in kinds.
async fn closed(alive: &mut Option<tokio::sync::watch::Receiver<()>>) {
    match alive {
        Some(alive) => while alive.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

fn frame(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use tower::ServiceExt;

    use super::*;
    use crate::{Server, verbs};

    const GROUP: &str = "example.com";

    async fn post(server: &Server, path: &str, object: Value) {
        let body = Full::new(Bytes::from(object.to_string()));
        let request = Request::post(path).header("content-type", "application/json");
        let response = server
            .clone()
            .oneshot(request.body(body).expect("a request"))
            .await;
        let code = response.expect("infallible").status();
        assert_eq!(code, 201, "{path}");
    }

    #[tokio::test]
    async fn custom_resources_of_another_version_are_converted_when_they_are_sent() {
        let server = Server::new();
        let version = |name: &str, stored: bool| {
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {name: {"type": "string", "default": name}}},
            }}});
            json!({
                "name": name, "served": true, "storage": stored, "schema": schema,
                "selectableFields": [{"jsonPath": format!(".spec.{name}")}],
            })
        };
        let definition = json!({
            "metadata": {"name": format!("foos.{GROUP}")},
            "spec": {
                "group": GROUP, "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
                "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            },
        });
        post(
            &server,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            definition,
        )
        .await;
        let foos = format!("/apis/{GROUP}/v1/namespaces/default/foos");
        for name in ["a", "b"] {
            let foo = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Foo", "metadata": {"name": name}, "spec": {}});
            post(&server, &foos, foo).await;
        }
        let api = server.api();
        let resource = api.store.registry.catalogue().find(GROUP, "v2", "foos").cloned();
        let target = Target {
            resource: resource.expect("served"),
            namespace: "default".into(),
            name: "".into(),
            subresource: "".into(),
        };
        let is_stored = |entry: &Arc<Entry>| {
            let stored = api.store.storage.get(&target.resource.table, &entry.key);
            stored.is_some_and(|stored| Arc::ptr_eq(&stored, entry))
        };
        let query = crate::request::Query::parse(None);
        // The second selector compares a field of the version.
        for fields in ["metadata.name!=c", "spec.v2!=other"] {
            let selector = || Selector::parse(None, Some(fields), &target.resource).expect("known fields");
            let options = ListOptions::from_query(&query, true).expect("no options");
            let mut stream = WatchStream::open(
                api.metrics().open_watch(&target),
                (api.store.clone(), api.webhooks().clone()),
                &target,
                &options,
                selector(),
                View::Object,
                LargeWork::in_process(usize::MAX),
            )
            .expect("the current state");
            let queued: Vec<_> = stream.backlog.iter().collect();
            assert_eq!(queued.len(), 2);
            for item in queued {
                assert!(
                    matches!(item, BacklogItem::Change(_, entry) if is_stored(entry)),
                    "{fields}"
                );
            }
            let mut frame = Vec::new();
            while !frame.ends_with(b"\n") {
                frame.extend_from_slice(&stream.next_piece().await.expect("an event"));
            }
            let event: Value = serde_json::from_slice(&frame).expect("JSON");
            assert_eq!(event["object"]["apiVersion"], format!("{GROUP}/v2"));
            let options = ListOptions::from_query(&query, false).expect("no options");
            let answer = verbs::list(&api.store, &target, &options, &selector());
            let Ok(verbs::Answer::List { page, .. }) = answer else {
                panic!("a list");
            };
            assert!(
                page.entries.len() == 2 && page.entries.iter().all(is_stored),
                "{fields}"
            );
        }
    }

    /// A watch of the ConfigMaps in `default` that begins with the current ones, and the frames that it sends while `ready`.
    async fn frames_of(stream: &mut WatchStream, most: usize) -> Vec<Value> {
        let (mut frames, mut text) = (Vec::new(), Vec::new());
        while frames.len() < most
            && let Some(piece) = stream.next_piece().await
        {
            text.extend_from_slice(&piece);
            if text.ends_with(b"\n") {
                frames.push(serde_json::from_slice(&std::mem::take(&mut text)).expect("JSON"));
            }
        }
        frames
    }

    fn watch_config_maps(server: &Server, query: Option<&str>) -> WatchStream {
        let api = server.api();
        let resource = api
            .store
            .registry
            .catalogue()
            .find("", "v1", "configmaps")
            .cloned();
        let target = Target {
            resource: resource.expect("built in"),
            namespace: "default".into(),
            name: "".into(),
            subresource: "".into(),
        };
        let query = crate::request::Query::parse(query);
        let options = ListOptions::from_query(&query, true).expect("known options");
        let selector = Selector::parse(None, None, &target.resource).expect("no selector");
        WatchStream::open(
            api.metrics().open_watch(&target),
            (api.store.clone(), api.webhooks().clone()),
            &target,
            &options,
            selector,
            View::Object,
            LargeWork::in_process(usize::MAX),
        )
        .expect("the current state")
    }

    const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn large(name: usize) -> Value {
        json!({"metadata": {"name": format!("m{name}")}, "data": {"a": "x".repeat(400_000)}})
    }

    #[tokio::test]
    async fn slow_watch_holds_few_events_in_memory_and_loses_none() {
        let server = Server::new();
        let mut stream = watch_config_maps(&server, Some("watch=1&resourceVersion=1"));
        for name in 0..20 {
            post(&server, CONFIG_MAPS, large(name)).await;
        }
        for name in 0..20 {
            let frames = frames_of(&mut stream, 1).await;
            assert_eq!(frames[0]["object"]["metadata"]["name"], format!("m{name}"));
            assert!(stream.backlog.len() <= 3, "{} events", stream.backlog.len());
        }
    }

    #[tokio::test]
    async fn slow_watch_does_not_keep_initial_states_that_the_storage_has_dropped() {
        let storage = crate::storage::Memory::new(1_000).history_bytes(100_000);
        let server = Server::builder().storage(storage).build();
        for name in 0..10 {
            post(&server, CONFIG_MAPS, large(name)).await;
        }
        let [mut fast, mut slow] = [(); 2].map(|()| watch_config_maps(&server, None));
        assert_eq!(frames_of(&mut fast, 10).await.len(), 10);
        let states = |stream: &WatchStream| -> Vec<_> {
            let items = stream.backlog.iter();
            items
                .filter_map(|item| match item {
                    BacklogItem::Initial { entry, .. } => Some(entry.clone()),
                    _ => None,
                })
                .collect()
        };
        let states = states(&slow);
        assert_eq!(states.len(), 8);
        for name in 0..10 {
            let request = Request::delete(format!("{CONFIG_MAPS}/m{name}"));
            let request = request.body(Full::new(Bytes::new())).expect("a request");
            let response = server.clone().oneshot(request).await.expect("infallible");
            assert_eq!(response.status(), 200);
        }
        post(&server, CONFIG_MAPS, json!({"metadata": {"name": "last"}})).await;
        let kept = states.iter().filter(|entry| entry.upgrade().is_some()).count();
        assert_eq!(kept, 0);
        let frames = frames_of(&mut slow, 20).await;
        let types: Vec<_> = frames.iter().map(|frame| frame["type"].clone()).collect();
        assert_eq!(types, ["ADDED", "ADDED", "ERROR"]);
        assert_eq!(frames[2]["object"]["code"], 410);
    }
}
