//! Keeps track of which objects are sources of which syncs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    api::SourceKind,
    consent::quote,
    identity::{SyncId, SyncOwner},
    member::Member,
    rules::SyncRules,
    source_watch::{ContentCells, Source, SourceMetadata},
    sync_index::{Affected, Sync, SyncIndex, WatchInstance, source_reference},
};

impl SyncIndex {
    /// Records that a possible source was added, changed or deleted. Also returns the syncs whose sources changed.
    pub(crate) fn set_source(
        &mut self,
        instance: &WatchInstance,
        name: &Arc<str>,
        seen: Option<&Arc<SourceMetadata>>,
    ) -> (Vec<Affected>, Vec<SyncId>) {
        self.revision += 1;
        let key = &instance.key;
        let nothing = (Vec::new(), Vec::new());
        let Some(known) = self
            .watches
            .get_mut(key)
            .filter(|known| known.generation == instance.generation)
        else {
            return nothing;
        };
        match seen {
            Some(seen) => drop(known.objects.insert(Arc::clone(name), Arc::clone(seen))),
            None => drop(known.objects.remove(name)),
        }
        let (is_complete, mut users) = (known.is_complete, known.syncs.clone());
        if self.is_annotated_watch(key) {
            users.insert(SyncId::Annotated {
                kind: key.kind,
                name: Arc::clone(name),
            });
        }
        // Most objects are no sources: a `Source` is created when a sync selects the object.
        let mut source: Option<Arc<Source>> = None;
        let seen = seen.map(|seen| (seen, seen.labels()));
        let (mut affected, mut touched) = nothing;
        for id in users {
            // Only an annotated object becomes or ceases to be a sync by its own change.
            let before = match &id {
                SyncId::Annotated { .. } if is_complete => self.target_namespaces(&id),
                _ => BTreeSet::new(),
            };
            let change = self.set_member(&id, instance, name, seen.as_ref(), &mut source);
            // No sync acts on a watch before its initial list is complete.
            if !is_complete {
                continue;
            }
            // Copies that stay for now wait for a change of the source: where the consent is invalid, or if their removal is
            // held. They need not be wanted any more. For a SecretSync, only the end of a source decides about them.
            let woken = match &id {
                SyncId::Declared { .. } if seen.is_some() => Vec::new(),
                _ => self.wake_waiting(&id),
            };
            if change.is_none() && !woken.is_empty() {
                touched.push(id.clone());
            }
            affected.extend(woken);
            if let Some(change) = change {
                let mut concerned = self.affected_since(&before, &id);
                for one in &mut concerned {
                    one.is_removal |= change == MembershipChange::Left;
                }
                let within = concerned.iter().map(|one| Arc::clone(&one.namespace)).collect();
                affected.extend(concerned);
                let names = [(key.kind, Arc::clone(name))].into();
                affected.extend(self.competitors(&id, &names, &within));
                touched.push(id);
            }
        }
        (affected, touched)
    }

    /// Updates whether the object is a source of a sync. `None`: it is not and was not.
    fn set_member(
        &mut self,
        id: &SyncId,
        instance: &WatchInstance,
        name: &Arc<str>,
        seen: Option<&(&Arc<SourceMetadata>, BTreeMap<String, String>)>,
        made: &mut Option<Arc<Source>>,
    ) -> Option<MembershipChange> {
        let key = &instance.key;
        let watch = self.watches.get(key)?;
        let source_of =
            |made: &mut Option<Arc<Source>>, seen: &Arc<SourceMetadata>, slots: &mut ContentCells| {
                let made = made.get_or_insert_with(|| Arc::new(Source::new(key, watch, name, seen, slots)));
                Arc::clone(made)
            };
        if let SyncId::Annotated { kind, .. } = id {
            let annotated =
                seen.filter(|(seen, _)| seen.is_annotated() || seen.unclear_annotation().is_some());
            let error = annotated.and_then(|(seen, _)| {
                let value = seen.unclear_annotation()?;
                Some(unclear_annotation(&self.config.annotation, value))
            });
            let source = annotated.map(|(seen, _)| source_of(made, seen, &mut self.content_cells));
            let was = self.syncs.contains_key(id);
            let is = source.is_some();
            if was || is {
                self.set_annotated_sync(id, *kind, source.as_ref(), error);
            }
            return MembershipChange::of(was, is);
        }
        let sync = self.syncs.get_mut(id)?;
        let rules = sync.rules.as_ref().ok()?;
        let known = sync.members.get(name);
        let was = known.is_some();
        let selected = seen.filter(|(_, labels)| rules.selects(name, labels));
        let source = selected.map(|(seen, _)| source_of(made, seen, &mut self.content_cells));
        let member = source.map(|source| Member::reuse_or_new(known, &source, rules));
        let is = member.is_some();
        sync.sources -= usize::from(known.is_some_and(|known| known.is_copied()));
        match member {
            Some(member) => {
                sync.sources += usize::from(member.is_copied());
                sync.members.insert(Arc::clone(name), member);
            }
            None => drop(sync.members.remove(name)),
        }
        if was != is {
            let claimants = self
                .claims
                .entry((instance.key.kind, Arc::clone(name)))
                .or_default();
            claimants.retain(|claimant| claimant != id);
            if is {
                claimants.push(id.clone());
            } else if claimants.is_empty() {
                self.claims.remove(&(instance.key.kind, Arc::clone(name)));
            }
        }
        MembershipChange::of(was, is)
    }

    /// Updates the sync of an object of the source namespace, which exists while the object is annotated.
    /// With an `error` nothing is copied or removed because of it.
    fn set_annotated_sync(
        &mut self,
        id: &SyncId,
        kind: SourceKind,
        source: Option<&Arc<Source>>,
        error: Option<String>,
    ) {
        self.unclaim(id);
        let Some(source) = source else {
            self.syncs.remove(id);
            return;
        };
        let before = self.syncs.remove(id);
        let rules = match before.as_ref().map(|sync| &sync.rules) {
            Some(Ok(rules)) => Arc::clone(rules),
            _ => Arc::new(SyncRules::annotated(kind)),
        };
        let known = before.as_ref().and_then(|sync| sync.members.get(&source.name));
        let member = Member::reuse_or_new(known, source, &rules);
        let members = match &error {
            Some(_) => BTreeMap::new(),
            None => BTreeMap::from([(Arc::clone(&source.name), member)]),
        };
        let sync = Sync {
            namespace: Arc::clone(&source.namespace),
            owner: Arc::new(SyncOwner::Annotation {
                source_namespace: Arc::clone(&source.namespace),
            }),
            precedence: (source.created, Arc::clone(&source.uid)),
            rules: error.map_or(Ok(rules), Err),
            sources: members.len(),
            members,
            targets: 0,
            is_deleting: false,
            has_finalizer: true,
            reference: source_reference(kind, &source.namespace, &source.name, &source.uid),
        };
        self.syncs.insert(id.clone(), sync);
        self.claim(id);
    }

    /// Selects the sources of a SecretSync again.
    pub(super) fn reselect_sources(&mut self, id: &SyncId) {
        self.unclaim(id);
        let key = self.watch_key_of(id);
        let Some(sync) = self.syncs.get_mut(id) else {
            return;
        };
        let Ok(rules) = &sync.rules else {
            return;
        };
        let mut members = BTreeMap::new();
        if let Some((key, watch)) = key.as_ref().and_then(|key| Some((key, self.watches.get(key)?))) {
            for (name, seen) in watch.selected(rules) {
                let known = sync.members.get(name);
                let same = known
                    .map(|known| &known.source)
                    .filter(|source| source.is_from(seen));
                let source = same.map_or_else(
                    || Arc::new(Source::new(key, watch, name, seen, &mut self.content_cells)),
                    Arc::clone,
                );
                members.insert(Arc::clone(name), Member::reuse_or_new(known, &source, rules));
            }
        }
        sync.sources = members.values().filter(|member| member.is_copied()).count();
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

/// Why nothing is copied because of a source's annotation.
fn unclear_annotation(annotation: &str, value: &str) -> String {
    format!(
        "invalid value {} of `{annotation}`: to stop copying it, use `false` or remove the annotation; to copy it, use `true`; \
         until then nothing is copied, updated or removed because of it",
        quote(value)
    )
}

/// What a change of an object means for a sync that selects or selected it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MembershipChange {
    /// It is a source, possibly a new one.
    Member,
    /// It was a source.
    Left,
}

impl MembershipChange {
    fn of(was: bool, is: bool) -> Option<Self> {
        match (was, is) {
            (_, true) => Some(Self::Member),
            (true, false) => Some(Self::Left),
            (false, false) => None,
        }
    }
}
