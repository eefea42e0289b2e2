//! The state that a cache's drivers and users share: the store, its ingest, and the progress of the watches.

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    decoded::DecodedCache,
    ingest::{Ingest, InvalidObject},
    kind::GroupVersionKind,
    pack_queue::PackQueue,
    settings::UntypedSettings,
    stats::{Counters, Stats},
    store::{NamespaceScope, Store},
    watch_error::{WatchError, WatchErrorKind},
};

/// State shared by drivers and users.
pub(crate) struct Core {
    pub(crate) kind: GroupVersionKind,
    pub(crate) store: Store,
    pub(crate) ingest: Mutex<Ingest>,
    pub(crate) pack_queue: Arc<PackQueue>,
    pub(crate) decoded: DecodedCache,
    pub(crate) stats: Counters,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) watch_list: bool,
}

#[derive(Default)]
pub(crate) struct Progress {
    scopes: BTreeMap<NamespaceScope, ScopeProgress>,
    /// The cache was closed.
    pub(crate) closed: bool,
}

#[derive(Default)]
struct ScopeProgress {
    /// The first list is stored.
    complete: bool,
    last_error: Option<String>,
}

impl Progress {
    pub(crate) fn is_complete(&self) -> bool {
        self.scopes.values().all(|reached| reached.complete)
    }

    pub(crate) fn missing(&self) -> String {
        let missing = self.scopes.iter().filter(|(_, reached)| !reached.complete);
        let texts: Vec<_> = missing
            .map(|(scope, reached)| {
                let error = reached
                    .last_error
                    .as_deref()
                    .unwrap_or("the server has not answered yet");
                match &**scope {
                    "" => error.to_owned(),
                    namespace => format!("namespace `{namespace}`: {error}"),
                }
            })
            .collect();
        texts.join("; ")
    }
}

/// An error to report to users.
#[derive(Clone, Copy)]
pub(crate) enum CacheError<'a> {
    List(&'a WatchError),
    Watch(&'a WatchError),
    Object(&'a InvalidObject),
    /// The payload of a driver's panic.
    Panic(&'a (dyn Any + Send)),
}

impl Core {
    pub(crate) fn new(kind: GroupVersionKind, keeping: UntypedSettings) -> Self {
        let (decoded, watch_list) = (DecodedCache::new(keeping.decoded_budget), keeping.watch_list);
        let ingest = Ingest::new(kind.clone(), keeping);
        Self {
            store: Store::new(),
            progress: watch::Sender::new(Progress::default()),
            decoded,
            stats: Counters::default(),
            watch_list,
            pack_queue: Arc::clone(ingest.pack_queue()),
            ingest: Mutex::new(ingest),
            kind,
        }
    }

    pub(crate) fn add_scope(&self, scope: &NamespaceScope) {
        self.store.add_scope(scope);
        self.progress.send_modify(|progress| {
            progress
                .scopes
                .insert(Arc::clone(scope), ScopeProgress::default());
        });
    }

    pub(crate) fn remove_scope(&self, scope: &NamespaceScope) {
        self.store.remove_scope(scope);
        self.progress
            .send_modify(|progress| drop(progress.scopes.remove(scope)));
    }

    fn update_progress(&self, scope: &NamespaceScope, act: impl FnOnce(&mut ScopeProgress)) {
        self.progress.send_modify(|progress| {
            // The driver of a removed namespace may still report.
            if let Some(reached) = progress.scopes.get_mut(scope) {
                act(reached);
            }
        });
    }

    pub(crate) fn mark_complete(&self, scope: &NamespaceScope) {
        self.update_progress(scope, |reached| {
            reached.complete = true;
            reached.last_error = None;
        });
    }

    pub(crate) fn clear_error(&self, scope: &NamespaceScope) {
        self.update_progress(scope, |reached| reached.last_error = None);
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        let progress = self.progress.borrow();
        progress
            .scopes
            .values()
            .find_map(|reached| reached.last_error.clone())
    }

    pub(crate) fn close(&self) {
        self.pack_queue.stop();
        self.store.close();
        self.progress.send_modify(|progress| progress.closed = true);
    }

    pub(crate) fn stats(&self) -> Stats {
        let snapshot = self.store.snapshot();
        let (subscribers, pending, unconfirmed) = self.store.backlog();
        Stats {
            objects: snapshot.objects.len(),
            bytes: snapshot.objects.iter().map(|entry| entry.bytes()).sum(),
            decoded_bytes: self.decoded.used(),
            dictionaries: self.pack_queue.dictionaries(),
            subscribers,
            pending,
            unconfirmed,
            ..self.stats.read()
        }
    }

    pub(crate) fn report_object_error(&self, error: CacheError<'_>) {
        let CacheError::Object(InvalidObject { key, error }) = error else {
            return;
        };
        let kind = &self.kind;
        self.stats.undecodable();
        let key = key.as_ref().map_or("?".to_owned(), ToString::to_string);
        tracing::warn!(%kind, %key, error, "skipped an object that does not decode");
    }

    pub(crate) fn record_error(&self, scope: &NamespaceScope, error: CacheError<'_>) {
        let text = match error {
            CacheError::Object(_) => return self.report_object_error(error),
            CacheError::List(WatchError {
                kind: WatchErrorKind::NotInstalled,
                message,
            }) => {
                format!("the kind is not installed; waiting for its CRD ({message})")
            }
            CacheError::List(failure) => format!("cannot list: {}", failure.message),
            CacheError::Watch(failure) => format!("cannot watch: {}", failure.message),
            CacheError::Panic(panic) => {
                format!("the watch panicked and is restarted: {}", panic_message(panic))
            }
        };
        self.stats.failure();
        let kind = &self.kind;
        // Log a repeated error only once at warn level.
        let known = |progress: &Progress| {
            progress
                .scopes
                .get(scope)
                .is_some_and(|reached| reached.last_error.as_ref() == Some(&text))
        };
        if known(&self.progress.borrow()) {
            tracing::debug!(%kind, namespace = %scope, error = text, "cache still cannot follow the server");
        } else {
            tracing::warn!(%kind, namespace = %scope, error = text, "cache cannot follow the server");
            self.update_progress(scope, |reached| reached.last_error = Some(text));
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache of {}", self.kind)
    }
}
