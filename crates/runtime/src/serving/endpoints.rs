//! Which path shows what.

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde::Serialize;

use super::{
    CacheStatus, Checks, ControllerStatus,
    answer::{Text, not_found, text, typed},
    table,
};
use crate::metrics::{Format, Metrics};

/// What is served. Paths that were not given something to show are not found; `/healthz` and `/readyz` always answer.
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
    controllers: Option<Asked<ControllerStatus>>,
    caches: Option<Asked<CacheStatus>>,
}

type Asked<T> = Box<dyn Fn() -> Vec<T> + Send + Sync>;

impl Endpoints {
    /// Only `/healthz` and `/readyz`, which are well as soon as they answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// `/healthz`: a process for which these fail is started anew.
    pub fn health(mut self, checks: Checks) -> Self {
        self.health = checks;
        self
    }

    /// `/readyz`: a process for which these fail gets no traffic, and holds up a rollout.
    pub fn ready(mut self, checks: Checks) -> Self {
        self.ready = checks;
        self
    }

    /// `/metrics`, as Prometheus text, or as OpenMetrics for who asks for it.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// `/debug/controllers`: what is queued, running, delayed and failing. JSON, or a table for who asks for text with
    /// `?format=text` or `Accept: text/plain`. It names objects and shows errors to all who reach the address.
    pub fn controllers(mut self, status: impl Fn() -> Vec<ControllerStatus> + Send + Sync + 'static) -> Self {
        self.controllers = Some(Box::new(status));
        self
    }

    /// `/debug/caches`: what is cached, for whom, and how well it goes. JSON or a table, as above.
    pub fn caches(mut self, status: impl Fn() -> Vec<CacheStatus> + Send + Sync + 'static) -> Self {
        self.caches = Some(Box::new(status));
        self
    }

    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Response<Text> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
            refused
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let query = request.uri().query().unwrap_or_default();
        let path: Vec<_> = request
            .uri()
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        match (&path[..], &self.metrics, &self.controllers, &self.caches) {
            (["healthz", check @ ..], ..) => self.health.answer("healthz", &check.join("/"), query).await,
            (["readyz", check @ ..], ..) => self.ready.answer("readyz", &check.join("/"), query).await,
            (["metrics"], Some(metrics), ..) => {
                let format = Format::accepted(accept(request));
                typed(StatusCode::OK, format.content_type(), metrics.scrape(format))
            }
            (["debug", "controllers"], _, Some(controllers), _) => {
                debug(request, &controllers(), table::controllers)
            }
            (["debug", "caches"], .., Some(caches)) => debug(request, &caches(), table::caches),
            _ => not_found(),
        }
    }
}

fn accept<B>(request: &Request<B>) -> &str {
    let accept = request.headers().get(header::ACCEPT);
    accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default()
}

fn debug<B, T: Serialize>(request: &Request<B>, status: &[T], table: fn(&[T]) -> String) -> Response<Text> {
    if wants_text(request) {
        return text(StatusCode::OK, table(status));
    }
    match serde_json::to_vec_pretty(status) {
        Ok(mut json) => {
            json.push(b'\n');
            typed(StatusCode::OK, "application/json", json)
        }
        Err(error) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {error}\n"),
        ),
    }
}

/// JSON unless the query asks for text, or the client names text before it names JSON.
fn wants_text<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "format");
    if let Some((_, format)) = asked {
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
