//! Watch: a cursor into a table's history, turned into frames.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{ListOptions, options::At, rendered};
use crate::{
    request::Target,
    selector::Selector,
    server::Shared,
    status::Status,
    storage::{Entry, Event, Expired, Revision},
};

/// How often a quiet watch says how far it is, as the real server does.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// How long before its end a watch says so once more.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// How many events are taken from the history at a time.
const BATCH: usize = 64;

/// The annotation of the bookmark that ends the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// One watch: gives frame after frame until it ends.
pub(crate) struct WatchStream {
    api: Shared,
    target: Target,
    selector: Selector,
    bookmarks: bool,
    /// Everything up to here was sent or did not concern this watch.
    cursor: Revision,
    /// Frames that are ready to go.
    ready: VecDeque<Bytes>,
    changes: tokio::sync::watch::Receiver<Revision>,
    ends: Instant,
    next_bookmark: Instant,
    last_bookmark: Option<Instant>,
    failed: bool,
}

impl WatchStream {
    pub(crate) fn open(
        api: Shared,
        target: &Target,
        options: &ListOptions,
        selector: Selector,
    ) -> Result<Self, Status> {
        let selector = if target.name.is_empty() {
            selector
        } else {
            selector.with_name(&target.name)
        };
        let now = Instant::now();
        let length = options
            .timeout_seconds
            .map_or_else(|| api.world.watch_timeout(), Duration::from_secs);
        let ends = now + length;
        // Subscribe first: what is committed from here on wakes the watch.
        let changes = api.storage.subscribe(&target.resource.table);
        let mut stream = Self {
            target: target.clone(),
            selector,
            bookmarks: options.bookmarks,
            cursor: Revision(0),
            ready: VecDeque::new(),
            changes,
            ends,
            next_bookmark: now + BOOKMARK_EVERY,
            last_bookmark: options
                .bookmarks
                .then(|| ends.checked_sub(LAST_BOOKMARK).unwrap_or(now).max(now)),
            failed: false,
            api,
        };
        match (options.at, options.send_initial_events) {
            (At::NotOlderThan(revision) | At::Exact(revision), None | Some(false)) => {
                stream.cursor = revision;
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
        for entry in snapshot
            .range(namespace, None)
            .filter(|e| self.selector.matches(&e.object))
        {
            self.ready
                .push_back(frame("ADDED", &rendered(entry, &self.target.resource)));
        }
        self.cursor = snapshot.revision;
        if announce_end {
            let bookmark = self.bookmark(json!({INITIAL_END: "true"}));
            self.ready.push_back(bookmark);
        }
        Ok(())
    }

    /// The next frame; `None` when the watch is over.
    pub(crate) async fn next_frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.failed {
                return None;
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
            if !self.ready.is_empty() || self.failed {
                continue;
            }
            let bookmark_at = match self.last_bookmark {
                Some(last) => last.min(self.next_bookmark),
                None => self.ends,
            };
            tokio::select! {
                biased;
                changed = self.changes.changed() => changed.ok()?,
                () = sleep_until(self.ends) => return None,
                () = sleep_until(bookmark_at), if self.bookmarks => self.send_bookmark(),
            }
        }
    }

    fn take(&mut self, events: &[Arc<Event>]) {
        for event in events {
            if self.concerns(event) {
                self.ready.extend(self.shown(event));
            }
            self.cursor = event.revision;
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        event.revision > self.cursor
            && (self.target.namespace.is_empty() || *event.entry.key.namespace == *self.target.namespace)
    }

    /// The frame of an event, from the selector's point of view.
    fn shown(&self, event: &Event) -> Option<Bytes> {
        let matches = |entry: &Arc<Entry>| self.selector.matches(&entry.object);
        let was = event.previous.as_ref().is_some_and(matches);
        let is = !event.deleted && matches(&event.entry);
        let (kind, entry) = match (was, is) {
            (false, true) => ("ADDED", &event.entry),
            (true, true) => ("MODIFIED", &event.entry),
            (true, false) if event.deleted => ("DELETED", &event.entry),
            // It left the selection: gone for this watcher, with its last matching state under the new revision.
            (true, false) => {
                let mut last = event.previous.as_ref()?.object.decode();
                let object = last.encode(event.revision, &self.target.resource.selectable);
                let key = event.entry.key.clone();
                let entry = Entry {
                    key,
                    revision: event.revision,
                    object,
                };
                return Some(frame("DELETED", &rendered(&entry, &self.target.resource)));
            }
            (false, false) => return None,
        };
        Some(frame(kind, &rendered(entry, &self.target.resource)))
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
            self.ready.push_back(bookmark);
        }
    }

    fn bookmark(&self, annotations: serde_json::Value) -> Bytes {
        let resource = &self.target.resource;
        let mut object = json!({
            "kind": &*resource.kind,
            "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.cursor.to_string(), "creationTimestamp": null},
        });
        if !annotations.is_null() {
            object["metadata"]["annotations"] = annotations;
        }
        frame("BOOKMARK", object.to_string().as_bytes())
    }

    fn fail(&mut self, expired: Expired) {
        let Expired { requested, oldest } = expired;
        let status = Status::expired(format!("too old resource version: {requested} ({oldest})"));
        self.ready
            .push_back(frame("ERROR", status.to_value().to_string().as_bytes()));
        self.failed = true;
    }
}

fn frame(kind: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
    frame.into()
}
