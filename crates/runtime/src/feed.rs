//! Keys that an author's own code puts into a controller's queue, from watches that may come and go.
//!
//! ```text
//!   Caches ──► Cache ──► Watching (a task) ── Told ──► the author's state ── keys ──► Feed ──► work queue
//!      ▲                    │ dropped: the watch ends
//!      └── opened when the author's state asks for it
//! ```
//!
//! Who owns what: the [feeder](crate::Controller::fed_by) owns its [`Watching`]s, and the controller owns the feeder; both end
//! with the controller. Reconciles start when every feeder has said [`ready`](Feed::ready).

use std::{future::Future, sync::Arc};

use tokio::{sync::watch, task::JoinHandle};
use windlass_cache::{Cache, Caches, Change, ObjectKey, Selection};
use windlass_workqueue::{Add, Priority, WorkQueue};

use crate::{
    error::Error,
    source::{Declared, Pump, Source},
};

/// What a feeder uses. Clones are the same feed.
#[derive(Clone)]
pub struct Feed {
    caches: Caches,
    within: Selection,
    queue: WorkQueue<ObjectKey>,
    ready: Arc<watch::Sender<bool>>,
}

impl Feed {
    /// The caches that the controllers of the manager share: what is watched is asked for here.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// What the manager looks at: everything, or some namespaces.
    pub fn within(&self) -> &Selection {
        &self.within
    }

    /// Puts a key into the queue. One that waits there already gets the higher of both priorities.
    pub fn add(&self, key: ObjectKey, priority: Priority) {
        let add = Add {
            priority,
            ..Add::default()
        };
        self.queue.add_with(key, add);
    }

    /// Everything that was there at the start has been told: reconciles may begin. Until then keys wait in the queue.
    pub fn ready(&self) {
        self.ready.send_replace(true);
    }

    /// Follows a cache in a task of its own, until what is returned is dropped or the cache ends. `told` is called for each
    /// change in order, and once when everything that was there at the start has been told. It must not wait.
    ///
    /// Must be called within a tokio runtime.
    pub fn watch<T: Send + Sync + 'static>(
        &self,
        cache: &Cache<T>,
        mut told: impl FnMut(Told<T>) + Send + 'static,
    ) -> Watching {
        let mut subscription = cache.subscribe();
        let mut synced = subscription.synced();
        let task = tokio::spawn(async move {
            let mut complete = false;
            loop {
                tokio::select! {
                    biased;
                    handled = synced.wait(), if !complete => {
                        complete = true;
                        if handled {
                            told(Told::Complete);
                        }
                    }
                    change = subscription.next() => match change {
                        Some(change) => told(Told::Change(change)),
                        None => return,
                    },
                }
                tokio::task::consume_budget().await;
            }
        });
        Watching(task)
    }
}

/// What is told of a cache that is [watched](Feed::watch).
pub enum Told<T> {
    /// Something changed, or was there at the start.
    Change(Change<T>),
    /// All that was there at the start has been told.
    Complete,
}

/// A cache that is followed. Dropping it ends that, and the watch with its last user.
#[must_use = "what is dropped is not watched"]
pub struct Watching(JoinHandle<()>);

impl Watching {
    /// Returns when the cache has ended, or its follower has panicked. Cancellation-safe.
    pub async fn ended(&mut self) {
        // Which of both it was is in the log.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A source whose keys an author's code makes.
pub(crate) fn declare<F, Fut>(feeder: F) -> Declared
where
    F: FnOnce(Feed) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), Error>> + Send + 'static,
{
    Box::new(move |caches, within, _| {
        let (caches, within) = (caches.clone(), within.clone());
        let (sender, mut ready) = watch::channel(false);
        Source {
            kind: Some("its feed".to_owned()),
            pump: Some(Pump::Endless(Box::new(move |queue| {
                Box::pin(async move {
                    let feed = Feed {
                        caches,
                        within,
                        queue,
                        ready: Arc::new(sender),
                    };
                    if let Err(error) = feeder(feed).await {
                        tracing::error!(%error, "a controller's feed failed");
                    }
                })
            }))),
            ready: Some(Box::new(move || {
                Box::pin(async move {
                    if ready.wait_for(|ready| *ready).await.is_err() {
                        // It ended before it was ready, which stops the controller.
                        std::future::pending::<()>().await;
                    }
                    Ok(Box::new(|_: &mut crate::listers::Listers| ()) as crate::source::Ready)
                })
            })),
        }
    })
}
