//! Raw HTTP requests, so that cases can check codes, messages and absent fields exactly.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{AsyncBufReadExt, StreamExt, stream::BoxStream};
use http::{Method, Request};
use kube::{Client, client::Body};
use serde_json::Value;
use windlass_suite::Context;

/// Timeout for a watch event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// One collection of objects, such as `/api/v1/namespaces/a/configmaps`.
pub(crate) struct Collection {
    client: Client,
    path: String,
}

impl Collection {
    pub(crate) fn at(ctx: &Context, path: impl Into<String>) -> Self {
        Self {
            client: ctx.client(),
            path: path.into(),
        }
    }

    pub(crate) fn config_maps(ctx: &Context) -> Self {
        Self::at(ctx, format!("/api/v1/namespaces/{}/configmaps", ctx.namespace()))
    }

    pub(crate) fn deployments(ctx: &Context) -> Self {
        Self::at(
            ctx,
            format!("/apis/apps/v1/namespaces/{}/deployments", ctx.namespace()),
        )
    }

    pub(crate) async fn create(&self, object: &Value) -> anyhow::Result<Response> {
        self.send(Method::POST, "", "application/json", Some(object))
            .await
    }

    pub(crate) async fn get(&self, name: &str) -> anyhow::Result<Response> {
        self.send(Method::GET, &format!("/{name}"), "", None).await
    }

    /// `query` without the question mark.
    pub(crate) async fn list(&self, query: &str) -> anyhow::Result<Response> {
        self.send(Method::GET, &format!("?{query}"), "", None).await
    }

    /// `name` may have a subresource: `a/status`.
    pub(crate) async fn replace(&self, name: &str, object: &Value) -> anyhow::Result<Response> {
        self.send(Method::PUT, &format!("/{name}"), "application/json", Some(object))
            .await
    }

    pub(crate) async fn merge(&self, name: &str, patch: &Value) -> anyhow::Result<Response> {
        self.send(
            Method::PATCH,
            &format!("/{name}"),
            "application/merge-patch+json",
            Some(patch),
        )
        .await
    }

    pub(crate) async fn json_patch(&self, name: &str, patch: &Value) -> anyhow::Result<Response> {
        self.send(
            Method::PATCH,
            &format!("/{name}"),
            "application/json-patch+json",
            Some(patch),
        )
        .await
    }

    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<Response> {
        self.send(Method::DELETE, &format!("/{name}"), "", None).await
    }

    pub(crate) async fn delete_with(&self, name: &str, options: &Value) -> anyhow::Result<Response> {
        self.send(
            Method::DELETE,
            &format!("/{name}"),
            "application/json",
            Some(options),
        )
        .await
    }

    /// `query` comes after `watch=true`.
    pub(crate) async fn watch(&self, query: &str) -> anyhow::Result<Watch> {
        let request = Request::get(format!("{}?watch=true&{query}", self.path)).body(Vec::new())?;
        let lines = self.client.request_stream(request).await?.lines();
        Ok(Watch { lines: lines.boxed() })
    }

    async fn send(
        &self,
        method: Method,
        tail: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{tail}", self.path));
        if !kind.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, kind);
        }
        let bytes = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let response = self.client.send(request.body(Body::from(bytes))?).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        let body = serde_json::from_slice(&bytes)
            .with_context(|| format!("code {code}, not JSON: {}", String::from_utf8_lossy(&bytes)))?;
        Ok(Response { code, body })
    }
}

/// A response of the server.
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Response {
    /// Returns the object, if the request succeeded.
    pub(crate) fn ok(self) -> anyhow::Result<Value> {
        ensure!((200..300).contains(&self.code), "request failed: {}", self.body);
        Ok(self.body)
    }

    /// Asserts that the request failed with this code, reason and message. Returns the Status for further checks.
    #[track_caller]
    pub(crate) fn assert_failed(self, code: u16, reason: &str, message: &str) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["apiVersion"], "v1");
        assert_eq!(self.body["status"], "Failure");
        assert_eq!(self.body["code"], code);
        assert_eq!(self.body["reason"], reason);
        assert_eq!(self.body["message"], message);
        self.body
    }
}

/// A running watch.
pub(crate) struct Watch {
    lines: BoxStream<'static, std::io::Result<String>>,
}

impl Watch {
    /// Returns type and object of the next event.
    pub(crate) async fn next(&mut self) -> anyhow::Result<(String, Value)> {
        let line = tokio::time::timeout(EVENT_TIMEOUT, self.lines.next())
            .await
            .context("timed out waiting for an event")?
            .context("the watch ended")??;
        let mut event: Value = serde_json::from_str(&line)?;
        let kind = event["type"]
            .as_str()
            .context("an event without a type")?
            .to_owned();
        Ok((kind, event["object"].take()))
    }

    /// Returns type and object name of the next event.
    pub(crate) async fn next_name(&mut self) -> anyhow::Result<(String, String)> {
        let (kind, object) = self.next().await?;
        Ok((kind, name(&object)))
    }
}

/// `metadata.name`
pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// `metadata.resourceVersion` as a number, which it is on every server with etcd's versioning.
#[track_caller]
pub(crate) fn version(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("no version in {object}"))
}

/// Returns the names in a list, in order.
pub(crate) fn names(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .map(|items| items.iter().map(name).collect())
        .unwrap_or_default()
}
