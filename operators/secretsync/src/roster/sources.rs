//! Which objects are sources of which syncs: kept up change by change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass::k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    api::SourceKind,
    identity::{Mark, SyncId},
    member::Member,
    room::{Seen, Slots, Source},
    roster::{Affected, Opening, Roster, Sync},
    rules::Rules,
};

impl Roster {
    /// An object that may be a source came, changed or went. Also says whose sources it concerns.
    pub(crate) fn set_source(
        &mut self,
        opening: &Opening,
        name: &Arc<str>,
        seen: Option<&Arc<Seen>>,
    ) -> (Vec<Affected>, Vec<SyncId>) {
        let room = &opening.room;
        let nothing = (Vec::new(), Vec::new());
        let Some(known) = self
            .rooms
            .get_mut(room)
            .filter(|known| known.opening == opening.number)
        else {
            return nothing;
        };
        match seen {
            Some(seen) => drop(known.seen.insert(Arc::clone(name), Arc::clone(seen))),
            None => drop(known.seen.remove(name)),
        }
        let (is_complete, mut users) = (known.is_complete, known.users.clone());
        if self.is_annotated_room(room) {
            users.insert(SyncId::Annotated {
                kind: room.kind,
                name: Arc::clone(name),
            });
        }
        // Most objects are not a source: one is made when a sync selects it.
        let mut source: Option<Arc<Source>> = None;
        let seen = seen.map(|seen| (seen, seen.labels()));
        let (mut affected, mut touched) = nothing;
        for id in users {
            // Only an annotated object is a sync, or none, by its own change.
            let before = match &id {
                SyncId::Annotated { .. } if is_complete => self.spread(&id),
                _ => BTreeSet::new(),
            };
            let Some(change) = self.set_member(&id, opening, name, seen.as_ref(), &mut source) else {
                continue;
            };
            // Before the room is known whole, no sync acts on it.
            if is_complete {
                let mut concerned = self.compare(&before, &id);
                for one in &mut concerned {
                    one.takes_away |= change == Membership::Left;
                }
                let within = concerned.iter().map(|one| Arc::clone(&one.namespace)).collect();
                affected.extend(concerned);
                let names = [(room.kind, Arc::clone(name))].into();
                affected.extend(self.rivals_of(&id, &names, &within));
                touched.push(id);
            }
        }
        (affected, touched)
    }

    /// Whether this object is a source of a sync, after it changed. `None`: it is not and was not.
    fn set_member(
        &mut self,
        id: &SyncId,
        opening: &Opening,
        name: &Arc<str>,
        seen: Option<&(&Arc<Seen>, BTreeMap<String, String>)>,
        made: &mut Option<Arc<Source>>,
    ) -> Option<Membership> {
        let key = &opening.room;
        let room = self.rooms.get(key)?;
        let source_of = |made: &mut Option<Arc<Source>>, seen: &Arc<Seen>, slots: &mut Slots| {
            let made = made.get_or_insert_with(|| Arc::new(Source::new(key, room, name, seen, slots)));
            Arc::clone(made)
        };
        if let SyncId::Annotated { kind, .. } = id {
            let annotated = seen.filter(|(seen, _)| seen.is_annotated());
            let source = annotated.map(|(seen, _)| source_of(made, seen, &mut self.slots));
            let was = self.syncs.contains_key(id);
            let is = source.is_some();
            if was || is {
                self.annotate(id, *kind, source.as_ref());
            }
            return Membership::of(was, is);
        }
        let sync = self.syncs.get_mut(id)?;
        let rules = sync.rules.as_ref().ok()?;
        let known = sync.members.get(name);
        let was = known.is_some();
        let selected = seen.filter(|(_, labels)| rules.selects(name, labels));
        let source = selected.map(|(seen, _)| source_of(made, seen, &mut self.slots));
        let member = source.map(|source| Member::again(known, &source, rules));
        let is = member.is_some();
        sync.sources -= usize::from(known.is_some_and(|known| known.counts()));
        match member {
            Some(member) => {
                sync.sources += usize::from(member.counts());
                sync.members.insert(Arc::clone(name), member);
            }
            None => drop(sync.members.remove(name)),
        }
        if was != is {
            let claimants = self
                .claims
                .entry((opening.room.kind, Arc::clone(name)))
                .or_default();
            claimants.retain(|claimant| claimant != id);
            if is {
                claimants.push(id.clone());
            } else if claimants.is_empty() {
                self.claims.remove(&(opening.room.kind, Arc::clone(name)));
            }
        }
        Membership::of(was, is)
    }

    /// An object of the source namespace is a sync of its own if it is annotated.
    fn annotate(&mut self, id: &SyncId, kind: SourceKind, source: Option<&Arc<Source>>) {
        self.unclaim(id);
        let Some(source) = source else {
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
            sources: 1,
            targets: 0,
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

    /// Finds the sources of a SecretSync again.
    pub(super) fn gather(&mut self, id: &SyncId) {
        self.unclaim(id);
        let key = self.room_of(id);
        let Some(sync) = self.syncs.get_mut(id) else {
            return;
        };
        let Ok(rules) = &sync.rules else {
            return;
        };
        let mut members = BTreeMap::new();
        if let Some((key, room)) = key.as_ref().and_then(|key| Some((key, self.rooms.get(key)?))) {
            for (name, seen) in room.selected(rules) {
                let known = sync.members.get(name);
                let same = known.map(|known| &known.source).filter(|source| source.is(seen));
                let source = same.map_or_else(
                    || Arc::new(Source::new(key, room, name, seen, &mut self.slots)),
                    Arc::clone,
                );
                members.insert(Arc::clone(name), Member::again(known, &source, rules));
            }
        }
        sync.sources = members.values().filter(|member| member.counts()).count();
        sync.members = members;
        self.claim(id);
    }

    pub(super) fn claim(&mut self, id: &SyncId) {
        for name in self.names_of(id) {
            self.claims.entry(name).or_default().push(id.clone());
        }
    }

    pub(super) fn unclaim(&mut self, id: &SyncId) {
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

/// What a change of an object means for a sync that copies it, or did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Membership {
    /// It is a source, perhaps a new one.
    Is,
    /// It was a source.
    Left,
}

impl Membership {
    fn of(was: bool, is: bool) -> Option<Self> {
        match (was, is) {
            (_, true) => Some(Self::Is),
            (true, false) => Some(Self::Left),
            (false, false) => None,
        }
    }
}
