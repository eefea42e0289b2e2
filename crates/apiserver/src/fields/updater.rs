//! Computes an object's managed fields after an update or an apply.
//!
//! ```text
//!   update:  old ── compare ──► new            changed fields now belong to the writer alone
//!
//!   apply:   live ── merge ◄── configuration   the configuration's fields belong to the applier
//!              │       │
//!              │       └─ prune: removes fields of its last configuration that this one lacks and no other manager owns
//!              └─ compare ──► conflicts: fields of others that this apply would change
//! ```

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::{
    Comparison, FieldSet, Managed, Manager, Operation, PathElement, Shape, ValidationErrors, compare,
    compare::is_equal,
    created::{self, ExcludedFields},
    extract,
    extract::{extract_all, schema_mismatch},
    managed::Entry,
    merge::{merge, remove_fields, with_declared_parents},
    set::Branch,
};
use crate::scratch;

/// The versions of one kind at which its managers write.
pub(crate) trait Versions {
    /// The shape of objects at a version; none for a version that is not served.
    fn shape<'a>(&'a self, version: &str) -> Option<Shape<'a>>;

    /// Converts an object to another version.
    fn convert(&self, object: &Value, version: &str) -> Option<Value>;

    /// The fields that the strategy resets at a version (`GetResetFields`): a write never owns them.
    fn reset_fields(&self, version: &str) -> FieldSet<'static>;

    /// Why managed fields that were written at a version cannot be computed any more. `None` if they can, and also if
    /// entries of an unknown version are dropped, as those of built-in kinds.
    fn conversion_error(&self, _version: &str) -> Option<String> {
        None
    }
}

/// Computes the managed fields after one write.
#[derive(Clone, Copy)]
pub(crate) struct Updater<'a, V> {
    pub(crate) manager_name: &'a str,
    /// The version of the compared objects.
    pub(crate) version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) now: &'a str,
    pub(crate) versions: &'a V,
}

/// The managed fields of an object cannot be computed: a list's items have no distinct keys, or the object has fields
/// that are missing in a version at which one of its managers writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagedFieldsError(pub(crate) String);

/// The result of an apply.
pub(crate) struct Applied<'a> {
    /// The new object; none if nothing changes.
    pub(crate) object: Option<Value>,
    pub(crate) managed: Managed<'a>,
}

/// Why an apply failed.
#[derive(Debug)]
pub(crate) enum ApplyError {
    /// The applier would change fields that others own.
    Conflicts(Conflicts),
    Invalid(ValidationErrors),
    Unaccountable(ManagedFieldsError),
}

impl From<ManagedFieldsError> for ApplyError {
    fn from(why: ManagedFieldsError) -> Self {
        Self::Unaccountable(why)
    }
}

/// Conflicting fields, by manager.
#[derive(Debug, Default)]
pub(crate) struct Conflicts(pub(crate) Vec<(String, Vec<String>)>);

/// Fields that have no owner: the server sets them, or they identify the object.
const UNOWNED_PATHS: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

static UNOWNED_FIELDS: LazyLock<FieldSet<'static>> = LazyLock::new(|| FieldSet::from_paths(&UNOWNED_PATHS));

pub(super) fn remove_unowned(set: &mut FieldSet<'_>) {
    set.subtract(&UNOWNED_FIELDS);
}

impl<'a, V: Versions> Updater<'a, V> {
    pub(super) fn shape(&self) -> Shape<'a> {
        self.versions.shape(self.version).unwrap_or(Shape::Deduced)
    }

    fn manager(&self, operation: Operation) -> Manager<'a> {
        let name = if self.manager_name.is_empty() {
            "unknown"
        } else {
            self.manager_name
        };
        Manager {
            name: Cow::Borrowed(name),
            operation,
            version: Cow::Borrowed(if operation == Operation::Update {
                self.version
            } else {
                ""
            }),
            subresource: Cow::Borrowed(self.subresource),
        }
    }

    /// Compares two states at a version, without the reset fields.
    fn compare<'v>(
        &self,
        version: &str,
        shape: Shape<'v>,
        old: &'v Value,
        new: &'v Value,
    ) -> Result<Comparison<'v>, ManagedFieldsError> {
        let mut comparison = compare(shape, old, new)
            .ok_or_else(|| ManagedFieldsError("failed to compare objects".to_owned()))?;
        let reset = self.versions.reset_fields(version);
        comparison.removed.subtract_recursive(&reset);
        comparison.changed.subtract_recursive(&reset);
        Ok(comparison)
    }

    /// The stored JSON of a new object's managed fields; empty if it has none.
    pub(crate) fn managed_fields_of_new(
        &self,
        blank: &Value,
        new: &Value,
    ) -> Result<String, ManagedFieldsError> {
        let reset = self.versions.reset_fields(self.version);
        let unowned = ExcludedFields {
            fields: Some(&UNOWNED_FIELDS),
            subtrees: Some(&reset),
        };
        let mut has_any = None;
        let json = scratch::write_to_vec(|json| {
            json.push(b'[');
            let fields =
                |json: &mut Vec<u8>| has_any = created::write(json, self.shape(), blank, new, unowned);
            self.new_entry(FieldSet::default()).write_with(json, fields);
            json.push(b']');
        });
        match has_any {
            Some(true) => Ok(String::from_utf8(json).expect("JSON is text")),
            Some(false) => Ok(String::new()),
            None => self.create(blank, new).map(Managed::into_json),
        }
    }

    /// The managed fields of a new object, or of one without managed fields.
    pub(crate) fn create(&self, blank: &'a Value, new: &'a Value) -> Result<Managed<'a>, ManagedFieldsError> {
        let mut managed = Managed::default();
        let comparison = self.compare(self.version, self.shape(), blank, new)?;
        self.add_to_own_entry(&mut managed, comparison.changed);
        Ok(managed)
    }

    /// The managed fields after an update; none if they do not change.
    pub(crate) fn update(
        &self,
        old: &'a Value,
        new: &'a Value,
        managed: impl FnOnce() -> Managed<'a>,
    ) -> Result<Option<Managed<'a>>, ManagedFieldsError> {
        let own = self.compare(self.version, self.shape(), old, new)?;
        if own.is_empty() {
            return Ok(None);
        }
        let mut managed = managed();
        // An object without managed fields gets none before its first apply.
        if managed.is_empty() {
            return Ok(None);
        }
        self.reconcile(&mut managed);
        self.remove_from_other_managers(&mut managed, None, &own, [old, new])?;
        self.add_to_own_entry(&mut managed, own.changed);
        managed.merge_oldest_updates();
        Ok(Some(managed))
    }

    /// Removes changed and removed fields from all managers but one. Returns the changed fields by their former owner.
    fn remove_from_other_managers(
        &self,
        managed: &mut Managed<'a>,
        except: Option<&Manager<'_>>,
        own: &Comparison<'_>,
        states: [&Value; 2],
    ) -> Result<Vec<(Manager<'a>, FieldSet<'a>)>, ManagedFieldsError> {
        let converted = self.convert_to_other_versions(managed, states)?;
        let mut others = Vec::with_capacity(converted.len());
        for (version, [old, new]) in &converted {
            let shape = self.versions.shape(version).unwrap_or(Shape::Deduced);
            others.push((version, self.compare(version, shape, old, new)?));
        }
        let mut revoked = Vec::new();
        managed.0.retain_mut(|entry| {
            if except.is_some_and(|except| entry.manager == *except) {
                return true;
            }
            let comparison = if entry.version == self.version {
                own
            } else {
                match others.iter().find(|(version, _)| **version == entry.version) {
                    Some((_, comparison)) => comparison,
                    // Entries of a version that is no longer served are dropped.
                    None => return false,
                }
            };
            let changed = entry.fields.intersection(&comparison.changed);
            entry.fields.subtract(&comparison.changed);
            entry.fields.subtract(&comparison.removed);
            if !changed.is_empty() {
                revoked.push((entry.manager.clone(), changed));
            }
            !entry.fields.is_empty()
        });
        Ok(revoked)
    }

    /// Adds the changed fields to the writer's entry.
    fn add_to_own_entry(&self, managed: &mut Managed<'a>, mut changed: FieldSet<'a>) {
        remove_unowned(&mut changed);
        if changed.is_empty() {
            return;
        }
        let fresh = self.new_entry(changed);
        match managed.find(&fresh.manager) {
            Some(position) => {
                let entry = &mut managed.0[position];
                entry.fields = std::mem::take(&mut entry.fields).union(fresh.fields);
                entry.time = fresh.time;
            }
            None => managed.0.push(fresh),
        }
    }

    /// The entry of this write.
    fn new_entry<'f>(&self, fields: FieldSet<'f>) -> Entry<'f>
    where
        'a: 'f,
    {
        Entry {
            manager: self.manager(Operation::Update),
            version: Cow::Borrowed(self.version),
            time: Some(Cow::Borrowed(self.now)),
            fields,
        }
    }

    /// Converts objects to the other served versions at which managers write.
    fn convert_to_other_versions<const N: usize>(
        &self,
        managed: &Managed<'_>,
        objects: [&Value; N],
    ) -> Result<Vec<(String, [Value; N])>, ManagedFieldsError> {
        let mut converted: Vec<(String, [Value; N])> = Vec::new();
        for entry in &managed.0 {
            if entry.version == self.version || converted.iter().any(|(known, _)| *known == entry.version) {
                continue;
            }
            let Some(shape) = self.versions.shape(&entry.version) else {
                continue;
            };
            let all = objects.map(|object| self.versions.convert(object, &entry.version));
            if all.iter().all(Option::is_some) {
                let all = all.map(Option::unwrap_or_default);
                if let Some(why) = all.iter().find_map(|object| schema_mismatch(shape, object)) {
                    return Err(ManagedFieldsError(format!("failed to convert new object: {why}")));
                }
                converted.push((entry.version.to_string(), all));
            }
        }
        Ok(converted)
    }

    /// Rejects an object with fields that are missing in a version at which one of its managers writes.
    fn check_versions(
        &self,
        managed: &Managed<'_>,
        object: &Value,
        message: impl Fn(&str, &ValidationErrors) -> String,
    ) -> Result<(), ManagedFieldsError> {
        let mut versions: Vec<_> = managed.0.iter().map(|entry| &*entry.version).collect();
        versions.sort_unstable();
        versions.dedup();
        for version in versions.into_iter().filter(|version| *version != self.version) {
            if let Some(why) = self.versions.conversion_error(version) {
                return Err(ManagedFieldsError(why));
            }
            let (Some(shape), Some(object)) =
                (self.versions.shape(version), self.at_version(object, version))
            else {
                continue;
            };
            if let Some(why) = schema_mismatch(shape, &object) {
                return Err(ManagedFieldsError(message(version, &why)));
            }
        }
        Ok(())
    }

    /// Adapts the owned fields to schemas that have changed since they were recorded.
    fn reconcile(&self, managed: &mut Managed<'a>) {
        for entry in &mut managed.0 {
            if let Some(shape) = self
                .versions
                .shape(&entry.version)
                .filter(|shape| shape.may_change())
            {
                reconcile(shape, &mut entry.fields);
            }
        }
    }

    /// Applies a configuration to an object.
    pub(crate) fn apply(
        &self,
        live: &Value,
        config: &'a Value,
        mut managed: Managed<'a>,
        conflicts: &OnConflict<'_>,
    ) -> Result<Applied<'a>, ApplyError> {
        let shape = self.shape();
        let mut fields = extract(shape, config).map_err(ApplyError::Invalid)?;
        fields.subtract_recursive(&self.versions.reset_fields(self.version));
        self.check_versions(&managed, live, |_, why| why.to_string())?;
        self.reconcile(&mut managed);
        let applier = self.manager(Operation::Apply);
        let version = Cow::Borrowed(self.version);
        let last = match managed.find(&applier) {
            Some(position) => {
                let entry = &mut managed.0[position];
                let last = (
                    std::mem::replace(&mut entry.version, version),
                    std::mem::replace(&mut entry.fields, fields),
                );
                Some(last)
            }
            None => {
                managed.0.push(Entry {
                    manager: applier.clone(),
                    version,
                    time: None,
                    fields,
                });
                None
            }
        };
        let mut object = merge(shape, live, config);
        if let Some((version, last)) = last.filter(|(_, last)| !last.is_empty()) {
            self.check_versions(&managed, &object, |version, why| {
                format!(
                    "failed to prune fields: failed add back owned items: failed to convert merged object at version {version}: {why}"
                )
            })?;
            object = self.prune(object, &managed, &applier, &version, &last);
        }
        let comparison = self.compare(self.version, shape, live, &object)?;
        let revoked =
            self.remove_from_other_managers(&mut managed, Some(&applier), &comparison, [live, &object])?;
        if !revoked.is_empty() {
            conflicts.check(revoked).map_err(ApplyError::Conflicts)?;
        }
        drop(comparison);
        let is_new = !is_equal(live, &object);
        if let Some(position) = managed.find(&applier) {
            let entry = &mut managed.0[position];
            remove_unowned(&mut entry.fields);
            if is_new {
                entry.time = Some(Cow::Borrowed(self.now));
            }
        }
        managed.drop_empty();
        Ok(Applied {
            object: is_new.then_some(object),
            managed,
        })
    }

    /// Removes fields that the applier owned last time and that now have no owner.
    fn prune(
        &self,
        merged: Value,
        managed: &Managed<'_>,
        applier: &Manager<'_>,
        version: &str,
        last: &FieldSet<'_>,
    ) -> Value {
        let current = managed.find(applier).map(|position| &managed.0[position]);
        if last.is_empty() || current.is_some_and(|now| now.version == version && now.fields.contains(last)) {
            return merged;
        }
        let (Some(shape), Some(at_last)) = (self.versions.shape(version), self.at_version(&merged, version))
        else {
            return merged;
        };
        let named = with_declared_parents(Some(shape), last);
        let mut pruned = remove_fields(shape, at_last.clone(), &named);
        // The version of the pruning comes first: conversions may need the removed fields.
        let mut versions: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in &managed.0 {
            let key = (entry.version != version, &*entry.version);
            versions.entry(key).or_default().push(entry.fields.clone());
        }
        for ((_, owned_at), owned) in versions {
            let owned = FieldSet::union_all(owned);
            pruned = self.add_back(&merged, pruned, owned_at, &owned);
        }
        let Some(pruned) = self.at_version(&pruned, version) else {
            return merged;
        };
        let present = with_declared_parents(Some(shape), &extract_all(shape, &pruned));
        let mut gone = with_declared_parents(Some(shape), &extract_all(shape, &at_last));
        gone.subtract(&present);
        let gone = gone.intersection(&named);
        let pruned = remove_fields(shape, at_last.clone(), &gone);
        self.at_version(&pruned, self.version).unwrap_or(merged)
    }

    /// Restores in a pruned object the fields that others own.
    fn add_back(&self, merged: &Value, pruned: Value, version: &str, owned: &FieldSet<'_>) -> Value {
        let (Some(shape), Some(merged), Some(at_version)) = (
            self.versions.shape(version),
            self.at_version(merged, version),
            self.at_version(&pruned, version),
        ) else {
            return pruned;
        };
        let mut gone = with_declared_parents(Some(shape), &extract_all(shape, &merged));
        gone.subtract(&with_declared_parents(
            Some(shape),
            &extract_all(shape, &at_version),
        ));
        gone.subtract(&with_declared_parents(Some(shape), owned));
        remove_fields(shape, merged.clone(), &gone)
    }

    /// Converts an object to a version, unless it has it already.
    fn at_version(&self, object: &Value, version: &str) -> Option<Value> {
        if object["apiVersion"] == version {
            return Some(object.clone());
        }
        self.versions.convert(object, version)
    }
}

/// The maximum size of all paths in a conflict error, in bytes. The real server has no such limit.
const MAX_CONFLICT_BYTES: usize = 64 * 1024;

/// How an apply handles fields that others own.
pub(crate) enum OnConflict<'a> {
    /// It takes them over.
    Force,
    /// It fails.
    Fail,
    /// It fails unless all of them are in this set.
    Allow(&'a FieldSet<'a>),
}

impl OnConflict<'_> {
    fn check(&self, mut revoked: Vec<(Manager<'_>, FieldSet<'_>)>) -> Result<(), Conflicts> {
        match self {
            Self::Force => return Ok(()),
            Self::Fail => {}
            Self::Allow(allowed) => {
                for (_, fields) in &mut revoked {
                    fields.subtract(allowed);
                }
                revoked.retain(|(_, fields)| !fields.is_empty());
                if revoked.is_empty() {
                    return Ok(());
                }
            }
        }
        revoked.sort_by_cached_key(|(manager, _)| manager.sort_key());
        // As many as fit into the error.
        let mut room = MAX_CONFLICT_BYTES;
        let named = |(manager, fields): (Manager<'_>, FieldSet<'_>)| {
            (manager.display_name(), fields.paths(&mut room))
        };
        let mut conflicts: Vec<_> = revoked.into_iter().map(named).collect();
        conflicts.retain(|(_, paths)| !paths.is_empty());
        Err(Conflicts(conflicts))
    }
}

/// Replaces the parts of a field by the whole field where the schema now makes it atomic.
fn reconcile(shape: Shape<'_>, fields: &mut FieldSet<'_>) {
    fields.for_each_branch_mut(|element, branch| {
        let inner = match element {
            PathElement::Field(name) => shape.field(name).map(|field| field.shape),
            PathElement::Key(_) | PathElement::Item(_) | PathElement::Index(_) => Some(shape.items()),
        };
        if let Some(inner) = inner.filter(|_| !branch.children.is_empty()) {
            if inner.is_atomic() {
                *branch = Branch::MEMBER;
            } else {
                reconcile(inner, &mut branch.children);
            }
        }
    });
}
