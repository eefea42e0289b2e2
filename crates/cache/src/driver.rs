//! Runs the protocol for one kind against a client. It does what the protocol says, and decides nothing.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::{Client, client::Body, core::Status};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::{
    cache::{Core, Trouble},
    failure::{Failure, with_sources},
    key::ObjectKey,
    kind::{Cacheable, Selection, is_cluster_scoped},
    protocol::{Effect, Input, ListCall, ListWatch, Step, WatchCall},
    store::Staged,
    wire::{Arrival, Frame, Lines, Page},
};

/// How much longer than asked a watch may live before we end it ourselves: the server or the path to it is dead.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// A server that has said nothing for so long will not. kube-apiserver itself gives up on a request after a minute.
const PATIENCE: Duration = Duration::from_mins(2);

/// Of an error response no more than this is read.
const LONGEST_ERROR: usize = 1 << 20;

/// After so many objects other tasks get a turn.
const DECODED_PER_TURN: usize = 64;

/// Where a kind's list is, and which part of it is wanted.
pub(crate) struct Target {
    path: String,
    selectors: Vec<(&'static str, String)>,
    accept: &'static str,
}

impl Target {
    pub(crate) fn of<K: Cacheable>(dynamic: &K::DynamicType, selection: &Selection) -> Self {
        let Selection {
            namespace,
            labels,
            fields,
        } = selection;
        let selectors = [("labelSelector", labels), ("fieldSelector", fields)];
        Self {
            path: K::url_path(
                dynamic,
                namespace.as_deref().filter(|_| !is_cluster_scoped::<K>()),
            ),
            selectors: selectors
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.clone()?)))
                .collect(),
            accept: if K::metadata_api() {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            } else {
                "application/json"
            },
        }
    }

    fn request(&self, parameters: &[(&str, &str)]) -> Result<Request<Body>, Failure> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.selectors {
            query.append_pair(name, value);
        }
        query.extend_pairs(parameters);
        Request::get(format!("{}?{}", self.path, query.finish()))
            .header(header::ACCEPT, self.accept)
            .body(Body::empty())
            .map_err(|error| Failure::other(error.to_string()))
    }
}

/// Runs until it is cancelled, which is safe at any point: a list that is not complete was never in the store.
pub(crate) async fn run<K: Cacheable>(
    client: Client,
    target: Target,
    core: Arc<Core<K>>,
    mut protocol: ListWatch,
) {
    let mut staged = Staged::new();
    loop {
        match protocol.step() {
            Step::Wait(delay) => {
                sleep(delay).await;
                let _ = protocol.input(&Input::Waited, now());
            }
            Step::List(call) => list(&client, &target, &core, &mut protocol, &mut staged, call).await,
            Step::Watch(call) => watch(&client, &target, &core, &mut protocol, call).await,
        }
    }
}

async fn list<K: Cacheable>(
    client: &Client,
    target: &Target,
    core: &Core<K>,
    protocol: &mut ListWatch,
    staged: &mut Staged<K>,
    call: ListCall,
) {
    let effect = match patiently(fetch(client, target, call)).await {
        Ok(body) => match Page::parse(&body) {
            Ok(page) => {
                for (count, raw) in page.items.iter().enumerate() {
                    stage(core, staged, Arrival::decode(raw));
                    if count % DECODED_PER_TURN == DECODED_PER_TURN - 1 {
                        tokio::task::yield_now().await;
                    }
                }
                let Page {
                    resource_version,
                    continue_token,
                    ..
                } = &page;
                let continue_token = continue_token.as_deref();
                protocol.input(
                    &Input::Page {
                        resource_version,
                        continue_token,
                    },
                    now(),
                )
            }
            Err(error) => {
                let failure = Failure::other(format!("the list is not readable: {error}"));
                core.report(Trouble::List(&failure));
                protocol.input(&Input::ListFailed(&failure), now())
            }
        },
        Err(failure) => {
            core.report(Trouble::List(&failure));
            protocol.input(&Input::ListFailed(&failure), now())
        }
    };
    match effect {
        Effect::Replace => {
            core.store
                .replace(std::mem::take(staged), protocol.resource_version());
            core.complete();
        }
        Effect::Discard => staged.clear(),
        Effect::Clear => {
            staged.clear();
            core.store.clear();
        }
        Effect::Stage | Effect::None | Effect::Apply | Effect::Remove => {}
    }
}

async fn fetch(client: &Client, target: &Target, call: ListCall) -> Result<Bytes, Failure> {
    let limit = call.limit.map(|limit| limit.to_string());
    let mut parameters = Vec::new();
    // An empty version is the default; a continue token carries its own.
    if !call.resource_version.is_empty() {
        parameters.push(("resourceVersion", call.resource_version.as_str()));
    }
    parameters.extend(limit.as_deref().map(|limit| ("limit", limit)));
    parameters.extend(call.continue_token.as_deref().map(|token| ("continue", token)));
    let response = send(client, target.request(&parameters)?).await?;
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| Failure::other(with_sources(&error)))?;
    Ok(body.to_bytes())
}

fn stage<K: Cacheable>(core: &Core<K>, staged: &mut Staged<K>, arrival: Arrival<K>) {
    match arrival {
        Arrival::Object(object) => {
            let object = Arc::<K>::from(object);
            staged.insert(ObjectKey::of(&*object), Some(object));
        }
        Arrival::Broken(broken) => {
            core.report(Trouble::Object(&broken));
            if let Some(key) = broken.key {
                staged.insert(key, None);
            }
        }
    }
}

async fn watch<K: Cacheable>(
    client: &Client,
    target: &Target,
    core: &Core<K>,
    protocol: &mut ListWatch,
    call: WatchCall,
) {
    let seconds = call.timeout.as_secs().to_string();
    let request = target.request(&[
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", &call.resource_version),
        ("timeoutSeconds", &seconds),
    ]);
    let deadline = Instant::now() + call.timeout + WATCH_GRACE;
    let response = match patiently(async { send(client, request?).await }).await {
        Ok(response) => response,
        Err(failure) => {
            core.report(Trouble::Watch(&failure));
            let _ = protocol.input(&Input::WatchFailed(&failure), now());
            return;
        }
    };
    core.recovered();
    let mut body = response.into_body();
    let mut lines = Lines::default();
    loop {
        while let Some(line) = lines.next() {
            if let Err(failure) = frame(core, protocol, &line) {
                core.report(Trouble::Watch(&failure));
                let _ = protocol.input(&Input::StreamFailed(&failure), now());
                return;
            }
        }
        // A broken connection is an ended one: what was received is whole lines, and counts.
        let Ok(Some(Ok(chunk))) = timeout_at(deadline, body.frame()).await else {
            let _ = protocol.input(&Input::StreamEnded, now());
            return;
        };
        if let Some(data) = chunk.data_ref()
            && lines.push(data).is_err()
        {
            let failure = Failure::other("a line of the watch is too long to be an object");
            core.report(Trouble::Watch(&failure));
            let _ = protocol.input(&Input::StreamFailed(&failure), now());
            return;
        }
    }
}

/// Takes one line of a watch; an error ends the watch.
fn frame<K: Cacheable>(core: &Core<K>, protocol: &mut ListWatch, line: &[u8]) -> Result<(), Failure> {
    let (event, raw) = match Frame::parse(line) {
        Ok(Frame::Event(event, raw)) => (event, raw),
        Ok(Frame::Bookmark { resource_version }) => {
            let _ = protocol.input(
                &Input::Bookmark {
                    resource_version: &resource_version,
                },
                now(),
            );
            core.store.advance(protocol.resource_version());
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
    let arrival = Arrival::decode(raw);
    if let Arrival::Broken(broken) = &arrival {
        core.report(Trouble::Object(broken));
    }
    let effect = protocol.input(
        &Input::Event {
            event,
            resource_version: arrival.resource_version(),
        },
        now(),
    );
    match effect {
        Effect::Apply => core.store.apply(arrival, protocol.resource_version()),
        Effect::Remove => core.store.remove(arrival, protocol.resource_version()),
        Effect::None | Effect::Stage | Effect::Replace | Effect::Discard | Effect::Clear => {}
    }
    Ok(())
}

async fn patiently<T>(request: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::other(format!("no answer within {} s", PATIENCE.as_secs()));
    timeout(PATIENCE, request)
        .await
        .unwrap_or_else(|elapsed| Err(late(elapsed)))
}

/// Sends a request and turns an error response into a failure.
async fn send(client: &Client, request: Request<Body>) -> Result<Response<Body>, Failure> {
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
fn status_of(code: StatusCode, body: &[u8]) -> Status {
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
