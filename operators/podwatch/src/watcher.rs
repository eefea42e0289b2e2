//! The watch of one kind: a controller whose reconcile is to tell.
//!
//! ```text
//!   watch ── tap ──► Memory ◄── open ── Watcher::reconcile ──► Teller ──► Feed (tell or pass, and once: listed)
//!     └───── key ──► queue ────────────────┘
//! ```
//!
//! The queue decides whose turn it is, and retries what fails; [`Memory`] knows what happened, [`Teller`] what of it is told.
//! Telling waits for nobody: sinks have queues of their own.

use std::sync::{Arc, OnceLock};

use windlass::{
    cache::{Lister, ObjectKey, Query, Stored},
    kube::core::{ApiResource, DynamicObject},
    prelude::{Action, Context, Controller, Error, Reconciler, Request, Watch},
};

use crate::{
    arguments::Scope,
    delivery::{Feed, Present},
    journal::Version,
    memory::{Memory, Step},
    notice::{Notice, Observer},
    teller::{Teller, Verdict},
};

/// Tells of the objects of one kind.
pub(crate) struct Watcher {
    memory: Arc<Memory<DynamicObject>>,
    there: Arc<There>,
    feed: Feed,
}

/// What there is now, for a sink that has missed something.
pub(crate) struct There {
    teller: Arc<Teller>,
    /// From when there is something to tell.
    lister: OnceLock<Lister<DynamicObject>>,
}

impl There {
    pub(crate) fn new(teller: &Arc<Teller>) -> Arc<Self> {
        Arc::new(Self {
            teller: Arc::clone(teller),
            lister: OnceLock::new(),
        })
    }
}

/// No object has this key: it stands for the moment in which telling begins.
fn beginning() -> ObjectKey {
    ObjectKey::cluster("")
}

/// The controller that tells `feed` of a kind's objects.
pub(crate) fn controller(
    name: String,
    scope: &Scope,
    namespaced: bool,
    there: &Arc<There>,
    feed: Feed,
) -> Controller<DynamicObject, Watcher> {
    let memory = Arc::new(Memory::new(scope.known.iter().cloned()));
    let seen = Arc::clone(&memory);
    let mut watch = Watch::dynamic(there.teller.resource().clone())
        .tap(move |change| seen.see(change, change.stored().object().is_ok()));
    if !namespaced {
        watch = watch.cluster_scoped();
    }
    let first = scope
        .known
        .iter()
        .cloned()
        .chain([beginning()])
        .collect::<Vec<_>>();
    Controller::of(name, scope.narrow(watch))
        .component("podwatch")
        .concurrency(scope.workers)
        .triggered_by(futures::stream::iter(first))
        .reconcile(Watcher {
            memory,
            there: Arc::clone(there),
            feed,
        })
}

impl Reconciler for Watcher {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let kind: &ApiResource = self.there.teller.resource();
        if self.there.lister.get().is_none() {
            let lister = ctx.lister_of::<DynamicObject>(kind)?.clone();
            // Another worker may have been faster.
            let _ = self.there.lister.set(lister);
        }
        let story = self.memory.open(&request.key);
        for step in story.steps() {
            match self
                .there
                .teller
                .judge(&request.key, &step)
                .map_err(Error::terminal)?
            {
                // What a sink has no room for it finds out itself.
                Verdict::Tell(notice) => drop(self.feed.tell(notice)),
                Verdict::Hide => self.pass(&request.key, &step),
            }
        }
        story.close();
        if self.memory.is_newly_listed() {
            self.feed.listed();
        }
        Ok(Action::done())
    }
}

impl Watcher {
    /// What is not told is known nevertheless.
    fn pass(&self, key: &ObjectKey, step: &Step<DynamicObject>) {
        let version = |stored: &Stored<DynamicObject>| Version::from_meta(stored.meta());
        let (old, new) = match step {
            Step::Synced(new) | Step::Added(new) => (None, Some(version(new))),
            Step::Updated { old, new } => (Some(version(old)), Some(version(new))),
            Step::Deleted { old, .. } => (Some(version(old)), None),
            Step::Missing => return,
        };
        self.feed.pass(key, old.as_ref(), new.as_ref());
    }
}

impl Present for There {
    fn versions(&self) -> Vec<Version> {
        let Some(lister) = self.lister.get() else {
            return Vec::new();
        };
        let stored = lister.list_stored(&Query::all());
        stored
            .iter()
            .map(|object| Version::from_meta(object.meta()))
            .collect()
    }

    fn read(&self, key: &ObjectKey) -> Option<Arc<Notice>> {
        let stored = self.lister.get()?.stored(key)?;
        self.teller.synced(&stored).ok().map(Arc::new)
    }

    fn wants(&self, notice: &Notice) -> bool {
        self.teller.wants(notice)
    }
}
