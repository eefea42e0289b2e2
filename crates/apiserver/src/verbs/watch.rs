//! Watch: a cursor into a table's history, turned into frames.
//!
//! The bytes of an object are shared by all watchers that show it; only the few bytes around it are a watch's own.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until},
};

use super::{ListOptions, options::At, rendered};
use crate::{
    crd, depth, json,
    request::Target,
    selector::Selector,
    server::Shared,
    status::Status,
    storage::{Entry, Event, Expired, Revision},
    view::View,
};

/// How often a quiet watch says how far it is, as the real server does.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// How long before its end a watch says so once more.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// No watch is longer, whatever its client asks for: times beyond the clock's range cannot be waited for.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// How long a watch goes on after its kind was changed or went, as in the real server (`crdHandler.tearDown`).
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How many events are taken from the history at a time.
const BATCH: usize = 64;

/// The annotation of the bookmark that ends the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// One watch: gives frame after frame until it ends.
pub(crate) struct WatchStream {
    api: Shared,
    target: Target,
    selector: Selector,
    view: View,
    /// Whether the columns of a table were sent.
    columns_sent: bool,
    bookmarks: bool,
    /// Everything up to here was sent or did not concern this watch.
    cursor: Revision,
    /// What is still to be shown, in order. Entries are shared, not copied.
    backlog: VecDeque<Item>,
    /// Pieces of the frame that is being sent.
    ready: VecDeque<Bytes>,
    changes: tokio::sync::watch::Receiver<Revision>,
    ends: Instant,
    next_bookmark: Instant,
    last_bookmark: Option<Instant>,
    failed: bool,
    /// One of the server's places for watches; free again when this watch is dropped.
    _place: OwnedSemaphorePermit,
    /// Ends when a custom resource is served no more as it was; none for built-in ones, and after that.
    alive: Option<tokio::sync::watch::Receiver<()>>,
}

/// Something to be shown.
enum Item {
    Change(Kind, Arc<Entry>),
    /// A whole frame that concerns no object: a bookmark or an error.
    Notice(Bytes),
}

/// What happened to an object, from the watcher's point of view.
#[derive(Clone, Copy)]
enum Kind {
    Added,
    Modified,
    Deleted,
}

impl Kind {
    /// How a frame begins.
    fn opening(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        })
    }
}

/// How every frame ends.
const CLOSING: &[u8] = b"}\n";

impl WatchStream {
    pub(crate) fn open(
        place: OwnedSemaphorePermit,
        api: Shared,
        target: &Target,
        options: &ListOptions,
        selector: Selector,
        view: View,
    ) -> Result<Self, Status> {
        let selector = if target.name.is_empty() {
            selector
        } else {
            selector.with_name(&target.name)
        };
        let now = Instant::now();
        let length = options
            .timeout_seconds
            .map_or_else(|| api.world.watch_timeout(), Duration::from_secs)
            .min(LONGEST);
        let ends = now + length;
        // Subscribe first: what is committed from here on wakes the watch.
        let changes = api.storage.subscribe(&target.resource.table);
        let mut stream = Self {
            target: target.clone(),
            selector,
            view,
            columns_sent: false,
            bookmarks: options.bookmarks,
            cursor: Revision(0),
            backlog: VecDeque::new(),
            ready: VecDeque::new(),
            changes,
            ends,
            next_bookmark: now + BOOKMARK_EVERY,
            last_bookmark: options
                .bookmarks
                .then(|| ends.checked_sub(LAST_BOOKMARK).unwrap_or(now).max(now)),
            failed: false,
            _place: place,
            alive: target
                .resource
                .defined
                .as_ref()
                .map(|defined| defined.alive.clone()),
            api,
        };
        match (options.at, options.send_initial_events) {
            (At::NotOlderThan(revision) | At::Exact(revision), None | Some(false)) => {
                stream.cursor = revision;
                // Nobody has kept what happened to a custom resource before it was served as it is.
                let since = target.resource.defined.as_ref().map(|defined| defined.since);
                if let Some(oldest) = since.filter(|since| revision < *since) {
                    stream.fail(Expired {
                        requested: revision,
                        oldest,
                    });
                }
            }
            // No revision and no wish for the past: from now on.
            (_, Some(false)) => stream.cursor = stream.api.storage.revision(),
            (_, wish) => stream.send_initial(wish == Some(true))?,
        }
        Ok(stream)
    }

    /// Shows what there is as if it had just been added.
    fn send_initial(&mut self, announce_end: bool) -> Result<(), Status> {
        let snapshot = self.api.snapshot(&self.target, None)?;
        let namespace = Some(&*self.target.namespace).filter(|namespace| !namespace.is_empty());
        let shown = snapshot
            .range(namespace, None)
            .map(|entry| crd::seen(&self.target.resource, entry.clone()))
            .filter(|e| self.selector.matches(&e.object));
        self.backlog
            .extend(shown.map(|entry| Item::Change(Kind::Added, entry)));
        self.cursor = snapshot.revision;
        if announce_end && self.bookmarks {
            let bookmark = self.bookmark(json!({INITIAL_END: "true"}));
            self.backlog.push_back(Item::Notice(bookmark));
        }
        Ok(())
    }

    /// The next piece of a frame; `None` when the watch is over.
    pub(crate) async fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(piece);
            }
            match self.backlog.pop_front() {
                Some(Item::Notice(frame)) => return Some(frame),
                Some(Item::Change(kind, entry)) => {
                    let object = if entry.object.is_deep() {
                        depth::with_room(|| self.rendered(&entry))
                    } else {
                        self.rendered(&entry)
                    };
                    self.ready.extend([object, Bytes::from_static(CLOSING)]);
                    return Some(kind.opening());
                }
                None if self.failed => return None,
                None => {}
            }
            self.changes.mark_unchanged();
            match self
                .api
                .storage
                .events(&self.target.resource.table, self.cursor, BATCH)
            {
                Ok(events) => self.take(&events),
                Err(expired) => self.fail(expired),
            }
            if !self.backlog.is_empty() {
                continue;
            }
            let bookmark_at = match self.last_bookmark {
                Some(last) => last.min(self.next_bookmark),
                None => self.ends,
            };
            tokio::select! {
                biased;
                changed = self.changes.changed() => changed.ok()?,
                () = end_of(&mut self.alive) => {
                    self.alive = None;
                    self.ends = self.ends.min(Instant::now() + LAST_WORDS);
                }
                () = sleep_until(self.ends) => return None,
                () = sleep_until(bookmark_at), if self.bookmarks => self.send_bookmark(),
            }
        }
    }

    /// An object in the form that the watcher asked for; in the usual one its bytes are shared.
    fn rendered(&mut self, entry: &Entry) -> Bytes {
        let json = rendered(entry, &self.target.resource);
        if self.view == View::Object {
            return json;
        }
        let first = !std::mem::replace(&mut self.columns_sent, true);
        let object = json::parse_bytes(&json).unwrap_or_else(|error| {
            Status::internal(format!("a stored object cannot be read: {error}")).to_value()
        });
        self.view
            .one(&self.target.resource, &object, self.api.world.now(), first)
            .to_string()
            .into()
    }

    fn take(&mut self, events: &[Arc<Event>]) {
        for event in events {
            if self.concerns(event) {
                self.backlog.extend(self.shown(event));
            }
            self.cursor = event.revision;
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        event.revision > self.cursor
            && (self.target.namespace.is_empty() || *event.entry.key.namespace == *self.target.namespace)
    }

    /// An event from the selector's point of view.
    fn shown(&self, event: &Event) -> Option<Item> {
        let seen = |entry: &Arc<Entry>| crd::seen(&self.target.resource, entry.clone());
        let (previous, current) = (event.previous.as_ref().map(seen), seen(&event.entry));
        let matches = |entry: &Arc<Entry>| self.selector.matches(&entry.object);
        let was = previous.as_ref().is_some_and(matches);
        let is = !event.deleted && matches(&current);
        let (kind, entry) = match (was, is) {
            (false, true) => (Kind::Added, current),
            (true, true) => (Kind::Modified, current),
            (true, false) if event.deleted => (Kind::Deleted, current),
            // It left the selection: gone for this watcher, with its last matching state under the new revision.
            (true, false) => {
                let previous = previous?;
                let encode = || {
                    let last = previous.object.decode();
                    last.map(|mut last| last.encode(event.revision, &self.target.resource.selectable))
                };
                let object = if previous.object.is_deep() {
                    depth::with_room(encode)
                } else {
                    encode()
                };
                let object = object.ok()?;
                let (key, revision) = (event.entry.key.clone(), event.revision);
                (
                    Kind::Deleted,
                    Arc::new(Entry {
                        key,
                        revision,
                        object,
                    }),
                )
            }
            (false, false) => return None,
        };
        Some(Item::Change(kind, entry))
    }

    fn send_bookmark(&mut self) {
        let now = Instant::now();
        if self.last_bookmark.is_some_and(|last| now >= last) {
            self.last_bookmark = Some(self.ends + BOOKMARK_EVERY);
        }
        self.next_bookmark = now + BOOKMARK_EVERY;
        // Nothing of this table is newer than the cursor, so the server's revision is as good.
        let current = self.api.storage.revision();
        if matches!(self.api.storage.events(&self.target.resource.table, self.cursor, 1), Ok(e) if e.is_empty())
        {
            self.cursor = self.cursor.max(current);
            let bookmark = self.bookmark(json!(null));
            self.backlog.push_back(Item::Notice(bookmark));
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
        let shown = self.view.one(resource, &object, self.api.world.now(), false);
        notice("BOOKMARK", &shown)
    }

    fn fail(&mut self, expired: Expired) {
        let Expired { requested, oldest } = expired;
        let status = Status::expired(format!("too old resource version: {requested} ({oldest})"));
        self.backlog
            .push_back(Item::Notice(notice("ERROR", &status.to_value())));
        self.failed = true;
    }
}

/// Waits until what is watched is served no more; for ever where that cannot be.
async fn end_of(alive: &mut Option<tokio::sync::watch::Receiver<()>>) {
    match alive {
        Some(alive) => while alive.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

fn notice(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}
