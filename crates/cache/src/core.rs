//! What the drivers' tasks and the users of a cache have in common: the store, what fills it, and how well that goes.

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    failure::{Cause, Failure},
    fresh::Fresh,
    hot::Hot,
    ingest::{Broken, Ingest},
    kind::KindName,
    settings::Keeping,
    stats::{Counters, Stats},
    store::{Scope, Store},
};

/// What the drivers' tasks and the users have in common.
pub(crate) struct Core {
    pub(crate) kind: KindName,
    pub(crate) store: Store,
    pub(crate) ingest: Mutex<Ingest>,
    pub(crate) fresh: Arc<Fresh>,
    pub(crate) hot: Hot,
    pub(crate) stats: Counters,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) streaming: bool,
}

#[derive(Default)]
pub(crate) struct Progress {
    scopes: BTreeMap<Scope, Reached>,
    /// The tasks are gone.
    pub(crate) ended: bool,
}

#[derive(Default)]
struct Reached {
    /// The first list is in the store.
    complete: bool,
    trouble: Option<String>,
}

impl Progress {
    pub(crate) fn is_complete(&self) -> bool {
        self.scopes.values().all(|reached| reached.complete)
    }

    pub(crate) fn missing(&self) -> String {
        let missing = self.scopes.iter().filter(|(_, reached)| !reached.complete);
        let texts: Vec<_> = missing
            .map(|(scope, reached)| {
                let trouble = reached
                    .trouble
                    .as_deref()
                    .unwrap_or("the server has not answered yet");
                match &**scope {
                    "" => trouble.to_owned(),
                    namespace => format!("namespace `{namespace}`: {trouble}"),
                }
            })
            .collect();
        texts.join("; ")
    }
}

/// Something that a person should know about.
#[derive(Clone, Copy)]
pub(crate) enum Trouble<'a> {
    List(&'a Failure),
    Watch(&'a Failure),
    Object(&'a Broken),
    /// What a driver's panic carried.
    Panic(&'a (dyn Any + Send)),
}

impl Core {
    pub(crate) fn new(kind: KindName, keeping: Keeping) -> Self {
        let (hot, streaming) = (Hot::new(keeping.hot_bytes), keeping.streaming);
        let ingest = Ingest::new(kind.clone(), keeping);
        Self {
            store: Store::new(),
            progress: watch::Sender::new(Progress::default()),
            hot,
            stats: Counters::default(),
            streaming,
            fresh: Arc::clone(ingest.fresh()),
            ingest: Mutex::new(ingest),
            kind,
        }
    }

    pub(crate) fn open(&self, scope: &Scope) {
        self.store.open(scope);
        self.progress
            .send_modify(|progress| drop(progress.scopes.insert(Arc::clone(scope), Reached::default())));
    }

    pub(crate) fn abandon(&self, scope: &Scope) {
        self.store.abandon(scope);
        self.progress
            .send_modify(|progress| drop(progress.scopes.remove(scope)));
    }

    fn reach(&self, scope: &Scope, act: impl FnOnce(&mut Reached)) {
        self.progress.send_modify(|progress| {
            // A namespace that was given up may still have something to say.
            if let Some(reached) = progress.scopes.get_mut(scope) {
                act(reached);
            }
        });
    }

    pub(crate) fn complete(&self, scope: &Scope) {
        self.reach(scope, |reached| {
            reached.complete = true;
            reached.trouble = None;
        });
    }

    pub(crate) fn recovered(&self, scope: &Scope) {
        self.reach(scope, |reached| reached.trouble = None);
    }

    pub(crate) fn current_trouble(&self) -> Option<String> {
        let progress = self.progress.borrow();
        progress
            .scopes
            .values()
            .find_map(|reached| reached.trouble.clone())
    }

    pub(crate) fn end(&self) {
        self.fresh.stop();
        self.store.close();
        self.progress.send_modify(|progress| progress.ended = true);
    }

    pub(crate) fn stats(&self) -> Stats {
        let snapshot = self.store.snapshot();
        let (subscribers, pending, unconfirmed) = self.store.waiting();
        Stats {
            objects: snapshot.objects.len(),
            bytes: snapshot.objects.iter().map(|entry| entry.bytes()).sum(),
            hot_bytes: self.hot.used(),
            dictionaries: self.fresh.dictionaries(),
            subscribers,
            pending,
            unconfirmed,
            ..self.stats.read()
        }
    }

    pub(crate) fn report(&self, trouble: Trouble<'_>) {
        let Trouble::Object(Broken { key, error }) = trouble else {
            return;
        };
        let kind = &self.kind;
        self.stats.undecodable();
        let key = key.as_ref().map_or("?".to_owned(), ToString::to_string);
        tracing::warn!(%kind, %key, error, "an object does not decode and is skipped");
    }

    pub(crate) fn trouble(&self, scope: &Scope, trouble: Trouble<'_>) {
        let text = match trouble {
            Trouble::Object(_) => return self.report(trouble),
            Trouble::List(Failure {
                cause: Cause::NotInstalled,
                message,
            }) => {
                format!("it is not installed; waiting for its definition ({message})")
            }
            Trouble::List(failure) => format!("cannot list: {}", failure.message),
            Trouble::Watch(failure) => format!("cannot watch: {}", failure.message),
            Trouble::Panic(panic) => format!("its driver panicked and starts again: {}", said_by(panic)),
        };
        self.stats.failure();
        let kind = &self.kind;
        // The same trouble again, after each backoff, is not news.
        let known = |progress: &Progress| {
            progress
                .scopes
                .get(scope)
                .is_some_and(|reached| reached.trouble.as_ref() == Some(&text))
        };
        if known(&self.progress.borrow()) {
            tracing::debug!(%kind, namespace = %scope, trouble = text, "still in trouble");
        } else {
            tracing::warn!(%kind, namespace = %scope, trouble = text, "the cache is in trouble");
            self.reach(scope, |reached| reached.trouble = Some(text));
        }
    }
}

/// The message of a panic.
fn said_by(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it does not say why")
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache of {}", self.kind)
    }
}
