//! What the parts share: who wants what, what is there, what became of it, and the way into the queue.
//!
//! ```text
//!   follow (watches) ──► Roster, targets ──┐
//!        └── jobs ──► queue ──► copy ──────┼──► requests
//!                              account ◄── Ledger
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use parking_lot::{Mutex, RwLock};
use windlass::{
    cache::{Index, Lister, Query, Uid},
    prelude::{Action, Context, Error, ObjectKey, Reconciler, Request},
    runtime::Feed,
    workqueue::Priority,
};

use crate::{
    account::Told,
    api::{SecretSync, SourceKind},
    figures::Figures,
    held::Held,
    identity::{Job, Mark, SyncId},
    ledger::Ledger,
    roster::{Affected, Roster, Scope},
};

/// Copies what should be copied.
pub(crate) struct Engine {
    pub(crate) roster: RwLock<Roster>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) figures: Figures,
    /// Set before the first reconcile.
    pub(crate) listers: OnceLock<Listers>,
    /// Set before the first change is told.
    feed: OnceLock<Feed>,
    /// Copies that were read and found right although others own fields of them, in the state in which they were.
    pub(crate) verified: Mutex<HashMap<(SourceKind, ObjectKey), (Uid, u64)>>,
    /// What was told of each SecretSync.
    pub(crate) told: Mutex<HashMap<SyncId, Told>>,
    /// Whether this process is the one that works.
    pub(crate) leads: AtomicBool,
}

/// What is read.
pub(crate) struct Listers {
    pub(crate) secrets: Copies,
    pub(crate) config_maps: Copies,
    pub(crate) syncs: Lister<SecretSync>,
}

/// The copies of a kind.
pub(crate) struct Copies {
    held: Lister<Held>,
    /// Those of SecretSyncs, by which: of many in a namespace, each has a few.
    declared: Index<Held>,
}

impl Copies {
    pub(crate) fn new(held: Lister<Held>) -> Self {
        let declared = held.cache().index_by(|held| match held.mark.as_deref() {
            Some(Mark::Sync { namespace, name, .. }) => vec![format!("{namespace}/{name}")],
            // An annotated source has one in a namespace, under its own name.
            Some(Mark::Annotation { .. }) | None => Vec::new(),
        });
        Self { held, declared }
    }

    /// The one of this name.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Held>> {
        self.held.get(key)
    }

    /// Those that say that they belong to the SecretSync of this name; in one namespace, or in all.
    pub(crate) fn of_sync(&self, sync: &ObjectKey, within: Option<&str>) -> Vec<(ObjectKey, Arc<Held>)> {
        let mut query = Query::all().indexed(&self.declared, &sync.to_string());
        if let Some(namespace) = within {
            query = query.namespace(namespace);
        }
        let found = self.held.list_stored(&query);
        let held = found
            .iter()
            .map(|stored| Some((stored.key().clone(), stored.object().ok()?)));
        held.flatten().collect()
    }
}

impl Listers {
    /// The copies of a kind.
    pub(crate) fn held(&self, kind: SourceKind) -> &Copies {
        match kind {
            SourceKind::Secret => &self.secrets,
            SourceKind::ConfigMap => &self.config_maps,
        }
    }
}

/// Why something is to be done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was there at the start.
    Initial,
    /// A source changed, or what a SecretSync asks for: how long that takes is measured.
    Change,
    Other,
}

impl Engine {
    pub(crate) fn new(scope: Scope, figures: Figures) -> Self {
        Self {
            roster: RwLock::new(Roster::new(scope)),
            ledger: Mutex::new(Ledger::new()),
            figures,
            listers: OnceLock::new(),
            feed: OnceLock::new(),
            verified: Mutex::default(),
            told: Mutex::default(),
            leads: AtomicBool::new(false),
        }
    }

    pub(crate) fn connect(&self, feed: &Feed) {
        // There is one feed in the life of a controller.
        let _ = self.feed.set(feed.clone());
    }

    pub(crate) fn listers(&self) -> &Listers {
        self.listers
            .get()
            .expect("no reconcile starts before the feed is ready")
    }

    pub(crate) fn add(&self, job: &Job, priority: Priority) {
        if let Some(feed) = self.feed.get() {
            feed.add(job.key(), priority);
        }
    }

    /// Changes who wants what, and asks for what follows from it.
    ///
    /// What is asked for is in the ledger before anybody can see the change: otherwise a sync would look as if it had nothing
    /// left to do.
    pub(crate) fn change<T>(
        &self,
        cause: Cause,
        change: impl FnOnce(&mut Roster) -> (Vec<Affected>, T),
    ) -> T {
        let mut roster = self.roster.write();
        let (affected, rest) = change(&mut roster);
        self.note(&affected, cause);
        drop(roster);
        self.queue(affected, cause);
        rest
    }

    /// Asks for work that follows from something else than a change of who wants what.
    pub(crate) fn ask(&self, affected: Vec<Affected>) {
        self.note(&affected, Cause::Other);
        self.queue(affected, Cause::Other);
    }

    /// The same for what was there at the start.
    pub(crate) fn ask_initially(&self, affected: Vec<Affected>) {
        self.note(&affected, Cause::Initial);
        self.queue(affected, Cause::Initial);
    }

    fn note(&self, affected: &[Affected], cause: Cause) {
        let mut ledger = self.ledger.lock();
        for Affected { sync, namespace, .. } in affected {
            ledger.ask(sync, namespace, cause == Cause::Change);
        }
    }

    /// What takes something away goes first: it overtakes what is still to be spread.
    fn queue(&self, affected: Vec<Affected>, cause: Cause) {
        for Affected {
            sync,
            namespace,
            takes_away,
        } in affected
        {
            let priority = match cause {
                _ if takes_away => Priority::HIGH,
                Cause::Initial => Priority::LOW,
                Cause::Change | Cause::Other => Priority::NORMAL,
            };
            self.add(&Job::Copy { sync, namespace }, priority);
        }
    }

    /// A SecretSync's finalizer or status may have to be looked at. It goes before copies, of which there are many.
    pub(crate) fn ask_account(&self, sync: &SyncId) {
        if let SyncId::Declared { namespace, name } = sync {
            let job = Job::Account {
                namespace: Arc::clone(namespace),
                name: Arc::clone(name),
            };
            self.add(&job, Priority::HIGH);
        }
    }

    /// Which sync a copy belongs to, if it is one of those that this process looks after.
    pub(crate) fn owner(&self, kind: SourceKind, name: &str, held: &Held) -> Option<SyncId> {
        let mark = held.mark.as_deref()?;
        if let Mark::Annotation { source_namespace } = mark
            && *source_namespace != self.roster.read().scope.source_namespace
        {
            return None;
        }
        Some(mark.sync(kind, name))
    }
}

/// What the controller runs.
pub(crate) struct Engineer(pub(crate) Arc<Engine>);

impl Reconciler for Engineer {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        match Job::of(&request.key) {
            Some(Job::Copy { sync, namespace }) => self.0.copy(&sync, &namespace, &ctx).await,
            Some(Job::Account { namespace, name }) => self.0.account(&namespace, &name, &ctx).await,
            Some(Job::Consent { namespace }) => Ok(self.0.consent(&namespace, &ctx)),
            None => Err(Error::terminal(format!("`{}` is no piece of work", request.key))),
        }
    }
}
