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

/// Where the versions of a kind keep the number of replicas: none for a version that has no scale, and nothing at all
/// for a version that is not known.
pub(crate) trait Replicas {
    fn path(&self, version: &str) -> Option<Option<Vec<&str>>>;
}

impl<'a> Managed<'a> {
    /// The account of the Scale of an object with this account.
    pub(crate) fn to_scale(&self, replicas: &impl Replicas) -> Self {
        let mut scale = Self::default();
        for entry in &self.0 {
            let path = replicas.path(&entry.version).flatten();
            if !path.is_some_and(|path| entry.fields.has(&path)) {
                continue;
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
            match scale.find(&entry.manager) {
                Some(place) => scale.0[place] = entry,
                None => scale.0.push(entry),
            }
        }
        scale
    }

    /// This account of an object after a write to its Scale, which left that with this one.
    pub(crate) fn after_scale<'s>(
        &'s self,
        mut scale: Managed<'s>,
        version: &'s str,
        replicas: &'s impl Replicas,
    ) -> Managed<'s> {
        let mut after = Managed::default();
        for entry in &self.0 {
            let Some(path) = replicas.path(&entry.version) else {
                continue;
            };
            let mut entry: Entry<'s> = entry.clone();
            if let Some(path) = path.filter(|path| entry.fields.has(path)) {
                match scale.find(&entry.manager) {
                    Some(place) => {
                        scale.0.remove(place);
                    }
                    // Somebody else has it now.
                    None => entry.fields.subtract(&Set::of_path(&path)),
                }
            }
            if !entry.fields.is_empty() {
                after.0.push(entry);
            }
        }
        let path = replicas.path(version).flatten().unwrap_or_default();
        for entry in scale.0 {
            if !entry.fields.has(&REPLICAS) {
                continue;
            }
            // Times are those of the object's account, which does not know who writes to a Scale at its version.
            let time = self
                .find(&entry.manager)
                .and_then(|place| self.0[place].time.clone());
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
