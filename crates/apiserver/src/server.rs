//! The server as a `tower` service: requests in, answers out, no socket needed.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    admission::Accounts,
    body::Body,
    discovery, limits,
    media::{self, Encoding},
    openapi::{self, Document},
    patch::PatchKind,
    registry::{self, Catalogue, Registry},
    request::{Query, Route, Target, Verb},
    selector::Selector,
    status::Status,
    storage::{Memory, Storage},
    subresources::{self, Input, TokenKey},
    verbs::{Answer, Api, DeleteOptions, ListBody, ListOptions, WatchStream, WriteOptions},
    versions,
    view::View,
    world::World,
};

/// The state that all clones of a server, and all its open watches, share.
pub(crate) type Shared = Arc<Api>;

/// Where the OpenAPI documents are.
const OPENAPI: &str = "/openapi/v3/";

/// What aggregated discovery is called in `Content-Type`.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The namespaces that every cluster has, in the order in which a real server makes them.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "default", "kube-node-lease"];

/// A Kubernetes API server inside the process.
///
/// It is a [`tower::Service`]: `kube::Client::new(Server::new(), "default")` talks to it without a socket.
/// Clones share everything; the state is gone with the last of them.
#[derive(Clone)]
pub struct Server {
    api: Shared,
}

/// How a server is made; see [`Server::builder`].
#[derive(Default)]
#[must_use]
pub struct Builder {
    storage: Option<Box<dyn Storage>>,
    seed: Option<u64>,
    epoch: Option<Timestamp>,
    watchers: Option<usize>,
    accounts: Accounts,
}

impl Builder {
    /// Keeps objects here. Default: in memory, gone with the server.
    pub fn storage(mut self, storage: impl Storage) -> Self {
        self.storage = Some(Box::new(storage));
        self
    }

    /// Fixes every uid and generated name. Default: different for each server.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The time at which the server starts; it runs on with tokio's clock. Default: the system's time.
    pub fn epoch(mut self, epoch: Timestamp) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// How many watches may be open at once; the next one is told to try again later (429). Default: 10,000.
    pub fn watchers(mut self, limit: usize) -> Self {
        self.watchers = Some(limit);
        self
    }

    /// Takes pods whose service account does not exist, as `--disable-admission-plugins=ServiceAccount` makes a real
    /// server do: for those who run no controller that makes the account `default` in every namespace. Default: such
    /// pods are refused.
    pub fn without_service_accounts(mut self) -> Self {
        self.accounts = Accounts::Ignored;
        self
    }

    /// A server that serves.
    pub fn build(self) -> Server {
        let world = World::new(self.epoch, self.seed);
        let api = Arc::new(Api {
            tokens: TokenKey::new(world.secret()),
            storage: self.storage.unwrap_or_else(|| Box::new(Memory::default())),
            registry: Registry::new(),
            world,
            watchers: Arc::new(Semaphore::new(
                self.watchers
                    .unwrap_or(limits::WATCHERS)
                    .min(Semaphore::MAX_PERMITS),
            )),
            definitions: parking_lot::Mutex::new(()),
            allotting: parking_lot::Mutex::new(()),
            accounts: self.accounts,
        });
        api.start();
        Server { api }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// An empty server, with the namespaces that every cluster has.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A server with other than the default parts.
    pub fn builder() -> Builder {
        Builder::default()
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        // A panic is a bug of this server; it costs its client one answer, and nobody else anything.
        let work = AssertUnwindSafe(self.in_time(&parts, body)).catch_unwind();
        let answer = work.await.unwrap_or_else(|_| {
            tracing::error!(method = %parts.method, path = parts.uri.path(), "a request panicked");
            Err(Status::internal("the request could not be handled"))
        });
        let mut response = answer.unwrap_or_else(|status| {
            // A client that reads YAML gets its refusals in YAML too.
            let encoding = Encoding::of_refusal(&parts.headers);
            refusal(&status, encoding)
        });
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::whole(Bytes::new());
        }
        response
    }

    /// Ends what takes too long. A watch is answered at once, and has a length of its own.
    async fn in_time<B>(&self, parts: &Parts, body: B) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let query = Query::parse(parts.uri.query());
        let limit = if query.flag("watch") {
            limits::timeout(None)?
        } else {
            limits::timeout(query.text("timeout"))?
        };
        let answer = tokio::time::timeout(limit, self.route(parts, body)).await;
        answer.unwrap_or_else(|_| Err(Status::timeout()))
    }

    async fn route<B>(&self, parts: &Parts, body: B) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = parts.uri.path();
        let catalogue = self.api.registry.catalogue();
        let as_json = |value: &serde_json::Value| json_response(200, value.to_string().into());
        let route = Route::of(path, &catalogue);
        let read_only = match &route {
            Route::Resource(_) | Route::NoSuchResource => false,
            Route::Other => path.starts_with("/version"),
            _ => true,
        };
        if read_only && parts.method != Method::GET {
            return Err(Status::method_not_allowed());
        }
        match route {
            Route::Resource(target) if target.is_nowhere(&parts.method) => {
                Ok(text_response(404, "404 page not found\n"))
            }
            Route::Resource(target) => {
                let answer = self.resource(parts, &target, body).await;
                let Some(warning) = target
                    .resource
                    .defined
                    .as_ref()
                    .and_then(|d| d.warning.as_deref())
                else {
                    return answer;
                };
                // A deprecated version says so whatever the answer is.
                let mut response =
                    answer.unwrap_or_else(|status| refusal(&status, Encoding::of_refusal(&parts.headers)));
                let others: Vec<_> = response
                    .headers()
                    .get_all(header::WARNING)
                    .iter()
                    .cloned()
                    .collect();
                response.headers_mut().remove(header::WARNING);
                warn(&mut response, warning);
                for other in others {
                    response.headers_mut().append(header::WARNING, other);
                }
                Ok(response)
            }
            Route::Groups { core } if wants_aggregated(parts) => {
                let document = Document::new(&discovery::aggregated(&catalogue, core));
                let mut response = tagged(&document, parts);
                let headers = response.headers_mut();
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
                Ok(response)
            }
            Route::Groups { core: true } => Ok(as_json(&discovery::core_versions())),
            Route::Groups { core: false } => Ok(as_json(&discovery::groups(&catalogue))),
            Route::Group(name) => Ok(as_json(&discovery::group(
                catalogue.group(&name).expect("the route found it"),
            ))),
            Route::Version(group, version) => {
                Ok(as_json(&discovery::resources(&catalogue, &group, &version)))
            }
            Route::NoSuchResource => Err(Status::no_such_resource()),
            Route::Other => Ok(match path {
                "/version" | "/version/" => as_json(registry::version()),
                "/healthz" | "/livez" | "/readyz" => {
                    health(path, Query::parse(parts.uri.query()).flag("verbose"))
                }
                "/healthz/ping" | "/livez/ping" | "/readyz/ping" => text_response(200, "ok"),
                "/openapi/v3" | "/openapi/v3/" => {
                    let index = openapi::index(&catalogue).to_string();
                    with_body(200, "text/plain; charset=utf-8", Body::whole(index))
                }
                _ if path.starts_with(OPENAPI) => openapi_document(&catalogue, parts),
                "/" => as_json(
                    &json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}),
                ),
                _ => text_response(404, "404 page not found\n"),
            }),
        }
    }

    async fn resource<B>(&self, parts: &Parts, target: &Target, body: B) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let query = Query::parse(parts.uri.query());
        let verb = Verb::of(&parts.method, target, &query)?;
        let wanted = Encoding::of_answer(&parts.headers, &target.resource, verb == Verb::Watch)?;
        let list = matches!(verb, Verb::List | Verb::DeleteCollection);
        let view = View::of(&parts.headers, &query, &target.resource, list)?;
        let selector = || {
            Selector::parse(
                query.text("labelSelector"),
                query.text("fieldSelector"),
                &target.resource,
            )
        };
        let api = &self.api;
        let answer = match verb {
            Verb::Get if *target.subresource == *"log" => api.log(target, &query)?,
            Verb::Get if !matches!(&*target.subresource, "" | "status") => {
                api.subresource(target, verb, &WriteOptions::default(), &Input::None)?
            }
            Verb::Get => api.get(target, &query).await?,
            Verb::List => {
                api.list(target, &ListOptions::of(&query, false)?, &selector()?)
                    .await?
            }
            Verb::Watch => {
                let options = ListOptions::of(&query, true)?;
                let Ok(place) = api.watchers.clone().try_acquire_owned() else {
                    return Ok(too_many_requests());
                };
                Answer::Watch(Box::new(WatchStream::open(
                    place,
                    api.clone(),
                    target,
                    &options,
                    selector()?,
                    view,
                )?))
            }
            Verb::Create if target.subresource.is_empty() => {
                let options = WriteOptions::of(&query, &parts.headers, "CreateOptions")?;
                let encoding = Encoding::of_body(&parts.headers)?;
                if subresources::is_binding(&target.resource) {
                    let answer = api.bind_by_name(target, &options, &collect(body).await?, encoding)?;
                    return api.respond(answer, target, wanted, view);
                }
                api.create(target, &options, &collect(body).await?, encoding)?
            }
            Verb::Update if matches!(&*target.subresource, "" | "status" | "finalize") => {
                let options = WriteOptions::of(&query, &parts.headers, "UpdateOptions")?;
                let encoding = Encoding::of_body(&parts.headers)?;
                api.update(target, &options, &collect(body).await?, encoding)?
            }
            Verb::Patch if matches!(&*target.subresource, "" | "status") => {
                let options = WriteOptions::of(&query, &parts.headers, "PatchOptions")?;
                let kind = PatchKind::of_body(&parts.headers, &target.resource)?;
                api.patch(target, &options, &collect(body).await?, kind)?
            }
            Verb::Delete | Verb::DeleteCollection => {
                let bytes = collect(body).await?;
                let value = match &bytes[..] {
                    [] => None,
                    bytes => Some(media::decode_options(bytes, Encoding::of_body(&parts.headers)?)?),
                };
                let options = DeleteOptions::of(&query, value.as_ref())?;
                if verb == Verb::Delete {
                    api.delete(target, &options)?
                } else {
                    api.delete_collection(target, &options, &ListOptions::of(&query, false)?, &selector()?)?
                }
            }
            Verb::Create | Verb::Update | Verb::Patch => {
                let kind = match verb {
                    Verb::Create => "CreateOptions",
                    Verb::Patch => "PatchOptions",
                    _ => "UpdateOptions",
                };
                let options = WriteOptions::of(&query, &parts.headers, kind)?;
                let input = if verb == Verb::Patch {
                    Input::Patch(
                        collect(body).await?,
                        PatchKind::of_body(&parts.headers, &target.resource)?,
                    )
                } else {
                    Input::Object(collect(body).await?, Encoding::of_body(&parts.headers)?)
                };
                api.subresource(target, verb, &options, &input)?
            }
        };
        api.respond(answer, target, wanted, view)
    }
}

impl Api {
    /// Fills in what every cluster has, and serves what the stored definitions define.
    fn start(&self) {
        let catalogue = self.registry.catalogue();
        let namespaces = catalogue.find("", "v1", "namespaces").expect("built in");
        for name in NAMESPACES {
            let target = Target {
                resource: namespaces.clone(),
                namespace: "".into(),
                name: "".into(),
                subresource: "".into(),
                legacy_watch: false,
            };
            let body = json!({"metadata": {"name": name}}).to_string();
            // On a storage that was used before they are there already.
            let _ = self.create(&target, &WriteOptions::own(), body.as_bytes(), Encoding::Json);
        }
        self.load_definitions();
    }
}

impl<B> tower::Service<Request<B>> for Server
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        async move { Ok(server.answer(request).await) }.boxed()
    }
}

async fn collect<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, limits::BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Status::too_large(limits::BODY)),
        Err(error) => Err(Status::bad_request(format!(
            "the body could not be read: {error}"
        ))),
    }
}

fn wants_aggregated(parts: &Parts) -> bool {
    let accept = parts
        .headers
        .get(header::ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    parts.method == Method::GET
        && accept.contains("g=apidiscovery.k8s.io")
        && accept.contains("v=v2;as=APIGroupDiscoveryList")
}

impl Api {
    /// An answer in the encoding and the view that the client asked for.
    fn respond(
        &self,
        answer: Answer,
        target: &Target,
        wanted: Encoding,
        view: View,
    ) -> Result<Response<Body>, Status> {
        let resource = &target.resource;
        let now = self.world.now();
        let mut response = match answer {
            Answer::Object { code, json, warnings } => {
                let json = view.of_json(resource, json, now)?;
                let mut response = json_response(code, wanted.encode(json)?);
                for warning in warnings {
                    warn(&mut response, &warning);
                }
                response
            }
            Answer::List(page) if (wanted, view) == (Encoding::Json, View::Object) => {
                with_body(200, "", Body::list(ListBody::new(resource, page)))
            }
            Answer::List(page) => {
                let objects = page.entries.iter().map(|entry| {
                    let mut object = versions::shown_entry(entry, resource).object.decode();
                    // In lists of built-in kinds the items leave their type to the list.
                    if view == View::Object && !resource.custom {
                        object
                            .fields_mut()
                            .retain(|key, _| !matches!(&**key, "kind" | "apiVersion"));
                    }
                    object.into_value()
                });
                let list = view.list(resource, &page.metadata(resource), objects, now);
                json_response(200, wanted.encode(list.to_string().into())?)
            }
            Answer::Watch(stream) => with_body(200, "", Body::watch(*stream)),
            Answer::Text(text) => return Ok(with_body(200, "text/plain", Body::whole(text))),
            Answer::Nothing => return Ok(with_body(204, "", Body::whole(Bytes::new()))),
        };
        if let Some(deprecation) = resource.strategy.deprecation {
            warn(&mut response, deprecation);
        }
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(wanted.content_type()),
        );
        Ok(response)
    }
}

/// A document of `/openapi/v3`: for ever the same under its hash, and found by its path alone too.
fn openapi_document(catalogue: &Catalogue, parts: &Parts) -> Response<Body> {
    let path = parts.uri.path().trim_start_matches(OPENAPI);
    let Some(document) = openapi::find(catalogue, path) else {
        return text_response(404, "404 page not found\n");
    };
    match Query::parse(parts.uri.query()).text("hash") {
        Some(hash) if hash != document.hash => {
            let mut response = json_response(301, Bytes::new());
            let location = format!("{OPENAPI}{path}?hash={}", document.hash);
            let location = HeaderValue::from_str(&location).expect("the path was found in the catalogue");
            response.headers_mut().insert(header::LOCATION, location);
            response
        }
        hash => {
            let mut response = tagged(&document, parts);
            if hash.is_some() {
                let headers = response.headers_mut();
                headers.insert(
                    header::CACHE_CONTROL,
                    HeaderValue::from_static("public, immutable"),
                );
                // Clients that do not know `immutable` keep it for a year.
                let year = jiff::Span::new().hours(365 * 24);
                let expires = (Timestamp::now() + year)
                    .strftime("%a, %d %b %Y %H:%M:%S GMT")
                    .to_string();
                headers.insert(
                    header::EXPIRES,
                    HeaderValue::from_str(&expires).expect("a date is ASCII"),
                );
            }
            response
        }
    }
}

/// A document with its tag, or the word that the client has it already.
fn tagged(document: &Document, parts: &Parts) -> Response<Body> {
    let tag = format!("\"{}\"", document.hash);
    let known = parts
        .headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if known {
        json_response(304, Bytes::new())
    } else {
        json_response(200, document.json.clone())
    };
    let headers = response.headers_mut();
    headers.insert(
        header::ETAG,
        HeaderValue::from_str(&tag).expect("a tag is hexadecimal"),
    );
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn warn(response: &mut Response<Body>, warning: &str) {
    // What cannot stand in a header is no warning that a client could read.
    if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
        response.headers_mut().append(header::WARNING, value);
    }
}

fn refusal(status: &Status, encoding: Encoding) -> Response<Body> {
    let json = Bytes::from(status.to_value().to_string());
    let body = encoding.encode(json.clone()).unwrap_or(json);
    let mut response = with_body(status.code, encoding.content_type(), Body::whole(body));
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// More than the server can do at once, in the words of the real server's priority and fairness.
fn too_many_requests() -> Response<Body> {
    let mut response = text_response(429, "Too many requests, please try again later.\n");
    response.headers_mut().insert(header::RETRY_AFTER, 1.into());
    response
}

fn json_response(code: u16, json: Bytes) -> Response<Body> {
    with_body(code, "application/json", Body::whole(json))
}

/// This server has one check, and answering is it.
fn health(path: &str, verbose: bool) -> Response<Body> {
    if !verbose {
        return text_response(200, "ok");
    }
    let text = format!("[+]ping ok\n{} check passed\n", path.trim_start_matches('/'));
    with_body(200, "text/plain; charset=utf-8", Body::whole(text))
}

fn text_response(code: u16, text: &'static str) -> Response<Body> {
    with_body(code, "text/plain; charset=utf-8", Body::whole(text))
}

fn with_body(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("codes are written in this crate");
    let headers = response.headers_mut();
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    if !content_type.is_empty() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}
