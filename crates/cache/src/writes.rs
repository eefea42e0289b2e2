//! A client whose writes go into the caches: what the server answers to a write is put into the stores of that kind
//! before the caller gets it.
//!
//! ```text
//!   reconcile ──► Client ──► Recording ──► the server
//!                               │ answer to a write
//!                               ├──► Store::wrote, Store::deleted   (own.rs: until the watch has come that far)
//!                               └──► or, where it has another shape than what is cached, wait for the watch
//! ```

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
use kube::{Client, client::Body, core::Status};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::timeout;
use tower::Service;
use windlass_rights::{Access, Object};

use crate::{
    cache::Shared,
    caches::State,
    ingest::Arrival,
    key::ObjectKey,
    meta::{Interner, Meta, Uid},
    query::Fields,
    scan::{Cursor, Scanned},
    selector::labels_match,
    wire::Page,
};

/// How long a write is held back until the watch has told of it, where its answer cannot be put into a cache.
const PATIENCE: Duration = Duration::from_secs(5);

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
                write.show(&shared, &body).await;
            }
            Ok(Response::from_parts(parts, Body::from(body)))
        })
    }
}

/// A request that changes something.
#[derive(Debug, PartialEq, Eq)]
struct Write {
    group: String,
    version: String,
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
        let Access { verb, object } = Access::of(method, uri.path(), uri.query());
        let delete = match verb.as_str() {
            "create" | "update" | "patch" => false,
            "delete" | "deletecollection" => true,
            _ => return None,
        };
        let Object::Resource {
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        } = object
        else {
            return None;
        };
        // What is behind a proxy is no business of the API's.
        if is_rehearsal || subresource == "proxy" {
            return None;
        }
        // To an authoriser a namespace is in itself.
        let is_namespace = group.is_empty() && resource == "namespaces";
        Some(Self {
            namespace: if is_namespace { String::new() } else { namespace },
            group,
            version,
            plural: resource,
            name,
            delete,
        })
    }

    /// Makes the server's answer visible in the caches that it concerns.
    async fn show(&self, caches: &[Arc<Shared>], body: &Bytes) {
        let concerned = caches
            .iter()
            .filter(|shared| shared.target.group == self.group && shared.target.plural == self.plural);
        for shared in concerned {
            let mut unseen = Vec::new();
            self.tell(shared, body, &mut unseen);
            for unseen in unseen {
                if timeout(PATIENCE, unseen.comes(shared)).await.is_err() {
                    tracing::warn!(
                        kind = %shared.core.kind, key = %unseen.key, version = self.version,
                        "the watch does not tell of a write; it is not in the cache yet"
                    );
                    break;
                }
            }
        }
    }

    /// Puts the server's answer into a store; what cannot be put there is added to `unseen`.
    fn tell(&self, shared: &Shared, body: &[u8], unseen: &mut Vec<Unseen>) {
        let Ok(found) = Cursor::new(body).object() else {
            return;
        };
        let kind = &shared.core.kind.kind;
        if self.delete && found.kind == "Status" {
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
            // It shows what was there before: what became of each (gone, or waiting for its grace period) the watch tells.
            let _ = page.finish(|_, found| {
                // One that was going already may stay as it is.
                if !found.deleting {
                    unseen.extend(Unseen::after(shared, found));
                }
            });
        } else {
            self.tell_object(shared, body, &found, unseen);
        }
    }

    fn tell_object(&self, shared: &Shared, raw: &[u8], found: &Scanned<'_>, unseen: &mut Vec<Unseen>) {
        let target = &shared.target;
        // Items of a list do not say. An answer of metadata alone is all that a cache of metadata wants, unless it selects by
        // fields that are not in it.
        let is_partial = found.kind == "PartialObjectMetadata";
        let is_of_kind = found.kind.is_empty()
            || *found.kind == *shared.core.kind.kind
            || is_partial && target.selection.metadata_only && selects_by_metadata(shared);
        if self.delete && is_of_kind && is_gone(raw) {
            let key = ObjectKey::namespaced(&*found.namespace, &*found.name);
            return shared.core.store.deleted(&key, Uid::from(&*found.uid));
        }
        if !is_of_kind || self.version != target.version {
            unseen.extend(Unseen::of(shared, found, is_of_kind));
            return;
        }
        let arrival = shared.core.ingest.lock().take(raw, found);
        if let Arrival::Object(entry) = arrival
            && let Some(selected) = is_selected(shared, &entry.meta, raw)
        {
            shared.core.store.wrote(entry, selected);
        }
    }
}

/// A state that was written and whose shape is not the cached one: another version of the API, or a part of the object
/// such as its scale. Only the watch can tell of it.
struct Unseen {
    key: ObjectKey,
    resource_version: u64,
    /// It is known that the cache will not have it.
    outside: bool,
    /// Not this version of it, but whatever came next, is what was written.
    next: bool,
}

impl Unseen {
    /// `None` if the answer does not say which state of which object it shows.
    fn of(shared: &Shared, found: &Scanned<'_>, is_of_kind: bool) -> Option<Self> {
        let meta = Interner::default().meta(found);
        if meta.key.name.is_empty() || meta.resource_version == 0 {
            return None;
        }
        // Labels are the same in every version; fields need not be, and a part has its own.
        let selector = shared.target.selection.labels.as_deref().filter(|_| is_of_kind);
        let outside = selector.and_then(|selector| labels_match(selector, &meta)) == Some(false);
        Some(Self {
            key: meta.key,
            resource_version: meta.resource_version,
            outside,
            next: false,
        })
    }

    /// Whatever comes after the state that was found.
    fn after(shared: &Shared, found: &Scanned<'_>) -> Option<Self> {
        let before = Self::of(shared, found, true)?;
        Some(Self { next: true, ..before })
    }

    /// Waits until reads reflect it.
    async fn comes(&self, shared: &Shared) {
        let store = &shared.core.store;
        let mut written = store.written();
        let is_there = || {
            if self.next {
                store.is_past(&self.key, self.resource_version)
            } else {
                store.reflects(&self.key, self.resource_version, self.outside)
            }
        };
        while !is_there() {
            if written.changed().await.is_err() {
                return;
            }
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

/// Whether an object's metadata says all that the cache selects it by.
fn selects_by_metadata(shared: &Shared) -> bool {
    let fields = shared.target.selection.fields.as_deref();
    fields.is_none_or(|fields| {
        fields
            .parse::<Fields>()
            .is_ok_and(|fields| fields.is_of_metadata())
    })
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
            format!("{}/{}/{}", write.group, write.version, write.plural),
            format!("{}/{}", write.namespace, write.name),
        ))
    }

    #[test]
    fn a_path_says_what_is_written() {
        let cases = [
            ("/api/v1/namespaces/n/configmaps/a", "/v1/configmaps", "n/a"),
            ("/api/v1/namespaces/n/pods", "/v1/pods", "n/"),
            (
                "/api/v1/namespaces/n/pods/p/status?fieldManager=x",
                "/v1/pods",
                "n/p",
            ),
            ("/api/v1/namespaces/n", "/v1/namespaces", "/n"),
            ("/api/v1/namespaces/n/finalize", "/v1/namespaces", "/n"),
            ("/api/v1/nodes/x", "/v1/nodes", "/x"),
            (
                "/apis/apps/v1/namespaces/n/deployments/d",
                "apps/v1/deployments",
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
        assert_eq!(write(&Method::POST, "/api/v1/nodes/x/proxy/a"), None);
        assert_eq!(write(&Method::POST, "/version"), None);
        assert_eq!(write(&Method::POST, "/apis/apps"), None);
    }

    /// A server whose watches say nothing.
    async fn silent(request: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
        let query = request.uri().query().unwrap_or_default();
        let answer = if query.contains("sendInitialEvents") {
            Response::builder()
                .status(422)
                .body(Body::empty())
                .expect("an answer")
        } else if query.contains("watch") {
            std::future::pending().await
        } else if request.method() == Method::GET {
            let empty = r#"{"metadata":{"resourceVersion":"5"},"items":[]}"#;
            Response::new(Body::from(empty.as_bytes().to_vec()))
        } else {
            let written = r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"namespace":"n","name":"a","resourceVersion":"6"}}"#;
            Response::new(Body::from(written.as_bytes().to_vec()))
        };
        Ok(answer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_in_another_version_waits_no_longer_than_its_deadline() {
        use k8s_openapi::api::autoscaling::{v1, v2};

        let caches = crate::Caches::new(Client::new(tower::service_fn(silent), "n"));
        let cache = caches.get::<v2::HorizontalPodAutoscaler>(&crate::Selection::all());
        cache.synced(PATIENCE).await.expect("an empty list");
        let api = kube::Api::<v1::HorizontalPodAutoscaler>::namespaced(caches.client().clone(), "n");
        let start = tokio::time::Instant::now();
        let object = v1::HorizontalPodAutoscaler::default();
        api.create(&kube::api::PostParams::default(), &object)
            .await
            .expect("the server took it");
        assert_eq!(start.elapsed().as_secs(), PATIENCE.as_secs());
        cache.close().await;
        let start = tokio::time::Instant::now();
        api.create(&kube::api::PostParams::default(), &object)
            .await
            .expect("the server took it");
        assert!(start.elapsed() < PATIENCE, "nobody can tell of it");
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
