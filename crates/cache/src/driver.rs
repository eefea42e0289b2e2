//! Runs the protocol of one kind with a client. It executes the protocol's steps and makes no decisions.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, header};
use http_body_util::{BodyExt, Limited};
use kube::{Client, client::Body, core::Status};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;

use crate::{
    core::{CacheError, Core},
    ingest::Ingested,
    key::ObjectKey,
    protocol::{Effect, Input, ListCall, ListWatch, Step, WatchCall},
    scan::ScannedObject,
    store::{NamespaceScope, StagedObjects, WatchChange},
    target::Target,
    watch_error::{WatchError, with_sources},
    wire::{Frame, Lines, Page},
};

/// How long to wait for a response. kube-apiserver itself ends a request after a minute.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(2);

/// How much of an error response is read.
const MAX_ERROR_BODY: usize = 1 << 20;

/// The task yields after this many objects.
const YIELD_EVERY: usize = 64;

/// The largest number of changes in one write of the store.
const MAX_BATCH: usize = 256;

/// Runs until it is cancelled, which is safe at any point: an incomplete list is never in the store.
pub(crate) async fn run(
    client: Client,
    target: Target,
    scope: NamespaceScope,
    core: Arc<Core>,
    protocol: ListWatch,
) {
    let mut driver = Driver {
        client,
        target,
        scope,
        core,
        protocol,
        staged: StagedObjects::new(),
        pending: Vec::new(),
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
    scope: NamespaceScope,
    core: Arc<Core>,
    protocol: ListWatch,
    staged: StagedObjects,
    /// Watch events that are not in the store yet.
    pending: Vec<WatchChange>,
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
                let effect = self.protocol.input(&Input::ListFailed(&failure), now());
                let error = CacheError::List(&failure);
                self.core
                    .record_error(&self.scope, error, Some(self.next_attempt()));
                effect
            }
        };
        self.execute(effect);
    }

    /// Fetches a page; its items are staged as they arrive.
    async fn fetch(&mut self, call: &ListCall) -> Result<Page, WatchError> {
        let not_a_list =
            |wire: crate::wire::InvalidList| WatchError::other(format!("invalid list response: {}", wire.0));
        let request = self.target.list(&self.scope, call)?;
        let mut body = with_response_timeout(send(&self.client, request))
            .await?
            .into_body();
        self.core.connection.succeeded();
        let mut page = Page::default();
        loop {
            let next = with_response_timeout(async { Ok(body.frame().await) }).await?;
            let Some(frame) = next else { break };
            let frame = frame.map_err(|error| WatchError::other(with_sources(&error)))?;
            if let Some(chunk) = frame.data_ref() {
                self.core.stats.record_contact();
                // Yield between pieces, however large the server's chunks are.
                for piece in chunk.chunks(YIELD_EVERY << 10) {
                    page.push(piece).map_err(not_a_list)?;
                    page.items(|raw, found| self.stage(raw, found))
                        .map_err(not_a_list)?;
                    self.core.pack_queue.wait_for_room().await;
                    tokio::task::yield_now().await;
                }
            }
        }
        page.finish(|raw, found| self.stage(raw, found))
            .map_err(not_a_list)?;
        Ok(page)
    }

    fn stage(&mut self, raw: &[u8], found: &ScannedObject<'_>) {
        match self.ingest(raw, found) {
            Ingested::Object(entry) => drop(self.staged.insert(entry.meta.key.clone(), Some(entry))),
            Ingested::Invalid(broken) => {
                self.core.report_object_error(CacheError::Object(&broken));
                if let Some(key) = broken.key {
                    self.staged.insert(key, None);
                }
            }
        }
    }

    /// Makes an entry of an object, or reuses the stored one of the same version: most of a relist, and every own write
    /// (through [`CacheSet::client`](crate::CacheSet::client)) that the watch reports.
    fn ingest(&self, raw: &[u8], found: &ScannedObject<'_>) -> Ingested {
        let snapshot = self.core.store.snapshot();
        match snapshot.objects.get_by_name(&found.namespace, &found.name) {
            Some(known) if known.meta.has_version(&found.uid, &found.resource_version) => {
                Ingested::Object(Arc::clone(known))
            }
            _ => self.core.ingest.lock().make_and_queue(raw, found),
        }
    }

    fn replace(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        self.core.stats.list();
        let objects = staged.len();
        tracing::debug!(
            objects,
            version = self.protocol.resource_version(),
            "the list is complete"
        );
        self.core
            .store
            .replace(&self.scope, staged, self.protocol.resource_version());
        self.core.mark_complete(&self.scope);
    }

    /// Follows a watch until the protocol ends it.
    async fn watch(&mut self, call: WatchCall) {
        let request = self.target.watch(&self.scope, &call);
        let response = match with_response_timeout(async { send(&self.client, request?).await }).await {
            Ok(response) => response,
            Err(failure) => return self.fail_watch(&Input::WatchFailed(&failure), &failure),
        };
        self.core.stats.watch();
        self.core.connection.succeeded();
        self.core.clear_error(&self.scope);
        let mut body = response.into_body();
        let mut lines = Lines::default();
        loop {
            let mut count = 0;
            while let Some(line) = lines.next() {
                if let Err(failure) = self.process_line(&line) {
                    self.commit();
                    return self.fail_watch(&Input::StreamFailed(&failure), &failure);
                }
                count += 1;
                if count % YIELD_EVERY == 0 {
                    tokio::task::consume_budget().await;
                }
            }
            self.commit();
            self.core.pack_queue.wait_for_room().await;
            let deadline = self.protocol.read_deadline(now());
            let end = match timeout_at(deadline.into(), self.next_chunk(&mut body)).await {
                Ok(Some(chunk)) => {
                    if lines.push(chunk).is_ok() {
                        continue;
                    }
                    let failure = WatchError::other("a watch event is too large");
                    return self.fail_watch(&Input::StreamFailed(&failure), &failure);
                }
                // A broken connection is like an ended one: the complete lines received so far are valid.
                Ok(None) => Input::StreamEnded,
                Err(_) => Input::TimedOut,
            };
            let effect = self.protocol.input(&end, now());
            return self.execute(effect);
        }
    }

    /// Returns the next chunk of the body, `None` at its end.
    async fn next_chunk(&self, body: &mut Body) -> Option<Bytes> {
        loop {
            if let Ok(chunk) = body.frame().await?.ok()?.into_data() {
                self.core.stats.record_contact();
                return Some(chunk);
            }
        }
    }

    /// Processes one line of a watch; an error ends the watch.
    fn process_line(&mut self, line: &[u8]) -> Result<(), WatchError> {
        let (event_type, raw, found) = match Frame::parse(line) {
            Ok(Frame::Event(event, raw, found)) => (event, raw, found),
            Ok(Frame::Bookmark {
                resource_version,
                initial_events_end,
            }) => {
                let bookmark = Input::Bookmark {
                    resource_version: &resource_version,
                    initial_events_end,
                };
                let effect = self.protocol.input(&bookmark, now());
                self.execute(effect);
                return Ok(());
            }
            Ok(Frame::Error(status)) => return Err(WatchError::from_status(&status, None)),
            Ok(Frame::Unknown) => return Ok(()),
            // The lost event is unknown, so the state after it would be wrong.
            Err(error) => {
                return Err(WatchError::other(format!("invalid watch event: {error}")));
            }
        };
        self.core.stats.event();
        let input = Input::Event {
            event_type,
            resource_version: &found.resource_version,
        };
        match self.protocol.input(&input, now()) {
            Effect::Stage => self.stage(raw, &found),
            Effect::Unstage => {
                self.staged
                    .remove(&ObjectKey::namespaced(&*found.namespace, &*found.name));
            }
            Effect::Apply => match self.ingest(raw, &found) {
                Ingested::Object(entry) => self.pending.push(WatchChange::Applied(entry)),
                Ingested::Invalid(broken) => self.core.report_object_error(CacheError::Object(&broken)),
            },
            Effect::Remove => match self.core.ingest.lock().make_entry(raw, &found) {
                Ingested::Object(last) => self.pending.push(WatchChange::Removed(last)),
                Ingested::Invalid(broken) => self.pending.extend(broken.key.map(WatchChange::RemovedInvalid)),
            },
            effect => self.execute(effect),
        }
        if self.pending.len() >= MAX_BATCH {
            self.commit();
        }
        Ok(())
    }

    /// Executes an effect that concerns no single object.
    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Replace => self.replace(),
            Effect::Advance => self.write(),
            Effect::Discard | Effect::Fallback => self.staged.clear(),
            Effect::Clear => {
                self.staged.clear();
                self.core.store.replace(&self.scope, StagedObjects::new(), "");
            }
            // The objects of a page are staged as they arrive.
            Effect::Stage | Effect::Unstage | Effect::Apply | Effect::Remove | Effect::None => {}
        }
    }

    /// Reports a failed watch to the protocol and, unless the protocol falls back to a list, to users.
    fn fail_watch(&mut self, input: &Input<'_>, failure: &WatchError) {
        let effect = self.protocol.input(input, now());
        if effect != Effect::Fallback {
            let error = CacheError::Watch(failure);
            self.core
                .record_error(&self.scope, error, Some(self.next_attempt()));
        }
        self.execute(effect);
    }

    /// The time until the next request.
    fn next_attempt(&self) -> Duration {
        match self.protocol.step() {
            Step::Wait(delay) => delay,
            Step::List(_) | Step::Watch(_) => Duration::ZERO,
        }
    }

    fn commit(&mut self) {
        if !self.pending.is_empty() {
            self.write();
        }
    }

    /// Writes the pending watch events and the reached resource version to the store.
    fn write(&mut self) {
        let changes = std::mem::take(&mut self.pending);
        self.core
            .store
            .commit(&self.scope, changes, self.protocol.resource_version());
    }
}

async fn with_response_timeout<T>(
    request: impl Future<Output = Result<T, WatchError>>,
) -> Result<T, WatchError> {
    let late = |_| WatchError::other(format!("no response within {} s", RESPONSE_TIMEOUT.as_secs()));
    timeout(RESPONSE_TIMEOUT, request)
        .await
        .unwrap_or_else(|elapsed| Err(late(elapsed)))
}

/// Sends a request and turns an error response into an error.
async fn send(client: &Client, request: http::Request<Body>) -> Result<Response<Body>, WatchError> {
    let response = client
        .send(request)
        .await
        .map_err(|error| WatchError::from_client(&error))?;
    let code = response.status();
    if code.is_success() {
        return Ok(response);
    }
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let body = Limited::new(response.into_body(), MAX_ERROR_BODY).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Err(WatchError::from_status(&status_of(code, &body), retry_after))
}

/// Returns the server's status object, or one made from the code if the body has none (an unknown path is plain text).
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
