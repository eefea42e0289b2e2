//! An open watch: its events are collected while the scenario goes on.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tokio::{
    sync::watch::{self, Receiver, Sender},
    task::JoinHandle,
};

/// How long a wait for events may last. Much longer than any event takes, for a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A watch that is being read.
pub struct Stream {
    seen: Receiver<Seen>,
    reader: JoinHandle<()>,
}

/// What has come so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The events, bookmarks only by wish.
    pub events: Arc<Vec<Value>>,
    /// Whether the server has ended the stream.
    pub closed: bool,
}

impl Stream {
    /// Reads `body` until it ends or the stream is dropped.
    pub fn read(body: Body, bookmarks: bool) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        Self {
            seen,
            reader: tokio::spawn(collect(body, bookmarks, sender)),
        }
    }

    /// Waits until so many events have come, and until the end if `closed`; says what was there instead if it takes
    /// too long.
    pub async fn wait(&mut self, events: usize, closed: bool) -> Result<(), String> {
        let enough = |seen: &Seen| seen.events.len() >= events && (seen.closed || !closed);
        let waited = tokio::time::timeout(PATIENCE, self.seen.wait_for(enough))
            .await
            .is_ok_and(|seen| seen.is_ok());
        if waited {
            return Ok(());
        }
        let seen = self.seen();
        Err(format!("{} events, closed: {}", seen.events.len(), seen.closed))
    }

    /// What has come so far.
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn collect(body: Body, bookmarks: bool, sender: Sender<Seen>) {
    let mut buffer = Vec::new();
    let mut frames = body.into_data_stream();
    while let Some(Ok(bytes)) = frames.next().await {
        buffer.extend_from_slice(&bytes);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let event = event(&line);
            if bookmarks || event["type"] != "BOOKMARK" {
                sender.send_modify(|seen| Arc::make_mut(&mut seen.events).push(event));
            }
        }
    }
    sender.send_modify(|seen| {
        if !buffer.is_empty() {
            Arc::make_mut(&mut seen.events).push(event(&buffer));
        }
        seen.closed = true;
    });
}

/// A line that is no JSON is kept as text, so that it shows up in the comparison.
fn event(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|_| String::from_utf8_lossy(line).into())
}
