//! The bootstrap roles and bindings, as a real server of this version creates them.

use std::{io::Read, sync::LazyLock};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value;

use super::AccessControl;
use crate::{
    object::Object,
    storage::{Change, Expect},
};

/// Made by `hack/rbac/reduce`.
static DATA: &[u8] = include_bytes!("../../data/rbac.json.gz");

#[derive(Deserialize)]
struct BootstrapObject {
    resource: Box<str>,
    object: Value,
}

static BOOTSTRAP_OBJECTS: LazyLock<Vec<BootstrapObject>> = LazyLock::new(|| {
    let mut json = Vec::new();
    GzDecoder::new(DATA)
        .read_to_end(&mut json)
        .expect("shipped with the crate");
    serde_json::from_slice(&json).expect("shipped with the crate")
});

impl AccessControl {
    /// Creates the bootstrap roles and bindings that do not exist yet.
    pub(crate) fn create_bootstrap_policy(&self) {
        if self.policy.is_none() {
            return;
        }
        let catalogue = self.store.registry.catalogue();
        let now = self.store.environment.now_rfc3339();
        let mut used = false;
        for seed in BOOTSTRAP_OBJECTS.iter() {
            let resource = catalogue
                .find("rbac.authorization.k8s.io", "v1", &seed.resource)
                .expect("built in");
            let mut value = seed.object.clone();
            value["kind"] = resource.kind.to_string().into();
            value["apiVersion"] = resource.api_version().into();
            let mut object = Object::new(value).expect("bootstrap objects are valid");
            object.set_meta("uid", self.store.environment.uid());
            object.set_meta("creationTimestamp", now.clone());
            // In a storage that was used before, it exists already and may have been changed.
            used |= self
                .store
                .commit(resource, &mut object, Expect::Absent, Change::Put)
                .is_err();
        }
        // Bootstrap roles contain the rules they aggregate from each other; other roles in the storage may add to them.
        if used {
            self.update_aggregated_roles();
        }
    }
}
