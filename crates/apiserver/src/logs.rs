//! What containers print: whoever runs a pod writes it here, and `pods/log` reads it.
//!
//! ```text
//!   Logs::print ─► lines with their time, the last mebibyte of each container ─► tail, since, limit ─► the client
//!                                              └─ previous: the run before the last restart          └─ follow
//! ```
//!
//! A log belongs to a pod's UID, so that a pod that comes again under the same name starts with an empty one. It goes
//! with its pod.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::server::Shared;

/// How much of a container's output is kept; what is older goes first.
const KEPT: usize = 1024 * 1024;

/// The logs of a server's pods, for whoever runs them; see [`crate::Server::logs`].
#[derive(Clone)]
pub struct Logs {
    server: Shared,
}

impl Logs {
    pub(crate) fn new(server: Shared) -> Self {
        Self { server }
    }

    /// Notes that a container of the pod with this UID printed a text: one line, or several.
    pub fn print(&self, pod: &str, container: &str, text: &str) {
        let now = self.server.world.now();
        let log = self.server.printed.of(pod, container);
        log.change(|state| text.lines().for_each(|line| state.run.push(now, line)));
    }

    /// Notes that a container was started anew: what it had printed is now its previous log.
    pub fn restart(&self, pod: &str, container: &str) {
        let log = self.server.printed.of(pod, container);
        log.change(|state| state.previous = Some(std::mem::take(&mut state.run)));
    }

    /// Notes that a container has ended and prints nothing any more: who follows its log is done.
    pub fn end(&self, pod: &str, container: &str) {
        self.server.printed.of(pod, container).end();
    }
}

/// All that pods have printed, by UID.
#[derive(Default)]
pub(crate) struct Printed(Mutex<HashMap<Box<str>, Containers>>);

/// What a pod's containers have printed, by name.
type Containers = HashMap<Box<str>, Arc<Log>>;

impl Printed {
    fn of(&self, pod: &str, container: &str) -> Arc<Log> {
        let mut pods = self.0.lock();
        let containers = pods.entry(pod.into()).or_default();
        containers.entry(container.into()).or_default().clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Ends and drops the logs of a pod that is gone.
    pub(crate) fn forget(&self, pod: &str) {
        let gone = self.0.lock().remove(pod);
        for log in gone.into_iter().flat_map(HashMap::into_values) {
            log.end();
        }
    }

    /// What a client asked to see; none if there was no previous run.
    pub(crate) fn read(
        &self,
        pod: &str,
        container: &str,
        wanted: &Wanted,
    ) -> Option<BoxStream<'static, Bytes>> {
        let log = self.of(pod, container);
        let wanted = wanted.clone();
        if wanted.previous {
            let state = log.state.lock();
            let text = state.previous.as_ref()?.show(&wanted);
            return Some(futures::stream::iter([text]).boxed());
        }
        let (text, next) = {
            let state = log.state.lock();
            (state.run.show(&wanted), state.run.next())
        };
        let left = wanted.bytes.map(|limit| limit.saturating_sub(text.len()));
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
            let text = follower.more().await?;
            Some((text, follower))
        });
        Some(first.chain(rest).boxed())
    }
}

/// What of a log a client wants to see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    pub(crate) timestamps: bool,
    /// The last so many lines, of all that there are.
    pub(crate) tail: Option<usize>,
    /// Nothing that was printed before.
    pub(crate) since: Option<Timestamp>,
    pub(crate) bytes: Option<usize>,
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

/// What a container has printed between two starts.
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
            // As the kubelet does: to the nanosecond, all nine digits.
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
        while self.bytes > KEPT {
            let Some(line) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= line.text.len() + 1;
            self.dropped += 1;
        }
    }

    /// The number of the line that is printed next.
    fn next(&self) -> u64 {
        self.dropped + self.lines.len() as u64
    }

    fn show(&self, wanted: &Wanted) -> Bytes {
        let skipped = wanted
            .tail
            .map_or(0, |tail| self.lines.len().saturating_sub(tail));
        let mut text = String::new();
        for line in self.lines.iter().skip(skipped) {
            if wanted.since.is_none_or(|since| line.at >= since) {
                line.write(wanted.timestamps, &mut text);
            }
        }
        cut(text.into(), wanted.bytes)
    }
}

/// Limits count bytes and may end in the middle of a letter.
fn cut(mut text: Bytes, limit: Option<usize>) -> Bytes {
    text.truncate(limit.unwrap_or(usize::MAX));
    text
}

/// Reads on as a container prints.
struct Follower {
    log: Arc<Log>,
    next: u64,
    left: Option<usize>,
    timestamps: bool,
}

impl Follower {
    /// The next piece; none when the container has ended or the client has seen all that it wanted.
    async fn more(&mut self) -> Option<Bytes> {
        loop {
            if self.left == Some(0) {
                return None;
            }
            let mut changed = std::pin::pin!(self.log.changed.notified());
            // Before looking, so that nothing that is printed meanwhile is missed.
            changed.as_mut().enable();
            {
                let state = self.log.state.lock();
                // A restart begins a new count.
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
                    let text = cut(text.into(), self.left);
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
