//! The watches: what they tell goes into the roster, and what that means for others into the queue.
//!
//! Fixed are those of namespaces, SecretSyncs, copies, and the annotated objects of the source namespace; all of them are
//! complete before anything is done. The rooms of SecretSyncs come and go with them, and each is waited for by those who use it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;
use windlass::{
    cache::{Cache, Cacheable, Caches, Change, Lister, Selection, Settings, Stored},
    k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret},
    kube::core::PartialObjectMeta,
    prelude::{Error, Resource, ResourceExt},
    runtime::{Feed, Told, Watching},
    workqueue::Priority,
};

use crate::{
    api::{ADOPT, FINALIZER, SOURCE_UID, SecretSync, SourceKind},
    consent::Consent,
    engine::{Cause, Copies, Engine, Listers},
    held::{Held, Marks},
    identity::{Job, SyncId},
    room::{RoomKey, Seen},
    roster::{Affected, Moves, Opening, Place, Roster},
};

/// How often a wait for a cache says what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many watches are complete before anything is done.
const FIXED: usize = 6;

/// Follows everything, until the caches end.
pub(crate) async fn follow(engine: Arc<Engine>, feed: Feed) -> Result<(), Error> {
    engine.connect(&feed);
    let (complete, mut completed) = watch::channel(0);
    let one_more = move || complete.send_modify(|count| *count += 1);
    let caches = feed.caches();

    let annotation = Arc::clone(&engine.roster.read().scope.annotation);
    let places = caches.projected(
        &Selection::all().metadata_only(),
        Settings::projected(move |namespace: &PartialObjectMeta<Namespace>| place(namespace, &annotation)),
    );
    let syncs = caches.get::<SecretSync>(feed.within());
    let marks = Arc::new(Marks::default());
    let secrets = copies::<Secret>(caches, feed.within(), &marks);
    let config_maps = copies::<ConfigMap>(caches, feed.within(), &marks);

    let mut rooms = Rooms {
        engine: Arc::clone(&engine),
        feed: feed.clone(),
        open: HashMap::new(),
    };
    let mut watching = vec![
        feed.watch(
            &places,
            telling(&engine, &one_more, |engine, change| engine.see_place(change)),
        ),
        feed.watch(
            &secrets,
            telling(&engine, &one_more, |engine, change| {
                engine.see_copy(SourceKind::Secret, change);
            }),
        ),
        feed.watch(
            &config_maps,
            telling(&engine, &one_more, |engine, change| {
                engine.see_copy(SourceKind::ConfigMap, change);
            }),
        ),
        feed.watch(
            &syncs,
            telling(&engine, &one_more, move |_, change| rooms.see(change)),
        ),
    ];
    let annotated = engine.roster.read().annotated_rooms();
    for opening in annotated {
        watching.push(open(&engine, &feed, &opening, one_more.clone()));
    }

    let listers = Listers {
        secrets: Copies::new(synced(&secrets).await?),
        config_maps: Copies::new(synced(&config_maps).await?),
        syncs: synced(&syncs).await?,
    };
    // There is one set of them in the life of a controller.
    let _ = engine.listers.set(listers);
    completed.wait_for(|count| *count == FIXED).await?;
    engine.ledger.lock().start();
    feed.ready();
    // One that ends means that all caches do.
    for one in &mut watching {
        one.ended().await;
    }
    Ok(())
}

/// Tells the engine of changes, and somebody when all that was there at the start is told.
fn telling<T: Send + Sync + 'static>(
    engine: &Arc<Engine>,
    complete: &(impl Fn() + Clone + Send + 'static),
    mut see: impl FnMut(&Arc<Engine>, &Change<T>) + Send + 'static,
) -> impl FnMut(Told<T>) + Send + 'static {
    let (engine, complete) = (Arc::clone(engine), complete.clone());
    move |told| match told {
        Told::Change(change) => see(&engine, &change),
        Told::Complete => complete(),
    }
}

/// The metadata of all copies of a kind.
fn copies<K>(caches: &Caches, within: &Selection, marks: &Arc<Marks>) -> Cache<Held>
where
    K: Resource<DynamicType = (), Scope: 'static> + Send + Sync + 'static,
    PartialObjectMeta<K>: Cacheable<DynamicType = ()>,
{
    let marks = Arc::clone(marks);
    let settings = Settings::projected(move |copy: &PartialObjectMeta<K>| Held::of(&copy.metadata, &marks));
    let labelled = within.clone().labels(SOURCE_UID).metadata_only();
    caches.projected(&labelled, settings.managed_fields())
}

/// The metadata of the objects in a room.
fn sources<K>(caches: &Caches, room: &RoomKey, annotation: &Arc<str>) -> Cache<Seen>
where
    K: Resource<DynamicType = (), Scope: 'static> + Send + Sync + 'static,
    PartialObjectMeta<K>: Cacheable<DynamicType = ()>,
{
    let annotation = Arc::clone(annotation);
    let settings =
        Settings::projected(move |object: &PartialObjectMeta<K>| Seen::of(&object.metadata, &annotation));
    caches.projected(&room.selection(), settings)
}

/// Opens a room; `complete` is called when all that is in it is known.
fn open(
    engine: &Arc<Engine>,
    feed: &Feed,
    opening: &Opening,
    complete: impl Fn() + Send + 'static,
) -> Watching {
    let room = &opening.room;
    let annotation = Arc::clone(&engine.roster.read().scope.annotation);
    let cache = match room.kind {
        SourceKind::Secret => sources::<Secret>(feed.caches(), room, &annotation),
        SourceKind::ConfigMap => sources::<ConfigMap>(feed.caches(), room, &annotation),
    };
    let (engine, opening) = (Arc::clone(engine), opening.clone());
    feed.watch(&cache, move |told| {
        // Statuses count sources, also where no namespace wants them and nothing is copied.
        let touched = match &told {
            Told::Change(change) => engine.see_source(&opening, change),
            Told::Complete => engine.change_all(Cause::Initial, |roster| {
                (roster.complete(&opening), roster.users(&opening.room))
            }),
        };
        for sync in touched {
            engine.ask_account(&sync);
        }
        if matches!(told, Told::Complete) {
            complete();
        }
    })
}

/// The rooms that SecretSyncs ask for.
struct Rooms {
    engine: Arc<Engine>,
    feed: Feed,
    open: HashMap<RoomKey, Watching>,
}

impl Rooms {
    /// A SecretSync came, changed or went.
    fn see(&mut self, change: &Change<SecretSync>) {
        let key = change.key();
        let id = SyncId::Declared {
            namespace: key.namespace().unwrap_or_default().into(),
            name: key.name().into(),
        };
        let object = match change {
            Change::Deleted { .. } => None,
            Change::Applied { new, .. } => match new.object() {
                Ok(object) => Some(object),
                // What it says now is not known; the cache reports it.
                Err(_) => return,
            },
        };
        if is_same_request(change) {
            self.engine.ask_account(&id);
            return;
        }
        let (opened, closed) = self.engine.change_all(sync_cause(change), |roster| {
            let Moves {
                affected,
                opened,
                closed,
            } = roster.set_sync(&id, object.as_deref());
            (affected, (opened, closed))
        });
        if let Some(room) = closed {
            self.open.remove(&room);
        }
        if let Some(opening) = opened {
            let watching = open(&self.engine, &self.feed, &opening, || ());
            self.open.insert(opening.room, watching);
        }
        self.engine.ask_account(&id);
    }
}

/// Whether a SecretSync asks for the same as before: its status, or metadata that does not matter, has changed.
fn is_same_request(change: &Change<SecretSync>) -> bool {
    let state = |stored: &Stored<SecretSync>| {
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
    matches!(change, Change::Applied { .. }) && before.is_some() && before == state(change.stored())
}

/// A status or a finalizer changes nothing of what a SecretSync asks for.
fn sync_cause(change: &Change<SecretSync>) -> Cause {
    let before = change.old().map(|old| old.meta().generation());
    match cause_of(change) {
        Cause::Other if before != Some(change.meta().generation()) => Cause::Change,
        cause => cause,
    }
}

fn cause_of<T>(change: &Change<T>) -> Cause {
    match change {
        Change::Applied { initial: true, .. } => Cause::Initial,
        _ => Cause::Other,
    }
}

/// What matters of a namespace.
fn place(namespace: &PartialObjectMeta<Namespace>, annotation: &str) -> Place {
    Place {
        uid: namespace.metadata.uid.as_deref().unwrap_or_default().into(),
        consent: Consent::of(&namespace.metadata, annotation),
        adopt: Consent::of(&namespace.metadata, ADOPT),
        labels: namespace.labels().clone(),
        is_terminating: namespace.metadata.deletion_timestamp.is_some(),
    }
}

impl Engine {
    /// Changes who wants what, and asks for the accounts of all whom it concerns.
    fn change_all<T>(&self, cause: Cause, change: impl FnOnce(&mut Roster) -> (Vec<Affected>, T)) -> T {
        let (concerned, rest) = self.change(cause, |roster| {
            let (affected, rest) = change(roster);
            let concerned: BTreeSet<_> = affected.iter().map(|one| one.sync.clone()).collect();
            (affected, (concerned, rest))
        });
        for sync in &concerned {
            self.ask_account(sync);
        }
        rest
    }

    fn see_place(&self, change: &Change<Place>) {
        let namespace: Arc<str> = change.key().name().into();
        let place = match change {
            Change::Deleted { .. } => None,
            Change::Applied { new, .. } => new.object().ok(),
        };
        let is_strange = place
            .as_ref()
            .is_some_and(|place| place.invalid().next().is_some());
        self.change_all(cause_of(change), |roster| {
            (roster.set_place(&namespace, place), ())
        });
        if is_strange {
            self.add(&Job::Consent { namespace }, Priority::NORMAL);
        }
    }

    /// An object in a room changed; whose sources that concerns.
    fn see_source(&self, opening: &Opening, change: &Change<Seen>) -> Vec<SyncId> {
        let name: Arc<str> = change.key().name().into();
        let seen = match change {
            Change::Deleted { .. } => None,
            Change::Applied { new, .. } => match new.object() {
                Ok(seen) => Some(seen),
                Err(_) => return Vec::new(),
            },
        };
        self.change_all(Cause::Change, |roster| {
            roster.set_source(opening, &name, seen.as_ref())
        })
    }

    /// A copy came, changed or went: that concerns who wrote it, and who wants one of that name.
    fn see_copy(&self, kind: SourceKind, change: &Change<Held>) {
        let key = change.key();
        let (name, namespace) = (key.name(), Arc::<str>::from(key.namespace().unwrap_or_default()));
        if matches!(change, Change::Deleted { .. }) || change.recreated() {
            self.verified.lock().remove(&(kind, key.clone()));
        }
        let states = change.old().into_iter().chain([change.stored()]);
        let owners = states.filter_map(|state| self.owner(kind, name, &*state.object().ok()?));
        let mut concerned: Vec<_> = owners.collect();
        concerned.extend_from_slice(self.roster.read().claimants(kind, name));
        concerned.sort_unstable();
        concerned.dedup();
        let affected = concerned.into_iter().map(|sync| Affected {
            sync,
            namespace: Arc::clone(&namespace),
            takes_away: false,
        });
        match cause_of(change) {
            Cause::Initial => self.ask_initially(affected.collect()),
            _ => self.ask(affected.collect()),
        }
    }
}

/// Waits as long as it takes: a kind may be installed later.
async fn synced<T: Send + Sync + 'static>(cache: &Cache<T>) -> Result<Lister<T>, Error> {
    loop {
        match cache.synced(PATIENCE).await {
            Ok(lister) => return Ok(lister),
            Err(waiting @ windlass::cache::SyncError::Deadline { .. }) => {
                tracing::warn!("waiting to start: {waiting}");
            }
            Err(ended) => return Err(ended.into()),
        }
    }
}
