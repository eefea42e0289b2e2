//! Watching clients: some read immediately, some stall, some drop the connection; all resume where they were.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, bail};
use fastrand::Rng;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{sync::watch, time::timeout};

use super::{
    endpoint::{Connection, Endpoint, Protocol, revision},
    load::{Shared, lock},
    model::{Event, View},
};

/// Object written last in every namespace: a watcher that observes it has observed everything.
pub(crate) const MARKER: &str = "marker";

/// Selects the objects of the soak test, which no other client writes.
const SELECTOR: &str = "labelSelector=app%3Dsoak";

/// How a watcher behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Attentive,
    /// Repeatedly stops reading for a while.
    Stalling,
    /// Also drops the connection without closing it properly.
    Dropping,
}

pub(crate) struct Watcher {
    pub(crate) endpoint: Endpoint,
    pub(crate) protocol: Protocol,
    pub(crate) namespace: String,
    pub(crate) behaviour: Behaviour,
    pub(crate) view: Arc<Mutex<View>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) rng: Rng,
    /// Set when the writes are over, so that watches no longer stall.
    pub(crate) finish: watch::Receiver<bool>,
}

/// Why a watch ended.
enum WatchEnd {
    /// Continue from the last revision.
    Resume,
    /// The last revision has expired.
    Relist,
    Done,
}

impl Watcher {
    /// Watches until it observes the marker.
    pub(crate) async fn run(mut self) {
        let mut is_listed = false;
        loop {
            match self.watch_once(is_listed).await {
                Ok(WatchEnd::Done) => return,
                Ok(WatchEnd::Resume) => is_listed = true,
                Ok(WatchEnd::Relist) => is_listed = false,
                Err(error) => {
                    let text: String = format!("watch: {error:#}").chars().take(120).collect();
                    self.shared.record_unexpected(text);
                    is_listed = is_listed && lock(&self.view).last() > 0;
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    async fn watch_once(&mut self, is_listed: bool) -> anyhow::Result<WatchEnd> {
        let mut connection = self.endpoint.connect(self.protocol).await?;
        if !is_listed {
            let (revision, objects) = list(&mut connection, &self.namespace).await?;
            let is_over = objects.contains_key(MARKER);
            lock(&self.view).list(revision, objects);
            if is_over {
                return Ok(WatchEnd::Done);
            }
        }
        let last = lock(&self.view).last();
        let seconds = self.rng.u32(20..90);
        let target = format!(
            "/api/v1/namespaces/{}/configmaps?{SELECTOR}&watch=true&allowWatchBookmarks=true&resourceVersion={last}&timeoutSeconds={seconds}",
            self.namespace
        );
        let response = connection.start("GET", &target, "", "").await?;
        match response.status().as_u16() {
            200 => {}
            410 => return Ok(WatchEnd::Relist),
            code => bail!("{code}"),
        }
        let mut body = response.into_body();
        let mut buffer = Vec::new();
        let mut until_stall = self.rng.u32(20..200);
        loop {
            // The server sends bookmarks and ends the watch at its timeout; a longer silence means a dead connection.
            let Ok(frame) = timeout(Duration::from_mins(3), body.frame()).await else {
                bail!("no data on the watch for three minutes");
            };
            let Some(frame) = frame else {
                return Ok(WatchEnd::Resume);
            };
            let Ok(frame) = frame else {
                return Ok(WatchEnd::Resume);
            };
            buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let event: Value = serde_json::from_slice(&buffer[..end]).context("the event is not JSON")?;
                buffer.drain(..=end);
                if let Some(end) = self.apply(&event)? {
                    return Ok(end);
                }
            }
            until_stall -= 1;
            if until_stall == 0 && self.behaviour != Behaviour::Attentive && !*self.finish.borrow() {
                let pause = Duration::from_millis(self.rng.u64(2_000..15_000));
                let is_over = self.finish.wait_for(|finish| *finish);
                timeout(pause, is_over).await.ok();
                if self.behaviour == Behaviour::Dropping {
                    return Ok(WatchEnd::Resume);
                }
            }
            until_stall = until_stall.max(1);
        }
    }

    /// Applies an event; returns the reason if it ends the watch.
    fn apply(&self, event: &Value) -> anyhow::Result<Option<WatchEnd>> {
        let object = &event["object"];
        let kind = event["type"].as_str().unwrap_or_default();
        let mut view = lock(&self.view);
        match kind {
            "ERROR" if object["code"] == 410 => return Ok(Some(WatchEnd::Relist)),
            "ERROR" => bail!("{}", object["message"]),
            "BOOKMARK" => {
                view.bookmark(revision(object).context("the bookmark has no revision")?);
                return Ok(None);
            }
            _ => {}
        }
        let key = object["metadata"]["name"].as_str().unwrap_or_default();
        let (Some(revision), Some(happened)) = (revision(object), Event::parse(kind)) else {
            bail!("unknown event type: {event}");
        };
        if let Err(violation) = view.observe(revision, key, happened) {
            self.shared
                .add_violations([format!("{}: {violation}", self.namespace)]);
            return Ok(Some(WatchEnd::Relist));
        }
        Ok((key == MARKER).then_some(WatchEnd::Done))
    }
}

/// Lists the objects of the soak test in a namespace. Returns the list's revision and those of the objects.
pub(crate) async fn list(
    connection: &mut Connection,
    namespace: &str,
) -> anyhow::Result<(u64, BTreeMap<String, u64>)> {
    let target = format!("/api/v1/namespaces/{namespace}/configmaps?{SELECTOR}");
    let response = connection.get(&target).await?;
    if response.code != 200 {
        bail!("list: {}", response.code);
    }
    let list = response.json();
    let items = list["items"].as_array().context("the list has no items")?.iter();
    let objects = items.filter_map(|item| {
        let name = item["metadata"]["name"].as_str()?.to_owned();
        Some((name, revision(item)?))
    });
    Ok((
        revision(&list).context("the list has no revision")?,
        objects.collect(),
    ))
}
