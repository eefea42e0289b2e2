//! An open watch, whose events are collected while the scenario continues.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tokio::{
    sync::watch::{self, Receiver, Sender},
    task::JoinHandle,
};

/// Limit for waiting for events or for an `until`. Far longer than any of them takes, for busy machines.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A watch with a task that reads it.
pub struct Stream {
    state: Receiver<StreamState>,
    reader: JoinHandle<()>,
}

/// What a stream has received so far.
#[derive(Clone, Debug, Default)]
pub struct StreamState {
    /// The events; bookmarks only if requested.
    pub events: Arc<Vec<Value>>,
    /// Whether the server has ended the stream.
    pub closed: bool,
}

impl Stream {
    /// Reads `body` until it ends or the stream is dropped.
    pub fn read(body: Body, bookmarks: bool) -> Self {
        let (sender, state) = watch::channel(StreamState::default());
        Self {
            state,
            reader: tokio::spawn(collect(body, bookmarks, sender)),
        }
    }

    /// Waits for this number of events, and for the end of the stream if `closed`. On timeout, the error describes what
    /// was received.
    pub async fn wait(&mut self, events: usize, closed: bool) -> Result<(), String> {
        let enough = |state: &StreamState| state.events.len() >= events && (state.closed || !closed);
        let waited = tokio::time::timeout(WAIT_TIMEOUT, self.state.wait_for(enough))
            .await
            .is_ok_and(|state| state.is_ok());
        if waited {
            return Ok(());
        }
        let state = self.state();
        Err(format!("{} events, closed: {}", state.events.len(), state.closed))
    }

    /// Returns what was received so far.
    pub fn state(&self) -> StreamState {
        self.state.borrow().clone()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn collect(body: Body, bookmarks: bool, sender: Sender<StreamState>) {
    let mut buffer = Vec::new();
    let mut frames = body.into_data_stream();
    while let Some(Ok(bytes)) = frames.next().await {
        buffer.extend_from_slice(&bytes);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let event = event(&line);
            if bookmarks || event["type"] != "BOOKMARK" {
                sender.send_modify(|state| Arc::make_mut(&mut state.events).push(event));
            }
        }
    }
    sender.send_modify(|state| {
        if !buffer.is_empty() {
            Arc::make_mut(&mut state.events).push(event(&buffer));
        }
        state.closed = true;
    });
}

/// Parses an event. A line that is not JSON is kept as text, so that the comparison shows it.
fn event(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(|_| String::from_utf8_lossy(line).into())
}
