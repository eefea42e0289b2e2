//! Objects that nobody controls, and who might want them.
//!
//! ```text
//!   change of a child ──► Strays::concerns ──► its controller, or those whose selector it matches
//!                              └─ notes it while nobody controls it ──► Strays::of (namespace)
//! ```
//!
//! Nearly every pod has a controller. The few that have none are noted here, so that whoever adopts need not look at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Resource,
    core::{Selector, SelectorExt},
};
use windlass_cache::{Cacheable, Index, IndexBy, Lister, ObjectKey, Query};
use windlass_runtime::{Context, Error};

use super::{claim::controller_of, namespace, uid};

/// A kind that selects what it controls.
pub(super) trait Owner: Cacheable + Resource<DynamicType = ()> {
    /// Which labels its children have.
    fn selector(&self) -> Option<&LabelSelector>;
}

/// What an `O` may adopt: the `K`s that nobody controls. Clones share it.
pub(super) struct Strays<O: Cacheable, K: Cacheable>(Arc<Shared<O, K>>);

struct Shared<O: Cacheable, K: Cacheable> {
    /// Set by the first pass. Before it, every owner is still to be looked at, and nobody needs waking.
    known: OnceLock<Known<O, K>>,
    /// Names by namespace: each is of an object that had no controller when its last change was seen.
    names: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

struct Known<O: Cacheable, K: Cacheable> {
    owners: Lister<O>,
    children: Lister<K>,
    by_owner: Index<K>,
}

impl<O: Owner, K: Cacheable + Resource<DynamicType = ()>> Strays<O, K> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            known: OnceLock::new(),
            names: Mutex::default(),
        }))
    }

    /// Whom a change of this child concerns. Notes it if it is a stray.
    pub(super) fn concerns(&self, child: &K) -> Vec<ObjectKey> {
        let place = namespace(child);
        if let Some(controller) = controller_of(child) {
            self.forget(child);
            let ours = controller.kind == O::kind(&()) && controller.api_version == O::api_version(&());
            return Vec::from_iter(ours.then(|| ObjectKey::namespaced(place, controller.name.as_str())));
        }
        let known = self.0.known.get();
        let is_there = known.is_none_or(|known| known.children.stored(&ObjectKey::of(child)).is_some());
        if child.meta().deletion_timestamp.is_some() || !is_there {
            self.forget(child);
            return Vec::new();
        }
        self.note(child);
        let owners = known.map(|known| known.owners.list(&Query::all().namespace(place)));
        let suitors = owners.iter().flatten().filter(|owner| suits(&***owner, child));
        suitors.map(|owner| ObjectKey::of(&**owner)).collect()
    }

    /// The children of this owner, and those in its namespace that it may adopt.
    pub(super) fn candidates(&self, ctx: &Context, owner: &O) -> Result<Vec<Arc<K>>, Error> {
        let known = self.known(ctx)?;
        let mut found = self.of(ctx, uid(owner))?;
        let names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        let strays = names.get(namespace(owner)).into_iter().flatten();
        let keys = strays.map(|name| ObjectKey::namespaced(namespace(owner), name.as_str()));
        let strays = keys.filter_map(|key| known.children.get(&key));
        // One that was adopted a moment ago is still noted.
        found.extend(strays.filter(|stray| controller_of(&**stray).is_none()));
        Ok(found)
    }

    /// What the object with this uid controls.
    pub(super) fn of(&self, ctx: &Context, uid: &str) -> Result<Vec<Arc<K>>, Error> {
        let known = self.known(ctx)?;
        let mut found = known.children.by_index(&known.by_owner, uid);
        // An owner need not be the controller.
        found.retain(|child| controller_of(&**child).is_some_and(|controller| controller.uid == uid));
        Ok(found)
    }

    fn known(&self, ctx: &Context) -> Result<&Known<O, K>, Error> {
        let (owners, children) = (ctx.lister::<O>()?, ctx.lister::<K>()?);
        Ok(self.0.known.get_or_init(|| Known {
            owners: owners.clone(),
            children: children.clone(),
            by_owner: children.cache().index(IndexBy::owner()),
        }))
    }

    fn note(&self, child: &K) {
        let mut names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        let place = names.entry(namespace(child).to_owned()).or_default();
        place.insert(super::name(child).to_owned());
    }

    fn forget(&self, child: &K) {
        let mut names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = names.get_mut(namespace(child)) {
            place.remove(super::name(child));
            if place.is_empty() {
                names.remove(namespace(child));
            }
        }
    }
}

impl<O: Cacheable, K: Cacheable> Clone for Strays<O, K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

fn suits<O: Owner>(owner: &O, child: &impl Resource) -> bool {
    let selector = owner.selector().cloned().map(Selector::try_from);
    let labels = child.meta().labels.as_ref();
    match (selector, labels) {
        (Some(Ok(selector)), Some(labels)) => !selector.selects_all() && selector.matches(labels),
        _ => false,
    }
}
