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
    content: Mutex<Weak<Content>>,
    /// Its type is one that is never copied; an object's type never changes.
    is_excluded: AtomicBool,
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
        if let Some(content) = known.upgrade()
            && content.version() >= source.version
            && content.uid() == &*source.uid
        {
            return Ok(Some(content));
        }
        let Some(content) = get(client, source.kind, &source.namespace, &source.name).await? else {
            return Ok(None);
        };
        if content.uid() != &*source.uid {
            return Ok(None);
        }
        let content = Arc::new(content);
        *known = Arc::downgrade(&content);
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
        room::{RoomKey, Seen, Slots, Which},
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

    fn source() -> Arc<Source> {
        let room = RoomKey {
            kind: SourceKind::Secret,
            namespace: "n".into(),
            which: Which::All,
        };
        let metadata = from_value(json!({ "uid": "u", "resourceVersion": "1" })).expect("it is metadata");
        let seen = Seen::of(&metadata, SYNC);
        Arc::new(Source::new(&room, "s", &seen, &mut Slots::default()))
    }

    fn member(source: &Arc<Source>) -> Arc<Member> {
        Member::again(None, source, &Arc::new(Rules::annotated(SourceKind::Secret)))
    }

    #[tokio::test]
    async fn content_is_read_once_for_all_and_held_only_while_a_sync_copies_it() {
        let ((client, asked), source) = (server("Opaque"), source());
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
    async fn what_is_never_copied_is_not_held() {
        let ((client, _), source) = (server("helm.sh/release.v1"), source());
        let member = member(&source);
        let wanted = member.wanted(&client, SYNC).await.expect("it answers");
        let content = Arc::downgrade(&wanted.expect("it is there").content);
        assert!(content.upgrade().is_none());
    }
}
