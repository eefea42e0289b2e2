//! The listers that a controller declared, by type and kind.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
};

use windlass_cache::{Cacheable, KindName, Lister};

use crate::{children::Brood, error::Error};

pub(crate) struct Listers {
    pub(crate) controller: String,
    /// Of one type (`DynamicObject`) there may be several kinds.
    by_type: HashMap<(TypeId, KindName), Box<dyn Any + Send + Sync>>,
    /// The kinds whose objects the controller's own control.
    pub(crate) broods: Vec<Box<dyn Brood>>,
}

impl Listers {
    pub(crate) fn new(controller: String) -> Self {
        Self {
            controller,
            by_type: HashMap::new(),
            broods: Vec::new(),
        }
    }

    /// The first watch of a kind is the one that is read.
    pub(crate) fn insert<K: Cacheable>(&mut self, dynamic: &K::DynamicType, lister: Lister<K>) {
        let kind = KindName::of::<K>(dynamic);
        self.by_type
            .entry((TypeId::of::<K>(), kind))
            .or_insert_with(|| Box::new(lister));
    }

    pub(crate) fn bear(&mut self, brood: impl Brood) {
        self.broods.push(Box::new(brood));
    }

    pub(crate) fn get<K: Cacheable>(&self, dynamic: &K::DynamicType) -> Result<&Lister<K>, Error> {
        let kind = KindName::of::<K>(dynamic);
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
