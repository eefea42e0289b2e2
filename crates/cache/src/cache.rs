//! A cache of one kind: who owns the watch, and how to get from "started" to "readable".

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::{
    driver::{self, Target},
    failure::{Cause, Failure},
    kind::{Cacheable, KindName, Selection},
    lister::Lister,
    protocol::ListWatch,
    store::Store,
    subscription::Subscription,
    wire::Broken,
};

/// A cache of one kind that keeps itself current, possibly not complete yet.
///
/// There is nothing to read here: [`synced`](Self::synced) gives the [`Lister`] that can. Clones share one watch.
/// It ends when the last clone, lister and subscription are gone, or with [`close`](Self::close).
pub struct Cache<K> {
    pub(crate) shared: Arc<Shared<K>>,
}

impl<K: Cacheable> Cache<K> {
    /// Starts to list and watch the selected objects. Must be called within a tokio runtime.
    pub fn start(client: Client, selection: &Selection) -> Self
    where
        K::DynamicType: Default,
    {
        Self::start_dynamic(client, &K::DynamicType::default(), selection)
    }

    /// Like [`start`](Self::start) for a type that learns its kind at run time.
    pub fn start_dynamic(client: Client, dynamic: &K::DynamicType, selection: &Selection) -> Self {
        Self::start_within(client, dynamic, selection, None)
    }

    /// Starts a cache that also ends when `closing` turns true; the receiver is dropped when the task is gone.
    pub(crate) fn start_within(
        client: Client,
        dynamic: &K::DynamicType,
        selection: &Selection,
        closing: Option<watch::Receiver<bool>>,
    ) -> Self {
        let core = Arc::new(Core {
            kind: KindName::of::<K>(dynamic),
            store: Store::new(),
            progress: watch::Sender::new(Progress::default()),
        });
        let target = Target::of::<K>(dynamic, selection);
        let ending = Ending(Arc::clone(&core));
        let task = tokio::spawn(async move {
            let mut closing = closing;
            let protocol = ListWatch::new(fastrand::Rng::new());
            tokio::select! {
                () = driver::run(client, target, Arc::clone(&ending.0), protocol) => {}
                () = asked_to_close(closing.as_mut()) => {}
            }
        });
        Self {
            shared: Arc::new(Shared {
                core,
                task: Task(task),
            }),
        }
    }

    /// Which kind is cached.
    pub fn kind(&self) -> &KindName {
        &self.shared.core.kind
    }

    /// Waits until the cache holds everything that was there when it started, and gives the means to read it.
    ///
    /// The error says what is missing and the last thing that went wrong. Cancellation-safe.
    pub async fn synced(&self, deadline: Duration) -> Result<Lister<K>, SyncError> {
        let mut progress = self.shared.core.progress.subscribe();
        let kind = || self.kind().clone();
        let outcome = timeout(
            deadline,
            progress.wait_for(|progress| progress.complete || progress.ended),
        )
        .await;
        match outcome {
            Ok(Ok(progress)) if progress.complete => {}
            Ok(_) => return Err(SyncError::Ended { kind: kind() }),
            Err(_) => {
                let trouble = self
                    .trouble()
                    .unwrap_or_else(|| "the server has not answered yet".to_owned());
                return Err(SyncError::Deadline {
                    kind: kind(),
                    waited: deadline,
                    trouble,
                });
            }
        }
        Ok(Lister { cache: self.clone() })
    }

    /// What currently keeps the cache from following the server, in one line; `None` if nothing does.
    pub fn trouble(&self) -> Option<String> {
        self.shared.core.progress.borrow().trouble.clone()
    }

    /// All objects as they are now, and every change from now on.
    pub fn subscribe(&self) -> Subscription<K> {
        let buffer = self.shared.core.store.subscribe();
        Subscription {
            buffer,
            _cache: Arc::clone(&self.shared) as Arc<dyn Send + Sync>,
        }
    }

    /// Ends the watch for every user of this cache and waits until its task is gone. Listers keep what they have;
    /// subscriptions end.
    pub async fn close(&self) {
        self.shared.task.0.abort();
        let mut progress = self.shared.core.progress.subscribe();
        // The sender lives in `core`, so this can only end by the task's end.
        let _ = progress.wait_for(|progress| progress.ended).await;
    }
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Why a cache could not be read in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// The first list did not come in time.
    #[error("{kind} was not listed within {waited:?}: {trouble}")]
    Deadline {
        /// What is missing.
        kind: KindName,
        /// How long it was waited for.
        waited: Duration,
        /// The last thing that went wrong.
        trouble: String,
    },
    /// The cache was closed.
    #[error("the cache of {kind} has ended")]
    Ended {
        /// Which cache.
        kind: KindName,
    },
}

/// What the users of a cache own together.
pub(crate) struct Shared<K> {
    pub(crate) core: Arc<Core<K>>,
    task: Task,
}

/// The driver's task; it does not outlive its owner.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Never returns for a cache that is not part of a set, or whose set is gone: such a one lives by its users alone.
async fn asked_to_close(closing: Option<&mut watch::Receiver<bool>>) {
    if let Some(closing) = closing
        && closing.wait_for(|closing| *closing).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// What the driver's task and the users have in common.
pub(crate) struct Core<K> {
    kind: KindName,
    pub(crate) store: Store<K>,
    progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The first list is in the store.
    complete: bool,
    /// The task is gone.
    ended: bool,
    trouble: Option<String>,
}

/// Something that a person should know about.
#[derive(Clone, Copy)]
pub(crate) enum Trouble<'a> {
    List(&'a Failure),
    Watch(&'a Failure),
    Object(&'a Broken),
}

impl<K> Core<K> {
    pub(crate) fn complete(&self) {
        self.progress.send_modify(|progress| {
            progress.complete = true;
            progress.trouble = None;
        });
    }

    pub(crate) fn recovered(&self) {
        self.progress.send_modify(|progress| progress.trouble = None);
    }

    pub(crate) fn report(&self, trouble: Trouble<'_>) {
        let kind = &self.kind;
        let text = match trouble {
            Trouble::Object(Broken { key, error, .. }) => {
                let key = key.as_ref().map_or("?".to_owned(), ToString::to_string);
                tracing::warn!(%kind, %key, error, "an object does not decode and is skipped");
                return;
            }
            Trouble::List(Failure {
                cause: Cause::NotInstalled,
                message,
            }) => {
                format!("it is not installed; waiting for its definition ({message})")
            }
            Trouble::List(failure) => format!("cannot list: {}", failure.message),
            Trouble::Watch(failure) => format!("cannot watch: {}", failure.message),
        };
        // The same trouble again, after each backoff, is not news.
        if self.progress.borrow().trouble.as_ref() == Some(&text) {
            tracing::debug!(%kind, trouble = text, "still in trouble");
        } else {
            tracing::warn!(%kind, trouble = text, "the cache is in trouble");
            self.progress
                .send_modify(|progress| progress.trouble = Some(text));
        }
    }
}

/// Tells everybody that the task is gone, however it went.
struct Ending<K: Cacheable>(Arc<Core<K>>);

impl<K: Cacheable> Drop for Ending<K> {
    fn drop(&mut self) {
        self.0.store.close();
        self.0.progress.send_modify(|progress| progress.ended = true);
    }
}
