//! Tracks objects without a controller, and maps child changes to the owners to reconcile.
//!
//! ```text
//!   child change ──► Orphans::owners_to_reconcile ──► its controller, or the owners whose selector matches
//!                         └─ records it while it has no controller ──► Orphans::candidates
//! ```
//!
//! Nearly every pod has a controller. Tracking the few without one saves adopting owners from scanning all pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use windlass_api::labels::Selector;
use windlass_cache::{Cacheable, Index, Indexer, Lister, ObjectKey, Query};
use windlass_runtime::{Context, Error};

use super::{claim::controller_of, namespace, uid};

/// A kind that selects what it controls.
pub(super) trait Owner: Cacheable + Resource<DynamicType = ()> {
    /// Returns the selector of its children.
    fn selector(&self) -> Option<&LabelSelector>;
}

/// The `K`s without a controller, which an `O` may adopt. Clones share it.
pub(super) struct Orphans<O: Cacheable, K: Cacheable>(Arc<Shared<O, K>>);

struct Shared<O: Cacheable, K: Cacheable> {
    /// Set by the first reconcile. Before that, every owner is queued anyway.
    listers: OnceLock<Listers<O, K>>,
    /// Names of the objects without a controller, by namespace, as of their last change.
    names: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

struct Listers<O: Cacheable, K: Cacheable> {
    owners: Lister<O>,
    children: Lister<K>,
    by_owner: Index<K>,
}

impl<O: Owner, K: Cacheable + Resource<DynamicType = ()>> Orphans<O, K> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            listers: OnceLock::new(),
            names: Mutex::default(),
        }))
    }

    /// Returns the owners to reconcile after a change of this child, and tracks it if it has no controller.
    pub(super) fn owners_to_reconcile(&self, child: &K) -> Vec<ObjectKey> {
        let place = namespace(child);
        if let Some(controller) = controller_of(child) {
            self.untrack(child);
            let ours = controller.kind == O::kind(&()) && controller.api_version == O::api_version(&());
            return Vec::from_iter(ours.then(|| ObjectKey::namespaced(place, controller.name.as_str())));
        }
        let known = self.0.listers.get();
        let is_there = known.is_none_or(|known| known.children.get_cached(&ObjectKey::of(child)).is_some());
        if child.meta().deletion_timestamp.is_some() || !is_there {
            self.untrack(child);
            return Vec::new();
        }
        self.track(child);
        let owners = known.map(|known| known.owners.list(&Query::all().namespace(place)));
        let suitors = owners.iter().flatten().filter(|owner| selects(&***owner, child));
        suitors.map(|owner| ObjectKey::of(&**owner)).collect()
    }

    /// Returns the children of this owner, and the objects in its namespace without a controller.
    pub(super) fn candidates(&self, ctx: &Context, owner: &O) -> Result<Vec<Arc<K>>, Error> {
        let known = self.listers(ctx)?;
        let mut found = self.controlled_by(ctx, uid(owner))?;
        let names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        let orphans = names.get(namespace(owner)).into_iter().flatten();
        let keys = orphans.map(|name| ObjectKey::namespaced(namespace(owner), name.as_str()));
        let orphans = keys.filter_map(|key| known.children.get(&key));
        // An object that was just adopted may still be tracked.
        found.extend(orphans.filter(|orphan| controller_of(&**orphan).is_none()));
        Ok(found)
    }

    /// Returns the children that the object with this UID controls.
    pub(super) fn controlled_by(&self, ctx: &Context, uid: &str) -> Result<Vec<Arc<K>>, Error> {
        let known = self.listers(ctx)?;
        let mut found = known.children.by_index(&known.by_owner, uid);
        // An owner need not be the controller.
        found.retain(|child| controller_of(&**child).is_some_and(|controller| controller.uid == uid));
        Ok(found)
    }

    fn listers(&self, ctx: &Context) -> Result<&Listers<O, K>, Error> {
        let (owners, children) = (ctx.lister::<O>()?, ctx.lister::<K>()?);
        Ok(self.0.listers.get_or_init(|| Listers {
            owners: owners.clone(),
            children: children.clone(),
            by_owner: children.cache().index(Indexer::owner()),
        }))
    }

    fn track(&self, child: &K) {
        let mut names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        let place = names.entry(namespace(child).to_owned()).or_default();
        place.insert(super::name(child).to_owned());
    }

    fn untrack(&self, child: &K) {
        let mut names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = names.get_mut(namespace(child)) {
            place.remove(super::name(child));
            if place.is_empty() {
                names.remove(namespace(child));
            }
        }
    }
}

impl<O: Cacheable, K: Cacheable> Clone for Orphans<O, K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

fn selects<O: Owner>(owner: &O, child: &impl Resource) -> bool {
    let selector = owner.selector().map(Selector::try_from);
    let labels = child.meta().labels.as_ref();
    match (selector, labels) {
        (Some(Ok(selector)), Some(labels)) => !selector.is_empty() && selector.matches_map(labels),
        _ => false,
    }
}
