//! Request metrics, with client-go's name.

use std::sync::Arc;

use http::{Method, StatusCode};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Counts requests to one server, from [`Metrics::requests`](super::Metrics::requests).
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    host: Arc<str>,
    total: Family<Labels, Counter>,
}

impl RequestMetrics {
    /// Counts a request with its response status; `None` if there was no response.
    pub fn count(&self, method: &Method, status: Option<StatusCode>) {
        let labels = Labels {
            code: status.map_or(Code::NoResponse, |status| Code::Status(status.as_u16())),
            method: method.clone(),
            host: Arc::clone(&self.host),
        };
        self.total.get_or_create(&labels).inc();
    }
}

// Created for each request, so it does not allocate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Labels {
    code: Code,
    method: Method,
    host: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Code {
    Status(u16),
    NoResponse,
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>) -> std::fmt::Result {
        let code = match self.code {
            Code::Status(code) => code.to_string(),
            // As in client-go.
            Code::NoResponse => "<error>".to_owned(),
        };
        [
            ("code", code.as_str()),
            ("method", self.method.as_str()),
            ("host", &self.host),
        ]
        .encode(encoder)
    }
}

#[derive(Debug)]
pub(super) struct RequestFamilies {
    total: Family<Labels, Counter>,
}

impl RequestFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let total = Family::default();
        registry.register(
            "rest_client_requests",
            "Requests to the API server, by status, method and host",
            total.clone(),
        );
        Self { total }
    }

    pub(super) fn host(&self, host: &str) -> RequestMetrics {
        RequestMetrics {
            host: host.into(),
            total: self.total.clone(),
        }
    }
}
