//! The account of an object's `scale`: of one field of the object, under another name.
//!
//! ```text
//!   the object's account ── to_scale ──► who owns the replicas, as of a Scale
//!                                                 │ a write to the Scale
//!   the object's account ◄── to_parent ───────────┘
//! ```

use std::borrow::Cow;

use super::{Managed, Operation, Set, managed::Entry};

/// The version of a Scale.
pub(crate) const SCALE: &str = "autoscaling/v1";

const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Where a version of a kind keeps the number of replicas.
pub(crate) enum ReplicasPath<'a> {
    At(Vec<&'a str>),
    /// It has no scale.
    Nowhere,
    /// There is no such version.
    Unknown,
}

/// Where the versions of a kind keep the number of replicas.
pub(crate) trait Replicas {
    fn path(&self, version: &str) -> ReplicasPath<'_>;
}

impl Managed<'_> {
    /// The account of the Scale of an object with this account.
    pub(crate) fn to_scale(&self, replicas: &impl Replicas) -> Self {
        let mut scale = Vec::new();
        for entry in &self.0 {
            match replicas.path(&entry.version) {
                ReplicasPath::At(path) if entry.fields.has(&path) => {}
                _ => continue,
            }
            let mut manager = entry.manager.clone();
            if manager.operation == Operation::Update {
                manager.version = Cow::Borrowed(SCALE);
            }
            let fields = Set::of_path(&REPLICAS);
            let (version, time) = (Cow::Borrowed(SCALE), entry.time.clone());
            let entry = Entry {
                manager,
                version,
                time,
                fields,
            };
            scale.push(entry);
        }
        Managed::of_entries(scale)
    }

    /// This account of an object after a write to its Scale, which left that with this one.
    pub(crate) fn after_scale<'s>(
        &'s self,
        scale: Managed<'s>,
        version: &'s str,
        replicas: &'s impl Replicas,
    ) -> Managed<'s> {
        let mut after = Managed::default();
        let (mut left, own) = (scale.places(), self.places());
        for entry in &self.0 {
            let mut entry: Entry<'s> = entry.clone();
            let path = match replicas.path(&entry.version) {
                ReplicasPath::At(path) => path,
                ReplicasPath::Nowhere => Vec::new(),
                ReplicasPath::Unknown => continue,
            };
            // Otherwise another manager has it now.
            if entry.fields.has(&path) && left.remove(&entry.manager).is_none() {
                entry.fields.subtract(&Set::of_path(&path));
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
            if !left.contains_key(&entry.manager) || !entry.fields.has(&REPLICAS) {
                continue;
            }
            // Times are those of the object's account, which does not know who writes to a Scale at its version.
            let time = own
                .get(&entry.manager)
                .and_then(|place| self.0[*place].time.clone());
            after.0.push(Entry {
                manager: entry.manager,
                version: Cow::Borrowed(version),
                time,
                fields: Set::of_path(&path),
            });
        }
        after
    }
}
