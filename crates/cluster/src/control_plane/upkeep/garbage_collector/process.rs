//! Processes one object: checks its owners on the server, and deletes or updates it accordingly.

use std::collections::HashSet;

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Error,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::{Value, json};
use windlass_api::status::StatusClass;
use windlass_cache::Uid;

use super::{
    super::{FIELD_MANAGER, kinds::Kind, objects::MetadataApi},
    Collector,
    graph::{DeletionState, FOREGROUND, Node, ORPHAN},
};

/// The outcome of processing an object.
pub(super) enum Outcome {
    Done,
    /// An owner exists that no watch has delivered yet: retry.
    Retry,
}

/// How often a write is retried after conflicts.
const MAX_CONFLICTS: usize = 5;

/// An object's owner references, by the state of the owners.
#[derive(Default)]
struct Owners {
    /// The owner exists.
    existing: Vec<OwnerReference>,
    /// The owner does not exist.
    dangling: Vec<OwnerReference>,
    /// The owner is in foreground deletion and waits for this object.
    waiting: Vec<OwnerReference>,
    /// At least one owner exists that no watch has delivered.
    any_unobserved: bool,
}

/// The result of looking up an owner reference.
enum Owner {
    Absent,
    Found(Box<ObjectMeta>),
    /// A cluster-scoped object cannot have a namespaced owner.
    Invalid,
}

impl Collector {
    pub(super) async fn process(&self, uid: Uid) -> Result<Outcome, Error> {
        let node = {
            let graph = self.graph();
            let Some(node) = graph.node(uid) else {
                return Ok(Outcome::Done);
            };
            if node.deletion == DeletionState::Deleting
                || (node.deletion == DeletionState::Alive && graph.has_all_owners(node))
            {
                return Ok(Outcome::Done);
            }
            node.clone()
        };
        let Some(live) = self.live(uid, &node).await? else {
            let requests = self.graph().remove_not_found(uid);
            self.enqueue(requests);
            return Ok(Outcome::Done);
        };
        match node.deletion {
            DeletionState::Deleting => Ok(Outcome::Done),
            DeletionState::Foreground => self.finish_foreground(uid, &node).await,
            DeletionState::Orphaning => self.orphan_dependents(uid, &node).await,
            DeletionState::Alive => self.process_owners(uid, &node, &live).await,
        }
    }

    fn objects(&self, node: &Node) -> MetadataApi {
        node.kind.objects(&self.client, node.key().namespace())
    }

    /// Returns the object's current metadata from the server, or `None` if it no longer exists.
    async fn live(&self, uid: Uid, node: &Node) -> Result<Option<ObjectMeta>, Error> {
        let found = self.objects(node).get(node.key().name()).await?;
        Ok(found.filter(|meta| is_uid(meta, uid)))
    }

    async fn process_owners(&self, uid: Uid, node: &Node, live: &ObjectMeta) -> Result<Outcome, Error> {
        let references = live.owner_references.as_deref().unwrap_or_default();
        if references.is_empty() || live.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        self.report_foreign_owners(node, references);
        let Some(owners) = self.classify(node, references).await? else {
            return Ok(Outcome::Done);
        };
        if !owners.existing.is_empty() {
            let lost: Vec<_> = owners.dangling.iter().chain(&owners.waiting).collect();
            if !lost.is_empty() {
                let uids: Vec<_> = lost.iter().map(|reference| reference.uid.as_str()).collect();
                self.remove_owners(node, &uids).await?;
            }
            return Ok(if owners.any_unobserved {
                Outcome::Retry
            } else {
                Outcome::Done
            });
        }
        let dependents: Vec<_> = self.graph().dependents(uid).collect();
        let policy = if !owners.waiting.is_empty() && !dependents.is_empty() {
            if dependents
                .iter()
                .any(|dependent| self.deletion_state(*dependent) == Some(DeletionState::Foreground))
            {
                // Break a cycle of owners that wait for each other.
                self.unblock(node).await?;
            }
            PropagationPolicy::Foreground
        } else if has_finalizer(live, ORPHAN) {
            PropagationPolicy::Orphan
        } else if has_finalizer(live, FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete(node, live, policy).await?;
        Ok(Outcome::Done)
    }

    fn deletion_state(&self, uid: Uid) -> Option<DeletionState> {
        self.graph().node(uid).map(|node| node.deletion)
    }

    /// Looks up all owners. `None` if a reference is invalid.
    async fn classify(&self, node: &Node, references: &[OwnerReference]) -> Result<Option<Owners>, Error> {
        let mut owners = Owners::default();
        for reference in references {
            let uid = Uid::from(&*reference.uid);
            match self.owner(node, reference).await? {
                Owner::Invalid => return Ok(None),
                Owner::Absent => owners.dangling.push(reference.clone()),
                Owner::Found(meta)
                    if meta.deletion_timestamp.is_some() && has_finalizer(&meta, FOREGROUND) =>
                {
                    owners.waiting.push(reference.clone());
                }
                Owner::Found(_) => {
                    owners.any_unobserved |= self.graph().node(uid).is_none();
                    owners.existing.push(reference.clone());
                }
            }
        }
        Ok(Some(owners))
    }

    async fn owner(&self, node: &Node, reference: &OwnerReference) -> Result<Owner, Error> {
        let namespace = node.key().namespace();
        if self.graph().is_absent(reference, namespace) {
            return Ok(Owner::Absent);
        }
        let served = self.served();
        let Some(kind) = served.find(&reference.api_version, &reference.kind) else {
            // The kind may be served later.
            return Err(unknown_kind(reference));
        };
        if kind.namespaced && namespace.is_none() {
            return Ok(Owner::Invalid);
        }
        let found = kind.objects(&self.client, namespace).get(&reference.name).await?;
        Ok(match found {
            Some(meta) if is_uid(&meta, Uid::from(&*reference.uid)) => Owner::Found(Box::new(meta)),
            _ => Owner::Absent,
        })
    }

    /// Records events about owners in another namespace.
    fn report_foreign_owners(&self, node: &Node, references: &[OwnerReference]) {
        let graph = self.graph();
        let from = node.key().namespace();
        for reference in references {
            let owner = graph.node(Uid::from(&*reference.uid));
            let Some(place) = owner.and_then(|owner| owner.key().namespace()) else {
                continue;
            };
            if Some(place) != from {
                let OwnerReference {
                    api_version,
                    kind,
                    name,
                    uid,
                    ..
                } = reference;
                let from = from.unwrap_or_default();
                let text = format!(
                    "ownerRef [{api_version}/{kind}, namespace: {from}, name: {name}, uid: {uid}] does not exist in namespace {from:?}"
                );
                self.recorder
                    .warning(&regarding(node), "OwnerRefInvalidNamespace", text);
            }
        }
    }

    /// Foreground deletion: removes the owner's finalizer when no dependent blocks it; otherwise enqueues those that do.
    async fn finish_foreground(&self, uid: Uid, node: &Node) -> Result<Outcome, Error> {
        let blocking: Vec<_> = {
            let graph = self.graph();
            let blocks = |dependent: &Node| {
                dependent
                    .owners()
                    .iter()
                    .any(|owner| owner.block_owner_deletion == Some(true) && Uid::from(&*owner.uid) == uid)
            };
            graph
                .dependents(uid)
                .filter_map(|dependent| Some((dependent, graph.node(dependent)?)))
                .filter(|(_, dependent)| blocks(dependent))
                .map(|(dependent, node)| (dependent, node.deletion))
                .collect()
        };
        if blocking.is_empty() {
            self.remove_finalizer(uid, node, FOREGROUND).await?;
            return Ok(Outcome::Done);
        }
        for (dependent, deletion) in blocking {
            if deletion == DeletionState::Alive {
                self.queue.add(dependent);
            }
        }
        Ok(Outcome::Done)
    }

    /// Orphaning deletion: removes the owner references of all dependents, then the owner's finalizer.
    async fn orphan_dependents(&self, uid: Uid, node: &Node) -> Result<Outcome, Error> {
        let dependents: Vec<_> = {
            let graph = self.graph();
            let dependents = graph
                .dependents(uid)
                .filter_map(|dependent| graph.node(dependent));
            dependents.cloned().collect()
        };
        let meta = node.stored.object().ok();
        let owner = meta
            .and_then(|meta| meta.metadata.uid.clone())
            .unwrap_or_default();
        for dependent in dependents {
            match self.remove_owners(&dependent, &[&owner]).await {
                Err(Error::Api(status)) if status.is_not_found() => {}
                other => other?,
            }
        }
        self.remove_finalizer(uid, node, ORPHAN).await?;
        Ok(Outcome::Done)
    }

    /// Removes owner references from an object.
    async fn remove_owners(&self, node: &Node, owners: &[&str]) -> Result<(), Error> {
        let uid = uid_of(node);
        let removals: Vec<_> = owners
            .iter()
            .map(|uid| json!({"$patch": "delete", "uid": uid}))
            .collect();
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": removals}});
        let owners: HashSet<_> = owners.iter().copied().collect();
        self.patch_owners(node, patch, |references| {
            references.retain(|reference| !owners.contains(&reference.uid.as_str()));
        })
        .await
    }

    /// Sets `blockOwnerDeletion` of the object's references to false.
    async fn unblock(&self, node: &Node) -> Result<(), Error> {
        let unblock = |reference: &mut OwnerReference| reference.block_owner_deletion = Some(false);
        let mut blocking = node.owners();
        blocking.retain(|reference| reference.block_owner_deletion == Some(true));
        blocking.iter_mut().for_each(unblock);
        let patch = json!({"metadata": {"uid": uid_of(node), "ownerReferences": blocking}});
        self.patch_owners(node, patch, |references| references.iter_mut().for_each(unblock))
            .await
    }

    /// Changes owner references with a strategic merge patch, or for custom resources, which do not support it, with a
    /// merge patch that replaces all of them.
    async fn patch_owners(
        &self,
        node: &Node,
        strategic: Value,
        change: impl Fn(&mut Vec<OwnerReference>),
    ) -> Result<(), Error> {
        let (objects, name) = (self.objects(node), node.key().name());
        match objects.patch(name, &params(), &Patch::Strategic(strategic)).await {
            Err(error) if StatusClass::of_error(&error) == Some(StatusClass::Unsupported) => {}
            other => return other,
        }
        let Some(metadata) = objects.get(name).await? else {
            return Ok(());
        };
        let mut references = metadata.owner_references.unwrap_or_default();
        change(&mut references);
        let references = (!references.is_empty()).then_some(references);
        let patch = json!({"metadata": {
            "uid": uid_of(node),
            "resourceVersion": metadata.resource_version,
            "ownerReferences": references,
        }});
        objects.patch(name, &params(), &Patch::Merge(patch)).await
    }

    async fn remove_finalizer(&self, uid: Uid, node: &Node, finalizer: &str) -> Result<(), Error> {
        let (objects, name) = (self.objects(node), node.key().name());
        let mut tries = 0;
        loop {
            let Some(live) = self
                .live(uid, node)
                .await?
                .filter(|live| has_finalizer(live, finalizer))
            else {
                return Ok(());
            };
            let kept = live.finalizers.iter().flatten().filter(|one| *one != finalizer);
            let kept: Vec<_> = kept.collect();
            let patch = json!({"metadata": {
                "resourceVersion": live.resource_version,
                "finalizers": (!kept.is_empty()).then_some(kept),
            }});
            tries += 1;
            match objects.patch(name, &params(), &Patch::Merge(patch)).await {
                Err(Error::Api(status)) if status.is_conflict() && tries < MAX_CONFLICTS => {}
                Err(Error::Api(status)) if status.is_not_found() => return Ok(()),
                other => return other,
            }
        }
    }

    /// Deletes the object, if its owner references have not changed since `live` was read.
    async fn delete(&self, node: &Node, live: &ObjectMeta, policy: PropagationPolicy) -> Result<(), Error> {
        let (objects, name) = (self.objects(node), node.key().name());
        let mut options = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: live.uid.clone(),
                resource_version: live.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        let conflict = match objects.delete(name, &options).await {
            Err(Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(Error::Api(status)) if status.is_conflict() => status,
            other => return other,
        };
        match objects.get(name).await? {
            None => Ok(()),
            Some(now) if now.uid != live.uid => Ok(()),
            Some(now) if now.owner_references == live.owner_references => {
                // Other changes do not matter, and must not block the deletion forever.
                if let Some(preconditions) = &mut options.preconditions {
                    preconditions.resource_version = None;
                }
                match objects.delete(name, &options).await {
                    Err(Error::Api(status)) if status.is_not_found() => Ok(()),
                    other => other,
                }
            }
            Some(_) => Err(Error::Api(conflict)),
        }
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn regarding(node: &Node) -> ObjectReference {
    let Kind { resource, .. } = &*node.kind;
    ObjectReference {
        api_version: Some(resource.api_version.clone()),
        kind: Some(resource.kind.clone()),
        name: Some(node.key().name().to_owned()),
        namespace: node.key().namespace().map(str::to_owned),
        uid: Some(uid_of(node)),
        ..ObjectReference::default()
    }
}

fn uid_of(node: &Node) -> String {
    let object = node.stored.object().ok();
    object
        .and_then(|object| object.metadata.uid.clone())
        .unwrap_or_default()
}

fn is_uid(meta: &ObjectMeta, uid: Uid) -> bool {
    meta.uid.as_deref().map(Uid::from) == Some(uid)
}

fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|one| one == finalizer)
}

fn unknown_kind(reference: &OwnerReference) -> Error {
    let text = format!(
        "kind {} of {} is not served: cannot check owner {}",
        reference.kind, reference.api_version, reference.name
    );
    Error::Service(text.into())
}
