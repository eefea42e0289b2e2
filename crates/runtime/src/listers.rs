//! The listers that a controller declared, by type and kind.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
};

use windlass_cache::{Cacheable, GroupVersionKind, Lister};

use crate::{
    children::{ChildOptions, OwnedKind},
    error::Error,
};

pub(crate) struct Listers {
    pub(crate) controller: String,
    /// Keyed by kind too, because one type (`DynamicObject`) may have several.
    by_type: HashMap<(TypeId, GroupVersionKind), Box<dyn Any + Send + Sync>>,
    /// The kinds that the controller owns.
    pub(crate) owned_kinds: Vec<Box<dyn OwnedKind>>,
    pub(crate) child_options: ChildOptions,
}

impl Listers {
    pub(crate) fn new(controller: String, child_options: ChildOptions) -> Self {
        Self {
            controller,
            child_options,
            by_type: HashMap::new(),
            owned_kinds: Vec::new(),
        }
    }

    /// Adds a lister. If a kind is watched more than once, the first watch is read.
    pub(crate) fn insert<K: Cacheable>(&mut self, dynamic: &K::DynamicType, lister: Lister<K>) {
        let kind = GroupVersionKind::of::<K>(dynamic);
        self.by_type
            .entry((TypeId::of::<K>(), kind))
            .or_insert_with(|| Box::new(lister));
    }

    pub(crate) fn add_owned_kind(&mut self, owned_kind: impl OwnedKind) {
        self.owned_kinds.push(Box::new(owned_kind));
    }

    pub(crate) fn get<K: Cacheable>(&self, dynamic: &K::DynamicType) -> Result<&Lister<K>, Error> {
        let kind = GroupVersionKind::of::<K>(dynamic);
        let lister = self
            .by_type
            .get(&(TypeId::of::<K>(), kind.clone()))
            .and_then(|any| any.downcast_ref::<Lister<K>>());
        lister.ok_or_else(|| {
            let (controller, named) = (&self.controller, kind.kind);
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
