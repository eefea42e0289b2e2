//! The paths that are served.

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde::Serialize;

use super::{
    CacheStatus, Checks, ControllerStatus,
    response::{TextBody, not_found, text, with_content_type},
    table,
};
use crate::metrics::{Format, Metrics};

/// The endpoints to serve. `/healthz` and `/readyz` are always served; other paths are not found unless they are set.
///
/// ```
/// use windlass_runtime::{metrics::Metrics, serving::{Checks, Endpoints}};
///
/// let endpoints = Endpoints::new()
///     .ready(Checks::new().add("caches", || async { Err("waiting for Foo".into()) }))
///     .metrics(Metrics::new());
/// ```
#[must_use = "endpoints do nothing until they are served"]
#[derive(Default)]
pub struct Endpoints {
    health: Checks,
    ready: Checks,
    metrics: Option<Metrics>,
    controllers: Option<StatusFn<ControllerStatus>>,
    caches: Option<StatusFn<CacheStatus>>,
}

type StatusFn<T> = Box<dyn Fn() -> Vec<T> + Send + Sync>;

impl Endpoints {
    /// Serves only `/healthz` and `/readyz`, which always succeed.
    pub fn new() -> Self {
        Self::default()
    }

    /// `/healthz`: the kubelet restarts a process for which these fail.
    pub fn health(mut self, checks: Checks) -> Self {
        self.health = checks;
        self
    }

    /// `/readyz`: a process for which these fail gets no traffic and blocks a rollout.
    pub fn ready(mut self, checks: Checks) -> Self {
        self.ready = checks;
        self
    }

    /// `/metrics`, as Prometheus text, or as OpenMetrics by content negotiation.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// `/debug/controllers`: queued, running, delayed and failing objects, and what triggered them; `/debug` lists the pages. JSON, or a table with `?format=text` or `Accept:
    /// text/plain`. It shows object names and errors to everyone who can reach the address.
    pub fn controllers(mut self, status: impl Fn() -> Vec<ControllerStatus> + Send + Sync + 'static) -> Self {
        self.controllers = Some(Box::new(status));
        self
    }

    /// `/debug/caches`: size, users, lag and errors of each cache. JSON or a table, as above.
    pub fn caches(mut self, status: impl Fn() -> Vec<CacheStatus> + Send + Sync + 'static) -> Self {
        self.caches = Some(Box::new(status));
        self
    }

    pub(super) async fn respond<B>(&self, request: &Request<B>) -> Response<TextBody> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
            response
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let query = request.uri().query().unwrap_or_default();
        let path: Vec<_> = request
            .uri()
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        match (&path[..], &self.metrics, &self.controllers, &self.caches) {
            (["healthz", check @ ..], ..) => self.health.respond("healthz", &check.join("/"), query).await,
            (["readyz", check @ ..], ..) => self.ready.respond("readyz", &check.join("/"), query).await,
            (["metrics"], Some(metrics), ..) => {
                let format = Format::accepted(accept(request));
                with_content_type(StatusCode::OK, format.content_type(), metrics.scrape(format))
            }
            (["debug", "controllers"], _, Some(controllers), _) => {
                debug(request, &controllers(), table::controllers)
            }
            (["debug", "caches"], .., Some(caches)) => debug(request, &caches(), table::caches),
            (["debug"], _, controllers, caches) if controllers.is_some() || caches.is_some() => {
                text(StatusCode::OK, self.debug_index())
            }
            _ => not_found(),
        }
    }
}

impl Endpoints {
    /// `/debug`: the debug pages that are served.
    fn debug_index(&self) -> String {
        let pages = [
            (
                self.controllers.is_some(),
                "/debug/controllers  queued, running, delayed and failing objects, and what triggered them\n",
            ),
            (
                self.caches.is_some(),
                "/debug/caches       size, users, lag and last error of each cache\n",
            ),
        ];
        let served = pages.iter().filter(|(served, _)| *served);
        let lines: String = served.map(|(_, line)| *line).collect();
        lines + "\nJSON; a table with ?format=text\n"
    }
}

fn accept<B>(request: &Request<B>) -> &str {
    let accept = request.headers().get(header::ACCEPT);
    accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default()
}

fn debug<B, T: Serialize>(
    request: &Request<B>,
    status: &[T],
    table: fn(&[T]) -> String,
) -> Response<TextBody> {
    if wants_text(request) {
        return text(StatusCode::OK, table(status));
    }
    match serde_json::to_vec_pretty(status) {
        Ok(mut json) => {
            json.push(b'\n');
            with_content_type(StatusCode::OK, "application/json", json)
        }
        Err(error) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {error}\n"),
        ),
    }
}

/// Whether the query has `format=text`, or `Accept` lists text before JSON.
fn wants_text<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let format = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "format");
    if let Some((_, format)) = format {
        return format == "text";
    }
    let media = accept(request)
        .split(',')
        .filter_map(|media| media.split(';').next());
    media
        .map(str::trim)
        .find(|media| matches!(*media, "text/plain" | "application/json"))
        == Some("text/plain")
}
