//! The roles and bindings that every cluster begins with, as a real server of this version makes them.

use std::{io::Read, sync::LazyLock};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    object::Object,
    storage::{Change, Expect},
    verbs::Api,
};

/// Made by `hack/rbac/reduce`.
static DATA: &[u8] = include_bytes!("../../data/rbac.json.gz");

#[derive(Deserialize)]
struct Seed {
    resource: Box<str>,
    object: Value,
}

static SEEDS: LazyLock<Vec<Seed>> = LazyLock::new(|| {
    let mut json = Vec::new();
    GzDecoder::new(DATA)
        .read_to_end(&mut json)
        .expect("part of this program");
    serde_json::from_slice(&json).expect("part of this program")
});

impl Api {
    /// Writes what is not there yet.
    pub(crate) fn seed_policy(&self) {
        if self.guard.policy.is_none() {
            return;
        }
        let catalogue = self.registry.catalogue();
        let now = self.world.now_text();
        let mut used = false;
        for seed in SEEDS.iter() {
            let resource = catalogue
                .find("rbac.authorization.k8s.io", "v1", &seed.resource)
                .expect("built in");
            let mut value = seed.object.clone();
            value["kind"] = resource.kind.to_string().into();
            value["apiVersion"] = resource.api_version().into();
            let mut object = Object::new(value).expect("seeds are objects");
            object.set_meta("uid", self.world.uid());
            object.set_meta("creationTimestamp", now.clone());
            // On a storage that was used before it is there already, perhaps changed.
            used |= self
                .commit(resource, &mut object, Expect::Absent, Change::Put)
                .is_err();
        }
        // Seeds have what they gather from each other; other roles may have more for them.
        if used {
            self.aggregate();
        }
    }
}
