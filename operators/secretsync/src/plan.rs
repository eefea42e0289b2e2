//! What a sync wants in one namespace: read from the roster, for one piece of work.

use std::sync::Arc;

use windlass::k8s_openapi::api::core::v1::ObjectReference;

use crate::{
    adoption::Adoption,
    identity::{Mark, SyncId},
    member::Member,
    roster::{Place, Roster, Sync},
    rules::Rules,
};

/// What a sync wants in a namespace.
pub(crate) enum Plan {
    /// It cannot be told yet, or should not be acted on: whatever is there stays.
    Wait,
    /// There is no such namespace, or it is on its way out, and everything in it too.
    NoPlace,
    Go(Box<Order>),
}

/// What should be there.
pub(crate) struct Order {
    /// Of the sync; `None` if it is gone.
    pub(crate) live: Option<Live>,
    pub(crate) wanted: Vec<Wish>,
}

/// A sync that is there.
pub(crate) struct Live {
    pub(crate) mark: Arc<Mark>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) adoption: Adoption,
    pub(crate) is_deleting: bool,
    /// It asks for more than it may: nothing is written, and what is not wanted any more is taken away all the same.
    pub(crate) is_over: bool,
    pub(crate) reference: ObjectReference,
}

/// A source, and who else wants a copy of that name in the same place and is older.
pub(crate) struct Wish {
    pub(crate) member: Arc<Member>,
    pub(crate) rival: Option<Rival>,
}

pub(crate) struct Rival {
    pub(crate) sync: SyncId,
    /// It has the same source.
    pub(crate) is_same_source: bool,
}

impl Roster {
    /// What a sync wants in a namespace, and whether that is known.
    pub(crate) fn plan(&self, id: &SyncId, namespace: &str) -> Plan {
        let Some(place) = self.places.get(namespace).filter(|place| !place.is_terminating) else {
            return Plan::NoPlace;
        };
        let Some(sync) = self.syncs.get(id) else {
            return Plan::Go(Box::new(Order {
                live: None,
                wanted: Vec::new(),
            }));
        };
        let Ok(rules) = &sync.rules else {
            // What it means is not known, so nothing is taken away. One that goes takes what it has along.
            if !sync.is_deleting {
                return Plan::Wait;
            }
            return Plan::Go(Box::new(Order {
                live: None,
                wanted: Vec::new(),
            }));
        };
        let waits = !self.is_ready(sync) || !sync.has_finalizer || rules.is_paused;
        if waits && !sync.is_deleting {
            return Plan::Wait;
        }
        let wanted = if self.wants(sync, namespace, place) {
            let members = sync.members.values().filter(|member| member.refusal.is_none());
            let wishes = members.map(|member| Wish {
                member: Arc::clone(member),
                rival: self.rival(id, sync, member, namespace, place),
            });
            wishes.collect()
        } else {
            Vec::new()
        };
        Plan::Go(Box::new(Order {
            live: Some(Live {
                mark: Arc::clone(&sync.mark),
                rules: Arc::clone(rules),
                adoption: Adoption {
                    source: Arc::clone(&sync.namespace),
                    configured: Arc::clone(&self.scope.source_namespace),
                    by_namespace: place.adopt.allows(&sync.namespace, &self.scope.source_namespace),
                },
                is_deleting: sync.is_deleting,
                is_over: self.excess(id, sync).is_some(),
                reference: sync.reference.clone(),
            }),
            wanted,
        }))
    }

    /// Who else wants a copy of that name there, and is older.
    fn rival(
        &self,
        id: &SyncId,
        sync: &Sync,
        member: &Member,
        namespace: &str,
        place: &Place,
    ) -> Option<Rival> {
        let source = &member.source;
        let others = self.claimants(source.kind, &source.name).iter();
        let older = others.filter(|other| *other != id).filter_map(|other| {
            let found = self.syncs.get(other)?;
            let theirs = found.members.get(&source.name)?;
            let wants = theirs.refusal.is_none()
                && self.wants(found, namespace, place)
                && !theirs.source.is_excluded()
                && !theirs.source.has_come_through(namespace);
            (wants && found.age < sync.age).then_some((&found.age, other, theirs))
        });
        let (_, other, theirs) = older.min_by_key(|(age, ..)| *age)?;
        Some(Rival {
            sync: other.clone(),
            is_same_source: theirs.source.uid == source.uid,
        })
    }

    /// What a sync wants in a namespace. If that cannot be told now, whoever asks is told to ask again later.
    pub(crate) fn plan_or_wait(&mut self, id: &SyncId, namespace: &Arc<str>) -> Plan {
        let plan = self.plan(id, namespace);
        if matches!(plan, Plan::Wait) {
            let places = self.waiting.entry(id.clone()).or_default();
            places.insert(Arc::clone(namespace));
        }
        plan
    }
}
