//! Clients that watch: some read at once, some stall, some drop the connection; all come back where they were.

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
    load::{Shared, locked},
    model::{Event, View},
    wire::{Line, Protocol, Wire, revision},
};

/// Written last of all, into every namespace: a watcher that sees it has seen everything.
pub(crate) const MARKER: &str = "marker";

/// The objects that belong to the soak: no other client writes them.
const SELECTOR: &str = "labelSelector=app%3Dsoak";

/// How a watcher treats its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Attentive,
    /// Does not read for a while, again and again.
    Stalling,
    /// As that, and drops the connection without a word.
    Dropping,
}

pub(crate) struct Watcher {
    pub(crate) wire: Wire,
    pub(crate) protocol: Protocol,
    pub(crate) namespace: String,
    pub(crate) manner: Manner,
    pub(crate) view: Arc<Mutex<View>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) rng: Rng,
    /// Whether writing is over, so that no watch stalls any more.
    pub(crate) finish: watch::Receiver<bool>,
}

/// Why a watch is over.
enum End {
    /// It goes on from the last revision.
    Resume,
    /// The history does not reach back that far.
    Relist,
    Done,
}

impl Watcher {
    /// Watches until it has seen the marker.
    pub(crate) async fn run(mut self) {
        let mut is_listed = false;
        loop {
            match self.once(is_listed).await {
                Ok(End::Done) => return,
                Ok(End::Resume) => is_listed = true,
                Ok(End::Relist) => is_listed = false,
                Err(error) => {
                    let text: String = format!("watch: {error:#}").chars().take(120).collect();
                    self.shared.surprise(text);
                    is_listed = is_listed && locked(&self.view).last() > 0;
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    async fn once(&mut self, is_listed: bool) -> anyhow::Result<End> {
        let mut line = self.wire.connect(self.protocol).await?;
        if !is_listed {
            let (revision, objects) = list(&mut line, &self.namespace).await?;
            let is_over = objects.contains_key(MARKER);
            locked(&self.view).list(revision, objects);
            if is_over {
                return Ok(End::Done);
            }
        }
        let last = locked(&self.view).last();
        let seconds = self.rng.u32(20..90);
        let target = format!(
            "/api/v1/namespaces/{}/configmaps?{SELECTOR}&watch=true&allowWatchBookmarks=true&resourceVersion={last}&timeoutSeconds={seconds}",
            self.namespace
        );
        let response = line.start("GET", &target, "", "").await?;
        match response.status().as_u16() {
            200 => {}
            410 => return Ok(End::Relist),
            code => bail!("{code}"),
        }
        let mut body = response.into_body();
        let mut buffer = Vec::new();
        let mut until_stall = self.rng.u32(20..200);
        loop {
            // The server ends the watch in time, and sends bookmarks meanwhile; more than that is a dead connection.
            let Ok(frame) = timeout(Duration::from_mins(3), body.frame()).await else {
                bail!("a watch that was silent for three minutes");
            };
            let Some(frame) = frame else {
                return Ok(End::Resume);
            };
            let Ok(frame) = frame else {
                return Ok(End::Resume);
            };
            buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let event: Value =
                    serde_json::from_slice(&buffer[..end]).context("an event that is no JSON")?;
                buffer.drain(..=end);
                if let Some(end) = self.take(&event)? {
                    return Ok(end);
                }
            }
            until_stall -= 1;
            if until_stall == 0 && self.manner != Manner::Attentive && !*self.finish.borrow() {
                let pause = Duration::from_millis(self.rng.u64(2_000..15_000));
                let is_over = self.finish.wait_for(|finish| *finish);
                timeout(pause, is_over).await.ok();
                if self.manner == Manner::Dropping {
                    return Ok(End::Resume);
                }
            }
            until_stall = until_stall.max(1);
        }
    }

    /// Takes one event; says if the watch is over by it.
    fn take(&self, event: &Value) -> anyhow::Result<Option<End>> {
        let object = &event["object"];
        let kind = event["type"].as_str().unwrap_or_default();
        let mut view = locked(&self.view);
        match kind {
            "ERROR" if object["code"] == 410 => return Ok(Some(End::Relist)),
            "ERROR" => bail!("{}", object["message"]),
            "BOOKMARK" => {
                view.bookmark(revision(object).context("a bookmark without a revision")?);
                return Ok(None);
            }
            _ => {}
        }
        let key = object["metadata"]["name"].as_str().unwrap_or_default();
        let (Some(revision), Some(happened)) = (revision(object), Event::parse(kind)) else {
            bail!("an event of no known type: {event}");
        };
        if let Err(wrong) = view.see(revision, key, happened) {
            self.shared.wrong([format!("{}: {wrong}", self.namespace)]);
            return Ok(Some(End::Relist));
        }
        Ok((key == MARKER).then_some(End::Done))
    }
}

/// The soak's objects in a namespace, with their revisions, and that of the list.
pub(crate) async fn list(line: &mut Line, namespace: &str) -> anyhow::Result<(u64, BTreeMap<String, u64>)> {
    let target = format!("/api/v1/namespaces/{namespace}/configmaps?{SELECTOR}");
    let answer = line.get(&target).await?;
    if answer.code != 200 {
        bail!("list: {}", answer.code);
    }
    let list = answer.json();
    let items = list["items"].as_array().context("a list without items")?.iter();
    let objects = items.filter_map(|item| {
        let name = item["metadata"]["name"].as_str()?.to_owned();
        Some((name, revision(item)?))
    });
    Ok((
        revision(&list).context("a list without a revision")?,
        objects.collect(),
    ))
}
