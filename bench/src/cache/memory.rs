//! A list and a watch from memory: the bytes that a server would send, as fast as they are read.

use std::{convert::Infallible, sync::Arc};

use anyhow::Context;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use http_body_util::{Either, Full, StreamBody};
use tokio::sync::watch;

/// Size of the chunks, as from a socket.
const CHUNK: usize = 64 << 10;

/// Version of the first update. All versions have the same number of digits, so that they can be overwritten in place.
pub(super) const FIRST: usize = 1_000_001;

/// A pod's JSON, and the offset of its version.
struct Pod {
    text: String,
    version: usize,
}

/// Pods, and updates of them once `go` is set.
pub(super) struct Source {
    lines: Arc<Vec<Pod>>,
    /// Number of pods that are updated in turn.
    changing: usize,
    events: usize,
    pub(super) go: watch::Sender<bool>,
}

impl Source {
    pub(super) fn read(file: &str, changing: usize, events: usize) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file).context("cannot read the pods")?;
        let mark = r#""resourceVersion":""#;
        let pod = |line: &str| {
            Some(Pod {
                text: line.to_owned(),
                version: line.find(mark)? + mark.len(),
            })
        };
        let lines: Option<Vec<_>> = text.lines().map(pod).collect();
        let lines = lines.context("a pod has no resourceVersion")?;
        Ok(Self {
            lines: Arc::new(lines),
            changing,
            events,
            go: watch::Sender::new(false),
        })
    }

    pub(super) fn client(&self) -> kube::Client {
        let (lines, changing, events, go) = (
            Arc::clone(&self.lines),
            self.changing,
            self.events,
            self.go.subscribe(),
        );
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let response = if query.contains("sendInitialEvents") {
                Response::builder()
                    .status(422)
                    .body(Either::Left(Full::from("lists only")))
                    .expect("a response")
            } else if query.contains("watch=true") {
                Response::new(Either::Right(StreamBody::new(updates(
                    Arc::clone(&lines),
                    changing,
                    events,
                    go.clone(),
                ))))
            } else {
                let list = format!(
                    r#"{{"metadata":{{"resourceVersion":"1000000"}},"items":[{}]}}"#,
                    lines
                        .iter()
                        .map(|pod| pod.text.as_str())
                        .collect::<Vec<_>>()
                        .join(",")
                );
                Response::new(Either::Left(Full::from(list)))
            };
            async { Ok::<_, Infallible>(response) }
        });
        kube::Client::new(service, "default")
    }
}

type Frame = Result<http_body::Frame<Bytes>, Infallible>;

fn updates(
    lines: Arc<Vec<Pod>>,
    changing: usize,
    events: usize,
    mut go: watch::Receiver<bool>,
) -> impl Stream<Item = Frame> + Send + Unpin {
    let start = async move {
        // The sender outlives the measurement.
        let _ = go.wait_for(|go| *go).await;
        stream::iter(Chunks {
            lines,
            changing,
            events,
            next: 0,
        })
    };
    let all = stream::once(start).flatten().chain(stream::pending());
    Box::pin(all.map(|chunk| Ok(http_body::Frame::data(chunk))))
}

struct Chunks {
    lines: Arc<Vec<Pod>>,
    changing: usize,
    events: usize,
    next: usize,
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.next == self.events {
            return None;
        }
        let mut chunk = Vec::with_capacity(CHUNK + 16_384);
        while chunk.len() < CHUNK && self.next < self.events {
            let pod = &self.lines[self.next % self.changing];
            chunk.extend_from_slice(br#"{"type":"MODIFIED","object":"#);
            let at = chunk.len() + pod.version;
            chunk.extend_from_slice(pod.text.as_bytes());
            let version = (FIRST + self.next).to_string();
            chunk[at..at + version.len()].copy_from_slice(version.as_bytes());
            chunk.extend_from_slice(b"}\n");
            self.next += 1;
        }
        Some(Bytes::from(chunk))
    }
}
