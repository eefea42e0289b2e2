//! The state that a cache's drivers and users share: the store, its ingest, and the progress of the watches.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use crate::{
    connection_log::{ConnectionLog, FIRST_INTERVAL, MAX_INTERVAL},
    decoded::DecodedCache,
    ingest::{Ingest, InvalidObject},
    kind::GroupVersionKind,
    pack_queue::PackQueue,
    protocol::WhenUnserved,
    report::ReportedError,
    settings::UntypedSettings,
    stats::{Counters, Stats},
    store::{NamespaceScope, Store},
    target::Target,
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
    /// The last error of any scope, also after the cache has recovered, and its time.
    latest_error: Mutex<Option<(String, Instant)>>,
    /// Errors before the first complete list are not logged.
    pub(crate) quiet_until_synced: AtomicBool,
    pub(crate) watch_list: bool,
    pub(crate) when_unserved: WhenUnserved,
    pub(crate) connection: Arc<ConnectionLog>,
    /// The RBAC rule that allows to list and watch the kind.
    read_rule: String,
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
    last_error: Option<ScopeError>,
    /// When the last error is logged again, and the interval after that.
    next_line: Option<(Instant, Duration)>,
    /// Since when it does not follow the server, without a success in between.
    failing_since: Option<Instant>,
}

/// The error that keeps the watch of one scope from following the server.
struct ScopeError {
    /// What failed, for users.
    text: String,
    /// A watch failed: a list does not show that the cache follows the server again.
    is_watch: bool,
    error: WatchError,
}

impl ScopeProgress {
    /// Returns when an error is logged again, and the interval after that; `None` if it is not logged now.
    fn next_line_after(&self, error: &str, now: Instant) -> Option<(Instant, Duration)> {
        match (&self.last_error, self.next_line) {
            (Some(known), Some((due, _))) if known.text == error && now < due => None,
            (Some(known), Some((_, interval))) if known.text == error => {
                Some((now + interval, (interval * 2).min(MAX_INTERVAL)))
            }
            _ => Some((now + FIRST_INTERVAL, FIRST_INTERVAL * 2)),
        }
    }
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
                    .as_ref()
                    .map_or("the server has not answered yet", |error| &error.text);
                match &**scope {
                    "" => error.to_owned(),
                    namespace => format!("namespace `{namespace}`: {error}"),
                }
            })
            .collect();
        texts.join("; ")
    }
}

/// Why the first list of a cache is not complete, from [`Cache::sync_failures`](crate::Cache::sync_failures).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// The namespace of the list; empty for all namespaces and for cluster-scoped kinds.
    pub namespace: String,
    /// The last error.
    pub error: WatchError,
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
        let decoded = DecodedCache::new(keeping.decoded_budget);
        let (watch_list, when_unserved) = (keeping.watch_list, keeping.when_unserved);
        let ingest = Ingest::new(kind.clone(), keeping);
        Self {
            store: Store::new(),
            progress: watch::Sender::new(Progress::default()),
            latest_error: Mutex::default(),
            quiet_until_synced: AtomicBool::new(false),
            decoded,
            stats: Counters::default(),
            watch_list,
            when_unserved,
            connection: Arc::default(),
            read_rule: String::new(),
            pack_queue: Arc::clone(ingest.pack_queue()),
            ingest: Mutex::new(ingest),
            kind,
        }
    }

    /// The same with what its logs need to know about the server.
    pub(crate) fn of_server(self, connection: Arc<ConnectionLog>, target: &Target) -> Self {
        Self {
            connection,
            read_rule: target.read_rule(),
            ..self
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
            if !reached.last_error.as_ref().is_some_and(|known| known.is_watch) {
                reached.last_error = None;
                reached.failing_since = None;
            }
        });
    }

    /// Records that a watch was established.
    pub(crate) fn clear_error(&self, scope: &NamespaceScope) {
        self.update_progress(scope, |reached| {
            reached.last_error = None;
            reached.failing_since = None;
        });
    }

    /// How long a complete scope has not followed the server, at most, and its error.
    pub(crate) fn staleness(&self) -> Option<(Duration, String)> {
        let progress = self.progress.borrow();
        let stale = progress.scopes.values().filter(|reached| reached.complete);
        stale
            .filter_map(|reached| {
                let error = reached.last_error.as_ref()?.text.clone();
                Some((reached.failing_since?.elapsed(), error))
            })
            .max_by_key(|(since, _)| *since)
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        let progress = self.progress.borrow();
        progress
            .scopes
            .values()
            .find_map(|reached| Some(reached.last_error.as_ref()?.text.clone()))
    }

    pub(crate) fn sync_failures(&self) -> Vec<SyncFailure> {
        let progress = self.progress.borrow();
        let incomplete = progress.scopes.iter().filter(|(_, reached)| !reached.complete);
        incomplete
            .filter_map(|(scope, reached)| {
                Some(SyncFailure {
                    namespace: scope.to_string(),
                    error: reached.last_error.as_ref()?.error.clone(),
                })
            })
            .collect()
    }

    /// The last error, for reports.
    pub(crate) fn reported_error(&self) -> Option<ReportedError> {
        let (message, at) = self.latest_error.lock().clone()?;
        Some(ReportedError {
            message,
            age: at.elapsed(),
            resolved: self.last_error().is_none(),
        })
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

    /// Records an error, and the time until the next attempt, if that is known.
    pub(crate) fn record_error(
        &self,
        scope: &NamespaceScope,
        error: CacheError<'_>,
        retry_after: Option<Duration>,
    ) {
        let cause = match error {
            CacheError::List(failure) | CacheError::Watch(failure) => failure.clone(),
            CacheError::Panic(panic) => WatchError::other(panic_message(panic)),
            CacheError::Object(_) => return self.report_object_error(error),
        };
        let text = match error {
            CacheError::List(WatchError {
                kind: WatchErrorKind::NotInstalled,
                message,
            }) => {
                format!("the kind is not installed; waiting for its CRD ({message})")
            }
            CacheError::List(failure) => format!("cannot list: {}", failure.message),
            CacheError::Watch(failure) => format!("cannot watch: {}", failure.message),
            CacheError::Object(_) | CacheError::Panic(_) => {
                format!("the watch panicked and is restarted: {}", cause.message)
            }
        };
        self.stats.failure();
        *self.latest_error.lock() = Some((text.clone(), Instant::now()));
        let kind = &self.kind;
        let now = Instant::now();
        let is_connection_error = matches!(
            cause.kind,
            WatchErrorKind::ConnectionRefused | WatchErrorKind::ConnectionFailed
        );
        if is_connection_error {
            self.connection.failed(&cause.message, retry_after);
        }
        // The users of a cache may log what keeps it from the first list themselves.
        let is_quiet = self.quiet_until_synced.load(Ordering::Relaxed);
        let next_line = match self.progress.borrow().scopes.get(scope) {
            Some(reached) if !is_connection_error && (reached.complete || !is_quiet) => {
                reached.next_line_after(&text, now)
            }
            _ => None,
        };
        let fix = (cause.kind == WatchErrorKind::Forbidden).then(|| self.missing_right(scope));
        if next_line.is_some() {
            tracing::warn!(%kind, namespace = %scope, error = text, fix, "cache cannot follow the server");
        } else {
            tracing::debug!(%kind, namespace = %scope, error = text, fix, "cache cannot follow the server");
        }
        let error = ScopeError {
            text,
            is_watch: matches!(error, CacheError::Watch(_)),
            error: cause,
        };
        self.update_progress(scope, |reached| {
            reached.last_error = Some(error);
            reached.next_line = next_line.or(reached.next_line);
            reached.failing_since.get_or_insert(now);
        });
    }

    /// Returns what to add to a role if the server forbids to list or to watch.
    fn missing_right(&self, scope: &NamespaceScope) -> String {
        let rule = &self.read_rule;
        match &**scope {
            "" => format!("add to the rules of its ClusterRole: [{rule}]"),
            namespace => format!("add to the rules of its Role in namespace {namespace}: [{rule}]"),
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
