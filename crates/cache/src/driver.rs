//! Runs the protocol for one kind against a client. It does what the protocol says, and decides nothing.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, header};
use http_body_util::{BodyExt, Limited};
use kube::{Client, client::Body, core::Status};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;

use crate::{
    core::{Core, Trouble},
    failure::{Failure, with_sources},
    ingest::Arrival,
    key::ObjectKey,
    protocol::{Effect, Input, ListCall, ListWatch, Step, WatchCall},
    scan::Scanned,
    store::{Scope, Staged, Told},
    target::Target,
    wire::{Frame, Lines, Page},
};

/// How much longer than asked a watch may live before we end it ourselves: the server or the path to it is dead.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// A server that has said nothing for so long will not. kube-apiserver itself gives up on a request after a minute.
const PATIENCE: Duration = Duration::from_mins(2);

/// A server that streams initial events and stops in the middle for so long does not know their end.
const INITIAL_SILENCE: Duration = Duration::from_secs(20);

/// Of an error response no more than this is read.
const LONGEST_ERROR: usize = 1 << 20;

/// After so many objects other tasks get a turn.
const PER_TURN: usize = 64;

/// No more changes than this are held back for one write of the store.
const LARGEST_BATCH: usize = 256;

/// Runs until it is cancelled, which is safe at any point: a list that is not complete was never in the store.
pub(crate) async fn run(client: Client, target: Target, scope: Scope, core: Arc<Core>, protocol: ListWatch) {
    let mut driver = Driver {
        client,
        target,
        scope,
        core,
        protocol,
        staged: Staged::new(),
        told: Vec::new(),
    };
    loop {
        match driver.protocol.step() {
            Step::Wait(delay) => {
                sleep(delay).await;
                let _ = driver.protocol.input(&Input::Waited, now());
            }
            Step::List(call) => {
                let span = tracing::debug_span!("list", kind = %driver.core.kind, namespace = %driver.scope, version = call.resource_version);
                driver.list(call).instrument(span).await;
            }
            Step::Watch(call) => {
                let span = tracing::debug_span!("watch", kind = %driver.core.kind, namespace = %driver.scope, version = call.resource_version);
                driver.watch(call).instrument(span).await;
            }
        }
    }
}

struct Driver {
    client: Client,
    target: Target,
    scope: Scope,
    core: Arc<Core>,
    protocol: ListWatch,
    staged: Staged,
    /// What the watch told and the store does not know yet.
    told: Vec<Told>,
}

impl Driver {
    async fn list(&mut self, call: ListCall) {
        let effect = match self.fetch(&call).await {
            Ok(page) => self.protocol.input(
                &Input::Page {
                    resource_version: &page.resource_version,
                    continue_token: page.continue_token.as_deref(),
                },
                now(),
            ),
            Err(failure) => {
                self.core.trouble(&self.scope, Trouble::List(&failure));
                self.protocol.input(&Input::ListFailed(&failure), now())
            }
        };
        match effect {
            Effect::Replace => self.replace(),
            Effect::Discard => self.staged.clear(),
            Effect::Clear => {
                self.staged.clear();
                self.core.store.replace(&self.scope, Staged::new(), "");
            }
            Effect::Stage | Effect::Unstage | Effect::None | Effect::Apply | Effect::Remove => {}
        }
    }

    /// Gets a page; its items are put aside as they arrive.
    async fn fetch(&mut self, call: &ListCall) -> Result<Page, Failure> {
        let not_a_list =
            |wire: crate::wire::NotAList| Failure::other(format!("the list is not readable: {}", wire.0));
        let request = self.target.list(&self.scope, call)?;
        let mut body = patiently(send(&self.client, request)).await?.into_body();
        let mut page = Page::default();
        loop {
            let next = patiently(async { Ok(body.frame().await) }).await?;
            let Some(frame) = next else { break };
            let frame = frame.map_err(|error| Failure::other(with_sources(&error)))?;
            if let Some(chunk) = frame.data_ref() {
                self.core.stats.heard();
                // Other tasks get a turn between pieces, however large the server's chunks are.
                for piece in chunk.chunks(PER_TURN << 10) {
                    page.push(piece).map_err(not_a_list)?;
                    page.items(|raw, found| self.stage(raw, found))
                        .map_err(not_a_list)?;
                    self.core.fresh.room().await;
                    tokio::task::yield_now().await;
                }
            }
        }
        page.finish(|raw, found| self.stage(raw, found))
            .map_err(not_a_list)?;
        Ok(page)
    }

    fn stage(&mut self, raw: &[u8], found: &Scanned<'_>) {
        match self.arrival(raw, found) {
            Arrival::Object(entry) => drop(self.staged.insert(entry.meta.key.clone(), Some(entry))),
            Arrival::Broken(broken) => {
                self.core.report(Trouble::Object(&broken));
                if let Some(key) = broken.key {
                    self.staged.insert(key, None);
                }
            }
        }
    }

    /// What arrived, to be stored. What is known in this very state need not be made again: most of a list after a
    /// broken watch, and every write that went through [`Caches::client`](crate::Caches::client) and comes back.
    fn arrival(&self, raw: &[u8], found: &Scanned<'_>) -> Arrival {
        let snapshot = self.core.store.snapshot();
        match snapshot.objects.named(&found.namespace, &found.name) {
            Some(known) if known.meta.is_at(&found.uid, &found.resource_version) => {
                Arrival::Object(Arc::clone(known))
            }
            _ => self.core.ingest.lock().take(raw, found),
        }
    }

    fn replace(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        self.core.stats.list();
        let objects = staged.len();
        tracing::debug!(
            objects,
            version = self.protocol.resource_version(),
            "the whole state is known"
        );
        self.core
            .store
            .replace(&self.scope, staged, self.protocol.resource_version());
        self.core.complete(&self.scope);
    }

    async fn watch(&mut self, call: WatchCall) {
        let request = self.target.watch(&self.scope, &call);
        let deadline = Instant::now() + call.timeout + WATCH_GRACE;
        let response = match patiently(async { send(&self.client, request?).await }).await {
            Ok(response) => response,
            Err(failure) => {
                // A server that cannot stream is listed; that it cannot is no trouble.
                if !call.initial_events {
                    self.core.trouble(&self.scope, Trouble::Watch(&failure));
                }
                self.take(&Input::WatchFailed(&failure));
                return;
            }
        };
        self.core.stats.watch();
        self.core.recovered(&self.scope);
        let mut synced = !call.initial_events;
        let mut body = response.into_body();
        let mut lines = Lines::default();
        loop {
            let mut count = 0;
            while let Some(line) = lines.next() {
                if let Err(failure) = self.line(&line, &mut synced) {
                    self.commit();
                    self.core.trouble(&self.scope, Trouble::Watch(&failure));
                    self.take(&Input::StreamFailed(&failure));
                    return;
                }
                count += 1;
                if count % PER_TURN == 0 {
                    tokio::task::consume_budget().await;
                }
            }
            self.commit();
            self.core.fresh.room().await;
            let silence = if synced {
                deadline
            } else {
                deadline.min(Instant::now() + INITIAL_SILENCE)
            };
            let chunk = match self.chunk(&mut body, silence).await {
                Some(chunk) => chunk,
                None if !synced && Instant::now() < deadline && Instant::now() >= silence => {
                    let failure = Failure::other("the initial events do not end");
                    self.take(&Input::StreamFailed(&failure));
                    return;
                }
                // A broken connection is an ended one: what was received is whole lines, and counts.
                None => {
                    self.take(&Input::StreamEnded);
                    return;
                }
            };
            if lines.push(chunk).is_err() {
                let failure = Failure::other("a line of the watch is too long to be an object");
                self.core.trouble(&self.scope, Trouble::Watch(&failure));
                self.take(&Input::StreamFailed(&failure));
                return;
            }
        }
    }

    /// The next piece of the body, `None` at its end or at the deadline.
    async fn chunk(&self, body: &mut Body, deadline: Instant) -> Option<Bytes> {
        loop {
            let frame = timeout_at(deadline, body.frame()).await.ok()??;
            if let Ok(chunk) = frame.ok()?.into_data() {
                self.core.stats.heard();
                return Some(chunk);
            }
        }
    }

    /// Takes one line of a watch; an error ends the watch.
    fn line(&mut self, line: &[u8], synced: &mut bool) -> Result<(), Failure> {
        let (event, raw, found) = match Frame::parse(line) {
            Ok(Frame::Event(event, raw, found)) => (event, raw, found),
            Ok(Frame::Bookmark {
                resource_version,
                initial_end,
            }) => {
                let bookmark = Input::Bookmark {
                    resource_version: &resource_version,
                    initial_end,
                };
                if self.protocol.input(&bookmark, now()) == Effect::Replace {
                    self.replace();
                    *synced = true;
                } else if *synced {
                    self.write();
                }
                return Ok(());
            }
            Ok(Frame::Error(status)) => return Err(Failure::from_status(&status, None)),
            Ok(Frame::Unknown) => return Ok(()),
            // Which change this was cannot be known, so nothing after it can be trusted.
            Err(error) => {
                return Err(Failure::other(format!(
                    "a line of the watch is not readable: {error}"
                )));
            }
        };
        self.core.stats.event();
        let input = Input::Event {
            event,
            resource_version: &found.resource_version,
        };
        match self.protocol.input(&input, now()) {
            Effect::Stage => self.stage(raw, &found),
            Effect::Unstage => {
                self.staged
                    .remove(&ObjectKey::namespaced(&*found.namespace, &*found.name));
            }
            Effect::Apply => match self.arrival(raw, &found) {
                Arrival::Object(entry) => self.told.push(Told::Applied(entry)),
                Arrival::Broken(broken) => self.core.report(Trouble::Object(&broken)),
            },
            Effect::Remove => match self.core.ingest.lock().make(raw, &found) {
                Arrival::Object(last) => self.told.push(Told::Removed(last)),
                Arrival::Broken(broken) => self.told.extend(broken.key.map(Told::RemovedBroken)),
            },
            Effect::None | Effect::Replace | Effect::Discard | Effect::Clear => {}
        }
        if self.told.len() >= LARGEST_BATCH {
            self.commit();
        }
        Ok(())
    }

    fn commit(&mut self) {
        if !self.told.is_empty() {
            self.write();
        }
    }

    /// Tells the store what the watch told, and how far it has come.
    fn write(&mut self) {
        let told = std::mem::take(&mut self.told);
        self.core
            .store
            .commit(&self.scope, told, self.protocol.resource_version());
    }

    /// The end of a watch: what was put aside for the initial state may be void.
    fn take(&mut self, input: &Input<'_>) {
        if self.protocol.input(input, now()) == Effect::Discard {
            self.staged.clear();
        }
    }
}

async fn patiently<T>(request: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::other(format!("no answer within {} s", PATIENCE.as_secs()));
    timeout(PATIENCE, request)
        .await
        .unwrap_or_else(|elapsed| Err(late(elapsed)))
}

/// Sends a request and turns an error response into a failure.
async fn send(client: &Client, request: http::Request<Body>) -> Result<Response<Body>, Failure> {
    let response = client
        .send(request)
        .await
        .map_err(|error| Failure::from_client(&error))?;
    let code = response.status();
    if code.is_success() {
        return Ok(response);
    }
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let body = Limited::new(response.into_body(), LONGEST_ERROR).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Err(Failure::from_status(&status_of(code, &body), retry_after))
}

/// The server's status object, or one made from the code where the answer is none (an unknown path is plain text).
fn status_of(code: http::StatusCode, body: &[u8]) -> Status {
    match serde_json::from_slice::<Status>(body) {
        Ok(status) if status.code != 0 || !status.reason.is_empty() => status,
        _ => {
            let text = String::from_utf8_lossy(body);
            Status::failure(text.trim(), "").with_code(code.as_u16())
        }
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
