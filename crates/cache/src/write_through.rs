//! A client that writes through to the caches: the response to a write is stored in the caches of that kind before the
//! caller gets it.
//!
//! ```text
//!   reconcile ──► Client ──► WriteThrough ──► API server
//!                               │ response to a write
//!                               ├──► Store::apply_own_write, apply_own_delete   (kept until the watch has reached it)
//!                               └──► or, if its shape is not the cached one, wait for the watch
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
use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, client::Body, core::Status};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::timeout;
use tower::Service;
use windlass_api::request::{Access, AccessTarget, RequestInfo};

use crate::{
    cache::Shared,
    cache_set::State,
    ingest::Ingested,
    key::ObjectKey,
    meta::{Interner, Meta, Uid},
    query::FieldSelector,
    scan::{Cursor, ScannedObject},
    wire::Page,
};

/// How long a response waits for the watch if it cannot be stored in a cache.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Wraps a client so that its writes go into the caches.
pub(crate) fn write_through(client: Client, caches: Weak<Mutex<State>>) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(WriteThrough { client, caches }, namespace)
}

struct WriteThrough {
    client: Client,
    caches: Weak<Mutex<State>>,
}

impl Service<Request<Body>> for WriteThrough {
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
                write.apply_response(&shared, &body).await;
            }
            Ok(Response::from_parts(parts, Body::from(body)))
        })
    }
}

/// A request that changes objects.
#[derive(Debug, PartialEq, Eq)]
struct Write {
    group: String,
    version: String,
    plural: String,
    namespace: String,
    /// Empty for a create and for deletecollection.
    name: String,
    delete: bool,
}

impl Write {
    fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let info = RequestInfo::of(method, uri.path(), uri.query());
        let is_dry_run = info.is_dry_run();
        let Access { verb, target } = info.access;
        let delete = match verb.as_str() {
            "create" | "update" | "patch" => false,
            "delete" | "deletecollection" => true,
            _ => return None,
        };
        let AccessTarget::Resource {
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        } = target
        else {
            return None;
        };
        // A proxied request does not write to the API.
        if is_dry_run || subresource == "proxy" {
            return None;
        }
        // Request info puts a namespace into itself.
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

    /// Makes the response visible in the affected caches.
    async fn apply_response(&self, caches: &[Arc<Shared>], body: &Bytes) {
        let concerned = caches
            .iter()
            .filter(|shared| shared.target.group == self.group && shared.target.plural == self.plural);
        for shared in concerned {
            let mut unconfirmed = Vec::new();
            self.update_cache(shared, body, &mut unconfirmed);
            for write in unconfirmed {
                if timeout(WATCH_TIMEOUT, write.wait(shared)).await.is_err() {
                    tracing::warn!(
                        kind = %shared.core.kind, key = %write.key, version = self.version,
                        "the watch did not report a write in time; the cache does not reflect it yet"
                    );
                    break;
                }
            }
        }
    }

    /// Stores the response; writes that only the watch can confirm are added to `unconfirmed`.
    fn update_cache(&self, shared: &Shared, body: &[u8], unconfirmed: &mut Vec<UnconfirmedWrite>) {
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
                let uid = Uid::from(details.uid.as_str());
                // A Status does not have the version of the last state.
                shared.core.store.apply_own_delete(&key, uid, 0);
            }
        } else if self.delete && found.kind.strip_suffix("List") == Some(kind) {
            let mut page = Page::default();
            // An invalid list is ignored; the watch reports the changes.
            let _ = page.push(body);
            // The list has the states before the deletion. Only the watch reports whether each object is gone or
            // terminating.
            let _ = page.finish(|_, found| {
                // An object that was terminating already may not change.
                if !found.deleting {
                    unconfirmed.extend(UnconfirmedWrite::after(shared, found));
                }
            });
        } else {
            self.update_object(shared, body, &found, unconfirmed);
        }
    }

    /// Returns whether the server has removed the object of this response, rather than keep it for its finalizers or its
    /// grace period. An update removes it too, if no finalizer is left of an object that is being deleted, as in
    /// kube-apiserver's `ShouldDeleteDuringUpdate`.
    fn is_deletion(&self, raw: &[u8], found: &ScannedObject<'_>) -> bool {
        if !self.delete && !found.deleting {
            return false;
        }
        let Ok(Object { metadata }) = serde_json::from_slice(raw) else {
            return false;
        };
        let DeletionMeta {
            deletion_grace_period_seconds: grace,
            finalizers,
        } = metadata;
        let waits = found.deleting && grace.unwrap_or(0) > 0;
        !waits && finalizers.unwrap_or_default().is_empty() && !self.is_namespace_with_content(raw)
    }

    /// A namespace is kept for its `spec.finalizers` until its content is gone. A response of metadata only does not show
    /// them.
    fn is_namespace_with_content(&self, raw: &[u8]) -> bool {
        let is_namespace = self.group.is_empty() && self.plural == "namespaces";
        is_namespace
            && serde_json::from_slice::<Namespace>(raw)
                .ok()
                .and_then(|namespace| namespace.spec)
                .is_none_or(|spec| spec.finalizers.is_some_and(|finalizers| !finalizers.is_empty()))
    }

    fn update_object(
        &self,
        shared: &Shared,
        raw: &[u8],
        found: &ScannedObject<'_>,
        unconfirmed: &mut Vec<UnconfirmedWrite>,
    ) {
        let target = &shared.target;
        // List items have no kind. A metadata-only response suffices for a metadata-only cache, unless its field
        // selector needs more.
        let is_partial = found.kind == "PartialObjectMetadata";
        let is_of_kind = found.kind.is_empty()
            || *found.kind == *shared.core.kind.kind
            || is_partial && target.watch_scope.metadata_only && selects_by_metadata(shared);
        if (is_of_kind || is_partial) && self.is_deletion(raw, found) {
            let key = ObjectKey::namespaced(&*found.namespace, &*found.name);
            let version = found.resource_version.parse().unwrap_or_default();
            let store = &shared.core.store;
            return store.apply_own_delete(&key, Uid::from(&*found.uid), version);
        }
        if !is_of_kind || self.version != target.version {
            unconfirmed.extend(UnconfirmedWrite::of(shared, found, is_of_kind));
            return;
        }
        let arrival = shared.core.ingest.lock().make_and_queue(raw, found);
        if let Ingested::Object(entry) = arrival
            && let Some(selected) = is_selected(shared, &entry.meta, raw)
        {
            shared.core.store.apply_own_write(entry, selected);
        }
    }
}

/// A write whose response does not have the cached shape: another API version, or a subresource such as scale. Only the
/// watch can confirm it.
struct UnconfirmedWrite {
    key: ObjectKey,
    resource_version: u64,
    /// The cache's label selector excludes the object.
    excluded: bool,
    /// The write produced the version after this one.
    next_version: bool,
}

impl UnconfirmedWrite {
    /// Returns `None` if the response has no name or no resource version.
    fn of(shared: &Shared, found: &ScannedObject<'_>, is_of_kind: bool) -> Option<Self> {
        let meta = Interner::default().meta(found);
        if meta.key.name.is_empty() || meta.resource_version == 0 {
            return None;
        }
        // Labels are the same in every API version; fields may differ, and a subresource has its own.
        let excluded = is_of_kind && shared.target.labels_match(&meta) == Some(false);
        Some(Self {
            key: meta.key,
            resource_version: meta.resource_version,
            excluded,
            next_version: false,
        })
    }

    /// Like `of`, for the version after the scanned one.
    fn after(shared: &Shared, found: &ScannedObject<'_>) -> Option<Self> {
        let before = Self::of(shared, found, true)?;
        Some(Self {
            next_version: true,
            ..before
        })
    }

    /// Waits until reads reflect the write.
    async fn wait(&self, shared: &Shared) {
        let store = &shared.core.store;
        let mut written = store.written();
        let is_there = || {
            if self.next_version {
                store.reflects_later(&self.key, self.resource_version)
            } else {
                store.reflects(&self.key, self.resource_version, self.excluded)
            }
        };
        while !is_there() {
            if written.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The fields of a response that decide whether the object is gone.
#[derive(Deserialize)]
struct Object {
    metadata: DeletionMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeletionMeta {
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<String>>,
}

/// Returns whether the cache's field selector needs only metadata.
fn selects_by_metadata(shared: &Shared) -> bool {
    let fields = shared.target.watch_scope.fields.as_deref();
    fields.is_none_or(|fields| {
        fields
            .parse::<FieldSelector>()
            .is_ok_and(|fields| fields.is_metadata_only())
    })
}

/// Returns whether the object is in the cache's scope; `None` if that cannot be evaluated here.
fn is_selected(shared: &Shared, meta: &Meta, raw: &[u8]) -> Option<bool> {
    let by_label = shared.target.labels_match(meta)?;
    let by_field = match &shared.target.watch_scope.fields {
        Some(selector) => selector.parse::<FieldSelector>().ok()?.matches(raw),
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
    fn write_is_parsed_from_the_request_path() {
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

    /// A server whose watches send no events.
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
    async fn write_in_another_version_waits_until_the_timeout() {
        use k8s_openapi::api::autoscaling::{v1, v2};

        let caches = crate::CacheSet::new(Client::new(tower::service_fn(silent), "n"));
        let cache = caches.get::<v2::HorizontalPodAutoscaler>(&crate::WatchScope::all());
        cache.synced(WATCH_TIMEOUT).await.expect("an empty list");
        let api = kube::Api::<v1::HorizontalPodAutoscaler>::namespaced(caches.client().clone(), "n");
        let start = tokio::time::Instant::now();
        let object = v1::HorizontalPodAutoscaler::default();
        api.create(&kube::api::PostParams::default(), &object)
            .await
            .expect("the server took it");
        assert_eq!(start.elapsed().as_secs(), WATCH_TIMEOUT.as_secs());
        cache.close().await;
        let start = tokio::time::Instant::now();
        api.create(&kube::api::PostParams::default(), &object)
            .await
            .expect("the server took it");
        assert!(
            start.elapsed() < WATCH_TIMEOUT,
            "no watch is left that could confirm it"
        );
    }

    #[test]
    fn response_is_a_deletion_without_finalizers_and_grace_period() {
        let namespace = r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"finalizers":["kubernetes"]}}"#;
        // The response, and whether it is a deletion as the answer to a DELETE and to a PATCH.
        for (path, json, deleted, patched) in [
            ("pods", r#"{"metadata":{}}"#, true, false),
            (
                "pods",
                r#"{"metadata":{"deletionTimestamp":"t","deletionGracePeriodSeconds":0}}"#,
                true,
                true,
            ),
            ("pods", r#"{"metadata":{"deletionTimestamp":"t"}}"#, true, true),
            (
                "pods",
                r#"{"metadata":{"deletionTimestamp":"t","deletionGracePeriodSeconds":30}}"#,
                false,
                false,
            ),
            (
                "pods",
                r#"{"metadata":{"deletionTimestamp":"t","finalizers":["f"]}}"#,
                false,
                false,
            ),
            ("namespaces", namespace, false, false),
            (
                "namespaces",
                &namespace.replace(r#""kubernetes""#, ""),
                true,
                true,
            ),
            (
                "namespaces",
                r#"{"metadata":{"deletionTimestamp":"t"}}"#,
                false,
                false,
            ),
        ] {
            let uri: Uri = format!("/api/v1/{path}/a").parse().expect("a path");
            let found = Cursor::new(json.as_bytes()).object().expect("an object");
            for (method, expected) in [(Method::DELETE, deleted), (Method::PATCH, patched)] {
                let write = Write::of(&method, &uri).expect("a write");
                assert_eq!(
                    write.is_deletion(json.as_bytes(), &found),
                    expected,
                    "{method} {json}"
                );
            }
        }
    }
}
