//! The content of a source: fetched when first needed, and shared by all copies.
//!
//! The members of syncs hold it. Content that no sync copies any more is dropped, although its metadata is still
//! watched.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Mutex;
use windlass::kube::Client;

use crate::{
    content::Content,
    requests::{RequestError, get},
    source_watch::Source,
};

/// The current content of a source, while a sync holds it.
#[derive(Default)]
pub(crate) struct ContentCell {
    content: Mutex<CachedContent>,
    /// Its type is never copied; an object's type never changes.
    is_excluded: AtomicBool,
}

#[derive(Default)]
struct CachedContent {
    content: Weak<Content>,
    /// The version that did not fit, and its size.
    too_large: Option<(u64, usize)>,
}

impl ContentCell {
    pub(crate) fn is_excluded(&self) -> bool {
        self.is_excluded.load(Ordering::Relaxed)
    }

    /// Records that its type is never copied; returns whether that was known.
    pub(crate) fn exclude(&self) -> bool {
        self.is_excluded.swap(true, Ordering::Relaxed)
    }

    /// Returns the content of the source, at least as new as its metadata; `None` if the source was deleted or
    /// recreated.
    ///
    /// Concurrent callers share one request. Cancellation-safe.
    pub(crate) async fn content(
        &self,
        source: &Source,
        client: &Client,
    ) -> Result<Option<Arc<Content>>, RequestError> {
        let mut known = self.content.lock().await;
        if let Some(content) = known.content.upgrade()
            && content.version() >= source.version
            && content.uid() == &*source.uid
        {
            return Ok(Some(content));
        }
        let meter = &source.meter;
        let full = || RequestError::ContentLimitExceeded { limit: meter.limit };
        if let Some((version, size)) = known.too_large
            && version >= source.version
            && !meter.fits(size)
        {
            return Err(full());
        }
        let Some(mut content) = get(client, source.kind, &source.namespace, &source.name).await? else {
            return Ok(None);
        };
        if content.uid() != &*source.uid {
            return Ok(None);
        }
        content.drop_last_applied();
        content.reservation = meter.reserve(content.size());
        if content.reservation.is_none() {
            known.too_large = Some((content.version(), content.size()));
            return Err(full());
        }
        known.too_large = None;
        let content = Arc::new(content);
        known.content = Arc::downgrade(&content);
        Ok(Some(content))
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::atomic::AtomicUsize};

    use windlass::{
        kube::client::Body,
        prelude::{from_value, json},
    };

    use super::*;
    use crate::{
        api::{SYNC_ANNOTATION, SourceKind},
        content_budget::ContentBudget,
        member::Member,
        rules::SyncRules,
        source_watch::{ContentCells, SourceMetadata, SourceWatch, SourceWatchKey},
    };

    /// A server with one Secret of this type, and how many requests it got.
    fn server(secret_type: &'static str) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let secret = json!({
                "metadata": { "name": "s", "uid": "u", "resourceVersion": "1" }, "type": secret_type, "data": { "a": "Yg==" },
            });
            let answer = http::Response::new(Body::from(secret.to_string().into_bytes()));
            async { Ok::<_, Infallible>(answer) }
        });
        (Client::new(service, "n"), asked)
    }

    fn source(most: usize) -> Arc<Source> {
        let key = SourceWatchKey {
            kind: SourceKind::Secret,
            namespace: "n".into(),
        };
        let metadata = from_value(json!({ "uid": "u", "resourceVersion": "1" })).expect("valid metadata");
        let seen = Arc::new(SourceMetadata::from_metadata(&metadata, SYNC_ANNOTATION));
        let watch = SourceWatch {
            budget: Arc::new(ContentBudget::new(most)),
            ..SourceWatch::default()
        };
        Arc::new(Source::new(
            &key,
            &watch,
            &"s".into(),
            &seen,
            &mut ContentCells::default(),
        ))
    }

    fn member(source: &Arc<Source>) -> Arc<Member> {
        Member::reuse_or_new(None, source, &Arc::new(SyncRules::annotated(SourceKind::Secret)))
    }

    #[tokio::test]
    async fn content_is_fetched_once_and_dropped_with_its_last_sync() {
        let ((client, asked), source) = (server("Opaque"), source(usize::MAX));
        let (one, other) = (member(&source), member(&source));
        let mut held = Vec::new();
        for member in [&one, &other, &one] {
            let wanted = member
                .desired(&client, SYNC_ANNOTATION)
                .await
                .expect("a response");
            held.push(Arc::downgrade(&wanted.expect("it exists").content));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        drop(one);
        assert!(held[0].upgrade().is_some(), "the other sync copies it");
        drop(other);
        assert!(held.iter().all(|content| content.upgrade().is_none()));
    }

    #[tokio::test]
    async fn content_over_the_limit_is_neither_held_nor_refetched() {
        // The key `a` and its base64 value are five bytes.
        let ((client, asked), source) = (server("Opaque"), source(4));
        let member = member(&source);
        for _ in 0..3 {
            let failure = member
                .desired(&client, SYNC_ANNOTATION)
                .await
                .err()
                .expect("it is too large");
            assert_eq!(failure.reason(), "LimitExceeded");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(source.meter.fits(4), "nothing is held");
    }

    #[tokio::test]
    async fn excluded_content_is_not_held() {
        let ((client, _), source) = (server("helm.sh/release.v1"), source(usize::MAX));
        let member = member(&source);
        let wanted = member
            .desired(&client, SYNC_ANNOTATION)
            .await
            .expect("a response");
        let content = Arc::downgrade(&wanted.expect("it exists").content);
        assert!(content.upgrade().is_none());
    }
}
