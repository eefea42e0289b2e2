//! The managed fields of a `scale`: the owners of the object's replicas field, under another path.
//!
//! ```text
//!   managed fields of the object ── to_scale ──► managed fields of the Scale
//!                                                 │ a write to the Scale
//!   managed fields of the object ◄── to_parent ───┘
//! ```

use std::borrow::Cow;

use super::{FieldSet, Managed, Operation, managed::Entry};

/// The API version of a Scale.
pub(crate) const SCALE_API_VERSION: &str = "autoscaling/v1";

const SCALE_REPLICAS_PATH: [&str; 2] = ["spec", "replicas"];

/// The path of the replicas field at one version of a kind.
pub(crate) enum ReplicasPath<'a> {
    At(Vec<&'a str>),
    /// The version has no scale.
    NoScale,
    /// The version is not served.
    NotServed,
}

/// The paths of the replicas field at the versions of a kind.
pub(crate) trait ReplicasPaths {
    fn path(&self, version: &str) -> ReplicasPath<'_>;
}

impl Managed<'_> {
    /// The managed fields of the object's Scale.
    pub(crate) fn to_scale(&self, replicas: &impl ReplicasPaths) -> Self {
        let mut scale = Vec::new();
        for entry in &self.0 {
            match replicas.path(&entry.version) {
                ReplicasPath::At(path) if entry.fields.has_path(&path) => {}
                _ => continue,
            }
            let mut manager = entry.manager.clone();
            if manager.operation == Operation::Update {
                manager.version = Cow::Borrowed(SCALE_API_VERSION);
            }
            let fields = FieldSet::from_path(&SCALE_REPLICAS_PATH);
            let (version, time) = (Cow::Borrowed(SCALE_API_VERSION), entry.time.clone());
            let entry = Entry {
                manager,
                version,
                time,
                fields,
            };
            scale.push(entry);
        }
        Managed::from_entries(scale)
    }

    /// The object's managed fields after a write to its Scale; `scale` are the Scale's after the write.
    pub(crate) fn to_parent<'s>(
        &'s self,
        scale: Managed<'s>,
        version: &'s str,
        replicas: &'s impl ReplicasPaths,
    ) -> Managed<'s> {
        let mut after = Managed::default();
        let (mut left, own) = (scale.positions(), self.positions());
        for entry in &self.0 {
            let mut entry: Entry<'s> = entry.clone();
            let path = match replicas.path(&entry.version) {
                ReplicasPath::At(path) => path,
                ReplicasPath::NoScale => Vec::new(),
                ReplicasPath::NotServed => continue,
            };
            // Its manager no longer owns the replicas of the Scale.
            if entry.fields.has_path(&path) && left.remove(&entry.manager).is_none() {
                entry.fields.subtract(&FieldSet::from_path(&path));
            }
            if !entry.fields.is_empty() {
                after.0.push(entry);
            }
        }
        let path = match replicas.path(version) {
            ReplicasPath::At(path) => path,
            _ => Vec::new(),
        };
        for entry in scale.0 {
            if !left.contains_key(&entry.manager) || !entry.fields.has_path(&SCALE_REPLICAS_PATH) {
                continue;
            }
            // Times come from the object's entries. These have no manager that writes at the version of a Scale.
            let time = own
                .get(&entry.manager)
                .and_then(|position| self.0[*position].time.clone());
            after.0.push(Entry {
                manager: entry.manager,
                version: Cow::Borrowed(version),
                time,
                fields: FieldSet::from_path(&path),
            });
        }
        after
    }
}
