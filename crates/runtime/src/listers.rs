//! The listers that a controller declared, by type and kind.

use std::any::{Any, type_name};

use windlass_cache::{Cacheable, GroupVersionKind, Lister};

use crate::{
    children::{ChildOptions, OwnedKind},
    error::Error,
};

pub(crate) struct Listers {
    pub(crate) controller: String,
    /// In the order of their declaration. They are few, and found at every reconcile: comparing allocates nothing.
    declared: Vec<DeclaredLister>,
    /// The kinds that the controller owns.
    pub(crate) owned_kinds: Vec<Box<dyn OwnedKind>>,
    pub(crate) child_options: ChildOptions,
}

struct DeclaredLister {
    /// One type (`DynamicObject`) may have several kinds.
    kind: GroupVersionKind,
    /// A `Lister<K>`.
    lister: Box<dyn Any + Send + Sync>,
}

impl Listers {
    pub(crate) fn new(controller: String, child_options: ChildOptions) -> Self {
        Self {
            controller,
            child_options,
            declared: Vec::new(),
            owned_kinds: Vec::new(),
        }
    }

    /// Adds a lister. If a kind is watched more than once, the first watch is read.
    pub(crate) fn insert<K: Cacheable>(&mut self, dynamic: &K::DynamicType, lister: Lister<K>) {
        self.declared.push(DeclaredLister {
            kind: GroupVersionKind::of::<K>(dynamic),
            lister: Box::new(lister),
        });
    }

    pub(crate) fn add_owned_kind(&mut self, owned_kind: impl OwnedKind) {
        self.owned_kinds.push(Box::new(owned_kind));
    }

    pub(crate) fn get<K: Cacheable>(&self, dynamic: &K::DynamicType) -> Result<&Lister<K>, Error> {
        let (api_version, kind) = (K::api_version(dynamic), K::kind(dynamic));
        let lister = self.declared.iter().find_map(|declared| {
            let lister = declared.lister.downcast_ref::<Lister<K>>()?;
            (declared.kind.kind == kind && declared.kind.api_version == api_version).then_some(lister)
        });
        lister.ok_or_else(|| {
            let (controller, named) = (&self.controller, kind);
            let ty = type_name::<K>().rsplit("::").next().unwrap_or_default();
            let fix = if ty == named {
                format!("`.reads::<{ty}>()`")
            } else {
                format!("a `Watch` of it, read as {ty},")
            };
            Error::terminal(format!(
                "controller `{controller}` does not cache {named}: add {fix} to it"
            ))
        })
    }
}
