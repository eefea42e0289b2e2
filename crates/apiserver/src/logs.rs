//! Container logs, written with [`Logs`] and read with `pods/log`.
//!
//! ```text
//!   Logs::print ─► lines with their time, the last 1 MiB of each container ─► tail, since, limit ─► the client
//!                                              └─ previous: the run before the last restart       └─ follow
//! ```
//!
//! A log belongs to a pod's UID, so a new pod with the same name starts with an empty one. It is deleted with its pod.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::object_store::ObjectStore;

/// The maximum size of a container's log in bytes; the oldest lines are dropped first.
const MAX_LOG_BYTES: usize = 1024 * 1024;

/// Writes the logs of a server's pods; see [`crate::Server::logs`].
#[derive(Clone)]
pub struct Logs {
    /// Has the clock.
    store: Arc<ObjectStore>,
    pod_logs: Arc<LogStore>,
}

impl Logs {
    pub(crate) fn new(store: Arc<ObjectStore>, pod_logs: Arc<LogStore>) -> Self {
        Self { store, pod_logs }
    }

    /// Appends one or more lines to the log of a container; `pod` is the pod's UID.
    pub fn print(&self, pod: &str, container: &str, text: &str) {
        let now = self.store.environment.now();
        let log = self.pod_logs.log(pod, container);
        log.change(|state| text.lines().for_each(|line| state.run.push(now, line)));
    }

    /// Starts a new log after a container's restart. The current one becomes the previous one.
    pub fn restart(&self, pod: &str, container: &str) {
        let log = self.pod_logs.log(pod, container);
        log.change(|state| state.previous = Some(std::mem::take(&mut state.run)));
    }

    /// Ends a container's log, and with it all requests that follow it.
    pub fn end(&self, pod: &str, container: &str) {
        self.pod_logs.log(pod, container).end();
    }
}

/// The logs of all pods, by UID.
#[derive(Default)]
pub(crate) struct LogStore(Mutex<HashMap<Box<str>, Containers>>);

/// The logs of a pod's containers, by name.
type Containers = HashMap<Box<str>, Arc<Log>>;

impl LogStore {
    fn log(&self, pod: &str, container: &str) -> Arc<Log> {
        let mut pods = self.0.lock();
        let containers = pods.entry(pod.into()).or_default();
        containers.entry(container.into()).or_default().clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Ends and drops the logs of a deleted pod.
    pub(crate) fn remove_pod(&self, pod: &str) {
        let gone = self.0.lock().remove(pod);
        for log in gone.into_iter().flat_map(HashMap::into_values) {
            log.end();
        }
    }

    /// Reads a log; none if the previous one was requested and there is none.
    pub(crate) fn read(
        &self,
        pod: &str,
        container: &str,
        wanted: &LogOptions,
    ) -> Option<BoxStream<'static, Bytes>> {
        let log = self.log(pod, container);
        let wanted = wanted.clone();
        if wanted.previous {
            let state = log.state.lock();
            let text = state.previous.as_ref()?.read(&wanted);
            return Some(futures::stream::iter([text]).boxed());
        }
        let (text, next) = {
            let state = log.state.lock();
            (state.run.read(&wanted), state.run.next())
        };
        let left = wanted.limit_bytes.map(|limit| limit.saturating_sub(text.len()));
        let first = futures::stream::iter([text]);
        if !wanted.follow {
            return Some(first.boxed());
        }
        let rest = Follower {
            log,
            next,
            left,
            timestamps: wanted.timestamps,
        };
        let rest = futures::stream::unfold(rest, |mut follower| async {
            let text = follower.next_piece().await?;
            Some((text, follower))
        });
        Some(first.chain(rest).boxed())
    }
}

/// Selects the part of a log to read (`PodLogOptions`).
#[derive(Clone, Debug, Default)]
pub(crate) struct LogOptions {
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    pub(crate) timestamps: bool,
    /// Only the last lines, counted before `since` applies.
    pub(crate) tail: Option<usize>,
    /// Only lines from this time on.
    pub(crate) since: Option<Timestamp>,
    pub(crate) limit_bytes: Option<usize>,
}

#[derive(Default)]
struct Log {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    run: Run,
    previous: Option<Run>,
    ended: bool,
}

impl Log {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        state.ended = false;
        change(&mut state);
        drop(state);
        self.changed.notify_waiters();
    }

    fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_waiters();
    }
}

/// The log of a container between two starts.
#[derive(Default)]
struct Run {
    lines: VecDeque<Line>,
    bytes: usize,
    /// How many lines were dropped from the front.
    dropped: u64,
}

struct Line {
    at: Timestamp,
    text: Box<str>,
}

impl Line {
    fn write(&self, timestamps: bool, to: &mut String) {
        if timestamps {
            // Like the kubelet, always with nine digits.
            to.push_str(&self.at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ ").to_string());
        }
        to.push_str(&self.text);
        to.push('\n');
    }
}

impl Run {
    fn push(&mut self, at: Timestamp, text: &str) {
        self.bytes += text.len() + 1;
        self.lines.push_back(Line {
            at,
            text: text.into(),
        });
        while self.bytes > MAX_LOG_BYTES {
            let Some(line) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= line.text.len() + 1;
            self.dropped += 1;
        }
    }

    /// The number of the next line.
    fn next(&self) -> u64 {
        self.dropped + self.lines.len() as u64
    }

    fn read(&self, wanted: &LogOptions) -> Bytes {
        let skipped = wanted
            .tail
            .map_or(0, |tail| self.lines.len().saturating_sub(tail));
        let mut text = String::new();
        for line in self.lines.iter().skip(skipped) {
            if wanted.since.is_none_or(|since| line.at >= since) {
                line.write(wanted.timestamps, &mut text);
            }
        }
        truncate(text.into(), wanted.limit_bytes)
    }
}

/// Truncates to a number of bytes, which may split a character.
fn truncate(mut text: Bytes, limit: Option<usize>) -> Bytes {
    text.truncate(limit.unwrap_or(usize::MAX));
    text
}

/// Follows a container's log.
struct Follower {
    log: Arc<Log>,
    next: u64,
    left: Option<usize>,
    timestamps: bool,
}

impl Follower {
    /// The next piece; none when the log has ended or the limit is reached.
    async fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            if self.left == Some(0) {
                return None;
            }
            let mut changed = std::pin::pin!(self.log.changed.notified());
            // Registered before reading, so that no line is missed.
            changed.as_mut().enable();
            {
                let state = self.log.state.lock();
                // After a restart, lines are numbered from 0 again.
                if self.next > state.run.next() {
                    self.next = 0;
                }
                let seen = usize::try_from(self.next.saturating_sub(state.run.dropped)).unwrap_or(usize::MAX);
                let mut text = String::new();
                for line in state.run.lines.iter().skip(seen) {
                    line.write(self.timestamps, &mut text);
                }
                self.next = state.run.next();
                if !text.is_empty() {
                    let text = truncate(text.into(), self.left);
                    self.left = self.left.map(|left| left - text.len());
                    return Some(text);
                }
                if state.ended {
                    return None;
                }
            }
            changed.await;
        }
    }
}
