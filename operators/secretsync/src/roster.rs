//! Who wants what where: the syncs, their sources, and the namespaces, as the watches tell of them.
//!
//! ```text
//!   namespaces ──► Place ─┐
//!   SecretSyncs ─► Sync ──┼──► plan(sync, namespace): what should be there
//!   sources ─────► Room ──┘         affected: which (sync, namespace) a change concerns
//! ```
//!
//! It does no I/O. The watches' callbacks write it, one at a time; reconciles read it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use windlass::k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    api::{FINALIZER, SecretSync, SourceKind},
    consent::{Consent, is_system},
    identity::{Mark, SyncId},
    member::Member,
    room::{Room, RoomKey, Source, Which},
    rules::Rules,
};

/// What the operator was told at its start.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) source_namespace: Arc<str>,
    pub(crate) annotation: Arc<str>,
    /// System namespaces that may be targets.
    pub(crate) allowed: BTreeSet<String>,
    /// Empty: all.
    pub(crate) within: BTreeSet<String>,
}

/// A namespace.
pub(crate) struct Place {
    pub(crate) uid: Arc<str>,
    /// From where it takes copies.
    pub(crate) consent: Consent,
    /// To whom it gives objects that it had before.
    pub(crate) adopt: Consent,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) is_terminating: bool,
}

impl Place {
    /// What it says about consent and cannot be understood.
    pub(crate) fn invalid(&self) -> impl Iterator<Item = &str> {
        let said = [&self.consent, &self.adopt];
        said.into_iter().filter_map(|consent| consent.invalid.as_deref())
    }
}

/// A sync that is there.
pub(crate) struct Sync {
    pub(crate) namespace: Arc<str>,
    pub(crate) mark: Arc<Mark>,
    /// Whoever is older wins: when it was made, and its UID.
    pub(crate) age: (i64, Arc<str>),
    /// `Err` says what is wrong with its spec.
    pub(crate) rules: Result<Arc<Rules>, String>,
    pub(crate) members: BTreeMap<Arc<str>, Arc<Member>>,
    pub(crate) is_deleting: bool,
    /// It is waited for before anything is written.
    pub(crate) has_finalizer: bool,
    /// What events are about.
    pub(crate) reference: ObjectReference,
}

/// The state of everything that decides what should be where.
pub(crate) struct Roster {
    pub(crate) scope: Scope,
    pub(crate) places: BTreeMap<Arc<str>, Arc<Place>>,
    rooms: HashMap<RoomKey, Room>,
    pub(crate) syncs: BTreeMap<SyncId, Sync>,
    /// Who has a source of this kind and name.
    claims: HashMap<(SourceKind, Arc<str>), Vec<SyncId>>,
    /// Where somebody looked when it could not be told what to do; they look again when it can.
    pub(crate) waiting: HashMap<SyncId, BTreeSet<Arc<str>>>,
}

/// A piece of work that a change makes, and whether it takes something away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Affected {
    pub(crate) sync: SyncId,
    pub(crate) namespace: Arc<str>,
    pub(crate) takes_away: bool,
}

/// Which watches a change of a SecretSync opens and closes.
#[derive(Default)]
pub(crate) struct Moves {
    pub(crate) affected: Vec<Affected>,
    pub(crate) opened: Vec<RoomKey>,
    pub(crate) closed: Vec<RoomKey>,
}

impl Roster {
    pub(crate) fn new(scope: Scope) -> Self {
        let annotated = SourceKind::ALL.map(|kind| (annotated_room(&scope, kind), Room::default()));
        Self {
            scope,
            places: BTreeMap::new(),
            rooms: annotated.into(),
            syncs: BTreeMap::new(),
            claims: HashMap::new(),
            waiting: HashMap::new(),
        }
    }

    /// The rooms of annotated sources, which are always open.
    pub(crate) fn annotated_rooms(&self) -> [RoomKey; 2] {
        SourceKind::ALL.map(|kind| annotated_room(&self.scope, kind))
    }

    pub(crate) fn place(&self, namespace: &str) -> Option<&Arc<Place>> {
        self.places.get(namespace)
    }

    pub(crate) fn sync(&self, id: &SyncId) -> Option<&Sync> {
        self.syncs.get(id)
    }

    /// Whether everything that a sync copies is known.
    pub(crate) fn is_ready(&self, sync: &Sync) -> bool {
        let Ok(rules) = &sync.rules else {
            return true;
        };
        let rooms = rules.rooms(&sync.namespace);
        rooms
            .iter()
            .all(|room| self.rooms.get(room).is_some_and(|room| room.is_complete))
    }

    /// Into how many namespaces it copies.
    pub(crate) fn targets_of(&self, id: &SyncId) -> usize {
        let Some(sync) = self.syncs.get(id) else {
            return 0;
        };
        self.places
            .iter()
            .filter(|(name, place)| self.wants(sync, name, place))
            .count()
    }

    /// A namespace came, changed or went.
    pub(crate) fn set_place(&mut self, namespace: &Arc<str>, place: Option<Arc<Place>>) -> Vec<Affected> {
        let wanting = |roster: &Self| -> BTreeSet<SyncId> {
            let Some(place) = roster.places.get(namespace) else {
                return BTreeSet::new();
            };
            let all = roster.syncs.iter();
            all.filter(|(_, sync)| roster.wants(sync, namespace, place))
                .map(|(id, _)| id.clone())
                .collect()
        };
        let before = wanting(self);
        match place {
            Some(place) => drop(self.places.insert(Arc::clone(namespace), place)),
            None => drop(self.places.remove(namespace)),
        }
        let after = wanting(self);
        let affected = before.union(&after).map(|sync| Affected {
            sync: sync.clone(),
            namespace: Arc::clone(namespace),
            takes_away: !after.contains(sync),
        });
        affected.collect()
    }

    /// A SecretSync came, changed or went.
    pub(crate) fn set_sync(&mut self, id: &SyncId, object: Option<&SecretSync>) -> Moves {
        let mut moves = Moves::default();
        let before = self.spread(id);
        let old_rooms = self.rooms_of(id);
        let old_names = self.names_of(id);
        self.unclaim(id);
        match object {
            None => drop(self.syncs.remove(id)),
            Some(object) => {
                let members = self.syncs.remove(id).map(|sync| sync.members);
                let sync = declared(object, members.unwrap_or_default());
                self.syncs.insert(id.clone(), sync);
            }
        }
        for key in self.rooms_of(id) {
            let known = self.rooms.entry(key.clone()).or_insert_with(|| {
                moves.opened.push(key.clone());
                Room::default()
            });
            known.users.insert(id.clone());
        }
        let still = self.rooms_of(id);
        for gone in old_rooms.difference(&still) {
            if let Some(room) = self.rooms.get_mut(gone) {
                room.users.remove(id);
                if room.users.is_empty() && !self.is_annotated_room(gone) {
                    self.rooms.remove(gone);
                    moves.closed.push(gone.clone());
                }
            }
        }
        self.gather(id);
        let mut affected = self.compare(&before, id);
        affected.extend(self.rivals_of(id, &old_names));
        affected.extend(self.awake(id));
        moves.affected = affected;
        moves
    }

    /// An object that may be a source came, changed or went.
    pub(crate) fn set_source(
        &mut self,
        room: &RoomKey,
        name: &Arc<str>,
        source: Option<Source>,
    ) -> Vec<Affected> {
        let Some(known) = self.rooms.get_mut(room) else {
            return Vec::new();
        };
        let source = source.map(Arc::new);
        match &source {
            Some(source) => drop(known.sources.insert(Arc::clone(name), Arc::clone(source))),
            None => drop(known.sources.remove(name)),
        }
        let (is_complete, mut users) = (known.is_complete, known.users.clone());
        if self.is_annotated_room(room) {
            users.insert(SyncId::Annotated {
                kind: room.kind,
                name: Arc::clone(name),
            });
        }
        let mut affected = Vec::new();
        for id in users {
            let (before, names) = (self.spread(&id), self.names_of(&id));
            if matches!(id, SyncId::Annotated { .. }) {
                self.annotate(&id, room.kind, source.as_ref());
            } else {
                self.gather(&id);
            }
            // Before the room is known whole, nobody acts on it.
            if is_complete {
                let after = self.names_of(&id);
                let takes_away = names.difference(&after).next().is_some();
                let mut concerned = self.compare(&before, &id);
                for one in &mut concerned {
                    one.takes_away |= takes_away;
                }
                affected.extend(concerned);
                affected.extend(self.rivals_of(&id, &names));
            }
        }
        affected
    }

    /// All that was in a room at the start has been told.
    pub(crate) fn complete(&mut self, room: &RoomKey) -> Vec<Affected> {
        let Some(known) = self.rooms.get_mut(room) else {
            return Vec::new();
        };
        known.is_complete = true;
        let mut users: Vec<_> = known.users.iter().cloned().collect();
        if self.is_annotated_room(room) {
            let here = |id: &&SyncId| matches!(id, SyncId::Annotated { kind, .. } if *kind == room.kind);
            users.extend(self.syncs.keys().filter(here).cloned());
        }
        let mut affected: Vec<_> = users.iter().flat_map(|id| self.everywhere(id)).collect();
        affected.extend(users.iter().flat_map(|id| self.awake(id)));
        affected
    }

    /// The SecretSyncs that look into a room.
    pub(crate) fn users(&self, room: &RoomKey) -> Vec<SyncId> {
        let room = self.rooms.get(room);
        room.map(|room| room.users.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Those who waited for a sync look again.
    fn awake(&mut self, id: &SyncId) -> Vec<Affected> {
        let places = self.waiting.remove(id).unwrap_or_default();
        let affected = places.into_iter().map(|namespace| Affected {
            sync: id.clone(),
            namespace,
            takes_away: false,
        });
        affected.collect()
    }

    /// Who wants a copy of this kind and name: whom it concerns when that changes.
    pub(crate) fn claimants(&self, kind: SourceKind, name: &str) -> &[SyncId] {
        let key = (kind, Arc::from(name));
        self.claims.get(&key).map(Vec::as_slice).unwrap_or_default()
    }

    /// Everywhere where a sync copies to.
    pub(crate) fn everywhere(&self, id: &SyncId) -> Vec<Affected> {
        self.compare(&self.spread(id), id)
    }

    /// Whether a sync copies into a namespace.
    pub(crate) fn wants(&self, sync: &Sync, namespace: &str, place: &Place) -> bool {
        let scope = &self.scope;
        let Ok(rules) = &sync.rules else {
            return false;
        };
        !sync.is_deleting
            && *sync.namespace != *namespace
            && !place.is_terminating
            && (scope.within.is_empty() || scope.within.contains(namespace))
            && (!is_system(namespace) || scope.allowed.contains(namespace))
            && place.consent.allows(&sync.namespace, &scope.source_namespace)
            && rules.selects_namespace(&place.labels)
    }

    /// Where a sync copies to.
    fn spread(&self, id: &SyncId) -> BTreeSet<Arc<str>> {
        let Some(sync) = self.syncs.get(id) else {
            return BTreeSet::new();
        };
        let wanted = self
            .places
            .iter()
            .filter(|(name, place)| self.wants(sync, name, place));
        wanted.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Everywhere where a sync copied to before or copies to now.
    fn compare(&self, before: &BTreeSet<Arc<str>>, id: &SyncId) -> Vec<Affected> {
        let after = self.spread(id);
        let affected = before.union(&after).map(|namespace| Affected {
            sync: id.clone(),
            namespace: Arc::clone(namespace),
            takes_away: !after.contains(namespace),
        });
        affected.collect()
    }

    /// The others who have, or had, a name in common with a sync that changed.
    fn rivals_of(&self, id: &SyncId, old_names: &BTreeSet<(SourceKind, Arc<str>)>) -> Vec<Affected> {
        let names = self.names_of(id);
        let mut others = BTreeSet::new();
        for name in names.union(old_names) {
            others.extend(
                self.claims
                    .get(name)
                    .into_iter()
                    .flatten()
                    .filter(|other| *other != id),
            );
        }
        others
            .into_iter()
            .flat_map(|other| self.everywhere(other))
            .collect()
    }

    fn names_of(&self, id: &SyncId) -> BTreeSet<(SourceKind, Arc<str>)> {
        let members = self
            .syncs
            .get(id)
            .into_iter()
            .flat_map(|sync| sync.members.values());
        members
            .map(|member| (member.source.kind, Arc::clone(&member.source.name)))
            .collect()
    }

    fn rooms_of(&self, id: &SyncId) -> BTreeSet<RoomKey> {
        let Some((sync, Ok(rules))) = self.syncs.get(id).map(|sync| (sync, &sync.rules)) else {
            return BTreeSet::new();
        };
        // One that goes wants no sources any more.
        if sync.is_deleting || matches!(id, SyncId::Annotated { .. }) {
            return BTreeSet::new();
        }
        rules.rooms(&sync.namespace).into_iter().collect()
    }

    fn is_annotated_room(&self, room: &RoomKey) -> bool {
        room.namespace == self.scope.source_namespace && room.which == Which::All
    }

    /// An object of the source namespace is a sync of its own if it is annotated.
    fn annotate(&mut self, id: &SyncId, kind: SourceKind, source: Option<&Arc<Source>>) {
        self.unclaim(id);
        let Some(source) = source.filter(|source| source.is_annotated) else {
            self.syncs.remove(id);
            return;
        };
        let before = self.syncs.remove(id);
        let rules = match before.as_ref().map(|sync| &sync.rules) {
            Some(Ok(rules)) => Arc::clone(rules),
            _ => Arc::new(Rules::annotated(kind)),
        };
        let known = before.as_ref().and_then(|sync| sync.members.get(&source.name));
        let member = Member::again(known, source, &rules);
        let sync = Sync {
            namespace: Arc::clone(&source.namespace),
            mark: Arc::new(Mark::Annotation {
                source_namespace: Arc::clone(&source.namespace),
            }),
            age: (source.created, Arc::clone(&source.uid)),
            rules: Ok(rules),
            members: BTreeMap::from([(Arc::clone(&source.name), member)]),
            is_deleting: false,
            has_finalizer: true,
            reference: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some(kind.name().to_owned()),
                namespace: Some(source.namespace.to_string()),
                name: Some(source.name.to_string()),
                uid: Some(source.uid.to_string()),
                ..ObjectReference::default()
            },
        };
        self.syncs.insert(id.clone(), sync);
        self.claim(id);
    }

    /// Finds the sources of a SecretSync anew.
    fn gather(&mut self, id: &SyncId) {
        self.unclaim(id);
        let rooms = self.rooms_of(id);
        let Some(sync) = self.syncs.get_mut(id) else {
            return;
        };
        let Ok(rules) = &sync.rules else {
            return;
        };
        let found = rooms.iter().filter_map(|room| self.rooms.get(room));
        let mut members = BTreeMap::new();
        for source in found.flat_map(|room| room.sources.values()) {
            members
                .entry(Arc::clone(&source.name))
                .or_insert_with(|| Member::again(sync.members.get(&source.name), source, rules));
        }
        sync.members = members;
        self.claim(id);
    }

    fn claim(&mut self, id: &SyncId) {
        for name in self.names_of(id) {
            self.claims.entry(name).or_default().push(id.clone());
        }
    }

    fn unclaim(&mut self, id: &SyncId) {
        for name in self.names_of(id) {
            if let Some(claimants) = self.claims.get_mut(&name) {
                claimants.retain(|claimant| claimant != id);
                if claimants.is_empty() {
                    self.claims.remove(&name);
                }
            }
        }
    }
}

/// A SecretSync, with the members that it had.
fn declared(object: &SecretSync, members: BTreeMap<Arc<str>, Arc<Member>>) -> Sync {
    let metadata = &object.metadata;
    let text = |text: &Option<String>| -> Arc<str> { text.as_deref().unwrap_or_default().into() };
    let (namespace, name, uid) = (
        text(&metadata.namespace),
        text(&metadata.name),
        text(&metadata.uid),
    );
    let created = metadata.creation_timestamp.as_ref();
    Sync {
        mark: Arc::new(Mark::Sync {
            namespace: Arc::clone(&namespace),
            name,
            uid: Arc::clone(&uid),
        }),
        age: (created.map_or(0, |time| time.0.as_second()), uid),
        rules: Rules::of(&object.spec).map(Arc::new),
        members,
        is_deleting: metadata.deletion_timestamp.is_some(),
        has_finalizer: metadata.finalizers.iter().flatten().any(|one| one == FINALIZER),
        reference: windlass::kube::Resource::object_ref(object, &()),
        namespace,
    }
}

fn annotated_room(scope: &Scope, kind: SourceKind) -> RoomKey {
    RoomKey {
        kind,
        namespace: Arc::clone(&scope.source_namespace),
        which: Which::All,
    }
}

#[cfg(test)]
mod tests;
