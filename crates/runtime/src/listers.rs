//! The listers that a controller declared, by type.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
};

use windlass_cache::{Cacheable, Lister};

use crate::error::Error;

pub(crate) struct Listers {
    pub(crate) controller: String,
    by_type: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl Listers {
    pub(crate) fn new(controller: String) -> Self {
        Self {
            controller,
            by_type: HashMap::new(),
        }
    }

    pub(crate) fn insert<K: Cacheable>(&mut self, lister: Lister<K>) {
        self.by_type.insert(TypeId::of::<K>(), Box::new(lister));
    }

    pub(crate) fn get<K: Cacheable>(&self) -> Result<&Lister<K>, Error> {
        let lister = self
            .by_type
            .get(&TypeId::of::<K>())
            .and_then(|any| any.downcast_ref::<Lister<K>>());
        lister.ok_or_else(|| {
            let kind = type_name::<K>().rsplit("::").next().unwrap_or_default();
            let controller = &self.controller;
            Error::terminal(format!(
                "controller `{controller}` does not cache {kind}: add `.reads::<{kind}>()` to it"
            ))
        })
    }
}
