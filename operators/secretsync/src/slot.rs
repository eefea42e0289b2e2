//! The content of a source: fetched by whoever needs it first, and shared by all.
//!
//! The members of syncs hold it. What no sync copies any more is held by nobody, although its metadata is still watched.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Mutex;
use windlass::kube::Client;

use crate::{
    content::Content,
    room::Source,
    wire::{Failure, get},
};

/// Where a source's content is found for as long as it is current and somebody has it.
#[derive(Default)]
pub(crate) struct Slot {
    content: Mutex<Known>,
    /// Its type is one that is never copied; an object's type never changes.
    is_excluded: AtomicBool,
}

#[derive(Default)]
struct Known {
    content: Weak<Content>,
    /// In which version it did not fit, and how large it was.
    too_large: Option<(u64, usize)>,
}

impl Slot {
    pub(crate) fn is_excluded(&self) -> bool {
        self.is_excluded.load(Ordering::Relaxed)
    }

    /// Notes that its type is never copied; whether that was known.
    pub(crate) fn exclude(&self) -> bool {
        self.is_excluded.swap(true, Ordering::Relaxed)
    }

    /// The content of the source, at least as new as what is known of it; `None` if it is gone or is another one now.
    ///
    /// Whoever comes while it is fetched waits for that. Cancellation-safe.
    pub(crate) async fn content(
        &self,
        source: &Source,
        client: &Client,
    ) -> Result<Option<Arc<Content>>, Failure> {
        let mut known = self.content.lock().await;
        if let Some(content) = known.content.upgrade()
            && content.version() >= source.version
            && content.uid() == &*source.uid
        {
            return Ok(Some(content));
        }
        let meter = &source.meter;
        let full = || Failure::OverBudget { most: meter.most };
        if let Some((version, size)) = known.too_large
            && version >= source.version
            && !meter.has_room(size)
        {
            return Err(full());
        }
        let Some(mut content) = get(client, source.kind, &source.namespace, &source.name).await? else {
            return Ok(None);
        };
        if content.uid() != &*source.uid {
            return Ok(None);
        }
        content.forget_applied();
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
        api::{SYNC, SourceKind},
        member::Member,
        meter::Meter,
        room::{Room, RoomKey, Seen, Slots},
        rules::Rules,
    };

    /// A server that has one Secret of this type, and how often it was asked for it.
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
        let room = RoomKey {
            kind: SourceKind::Secret,
            namespace: "n".into(),
        };
        let metadata = from_value(json!({ "uid": "u", "resourceVersion": "1" })).expect("it is metadata");
        let seen = Arc::new(Seen::of(&metadata, SYNC));
        let room_of = Room {
            meter: Arc::new(Meter::new(most)),
            ..Room::default()
        };
        Arc::new(Source::new(
            &room,
            &room_of,
            &"s".into(),
            &seen,
            &mut Slots::default(),
        ))
    }

    fn member(source: &Arc<Source>) -> Arc<Member> {
        Member::again(None, source, &Arc::new(Rules::annotated(SourceKind::Secret)))
    }

    #[tokio::test]
    async fn content_is_read_once_for_all_and_held_only_while_a_sync_copies_it() {
        let ((client, asked), source) = (server("Opaque"), source(usize::MAX));
        let (one, other) = (member(&source), member(&source));
        let mut held = Vec::new();
        for member in [&one, &other, &one] {
            let wanted = member.wanted(&client, SYNC).await.expect("it answers");
            held.push(Arc::downgrade(&wanted.expect("it is there").content));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        drop(one);
        assert!(held[0].upgrade().is_some(), "the other copies it");
        drop(other);
        assert!(held.iter().all(|content| content.upgrade().is_none()));
    }

    #[tokio::test]
    async fn content_that_does_not_fit_is_neither_held_nor_fetched_again() {
        // The key `a` and its value in base64 are five bytes.
        let ((client, asked), source) = (server("Opaque"), source(4));
        let member = member(&source);
        for _ in 0..3 {
            let failure = member.wanted(&client, SYNC).await.err().expect("it is too large");
            assert_eq!(failure.reason(), "BudgetExceeded");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(source.meter.has_room(4), "nothing is held");
    }

    #[tokio::test]
    async fn what_is_never_copied_is_not_held() {
        let ((client, _), source) = (server("helm.sh/release.v1"), source(usize::MAX));
        let member = member(&source);
        let wanted = member.wanted(&client, SYNC).await.expect("it answers");
        let content = Arc::downgrade(&wanted.expect("it is there").content);
        assert!(content.upgrade().is_none());
    }
}
