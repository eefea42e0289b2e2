//! A client whose writes go into the caches: what the server answers to a write is put into the stores of that kind
//! before the caller gets it.
//!
//! ```text
//!   reconcile ──► Client ──► Recording ──► the server
//!                               │ answer to a write
//!                               └──► Store::wrote, Store::deleted   (own.rs: until the watch has come that far)
//! ```

use std::{
    future::Future,
    pin::Pin,
    sync::Weak,
    task::{Context, Poll},
};

use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
use kube::{Client, client::Body, core::Status};
use parking_lot::Mutex;
use serde::Deserialize;
use tower::Service;

use crate::{
    cache::Shared,
    caches::State,
    ingest::Arrival,
    key::ObjectKey,
    meta::{Meta, Uid},
    query::Fields,
    scan::{Cursor, Scanned},
    selector::labels_match,
    wire::Page,
};

/// A client that records what it writes.
pub(crate) fn recording(client: Client, caches: Weak<Mutex<State>>) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(Recording { client, caches }, namespace)
}

struct Recording {
    client: Client,
    caches: Weak<Mutex<State>>,
}

impl Service<Request<Body>> for Recording {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = kube::Result<Response<Body>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, caches) = (self.client.clone(), self.caches.clone());
        let write = Write::of(request.method(), request.uri());
        Box::pin(async move {
            let response = client.send(request).await?;
            let Some(write) = write.filter(|_| response.status().is_success()) else {
                return Ok(response);
            };
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            if let Some(caches) = caches.upgrade() {
                let shared = caches.lock().in_use();
                for shared in shared.iter().filter(|shared| write.concerns(shared)) {
                    write.tell(shared, &body);
                }
            }
            Ok(Response::from_parts(parts, Body::from(body)))
        })
    }
}

/// A request that changes something.
#[derive(Debug, PartialEq, Eq)]
struct Write {
    prefix: String,
    plural: String,
    namespace: String,
    /// Empty for a create and for the deletion of many.
    name: String,
    delete: bool,
}

impl Write {
    fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        let is_rehearsal = query
            .into_iter()
            .any(|(name, value)| name == "dryRun" && !value.is_empty());
        let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        if !writes.contains(method) || is_rehearsal {
            return None;
        }
        let parts: Vec<_> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let split = match parts.first() {
            Some(&"api") => 2,
            Some(&"apis") => 3,
            _ => return None,
        };
        let (prefix, rest) = parts.split_at_checked(split)?;
        let (namespace, rest) = match rest {
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            _ => ("", rest),
        };
        let (plural, rest) = rest.split_first()?;
        Some(Self {
            prefix: format!("/{}", prefix.join("/")),
            plural: (*plural).to_owned(),
            namespace: namespace.to_owned(),
            name: rest.first().copied().unwrap_or_default().to_owned(),
            delete: method == Method::DELETE,
        })
    }

    fn concerns(&self, shared: &Shared) -> bool {
        shared.target.prefix == self.prefix && shared.target.plural == self.plural
    }

    /// Puts the server's answer into a store.
    fn tell(&self, shared: &Shared, body: &[u8]) {
        let mut cursor = Cursor::new(body);
        let Ok(found) = cursor.object() else { return };
        let kind = &shared.core.kind.kind;
        if found.kind == *kind {
            self.tell_object(shared, body, &found);
        } else if self.delete && found.kind == "Status" {
            let status = serde_json::from_slice::<Status>(body).ok();
            if let Some(details) = status.and_then(|status| status.details)
                && !details.uid.is_empty()
                && !self.name.is_empty()
            {
                let key = ObjectKey::namespaced(self.namespace.as_str(), self.name.as_str());
                shared.core.store.deleted(&key, Uid::from(details.uid.as_str()));
            }
        } else if self.delete && found.kind.strip_suffix("List") == Some(kind) {
            let mut page = Page::default();
            // A list that cannot be read tells nothing; the watch will.
            let _ = page.push(body);
            let _ = page.finish(|raw, found| self.tell_object(shared, raw, found));
        }
    }

    fn tell_object(&self, shared: &Shared, raw: &[u8], found: &Scanned<'_>) {
        if self.delete && is_gone(raw) {
            let key = ObjectKey::namespaced(&*found.namespace, &*found.name);
            return shared.core.store.deleted(&key, Uid::from(&*found.uid));
        }
        let arrival = shared.core.ingest.lock().take(raw, found);
        if let Arrival::Object(entry) = arrival
            && let Some(selected) = is_selected(shared, &entry.meta, raw)
        {
            shared.core.store.wrote(entry, selected);
        }
    }
}

/// Whether an object that was deleted is gone, or waits for finalizers or for its grace period.
fn is_gone(raw: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Object {
        metadata: Leaving,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Leaving {
        deletion_timestamp: Option<String>,
        deletion_grace_period_seconds: Option<i64>,
        #[serde(default)]
        finalizers: Option<Vec<String>>,
    }
    let Ok(Object { metadata }) = serde_json::from_slice::<Object>(raw) else {
        return false;
    };
    let waits =
        metadata.deletion_timestamp.is_some() && metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    !waits && metadata.finalizers.unwrap_or_default().is_empty()
}

/// Whether the server would send this object to the cache's watch; `None` if that cannot be told here.
fn is_selected(shared: &Shared, meta: &Meta, raw: &[u8]) -> Option<bool> {
    let selection = &shared.target.selection;
    let by_label = match &selection.labels {
        Some(selector) => labels_match(selector, meta)?,
        None => true,
    };
    let by_field = match &selection.fields {
        Some(selector) => selector.parse::<Fields>().ok()?.matches(raw),
        None => true,
    };
    Some(by_label && by_field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(method: &Method, uri: &str) -> Option<(String, String)> {
        let write = Write::of(method, &uri.parse().expect("a path"))?;
        Some((
            format!("{}/{}", write.prefix, write.plural),
            format!("{}/{}", write.namespace, write.name),
        ))
    }

    #[test]
    fn a_path_says_what_is_written() {
        let cases = [
            ("/api/v1/namespaces/n/configmaps/a", "/api/v1/configmaps", "n/a"),
            ("/api/v1/namespaces/n/pods", "/api/v1/pods", "n/"),
            (
                "/api/v1/namespaces/n/pods/p/status?fieldManager=x",
                "/api/v1/pods",
                "n/p",
            ),
            ("/api/v1/namespaces/n", "/api/v1/namespaces", "/n"),
            ("/api/v1/namespaces/n/finalize", "/api/v1/namespaces", "/n"),
            ("/api/v1/nodes/x", "/api/v1/nodes", "/x"),
            (
                "/apis/apps/v1/namespaces/n/deployments/d",
                "/apis/apps/v1/deployments",
                "n/d",
            ),
        ];
        for (uri, resource, key) in cases {
            assert_eq!(
                write(&Method::PUT, uri),
                Some((resource.to_owned(), key.to_owned())),
                "{uri}"
            );
        }
        assert_eq!(write(&Method::GET, "/api/v1/nodes/x"), None);
        assert_eq!(write(&Method::POST, "/api/v1/nodes?dryRun=All"), None);
        assert_eq!(write(&Method::POST, "/version"), None);
        assert_eq!(write(&Method::POST, "/apis/apps"), None);
    }

    #[test]
    fn an_object_is_gone_unless_something_holds_it() {
        for (json, expected) in [
            (r#"{"metadata":{}}"#, true),
            (
                r#"{"metadata":{"deletionTimestamp":"t","deletionGracePeriodSeconds":0}}"#,
                true,
            ),
            (
                r#"{"metadata":{"deletionTimestamp":"t","deletionGracePeriodSeconds":30}}"#,
                false,
            ),
            (
                r#"{"metadata":{"deletionTimestamp":"t","finalizers":["f"]}}"#,
                false,
            ),
            ("5", false),
        ] {
            assert_eq!(is_gone(json.as_bytes()), expected, "{json}");
        }
    }
}
