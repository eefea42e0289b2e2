//! The watches: they update the sync index, and enqueue the affected items.
//!
//! The watches of namespaces, SecretSyncs, copies, and annotated objects of the source namespace are permanent; all
//! of them have to be complete before anything is reconciled. The source watches of SecretSyncs are opened and closed
//! with them, and only the syncs that use one wait for it.
//!
//! No cache takes a 404 for a deletion (`keep_unserved`): copies would be removed because of it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;
use windlass::{
    cache::{Cache, CacheSet, Cacheable, CachedObject, Change, Lister, Settings, WatchScope},
    k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret},
    kube::core::PartialObjectMeta,
    prelude::{Error, Resource, ResourceExt},
    runtime::{ChangedObject, SourceContext, SourceEvent, WatchHandle},
    workqueue::Priority,
};

use crate::{
    api::{ADOPT_ANNOTATION, FINALIZER, SOURCE_UID_LABEL, SecretSync, SourceKind},
    consent::Consent,
    copy_metadata::{CopyMetadata, SyncOwners},
    engine::{Cause, Changed, CopyLister, Engine, Listers},
    identity::{Job, SyncId},
    removal_guard::confirmed_removals,
    source_status::status_of,
    source_watch::{SourceMetadata, SourceWatchKey},
    sync_index::{Affected, SyncChange, SyncIndex, TargetNamespace, WatchInstance},
};

/// How often a wait for a cache is logged.
const SYNC_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Number of watches that have to be complete before anything is reconciled.
const PERMANENT_WATCHES: usize = 6;

/// Runs all watches until the caches stop.
pub(crate) async fn run_watches(engine: Arc<Engine>, source: SourceContext<Job>) -> Result<(), Error> {
    engine.set_source_context(&source);
    let (complete, mut completed) = watch::channel(0);
    let one_more = move || complete.send_modify(|count| *count += 1);
    let caches = source.caches();

    let annotation = Arc::clone(&engine.index.read().config.annotation);
    let places =
        Settings::projected(move |place: &PartialObjectMeta<Namespace>| target_namespace(place, &annotation));
    let places = caches.projected(&WatchScope::all().metadata_only(), places.keep_unserved());
    caches.configure(Settings::<SecretSync>::compact().keep_unserved());
    let syncs = caches.get::<SecretSync>(source.scope());
    let marks = Arc::new(SyncOwners::default());
    let secrets = copies::<Secret>(caches, source.scope(), &marks);
    let config_maps = copies::<ConfigMap>(caches, source.scope(), &marks);

    let mut source_watches = SourceWatches {
        engine: Arc::clone(&engine),
        source: source.clone(),
        open: HashMap::new(),
    };
    let mut watching = vec![
        source.watch(
            &places,
            forward(&engine, &one_more, |engine, change| engine.on_namespace(change)),
        ),
        source.watch(
            &secrets,
            forward(&engine, &one_more, |engine, change| {
                engine.on_copy(SourceKind::Secret, change);
            }),
        ),
        source.watch(
            &config_maps,
            forward(&engine, &one_more, |engine, change| {
                engine.on_copy(SourceKind::ConfigMap, change);
            }),
        ),
        source.watch(
            &syncs,
            forward(&engine, &one_more, move |_, change| {
                source_watches.on_sync(change);
            }),
        ),
    ];
    let annotated = engine.index.read().annotated_watches();
    for instance in annotated {
        watching.push(open_watch(&engine, &source, &instance, one_more.clone()));
    }

    let listers = Listers {
        secrets: CopyLister::new(wait_for_sync(&secrets).await?),
        config_maps: CopyLister::new(wait_for_sync(&config_maps).await?),
        syncs: wait_for_sync(&syncs).await?,
    };
    // Set once in the lifetime of a controller.
    let _ = engine.listers.set(listers);
    completed.wait_for(|count| *count == PERMANENT_WATCHES).await?;
    engine.tracker.lock().start();
    source.mark_ready();
    // If one stops, all caches do.
    for one in &mut watching {
        one.ended().await;
    }
    Ok(())
}

/// Returns a callback that passes changes to `see`, and calls `complete` after the initial list.
fn forward<T: Send + Sync + 'static>(
    engine: &Arc<Engine>,
    complete: &(impl Fn() + Clone + Send + 'static),
    mut see: impl FnMut(&Arc<Engine>, &Change<T>) + Send + 'static,
) -> impl FnMut(SourceEvent<T>) + Send + 'static {
    let (engine, complete) = (Arc::clone(engine), complete.clone());
    move |event| match event {
        SourceEvent::Change(change) => see(&engine, &change),
        SourceEvent::Synced => complete(),
    }
}

/// Caches the metadata of all copies of a kind.
fn copies<K>(caches: &CacheSet, within: &WatchScope, marks: &Arc<SyncOwners>) -> Cache<CopyMetadata>
where
    K: Resource<DynamicType = (), Scope: 'static> + Send + Sync + 'static,
    PartialObjectMeta<K>: Cacheable<DynamicType = ()>,
{
    let marks = Arc::clone(marks);
    let settings =
        Settings::projected(move |copy: &PartialObjectMeta<K>| CopyMetadata::of(&copy.metadata, &marks));
    let labelled = within.clone().labels(SOURCE_UID_LABEL).metadata_only();
    caches.projected(&labelled, settings.managed_fields().keep_unserved())
}

/// Caches the metadata of all possible sources of a watch.
fn sources<K>(caches: &CacheSet, key: &SourceWatchKey, annotation: &Arc<str>) -> Cache<SourceMetadata>
where
    K: Resource<DynamicType = (), Scope: 'static> + Send + Sync + 'static,
    PartialObjectMeta<K>: Cacheable<DynamicType = ()>,
{
    let annotation = Arc::clone(annotation);
    let settings = Settings::projected(move |object: &PartialObjectMeta<K>| {
        SourceMetadata::from_metadata(&object.metadata, &annotation)
    });
    caches.projected(&key.scope(), settings.keep_unserved())
}

/// Opens a source watch; `complete` is called after the initial list.
fn open_watch(
    engine: &Arc<Engine>,
    source: &SourceContext<Job>,
    instance: &WatchInstance,
    complete: impl Fn() + Send + 'static,
) -> WatchHandle {
    let key = &instance.key;
    let annotation = Arc::clone(&engine.index.read().config.annotation);
    let cache = match key.kind {
        SourceKind::Secret => sources::<Secret>(source.caches(), key, &annotation),
        SourceKind::ConfigMap => sources::<ConfigMap>(source.caches(), key, &annotation),
    };
    let (engine, instance) = (Arc::clone(engine), instance.clone());
    source.watch(&cache, move |event| {
        // Statuses count sources, even if no namespace wants them and nothing is copied.
        let (touched, changed) = match &event {
            SourceEvent::Change(change) => {
                let changed = changed_object(instance.key.kind.name(), change);
                (engine.on_source(&instance, change, changed.clone()), changed)
            }
            SourceEvent::Synced => {
                let touched = engine.update_index_and_statuses(&Cause::Initial, |index| {
                    (index.mark_complete(&instance), index.syncs_using(&instance.key))
                });
                (touched, None)
            }
        };
        for sync in touched {
            engine.enqueue_status(&sync, changed.as_ref());
        }
        if matches!(event, SourceEvent::Synced) {
            complete();
        }
    })
}

/// The open source watches of SecretSyncs.
struct SourceWatches {
    engine: Arc<Engine>,
    source: SourceContext<Job>,
    open: HashMap<SourceWatchKey, WatchHandle>,
}

impl SourceWatches {
    /// Handles that a SecretSync was added, changed or deleted.
    fn on_sync(&mut self, change: &Change<SecretSync>) {
        let key = change.key();
        let id = SyncId::Declared {
            namespace: key.namespace().unwrap_or_default().into(),
            name: key.name().into(),
        };
        let object = match change {
            Change::Deleted { .. } => None,
            Change::Applied { new, .. } => match new.object() {
                Ok(object) => Some(object),
                // The object cannot be decoded; the cache reports that.
                Err(_) => return,
            },
        };
        let home = Arc::clone(&self.engine.index.read().config.source_namespace);
        let last = change.latest().object().ok();
        let source = last.and_then(|last| status_of(&last.metadata, &home));
        let cause = sync_cause(change);
        let changed = cause.changed().cloned();
        if has_new_confirmation(change) {
            let sync = source.as_ref().unwrap_or(&id);
            self.engine
                .update_index(&Cause::Other(changed.clone()), |index| (index.wake(sync), ()));
        }
        if let Some(source) = source {
            self.engine.enqueue_status(&source, changed.as_ref());
            return;
        }
        if is_unchanged_spec(change) {
            self.engine.enqueue_status(&id, changed.as_ref());
            return;
        }
        let (opened, closed) = self.engine.update_index_and_statuses(&cause, |index| {
            let SyncChange {
                affected,
                opened,
                closed,
            } = index.set_sync(&id, object.as_deref());
            (affected, (opened, closed))
        });
        if let Some(key) = closed {
            self.open.remove(&key);
        }
        if let Some(instance) = opened {
            let watching = open_watch(&self.engine, &self.source, &instance, || ());
            self.open.insert(instance.key, watching);
        }
        self.engine.enqueue_status(&id, changed.as_ref());
    }
}

/// Returns whether a confirmation of removals was added or changed.
fn has_new_confirmation(change: &Change<SecretSync>) -> bool {
    let confirmed =
        |stored: &CachedObject<SecretSync>| stored.object().map_or(0, |object| confirmed_removals(&object));
    let before = change.old().map_or(0, confirmed);
    matches!(change, Change::Applied { .. }) && before != confirmed(change.latest())
}

/// Returns whether only the status, or irrelevant metadata, of a SecretSync has changed.
fn is_unchanged_spec(change: &Change<SecretSync>) -> bool {
    let state = |stored: &CachedObject<SecretSync>| {
        let object = stored.object().ok()?;
        let has_finalizer = object.finalizers().iter().any(|one| one == FINALIZER);
        let metadata = &object.metadata;
        let is_deleting = metadata.deletion_timestamp.is_some();
        Some((
            metadata.uid.clone(),
            metadata.generation,
            is_deleting,
            has_finalizer,
        ))
    };
    let before = change.old().and_then(state);
    matches!(change, Change::Applied { .. }) && before.is_some() && before == state(change.latest())
}

/// Changes of the status or the finalizers do not change the desired copies.
fn sync_cause(change: &Change<SecretSync>) -> Cause {
    let before = change.old().map(|old| old.meta().generation());
    match cause_of("SecretSync", change) {
        Cause::Other(changed) if before != Some(change.meta().generation()) => Cause::Change(changed),
        cause => cause,
    }
}

fn cause_of<T>(kind: &str, change: &Change<T>) -> Cause {
    match change {
        Change::Applied { initial: true, .. } => Cause::Initial,
        _ => Cause::Other(changed_object(kind, change)),
    }
}

fn changed_object<T>(kind: &str, change: &Change<T>) -> Changed {
    ChangedObject::of(&kind.into(), change).map(Arc::new)
}

/// Extracts the relevant parts of a namespace.
fn target_namespace(namespace: &PartialObjectMeta<Namespace>, annotation: &str) -> TargetNamespace {
    TargetNamespace {
        uid: namespace.metadata.uid.as_deref().unwrap_or_default().into(),
        consent: Consent::from_metadata(&namespace.metadata, annotation),
        adoption_consent: Consent::from_metadata(&namespace.metadata, ADOPT_ANNOTATION),
        labels: namespace.labels().clone(),
        is_terminating: namespace.metadata.deletion_timestamp.is_some(),
    }
}

impl Engine {
    /// Updates the index, and enqueues the status of all affected syncs.
    fn update_index_and_statuses<T>(
        &self,
        cause: &Cause,
        change: impl FnOnce(&mut SyncIndex) -> (Vec<Affected>, T),
    ) -> T {
        let (concerned, rest) = self.update_index(cause, |index| {
            let (affected, rest) = change(index);
            let concerned: BTreeSet<_> = affected.iter().map(|one| one.sync.clone()).collect();
            (affected, (concerned, rest))
        });
        for sync in &concerned {
            self.enqueue_status(sync, cause.changed());
        }
        rest
    }

    fn on_namespace(&self, change: &Change<TargetNamespace>) {
        let namespace: Arc<str> = change.key().name().into();
        let place = match change {
            Change::Deleted { .. } => None,
            Change::Applied { new, .. } => new.object().ok(),
        };
        let cause = cause_of("Namespace", change);
        let is_strange = self.update_index_and_statuses(&cause, |index| {
            let affected = index.set_namespace(&namespace, place.clone());
            // While the first namespaces are listed, those that follow are not known. The job checks it again.
            let is_strange = place.is_some_and(|place| !index.consent_errors(&place).is_empty());
            (affected, is_strange)
        });
        if is_strange {
            self.add(Job::Consent { namespace }, Priority::NORMAL, cause.changed());
        }
    }

    /// Handles a change of a possible source; returns the affected syncs.
    fn on_source(
        &self,
        instance: &WatchInstance,
        change: &Change<SourceMetadata>,
        changed: Changed,
    ) -> Vec<SyncId> {
        let name: Arc<str> = change.key().name().into();
        let seen = match change {
            Change::Deleted { .. } => None,
            Change::Applied { new, .. } => match new.object() {
                Ok(seen) => Some(seen),
                Err(_) => return Vec::new(),
            },
        };
        self.update_index_and_statuses(&Cause::Change(changed), |index| {
            index.set_source(instance, &name, seen.as_ref())
        })
    }

    /// Handles a change of a copy, which affects the sync that wrote it and all that want one of that name.
    fn on_copy(&self, kind: SourceKind, change: &Change<CopyMetadata>) {
        let key = change.key();
        let (name, namespace) = (key.name(), Arc::<str>::from(key.namespace().unwrap_or_default()));
        let states = change.old().into_iter().chain([change.latest()]);
        let owners = states.filter_map(|state| self.sync_of_copy(kind, name, &*state.object().ok()?));
        let mut concerned: Vec<_> = owners.collect();
        concerned.extend_from_slice(self.index.read().claimants(kind, name));
        concerned.sort_unstable();
        concerned.dedup();
        let affected = concerned.into_iter().map(|sync| Affected {
            sync,
            namespace: Arc::clone(&namespace),
            is_removal: false,
        });
        self.enqueue(affected.collect(), &cause_of(kind.name(), change));
    }
}

/// Waits without a deadline: the resource may be installed later. What is missing is in the manager's report about the start, and
/// connection errors are in the connection's log.
async fn wait_for_sync<T: Send + Sync + 'static>(cache: &Cache<T>) -> Result<Lister<T>, Error> {
    loop {
        match cache.synced(SYNC_LOG_INTERVAL).await {
            Ok(lister) => return Ok(lister),
            Err(waiting @ windlass::cache::SyncError::Deadline { .. }) => {
                tracing::debug!("waiting to start: {waiting}");
            }
            Err(ended) => return Err(ended.into()),
        }
    }
}
