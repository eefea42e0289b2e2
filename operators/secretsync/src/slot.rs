//! The content of a source: fetched by whoever needs it first, and shared by all.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Mutex;
use windlass::kube::Client;

use crate::{
    content::Content,
    room::Source,
    wire::{Failure, get},
};

/// Where a source's content is kept for as long as it is current.
#[derive(Default)]
pub(crate) struct Slot {
    content: Mutex<Option<Arc<Content>>>,
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
        let mut kept = self.content.lock().await;
        if let Some(content) = kept.as_ref()
            && content.version() >= source.version
            && content.uid() == &*source.uid
        {
            return Ok(Some(Arc::clone(content)));
        }
        // What it held is not needed any more, whatever comes.
        *kept = None;
        let Some(content) = get(client, source.kind, &source.namespace, &source.name).await? else {
            return Ok(None);
        };
        if content.uid() != &*source.uid {
            return Ok(None);
        }
        Ok(Some(Arc::clone(kept.insert(Arc::new(content)))))
    }
}
