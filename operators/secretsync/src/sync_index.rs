//! The desired state: the syncs, their sources and the namespaces, as the watches report them.
//!
//! ```text
//!   namespaces ──► TargetNamespace ─┐
//!   SecretSyncs ─► Sync ────────────┼──► plan(sync, namespace): the desired copies
//!   sources ─────► SourceWatch ─────┘         affected: the (sync, namespace) pairs that a change concerns
//! ```
//!
//! The cost of a source's change depends on the syncs that use its watch and on the copies of those that select it,
//! not on the other objects of the namespace.
//!
//! No I/O. The watches' callbacks write it, one at a time; reconciles read it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use windlass::k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    api::{ADOPT_ANNOTATION, FINALIZER, SecretSync, SourceKind},
    consent::{Consent, Stance, is_system},
    content_budget::ContentBudget,
    identity::{SyncId, SyncOwner},
    member::Member,
    rules::SyncRules,
    source_watch::{ContentCells, SourceWatch, SourceWatchKey},
};

/// The operator's configuration.
#[derive(Debug)]
pub(crate) struct OperatorConfig {
    pub(crate) source_namespace: Arc<str>,
    pub(crate) annotation: Arc<str>,
    /// System namespaces that may be targets.
    pub(crate) allowed_system_namespaces: BTreeSet<String>,
    /// Namespaces that the operator is restricted to. Empty: all.
    pub(crate) restricted_to: BTreeSet<String>,
    pub(crate) limits: Limits,
}

impl OperatorConfig {
    /// Returns whether the operator may see the objects of a namespace.
    pub(crate) fn is_within(&self, namespace: &str) -> bool {
        self.restricted_to.is_empty() || self.restricted_to.contains(namespace)
    }
}

/// Limits of one SecretSync. They do not apply to annotated objects of the source namespace, which belongs to the
/// operator's administrator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of sources.
    pub(crate) sources: usize,
    /// Maximum of sources times target namespaces.
    pub(crate) copies: usize,
    /// Maximum bytes of content that are held for the objects of one kind in a namespace, by all SecretSyncs there.
    pub(crate) content: usize,
    /// Maximum share of its copies, in percent, that is removed at once without confirmation. Applies to annotated
    /// objects, too.
    pub(crate) removal_percent: usize,
}

pub(crate) struct TargetNamespace {
    pub(crate) uid: Arc<str>,
    /// The source namespaces that it accepts copies from.
    pub(crate) consent: Consent,
    /// The source namespaces whose syncs may adopt its objects.
    pub(crate) adoption_consent: Consent,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) is_terminating: bool,
}

/// A sync that exists.
pub(crate) struct Sync {
    pub(crate) namespace: Arc<str>,
    pub(crate) owner: Arc<SyncOwner>,
    /// The older sync takes precedence: creation time, then UID.
    pub(crate) precedence: (i64, Arc<str>),
    /// The parsed spec, or its validation error.
    pub(crate) rules: Result<Arc<SyncRules>, String>,
    pub(crate) members: BTreeMap<Arc<str>, Arc<Member>>,
    /// How many of its members are to be copied, judging by their metadata.
    pub(crate) sources: usize,
    /// Number of target namespaces.
    pub(crate) targets: usize,
    pub(crate) is_deleting: bool,
    /// Nothing is written before it is set.
    pub(crate) has_finalizer: bool,
    /// The object that events are recorded for.
    pub(crate) reference: ObjectReference,
}

/// Everything that determines the desired copies.
pub(crate) struct SyncIndex {
    pub(crate) config: OperatorConfig,
    /// Incremented by every change of the desired copies.
    pub(crate) revision: u64,
    pub(crate) namespaces: BTreeMap<Arc<str>, Arc<TargetNamespace>>,
    /// The namespaces whose consent names this one, whether or not that exists.
    named_by: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    watches: HashMap<SourceWatchKey, SourceWatch>,
    /// How many watches were opened so far.
    opened_watches: u64,
    content_cells: ContentCells,
    pub(crate) syncs: BTreeMap<SyncId, Sync>,
    /// The syncs that have a source of this kind and name.
    claims: HashMap<(SourceKind, Arc<str>), Vec<SyncId>>,
    /// Namespaces in which a sync waits for a change of itself or of the namespace; then they are enqueued again.
    pub(crate) waiting: HashMap<SyncId, BTreeSet<Arc<str>>>,
}

/// A queue item that a change causes, and whether it removes a copy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Affected {
    pub(crate) sync: SyncId,
    pub(crate) namespace: Arc<str>,
    pub(crate) is_removal: bool,
}

/// The consequences of a change of a SecretSync: affected items, and watches to open and close.
#[derive(Default)]
pub(crate) struct SyncChange {
    pub(crate) affected: Vec<Affected>,
    pub(crate) opened: Option<WatchInstance>,
    pub(crate) closed: Option<SourceWatchKey>,
}

/// A source watch that has to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchInstance {
    pub(crate) key: SourceWatchKey,
    pub(crate) generation: u64,
}

impl SyncIndex {
    pub(crate) fn new(config: OperatorConfig) -> Self {
        let annotated =
            SourceKind::ALL.map(|kind| (annotated_watch_key(&config, kind), SourceWatch::default()));
        Self {
            config,
            revision: 0,
            namespaces: BTreeMap::new(),
            named_by: HashMap::new(),
            watches: annotated.into(),
            opened_watches: 0,
            content_cells: ContentCells::default(),
            syncs: BTreeMap::new(),
            claims: HashMap::new(),
            waiting: HashMap::new(),
        }
    }

    /// Returns the watches of annotated sources, which are always open.
    pub(crate) fn annotated_watches(&self) -> [WatchInstance; 2] {
        SourceKind::ALL.map(|kind| WatchInstance {
            key: annotated_watch_key(&self.config, kind),
            generation: 0,
        })
    }

    pub(crate) fn namespace(&self, namespace: &str) -> Option<&Arc<TargetNamespace>> {
        self.namespaces.get(namespace)
    }

    /// Returns an open source watch.
    pub(crate) fn watch(&self, key: &SourceWatchKey) -> Option<&SourceWatch> {
        self.watches.get(key)
    }

    /// Returns the object that an annotated sync copies or has copied, whether or not it is annotated.
    pub(crate) fn annotated_source(&self, id: &SyncId) -> Option<ObjectReference> {
        let SyncId::Annotated { kind, name } = id else {
            return None;
        };
        let key = annotated_watch_key(&self.config, *kind);
        let source = self.watches.get(&key)?.objects.get(name)?;
        Some(source_reference(*kind, &key.namespace, name, source.uid()))
    }

    pub(crate) fn sync(&self, id: &SyncId) -> Option<&Sync> {
        self.syncs.get(id)
    }

    /// Returns whether all sources of a sync are known.
    pub(crate) fn is_ready(&self, sync: &Sync) -> bool {
        let Ok(rules) = &sync.rules else {
            return true;
        };
        let key = rules.watch_key(&sync.namespace);
        key.is_none_or(|key| self.watches.get(&key).is_some_and(|watch| watch.is_complete))
    }

    /// Returns the number of its target namespaces.
    pub(crate) fn targets_of(&self, id: &SyncId) -> usize {
        self.syncs.get(id).map_or(0, |sync| sync.targets)
    }

    /// Returns which limit a SecretSync exceeds; then nothing is written for it.
    pub(crate) fn limit_error(&self, id: &SyncId, sync: &Sync) -> Option<String> {
        let Limits { sources, copies, .. } = self.config.limits;
        if matches!(id, SyncId::Annotated { .. }) {
            return None;
        }
        if sync.sources > sources {
            return Some(format!(
                "it selects {} sources, more than the limit of {sources} (`--max-sources`)",
                sync.sources
            ));
        }
        let wanted = sync.sources.saturating_mul(sync.targets);
        (wanted > copies).then(|| {
            format!(
                "{} sources in {} namespaces are {wanted} copies, more than the limit of {copies} (`--max-copies`)",
                sync.sources, sync.targets
            )
        })
    }

    fn exceeds_limits(&self, id: &SyncId) -> bool {
        let sync = self.syncs.get(id);
        sync.is_some_and(|sync| self.limit_error(id, sync).is_some())
    }

    /// Records that a namespace was added, changed or deleted.
    pub(crate) fn set_namespace(
        &mut self,
        namespace: &Arc<str>,
        place: Option<Arc<TargetNamespace>>,
    ) -> Vec<Affected> {
        self.revision += 1;
        let wanting = |index: &Self| -> BTreeSet<SyncId> {
            let Some(place) = index.namespaces.get(namespace) else {
                return BTreeSet::new();
            };
            let all = index.syncs.iter();
            all.filter(|(_, sync)| index.wants(sync, namespace, place))
                .map(|(id, _)| id.clone())
                .collect()
        };
        let before = wanting(self);
        let over: BTreeSet<_> = before
            .iter()
            .filter(|id| self.exceeds_limits(id))
            .cloned()
            .collect();
        // Where its name was taken for a mistake, it no longer is.
        let mut woken = BTreeSet::from([Arc::clone(namespace)]);
        if place.is_some() && !self.namespaces.contains_key(namespace) {
            woken.extend(self.named_by.get(namespace).into_iter().flatten().cloned());
        }
        self.replace_namespace(namespace, place);
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
            is_removal: !after.contains(sync),
        });
        // Syncs that no longer exceed their limits are enqueued everywhere.
        let relieved = over.iter().filter(|id| !self.exceeds_limits(id));
        let mut affected: Vec<_> = affected
            .chain(relieved.flat_map(|id| self.all_targets(id)))
            .collect();
        // Those that waited here, for a consent for example, need not want anything here.
        self.waiting.retain(|id, places| {
            for namespace in &woken {
                if places.remove(namespace) {
                    affected.push(Affected {
                        sync: id.clone(),
                        namespace: Arc::clone(namespace),
                        is_removal: false,
                    });
                }
            }
            !places.is_empty()
        });
        affected
    }

    fn replace_namespace(&mut self, namespace: &Arc<str>, place: Option<Arc<TargetNamespace>>) {
        if let Some(before) = self.namespaces.remove(namespace) {
            for name in before.consent.named() {
                if let Some(targets) = self.named_by.get_mut(name) {
                    targets.remove(namespace);
                    if targets.is_empty() {
                        self.named_by.remove(name);
                    }
                }
            }
        }
        let Some(place) = place else {
            return;
        };
        for name in place.consent.named() {
            let targets = self.named_by.entry(Arc::clone(name)).or_default();
            targets.insert(Arc::clone(namespace));
        }
        self.namespaces.insert(Arc::clone(namespace), place);
    }

    pub(crate) fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    /// Returns what a namespace says about copies from a source namespace.
    pub(crate) fn stance(&self, place: &TargetNamespace, source: &str) -> Stance {
        let configured = &self.config.source_namespace;
        place
            .consent
            .stance(source, configured, |name| self.has_namespace(name))
    }

    /// Returns what is taken for a mistake in a namespace's consent annotations and labels.
    pub(crate) fn consent_errors(&self, place: &TargetNamespace) -> Vec<String> {
        let consents = [
            (&place.consent, &*self.config.annotation),
            (&place.adoption_consent, ADOPT_ANNOTATION),
        ];
        let mistakes = consents
            .into_iter()
            .filter_map(|(consent, name)| consent.mistake(name, |name| self.has_namespace(name)));
        mistakes.collect()
    }

    /// Records that a SecretSync was added, changed or deleted.
    pub(crate) fn set_sync(&mut self, id: &SyncId, object: Option<&SecretSync>) -> SyncChange {
        self.revision += 1;
        let mut moves = SyncChange::default();
        let before = self.target_namespaces(id);
        let old_key = self.watch_key_of(id);
        let old_names = self.names_of(id);
        self.unclaim(id);
        match object {
            None => drop(self.syncs.remove(id)),
            Some(object) => {
                let members = self.syncs.remove(id).map(|sync| sync.members);
                let sync = sync_from_object(object, members.unwrap_or_default());
                self.syncs.insert(id.clone(), sync);
            }
        }
        let new_key = self.watch_key_of(id);
        if let Some(key) = &new_key {
            let known = self.watches.entry(key.clone()).or_insert_with(|| {
                self.opened_watches += 1;
                moves.opened = Some(WatchInstance {
                    key: key.clone(),
                    generation: self.opened_watches,
                });
                SourceWatch {
                    generation: self.opened_watches,
                    budget: Arc::new(ContentBudget::new(self.config.limits.content)),
                    ..SourceWatch::default()
                }
            });
            known.syncs.insert(id.clone());
        }
        if let Some(left) = old_key.filter(|old| Some(old) != new_key.as_ref())
            && let Some(known) = self.watches.get_mut(&left)
        {
            known.syncs.remove(id);
            if known.syncs.is_empty() && !self.is_annotated_watch(&left) {
                self.watches.remove(&left);
                moves.closed = Some(left);
            }
        }
        let after = self.target_namespaces(id);
        if let Some(sync) = self.syncs.get_mut(id) {
            sync.targets = after.len();
        }
        self.reselect_sources(id);
        let mut affected = self.affected_since(&before, id);
        let names: BTreeSet<_> = old_names.union(&self.names_of(id)).cloned().collect();
        affected.extend(self.competitors(id, &names, &before.union(&after).cloned().collect()));
        affected.extend(self.wake_waiting(id));
        moves.affected = affected;
        moves
    }

    /// Records that the initial list of a source watch is complete.
    pub(crate) fn mark_complete(&mut self, instance: &WatchInstance) -> Vec<Affected> {
        self.revision += 1;
        let key = &instance.key;
        let Some(known) = self
            .watches
            .get_mut(key)
            .filter(|known| known.generation == instance.generation)
        else {
            return Vec::new();
        };
        known.is_complete = true;
        let mut users: Vec<_> = known.syncs.iter().cloned().collect();
        if self.is_annotated_watch(key) {
            let here = |id: &&SyncId| matches!(id, SyncId::Annotated { kind, .. } if *kind == key.kind);
            users.extend(self.syncs.keys().filter(here).cloned());
        }
        let mut affected: Vec<_> = users.iter().flat_map(|id| self.all_targets(id)).collect();
        affected.extend(users.iter().flat_map(|id| self.wake_waiting(id)));
        affected
    }

    /// Returns the SecretSyncs that use a source watch.
    pub(crate) fn syncs_using(&self, key: &SourceWatchKey) -> Vec<SyncId> {
        let watch = self.watches.get(key);
        watch
            .map(|watch| watch.syncs.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Records that something besides the index decides differently about a sync, and enqueues what waited for it.
    pub(crate) fn wake(&mut self, id: &SyncId) -> Vec<Affected> {
        self.revision += 1;
        self.wake_waiting(id)
    }

    /// Enqueues the namespaces that waited for a sync.
    fn wake_waiting(&mut self, id: &SyncId) -> Vec<Affected> {
        let places = self.waiting.remove(id).unwrap_or_default();
        let affected = places.into_iter().map(|namespace| Affected {
            sync: id.clone(),
            namespace,
            is_removal: false,
        });
        affected.collect()
    }

    /// Returns the syncs that want a copy of this kind and name.
    pub(crate) fn claimants(&self, kind: SourceKind, name: &str) -> &[SyncId] {
        let key = (kind, Arc::from(name));
        self.claims.get(&key).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns all target namespaces of a sync.
    pub(crate) fn all_targets(&self, id: &SyncId) -> Vec<Affected> {
        self.affected_since(&self.target_namespaces(id), id)
    }

    /// Returns whether a sync copies into a namespace.
    pub(crate) fn wants(&self, sync: &Sync, namespace: &str, place: &TargetNamespace) -> bool {
        place
            .consent
            .allows(&sync.namespace, &self.config.source_namespace)
            && self.selects(sync, namespace, place)
    }

    /// Returns whether a sync copies into a namespace if that consents.
    pub(crate) fn selects(&self, sync: &Sync, namespace: &str, place: &TargetNamespace) -> bool {
        let scope = &self.config;
        let Ok(rules) = &sync.rules else {
            return false;
        };
        !sync.is_deleting
            && *sync.namespace != *namespace
            && !place.is_terminating
            && scope.is_within(namespace)
            && (!is_system(namespace) || scope.allowed_system_namespaces.contains(namespace))
            && rules.selects_namespace(&place.labels)
    }

    /// Returns whether a sync wants a copy of this kind and name in a namespace, or cannot know.
    pub(crate) fn keeps(&self, sync: &Sync, kind: SourceKind, namespace: &str, name: &str) -> bool {
        let Some(place) = self.namespaces.get(namespace) else {
            return false;
        };
        let is_target = [Stance::Allows, Stance::Unclear].contains(&self.stance(place, &sync.namespace))
            && self.selects(sync, namespace, place);
        let member = sync.members.get(name);
        is_target && member.is_some_and(|member| member.source.kind == kind && member.skip_reason.is_none())
    }

    /// Returns the namespaces that a sync copies into.
    fn target_namespaces(&self, id: &SyncId) -> BTreeSet<Arc<str>> {
        let Some(sync) = self.syncs.get(id) else {
            return BTreeSet::new();
        };
        let wanted = self
            .namespaces
            .iter()
            .filter(|(name, place)| self.wants(sync, name, place));
        wanted.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Returns all namespaces that a sync copied into before or copies into now.
    fn affected_since(&self, before: &BTreeSet<Arc<str>>, id: &SyncId) -> Vec<Affected> {
        let after = self.target_namespaces(id);
        let affected = before.union(&after).map(|namespace| Affected {
            sync: id.clone(),
            namespace: Arc::clone(namespace),
            is_removal: !after.contains(namespace),
        });
        affected.collect()
    }

    /// Returns the other syncs that want copies of these names in these namespaces.
    fn competitors(
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
                let place = self.namespaces.get(*namespace);
                place.is_some_and(|place| self.wants(sync, namespace, place))
            });
            affected.extend(places.map(|namespace| Affected {
                sync: other.clone(),
                namespace: Arc::clone(namespace),
                is_removal: false,
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

    fn watch_key_of(&self, id: &SyncId) -> Option<SourceWatchKey> {
        let sync = self.syncs.get(id)?;
        // A sync that is being deleted needs no sources.
        if sync.is_deleting || matches!(id, SyncId::Annotated { .. }) {
            return None;
        }
        sync.rules.as_ref().ok()?.watch_key(&sync.namespace)
    }

    fn is_annotated_watch(&self, key: &SourceWatchKey) -> bool {
        key.namespace == self.config.source_namespace
    }
}

/// Converts a SecretSync, keeping its current members.
fn sync_from_object(object: &SecretSync, members: BTreeMap<Arc<str>, Arc<Member>>) -> Sync {
    let metadata = &object.metadata;
    let text = |text: &Option<String>| -> Arc<str> { text.as_deref().unwrap_or_default().into() };
    let (namespace, name, uid) = (
        text(&metadata.namespace),
        text(&metadata.name),
        text(&metadata.uid),
    );
    let created = metadata.creation_timestamp.as_ref();
    Sync {
        owner: Arc::new(SyncOwner::Sync {
            namespace: Arc::clone(&namespace),
            name,
            uid: Arc::clone(&uid),
        }),
        precedence: (created.map_or(0, |time| time.0.as_second()), uid),
        rules: SyncRules::from_spec(&object.spec).map(Arc::new),
        members,
        sources: 0,
        targets: 0,
        is_deleting: metadata.deletion_timestamp.is_some(),
        has_finalizer: metadata.finalizers.iter().flatten().any(|one| one == FINALIZER),
        reference: windlass::kube::Resource::object_ref(object, &()),
        namespace,
    }
}

/// Returns a reference to a source.
fn source_reference(kind: SourceKind, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.name().to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn annotated_watch_key(scope: &OperatorConfig, kind: SourceKind) -> SourceWatchKey {
    SourceWatchKey {
        kind,
        namespace: Arc::clone(&scope.source_namespace),
    }
}

mod sources;
#[cfg(test)]
mod tests;
