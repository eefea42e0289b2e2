//! Computes the desired copies of a sync in one namespace, from the sync index.

use std::sync::Arc;

use windlass::k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    adoption::Adoption,
    consent::Stance,
    identity::{SyncId, SyncOwner},
    member::Member,
    rules::SyncRules,
    sync_index::{Sync, SyncIndex, TargetNamespace},
};

/// The desired copies of a sync in a namespace.
pub(crate) enum Plan {
    /// Not known yet, or suspended: existing copies stay.
    Wait,
    /// The namespace's consent is taken for a mistake: its copies stay, and are not updated.
    UnclearConsent(Box<ActiveSync>),
    /// The namespace does not exist or is terminating, with everything in it.
    NamespaceGone,
    Sync(Box<DesiredCopies>),
}

/// The desired copies, and their sync.
pub(crate) struct DesiredCopies {
    /// `None` if the sync was deleted.
    pub(crate) sync: Option<ActiveSync>,
    pub(crate) wanted: Vec<WantedCopy>,
}

/// A sync that exists.
pub(crate) struct ActiveSync {
    pub(crate) owner: Arc<SyncOwner>,
    pub(crate) rules: Arc<SyncRules>,
    pub(crate) adoption: Adoption,
    pub(crate) is_deleting: bool,
    /// It exceeds its limits: nothing is written, but unwanted copies are still removed.
    pub(crate) exceeds_limits: bool,
    pub(crate) reference: ObjectReference,
}

/// A desired copy, and the older sync that competes for its name.
pub(crate) struct WantedCopy {
    pub(crate) member: Arc<Member>,
    pub(crate) competitor: Option<Competitor>,
}

pub(crate) struct Competitor {
    pub(crate) sync: SyncId,
    /// It has the same source.
    pub(crate) is_same_source: bool,
}

impl SyncIndex {
    /// Plans the copies of a sync in a namespace.
    pub(crate) fn plan(&self, id: &SyncId, namespace: &str) -> Plan {
        let Some(place) = self
            .namespaces
            .get(namespace)
            .filter(|place| !place.is_terminating)
        else {
            return Plan::NamespaceGone;
        };
        let Some(sync) = self.syncs.get(id) else {
            return Plan::Sync(Box::new(DesiredCopies {
                sync: None,
                wanted: Vec::new(),
            }));
        };
        let Ok(rules) = &sync.rules else {
            // An invalid spec removes nothing. If the SecretSync is being deleted, its copies are removed.
            if !sync.is_deleting {
                return Plan::Wait;
            }
            return Plan::Sync(Box::new(DesiredCopies {
                sync: None,
                wanted: Vec::new(),
            }));
        };
        let waits = !self.is_ready(sync) || !sync.has_finalizer || rules.is_paused;
        if waits && !sync.is_deleting {
            return Plan::Wait;
        }
        let active = || ActiveSync {
            owner: Arc::clone(&sync.owner),
            rules: Arc::clone(rules),
            adoption: Adoption {
                source: Arc::clone(&sync.namespace),
                configured: Arc::clone(&self.config.source_namespace),
                by_namespace: place.adoption_consent.stance(
                    &sync.namespace,
                    &self.config.source_namespace,
                    |name| self.has_namespace(name),
                ),
            },
            is_deleting: sync.is_deleting,
            exceeds_limits: self.limit_error(id, sync).is_some(),
            reference: sync.reference.clone(),
        };
        if self.stance(place, &sync.namespace) == Stance::Unclear && self.selects(sync, namespace, place) {
            return Plan::UnclearConsent(Box::new(active()));
        }
        let wanted = if self.wants(sync, namespace, place) {
            let members = sync
                .members
                .values()
                .filter(|member| member.skip_reason.is_none());
            let wanted_copies = members.map(|member| WantedCopy {
                member: Arc::clone(member),
                competitor: self.competitor(id, sync, member, namespace, place),
            });
            wanted_copies.collect()
        } else {
            Vec::new()
        };
        Plan::Sync(Box::new(DesiredCopies {
            sync: Some(active()),
            wanted,
        }))
    }

    /// Returns the oldest other sync that wants a copy of that name there, if it is older than this one.
    fn competitor(
        &self,
        id: &SyncId,
        sync: &Sync,
        member: &Member,
        namespace: &str,
        place: &TargetNamespace,
    ) -> Option<Competitor> {
        let source = &member.source;
        let others = self.claimants(source.kind, &source.name).iter();
        let older = others.filter(|other| *other != id).filter_map(|other| {
            let found = self.syncs.get(other)?;
            let theirs = found.members.get(&source.name)?;
            let wants = theirs.skip_reason.is_none()
                && self.wants(found, namespace, place)
                && !theirs.source.is_excluded()
                && !theirs.source.chain_contains(namespace);
            (wants && found.precedence < sync.precedence).then_some((&found.precedence, other, theirs))
        });
        let (_, other, theirs) = older.min_by_key(|(age, ..)| *age)?;
        Some(Competitor {
            sync: other.clone(),
            is_same_source: theirs.source.uid == source.uid,
        })
    }

    /// Plans the copies. If nothing is to be done before a change, registers the namespace to be enqueued again then.
    pub(crate) fn plan_or_register(&mut self, id: &SyncId, namespace: &Arc<str>) -> Plan {
        let plan = self.plan(id, namespace);
        if matches!(plan, Plan::Wait | Plan::UnclearConsent(_)) {
            self.register_waiting(id, namespace);
        }
        plan
    }

    /// Registers a namespace to be enqueued again when the sync or the namespace changes.
    pub(crate) fn register_waiting(&mut self, id: &SyncId, namespace: &Arc<str>) {
        let places = self.waiting.entry(id.clone()).or_default();
        places.insert(Arc::clone(namespace));
    }
}
