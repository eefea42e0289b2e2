//! One look at one object: is there an owner left, and what follows from that.

use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Error,
    api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::{Value, json};
use windlass_cache::Uid;

use super::{
    super::{FIELD_MANAGER, kinds::Kind, objects::Objects},
    Collector,
    graph::{FOREGROUND, Fate, Node, ORPHAN},
};

/// What became of it.
pub(super) enum Attempt {
    Done,
    /// It depends on something that no watch has told yet.
    Again,
}

/// How often a write is tried that others get ahead of.
const CONFLICTS: usize = 5;

/// An object's owner references, by what is known of the owners.
#[derive(Default)]
struct Owners {
    /// They exist, and stay.
    solid: Vec<OwnerReference>,
    dangling: Vec<OwnerReference>,
    /// They wait for this object's deletion.
    waiting: Vec<OwnerReference>,
    /// At least one exists that no watch has told of.
    unseen: bool,
}

/// Where an owner reference leads.
enum Owner {
    Absent,
    There(Box<ObjectMeta>),
    /// An object outside namespaces cannot have an owner in one.
    Impossible,
}

impl Collector {
    pub(super) async fn attempt(&self, uid: Uid) -> Result<Attempt, Error> {
        let node = {
            let graph = self.graph();
            let Some(node) = graph.node(uid) else {
                return Ok(Attempt::Done);
            };
            if node.fate == Fate::Goes || (node.fate == Fate::Lives && graph.is_safe(node)) {
                return Ok(Attempt::Done);
            }
            node.clone()
        };
        let Some(live) = self.live(uid, &node).await? else {
            let looks = self.graph().lost(uid);
            self.look(looks);
            return Ok(Attempt::Done);
        };
        match node.fate {
            Fate::Goes => Ok(Attempt::Done),
            Fate::Foreground => self.after_dependents(uid, &node).await,
            Fate::Orphans => self.release_dependents(uid, &node).await,
            Fate::Lives => self.judge(uid, &node, &live).await,
        }
    }

    fn objects(&self, node: &Node) -> Objects {
        node.kind.objects(&self.client, node.key().namespace())
    }

    /// The object as the server has it; `None` if it is gone.
    async fn live(&self, uid: Uid, node: &Node) -> Result<Option<ObjectMeta>, Error> {
        let found = self.objects(node).get(node.key().name()).await?;
        Ok(found.filter(|meta| is_uid(meta, uid)))
    }

    async fn judge(&self, uid: Uid, node: &Node, live: &ObjectMeta) -> Result<Attempt, Error> {
        let references = live.owner_references.as_deref().unwrap_or_default();
        if references.is_empty() || live.deletion_timestamp.is_some() {
            return Ok(Attempt::Done);
        }
        self.report_strangers(node, references);
        let Some(owners) = self.classify(node, references).await? else {
            return Ok(Attempt::Done);
        };
        if !owners.solid.is_empty() {
            let lost: Vec<_> = owners.dangling.iter().chain(&owners.waiting).collect();
            if !lost.is_empty() {
                let uids: Vec<_> = lost.iter().map(|reference| reference.uid.as_str()).collect();
                self.disown(node, &uids).await?;
            }
            return Ok(if owners.unseen {
                Attempt::Again
            } else {
                Attempt::Done
            });
        }
        let dependents: Vec<_> = self.graph().dependents(uid).collect();
        let policy = if !owners.waiting.is_empty() && !dependents.is_empty() {
            if dependents
                .iter()
                .any(|dependent| self.fate(*dependent) == Some(Fate::Foreground))
            {
                // Somebody in a circle has to go first.
                self.unblock(node).await?;
            }
            PropagationPolicy::Foreground
        } else if has(live, ORPHAN) {
            PropagationPolicy::Orphan
        } else if has(live, FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete(node, live, policy).await?;
        Ok(Attempt::Done)
    }

    fn fate(&self, uid: Uid) -> Option<Fate> {
        self.graph().node(uid).map(|node| node.fate)
    }

    /// `None` if the references cannot be right, whatever happens.
    async fn classify(&self, node: &Node, references: &[OwnerReference]) -> Result<Option<Owners>, Error> {
        let mut owners = Owners::default();
        for reference in references {
            let uid = Uid::from(&*reference.uid);
            match self.owner(node, reference).await? {
                Owner::Impossible => return Ok(None),
                Owner::Absent => owners.dangling.push(reference.clone()),
                Owner::There(meta) if meta.deletion_timestamp.is_some() && has(&meta, FOREGROUND) => {
                    owners.waiting.push(reference.clone());
                }
                Owner::There(_) => {
                    owners.unseen |= self.graph().node(uid).is_none();
                    owners.solid.push(reference.clone());
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
            // It may be served later.
            return Err(unknown(reference));
        };
        if kind.namespaced && namespace.is_none() {
            return Ok(Owner::Impossible);
        }
        let found = kind.objects(&self.client, namespace).get(&reference.name).await?;
        Ok(match found {
            Some(meta) if is_uid(&meta, Uid::from(&*reference.uid)) => Owner::There(Box::new(meta)),
            _ => Owner::Absent,
        })
    }

    /// Tells people of owners that live in another namespace.
    fn report_strangers(&self, node: &Node, references: &[OwnerReference]) {
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

    /// The owner's finalizer goes when no dependent blocks it any more.
    async fn after_dependents(&self, uid: Uid, node: &Node) -> Result<Attempt, Error> {
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
                .map(|(dependent, node)| (dependent, node.fate))
                .collect()
        };
        if blocking.is_empty() {
            self.remove_finalizer(uid, node, FOREGROUND).await?;
            return Ok(Attempt::Done);
        }
        for (dependent, fate) in blocking {
            if fate == Fate::Lives {
                self.queue.add(dependent);
            }
        }
        Ok(Attempt::Done)
    }

    /// The owner's finalizer goes when no dependent names it any more.
    async fn release_dependents(&self, uid: Uid, node: &Node) -> Result<Attempt, Error> {
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
            match self.disown(&dependent, &[&owner]).await {
                Err(Error::Api(status)) if status.is_not_found() => {}
                other => other?,
            }
        }
        self.remove_finalizer(uid, node, ORPHAN).await?;
        Ok(Attempt::Done)
    }

    /// Takes owner references out of an object.
    async fn disown(&self, node: &Node, owners: &[&str]) -> Result<(), Error> {
        let uid = uid_of(node);
        let removals: Vec<_> = owners
            .iter()
            .map(|uid| json!({"$patch": "delete", "uid": uid}))
            .collect();
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": removals}});
        self.rewrite(node, patch, |references| {
            references.retain(|reference| !owners.contains(&reference.uid.as_str()));
        })
        .await
    }

    /// Makes the object's references block nobody.
    async fn unblock(&self, node: &Node) -> Result<(), Error> {
        let unblock = |reference: &mut OwnerReference| reference.block_owner_deletion = Some(false);
        let mut blocking = node.owners();
        blocking.retain(|reference| reference.block_owner_deletion == Some(true));
        blocking.iter_mut().for_each(unblock);
        let patch = json!({"metadata": {"uid": uid_of(node), "ownerReferences": blocking}});
        self.rewrite(node, patch, |references| references.iter_mut().for_each(unblock))
            .await
    }

    /// Changes owner references by a strategic patch, which only built-in kinds take, or by replacing all of them.
    async fn rewrite(
        &self,
        node: &Node,
        strategic: Value,
        change: impl Fn(&mut Vec<OwnerReference>),
    ) -> Result<(), Error> {
        let (objects, name) = (self.objects(node), node.key().name());
        match objects.patch(name, &params(), &Patch::Strategic(strategic)).await {
            Err(Error::Api(status)) if status.code == 415 => {}
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
            let Some(live) = self.live(uid, node).await?.filter(|live| has(live, finalizer)) else {
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
                Err(Error::Api(status)) if status.is_conflict() && tries < CONFLICTS => {}
                Err(Error::Api(status)) if status.is_not_found() => return Ok(()),
                other => return other,
            }
        }
    }

    /// Deletes the object if its owners are still those that were judged.
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
                // What changed does not matter here, and must not hold the deletion up for ever.
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

fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|one| one == finalizer)
}

fn unknown(reference: &OwnerReference) -> Error {
    let text = format!(
        "no kind {} of {} is served, which owner {} should be of",
        reference.kind, reference.api_version, reference.name
    );
    Error::Service(text.into())
}
