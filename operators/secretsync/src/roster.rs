//! Who wants what where: the syncs, their sources, and the namespaces, as the watches tell of them.
//!
//! ```text
//!   namespaces ──► Place ─┐
//!   SecretSyncs ─► Sync ──┼──► plan(sync, namespace): what should be there
//!   sources ─────► Room ──┘         affected: which (sync, namespace) a change concerns
//! ```
//!
//! A change of a source costs as much as the syncs that look into its room, and what it means for those that copy it; not what
//! else is in the room.
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
    meter::Meter,
    room::{Room, RoomKey, Slots},
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
    pub(crate) limits: Limits,
}

/// How much one SecretSync may ask for. The source namespace is the operator's own: what is annotated there, and how large it is,
/// has no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Sources.
    pub(crate) sources: usize,
    /// Sources times target namespaces.
    pub(crate) copies: usize,
    /// Bytes of content that are held for the objects of one kind in its namespace, by all SecretSyncs there.
    pub(crate) content: usize,
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
    /// How many of its members are to be copied, as far as their metadata tells.
    pub(crate) sources: usize,
    /// Into how many namespaces.
    pub(crate) targets: usize,
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
    /// How many rooms were opened so far.
    openings: u64,
    slots: Slots,
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
    pub(crate) opened: Option<Opening>,
    pub(crate) closed: Option<RoomKey>,
}

/// A room that is to be watched from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) room: RoomKey,
    pub(crate) number: u64,
}

impl Roster {
    pub(crate) fn new(scope: Scope) -> Self {
        let annotated = SourceKind::ALL.map(|kind| (annotated_room(&scope, kind), Room::default()));
        Self {
            scope,
            places: BTreeMap::new(),
            rooms: annotated.into(),
            openings: 0,
            slots: Slots::default(),
            syncs: BTreeMap::new(),
            claims: HashMap::new(),
            waiting: HashMap::new(),
        }
    }

    /// The rooms of annotated sources, which are always open.
    pub(crate) fn annotated_rooms(&self) -> [Opening; 2] {
        SourceKind::ALL.map(|kind| Opening {
            room: annotated_room(&self.scope, kind),
            number: 0,
        })
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
        let room = rules.room(&sync.namespace);
        room.is_none_or(|room| self.rooms.get(&room).is_some_and(|room| room.is_complete))
    }

    /// Into how many namespaces it copies.
    pub(crate) fn targets_of(&self, id: &SyncId) -> usize {
        self.syncs.get(id).map_or(0, |sync| sync.targets)
    }

    /// What a SecretSync has too much of, in words; then nothing is written for it.
    pub(crate) fn excess(&self, id: &SyncId, sync: &Sync) -> Option<String> {
        let Limits { sources, copies, .. } = self.scope.limits;
        if matches!(id, SyncId::Annotated { .. }) {
            return None;
        }
        if sync.sources > sources {
            return Some(format!(
                "it selects {} sources, and at most {sources} are allowed (`--max-sources`)",
                sync.sources
            ));
        }
        let wanted = sync.sources.saturating_mul(sync.targets);
        (wanted > copies).then(|| {
            format!(
                "{} sources in {} namespaces are {wanted} copies, and at most {copies} are allowed (`--max-copies`)",
                sync.sources, sync.targets
            )
        })
    }

    fn is_over(&self, id: &SyncId) -> bool {
        let sync = self.syncs.get(id);
        sync.is_some_and(|sync| self.excess(id, sync).is_some())
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
        let over: BTreeSet<_> = before.iter().filter(|id| self.is_over(id)).cloned().collect();
        match place {
            Some(place) => drop(self.places.insert(Arc::clone(namespace), place)),
            None => drop(self.places.remove(namespace)),
        }
        let after = wanting(self);
        for id in before.symmetric_difference(&after) {
            if let Some(sync) = self.syncs.get_mut(id) {
                sync.targets = if after.contains(id) {
                    sync.targets + 1
                } else {
                    sync.targets.saturating_sub(1)
                };
            }
        }
        let affected = before.union(&after).map(|sync| Affected {
            sync: sync.clone(),
            namespace: Arc::clone(namespace),
            takes_away: !after.contains(sync),
        });
        // What was too much fits now, everywhere.
        let relieved = over.iter().filter(|id| !self.is_over(id));
        affected
            .chain(relieved.flat_map(|id| self.everywhere(id)))
            .collect()
    }

    /// A SecretSync came, changed or went.
    pub(crate) fn set_sync(&mut self, id: &SyncId, object: Option<&SecretSync>) -> Moves {
        let mut moves = Moves::default();
        let before = self.spread(id);
        let old_room = self.room_of(id);
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
        let room = self.room_of(id);
        if let Some(key) = &room {
            let known = self.rooms.entry(key.clone()).or_insert_with(|| {
                self.openings += 1;
                moves.opened = Some(Opening {
                    room: key.clone(),
                    number: self.openings,
                });
                Room {
                    opening: self.openings,
                    meter: Arc::new(Meter::new(self.scope.limits.content)),
                    ..Room::default()
                }
            });
            known.users.insert(id.clone());
        }
        if let Some(left) = old_room.filter(|old| Some(old) != room.as_ref())
            && let Some(known) = self.rooms.get_mut(&left)
        {
            known.users.remove(id);
            if known.users.is_empty() && !self.is_annotated_room(&left) {
                self.rooms.remove(&left);
                moves.closed = Some(left);
            }
        }
        let after = self.spread(id);
        if let Some(sync) = self.syncs.get_mut(id) {
            sync.targets = after.len();
        }
        self.gather(id);
        let mut affected = self.compare(&before, id);
        let names: BTreeSet<_> = old_names.union(&self.names_of(id)).cloned().collect();
        affected.extend(self.rivals_of(id, &names, &before.union(&after).cloned().collect()));
        affected.extend(self.awake(id));
        moves.affected = affected;
        moves
    }

    /// All that was in a room at the start has been told.
    pub(crate) fn complete(&mut self, opening: &Opening) -> Vec<Affected> {
        let room = &opening.room;
        let Some(known) = self
            .rooms
            .get_mut(room)
            .filter(|known| known.opening == opening.number)
        else {
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

    /// The others who want copies of these names in these namespaces.
    fn rivals_of(
        &self,
        id: &SyncId,
        names: &BTreeSet<(SourceKind, Arc<str>)>,
        within: &BTreeSet<Arc<str>>,
    ) -> Vec<Affected> {
        let claims = names.iter().filter_map(|name| self.claims.get(name));
        let others: BTreeSet<_> = claims.flatten().filter(|other| *other != id).collect();
        let mut affected = Vec::new();
        for other in others {
            let Some(sync) = self.syncs.get(other) else {
                continue;
            };
            let places = within.iter().filter(|namespace| {
                let place = self.places.get(*namespace);
                place.is_some_and(|place| self.wants(sync, namespace, place))
            });
            affected.extend(places.map(|namespace| Affected {
                sync: other.clone(),
                namespace: Arc::clone(namespace),
                takes_away: false,
            }));
        }
        affected
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

    fn room_of(&self, id: &SyncId) -> Option<RoomKey> {
        let sync = self.syncs.get(id)?;
        // One that goes wants no sources any more.
        if sync.is_deleting || matches!(id, SyncId::Annotated { .. }) {
            return None;
        }
        sync.rules.as_ref().ok()?.room(&sync.namespace)
    }

    fn is_annotated_room(&self, room: &RoomKey) -> bool {
        room.namespace == self.scope.source_namespace
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
        sources: 0,
        targets: 0,
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
    }
}

mod sources;
#[cfg(test)]
mod tests;
