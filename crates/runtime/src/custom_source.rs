//! Custom sources: user code that adds keys to a controller's queue, from watches opened and closed at run time.
//!
//! ```text
//!   Caches ──► Cache ──► WatchHandle (a task) ── SourceEvent ──► custom source ── keys ──► SourceContext ──► work queue
//!      ▲                    │ dropped: the watch ends                │
//!      └──────────── opened when the source needs it ────────────────┘
//! ```
//!
//! Ownership: the [source](crate::Controller::source) owns its [`WatchHandle`]s, the controller owns the source, and both end
//! with the controller. Reconciles start after every source has called [`SourceContext::mark_ready`].

use std::{future::Future, sync::Arc};

use tokio::{sync::watch, task::JoinHandle};
use windlass_cache::{Cache, CacheSet, Change, ObjectKey, WatchScope};
use windlass_workqueue::Priority;

use crate::{
    error::Error,
    key::ReconcileKey,
    source::{Pump, Source, SourceBuilder, WaitsFor},
    start_report::CustomKinds,
    trigger::{ChangedObject, KeyQueue, Trigger, TriggerCause, enqueue},
};

/// Gives a [custom source](crate::Controller::source) its caches and the controller's queue. Clones share both.
#[derive(Clone)]
pub struct SourceContext<Key = ObjectKey> {
    caches: CacheSet,
    scope: WatchScope,
    queue: KeyQueue<Key>,
    ready: Arc<watch::Sender<bool>>,
    /// What it waits for, to report what is missing.
    watched: CustomKinds,
}

impl<Key: ReconcileKey> SourceContext<Key> {
    /// Returns the manager's shared caches.
    pub fn caches(&self) -> &CacheSet {
        &self.caches
    }

    /// Returns the manager's scope: all namespaces, or some.
    pub fn scope(&self) -> &WatchScope {
        &self.scope
    }

    /// Adds a key to the queue. A key that is already queued gets the higher of both priorities.
    pub fn add(&self, key: Key, priority: Priority) {
        let trigger = Trigger::new(TriggerCause::Source);
        enqueue(&self.queue, key, priority, Some(trigger));
    }

    /// Adds a key to the queue because an object changed, which [`Context::trigger`](crate::Context::trigger) then says.
    /// All keys of a change can share it.
    pub fn add_changed(&self, key: Key, priority: Priority, changed: &Arc<ChangedObject>) {
        let trigger = Trigger::new(TriggerCause::Change(Arc::clone(changed)));
        enqueue(&self.queue, key, priority, Some(trigger));
    }

    /// Declares that the initial keys are queued, so reconciles may begin. Until then keys wait in the queue.
    pub fn mark_ready(&self) {
        self.ready.send_replace(true);
    }

    /// Watches a cache in a task of its own, until the handle is dropped or the cache ends. `on_event` is called for each
    /// change in order, and once when the initial objects are complete. It must not block.
    ///
    /// Must be called within a tokio runtime.
    pub fn watch<T: Send + Sync + 'static>(
        &self,
        cache: &Cache<T>,
        mut on_event: impl FnMut(SourceEvent<T>) + Send + 'static,
    ) -> WatchHandle {
        if !*self.ready.borrow() {
            self.watched.add(cache);
        }
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
                            on_event(SourceEvent::Synced);
                        }
                    }
                    change = subscription.next() => match change {
                        Some(change) => on_event(SourceEvent::Change(change)),
                        None => return,
                    },
                }
                tokio::task::consume_budget().await;
            }
        });
        WatchHandle(task)
    }
}

/// An event of a cache that a custom source [watches](SourceContext::watch).
pub enum SourceEvent<T> {
    /// An object changed, or existed at the start.
    Change(Change<T>),
    /// All objects that existed at the start have been delivered.
    Synced,
}

/// Handle of a [watched](SourceContext::watch) cache. Dropping it unsubscribes; the watch ends with its last subscriber.
#[must_use = "dropping the handle ends the watch"]
pub struct WatchHandle(JoinHandle<()>);

impl WatchHandle {
    /// Completes when the cache has ended or the callback has panicked. Cancellation-safe.
    pub async fn ended(&mut self) {
        // The log tells which.
        let _ = (&mut self.0).await;
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The source of a custom function.
pub(crate) fn from_fn<Key: ReconcileKey, F, Fut>(source: F) -> SourceBuilder<Key>
where
    F: FnOnce(SourceContext<Key>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), Error>> + Send + 'static,
{
    Box::new(move |caches, within, _| {
        let (caches, scope) = (caches.clone(), within.clone());
        let (sender, mut ready) = watch::channel(false);
        let watched = CustomKinds::default();
        Source {
            waits_for: Some(WaitsFor::CustomSource(watched.clone())),
            pump: Some(Pump::Endless(Box::new(move |queue| {
                Box::pin(async move {
                    let feed = SourceContext {
                        caches,
                        scope,
                        queue,
                        ready: Arc::new(sender),
                        watched,
                    };
                    if let Err(error) = source(feed).await {
                        tracing::error!(%error, "custom source failed");
                    }
                })
            }))),
            ready: Some(Box::new(move || {
                Box::pin(async move {
                    if ready.wait_for(|ready| *ready).await.is_err() {
                        // It ended before it was ready; its pump's end stops the controller.
                        std::future::pending::<()>().await;
                    }
                    Ok(Box::new(|_: &mut crate::listers::Listers| ()) as crate::source::RegisterListerFn)
                })
            })),
        }
    })
}
