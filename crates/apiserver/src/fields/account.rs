//! Keeping account of every write: an object's `managedFields` after it.
//!
//! ```text
//!   update:  old ── compare ──► new            what changed is the writer's, and nobody else's any more
//!
//!   apply:   live ── merge ◄── configuration   what the configuration says is the applier's
//!              │       │
//!              │       └─ prune: what it said last time, says no longer, and nobody else owns, goes
//!              └─ compare ──► conflicts: what others own and this would change
//! ```

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::{
    Comparison, Element, Malformed, Managed, Manager, Operation, Set, Shape, compare,
    compare::is_same,
    extract,
    extract::{extract_all, misfit},
    fresh::{self, Unowned},
    managed::Entry,
    merge::{merge, remove, with_named},
    set::Branch,
};
use crate::scratch;

/// Objects of one kind, at the versions that their managers write at.
pub(crate) trait Versions {
    /// What objects look like at a version of the kind; none for a version that is not served.
    fn shape<'a>(&'a self, version: &str) -> Option<Shape<'a>>;

    /// An object at another version.
    fn convert(&self, object: &Value, version: &str) -> Option<Value>;

    /// The fields that this way of writing never touches, at a version.
    fn reset(&self, version: &str) -> Set<'static>;
}

/// A write that is to be accounted for.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a, V> {
    pub(crate) name: &'a str,
    /// The version of the objects that are compared.
    pub(crate) version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) now: &'a str,
    pub(crate) versions: &'a V,
}

/// No account can be kept of an object: a list's items cannot be told apart, or it has fields that a version lacks at
/// which one of its managers writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unaccountable(pub(crate) String);

/// What came of an apply.
pub(crate) struct Applied<'a> {
    /// The object as it should be; none if it is so already.
    pub(crate) object: Option<Value>,
    pub(crate) managed: Managed<'a>,
}

/// Why nothing was applied.
#[derive(Debug)]
pub(crate) enum Refused {
    /// What the applier would change belongs to others.
    Conflicts(Conflicts),
    Malformed(Malformed),
    Unaccountable(Unaccountable),
}

impl From<Unaccountable> for Refused {
    fn from(why: Unaccountable) -> Self {
        Self::Unaccountable(why)
    }
}

/// Fields that others own, by manager.
#[derive(Debug, Default)]
pub(crate) struct Conflicts(pub(crate) Vec<(String, Vec<String>)>);

/// What nobody owns: the server's own, and what names the object.
const SERVERS_OWN: [&[&str]; 12] = [
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

static OWN: LazyLock<Set<'static>> = LazyLock::new(|| Set::of_paths(&SERVERS_OWN));

pub(super) fn strip(set: &mut Set<'_>) {
    set.subtract(&OWN);
}

impl<'a, V: Versions> Writer<'a, V> {
    pub(super) fn shape(&self) -> Shape<'a> {
        self.versions.shape(self.version).unwrap_or(Shape::Deduced)
    }

    fn manager(&self, operation: Operation) -> Manager<'a> {
        let name = if self.name.is_empty() {
            "unknown"
        } else {
            self.name
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

    /// What two states differ in at a version, without what this way of writing never touches.
    fn compare<'v>(
        &self,
        version: &str,
        shape: Shape<'v>,
        old: &'v Value,
        new: &'v Value,
    ) -> Result<Comparison<'v>, Unaccountable> {
        let mut comparison =
            compare(shape, old, new).ok_or_else(|| Unaccountable("failed to compare objects".to_owned()))?;
        let reset = self.versions.reset(version);
        comparison.removed.subtract_whole(&reset);
        comparison.changed.subtract_whole(&reset);
        Ok(comparison)
    }

    /// The account of a new object as it is stored; empty where nobody owns anything.
    pub(crate) fn account_for_new(&self, blank: &Value, new: &Value) -> Result<String, Unaccountable> {
        let reset = self.versions.reset(self.version);
        let unowned = Unowned {
            alone: Some(&OWN),
            whole: Some(&reset),
        };
        let mut has_any = None;
        let json = scratch::written(|json| {
            json.push(b'[');
            let fields = |json: &mut Vec<u8>| has_any = fresh::write(json, self.shape(), blank, new, unowned);
            self.entry(Set::default()).write_with(json, fields);
            json.push(b']');
        });
        match has_any {
            Some(true) => Ok(String::from_utf8(json).expect("JSON is text")),
            Some(false) => Ok(String::new()),
            None => self.create(blank, new).map(Managed::write),
        }
    }

    /// The account after an object was created, or of one of which none was kept.
    pub(crate) fn create(&self, blank: &'a Value, new: &'a Value) -> Result<Managed<'a>, Unaccountable> {
        let mut managed = Managed::default();
        let comparison = self.compare(self.version, self.shape(), blank, new)?;
        self.note(&mut managed, comparison.changed);
        Ok(managed)
    }

    /// The account after an update; none if it stays as it is.
    pub(crate) fn update(
        &self,
        old: &'a Value,
        new: &'a Value,
        managed: impl FnOnce() -> Managed<'a>,
    ) -> Result<Option<Managed<'a>>, Unaccountable> {
        let own = self.compare(self.version, self.shape(), old, new)?;
        if own.is_empty() {
            return Ok(None);
        }
        let mut managed = managed();
        // An object of which no account is kept gets none until it is applied.
        if managed.is_empty() {
            return Ok(None);
        }
        self.reconcile(&mut managed);
        self.yield_fields(&mut managed, None, &own, [old, new])?;
        self.note(&mut managed, own.changed);
        managed.cap();
        Ok(Some(managed))
    }

    /// Takes from all managers but one what others changed. Returns what was taken because it changed.
    fn yield_fields(
        &self,
        managed: &mut Managed<'a>,
        but: Option<&Manager<'_>>,
        own: &Comparison<'_>,
        states: [&Value; 2],
    ) -> Result<Vec<(Manager<'a>, Set<'a>)>, Unaccountable> {
        let converted = self.converted(managed, states)?;
        let mut others = Vec::with_capacity(converted.len());
        for (version, [old, new]) in &converted {
            let shape = self.versions.shape(version).unwrap_or(Shape::Deduced);
            others.push((version, self.compare(version, shape, old, new)?));
        }
        let mut taken = Vec::new();
        managed.0.retain_mut(|entry| {
            if but.is_some_and(|but| entry.manager == *but) {
                return true;
            }
            let comparison = if entry.version == self.version {
                own
            } else {
                match others.iter().find(|(version, _)| **version == entry.version) {
                    Some((_, comparison)) => comparison,
                    // Of a version that is not served any more nothing can be said.
                    None => return false,
                }
            };
            let changed = entry.fields.intersection(&comparison.changed);
            entry.fields.subtract(&comparison.changed);
            entry.fields.subtract(&comparison.removed);
            if !changed.is_empty() {
                taken.push((entry.manager.clone(), changed));
            }
            !entry.fields.is_empty()
        });
        Ok(taken)
    }

    /// Adds what the writer changed to what it owns.
    fn note(&self, managed: &mut Managed<'a>, mut changed: Set<'a>) {
        strip(&mut changed);
        if changed.is_empty() {
            return;
        }
        let fresh = self.entry(changed);
        match managed.find(&fresh.manager) {
            Some(place) => {
                let entry = &mut managed.0[place];
                entry.fields = std::mem::take(&mut entry.fields).union(fresh.fields);
                entry.time = fresh.time;
            }
            None => managed.0.push(fresh),
        }
    }

    /// What this write owns from now on.
    fn entry<'f>(&self, fields: Set<'f>) -> Entry<'f>
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

    /// Objects at the other versions that managers write at, as far as these are served.
    fn converted<const N: usize>(
        &self,
        managed: &Managed<'_>,
        objects: [&Value; N],
    ) -> Result<Vec<(String, [Value; N])>, Unaccountable> {
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
                if let Some(why) = all.iter().find_map(|object| misfit(shape, object)) {
                    return Err(Unaccountable(format!("failed to convert new object: {why}")));
                }
                converted.push((entry.version.to_string(), all));
            }
        }
        Ok(converted)
    }

    /// Refuses an object that has fields which a version lacks at which one of its managers writes.
    fn check_versions(
        &self,
        managed: &Managed<'_>,
        object: &Value,
        words: impl Fn(&str, &Malformed) -> String,
    ) -> Result<(), Unaccountable> {
        let mut versions: Vec<_> = managed.0.iter().map(|entry| &*entry.version).collect();
        versions.sort_unstable();
        versions.dedup();
        for version in versions.into_iter().filter(|version| *version != self.version) {
            let (Some(shape), Some(object)) = (self.versions.shape(version), self.at(object, version)) else {
                continue;
            };
            if let Some(why) = misfit(shape, &object) {
                return Err(Unaccountable(words(version, &why)));
            }
        }
        Ok(())
    }

    /// Brings what is owned in line with schemas that have changed since it was noted.
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
    ) -> Result<Applied<'a>, Refused> {
        let shape = self.shape();
        let mut fields = extract(shape, config).map_err(Refused::Malformed)?;
        fields.subtract_whole(&self.versions.reset(self.version));
        self.check_versions(&managed, live, |_, why| why.to_string())?;
        self.reconcile(&mut managed);
        let applier = self.manager(Operation::Apply);
        let version = Cow::Borrowed(self.version);
        let last = match managed.find(&applier) {
            Some(place) => {
                let entry = &mut managed.0[place];
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
        let taken = self.yield_fields(&mut managed, Some(&applier), &comparison, [live, &object])?;
        if !taken.is_empty() {
            conflicts.judge(taken).map_err(Refused::Conflicts)?;
        }
        drop(comparison);
        let is_new = !is_same(live, &object);
        if let Some(place) = managed.find(&applier) {
            let entry = &mut managed.0[place];
            strip(&mut entry.fields);
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

    /// Takes out what the applier owned last time, and now nobody does.
    fn prune(
        &self,
        merged: Value,
        managed: &Managed<'_>,
        applier: &Manager<'_>,
        version: &str,
        last: &Set<'_>,
    ) -> Value {
        let kept = managed.find(applier).map(|place| &managed.0[place]);
        if last.is_empty() || kept.is_some_and(|now| now.version == version && now.fields.contains(last)) {
            return merged;
        }
        let (Some(shape), Some(at_last)) = (self.versions.shape(version), self.at(&merged, version)) else {
            return merged;
        };
        let named = with_named(Some(shape), last);
        let mut pruned = remove(shape, at_last.clone(), &named);
        // First at the version that it was pruned at: conversions may need what was taken out.
        let mut versions: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in &managed.0 {
            let place = (entry.version != version, &*entry.version);
            versions.entry(place).or_default().push(entry.fields.clone());
        }
        for ((_, owned_at), owned) in versions {
            let owned = Set::union_all(owned);
            pruned = self.add_back(&merged, pruned, owned_at, &owned);
        }
        let Some(pruned) = self.at(&pruned, version) else {
            return merged;
        };
        let present = with_named(Some(shape), &extract_all(shape, &pruned));
        let mut gone = with_named(Some(shape), &extract_all(shape, &at_last));
        gone.subtract(&present);
        let gone = gone.intersection(&named);
        let pruned = remove(shape, at_last.clone(), &gone);
        self.at(&pruned, self.version).unwrap_or(merged)
    }

    /// Puts back into a pruned object what others own.
    fn add_back(&self, merged: &Value, pruned: Value, version: &str, owned: &Set<'_>) -> Value {
        let (Some(shape), Some(merged), Some(at_version)) = (
            self.versions.shape(version),
            self.at(merged, version),
            self.at(&pruned, version),
        ) else {
            return pruned;
        };
        let mut gone = with_named(Some(shape), &extract_all(shape, &merged));
        gone.subtract(&with_named(Some(shape), &extract_all(shape, &at_version)));
        gone.subtract(&with_named(Some(shape), owned));
        remove(shape, merged.clone(), &gone)
    }

    /// An object at a version, whatever version it is at.
    fn at(&self, object: &Value, version: &str) -> Option<Value> {
        if object["apiVersion"] == version {
            return Some(object.clone());
        }
        self.versions.convert(object, version)
    }
}

/// How many bytes the paths in a refusal have together. The real server has no such limit.
const CONFLICT_BYTES: usize = 64 * 1024;

/// What becomes of an apply that changes what others own.
pub(crate) enum OnConflict<'a> {
    /// It takes it.
    Force,
    /// It is refused.
    Refuse,
    /// It is refused, unless all of it is in this set.
    Allow(&'a Set<'a>),
}

impl OnConflict<'_> {
    fn judge(&self, mut taken: Vec<(Manager<'_>, Set<'_>)>) -> Result<(), Conflicts> {
        match self {
            Self::Force => return Ok(()),
            Self::Refuse => {}
            Self::Allow(allowed) => {
                for (_, fields) in &mut taken {
                    fields.subtract(allowed);
                }
                taken.retain(|(_, fields)| !fields.is_empty());
                if taken.is_empty() {
                    return Ok(());
                }
            }
        }
        taken.sort_by_cached_key(|(manager, _)| manager.text());
        // As many as a refusal has room for.
        let mut room = CONFLICT_BYTES;
        let named = |(manager, fields): (Manager<'_>, Set<'_>)| (manager.shown(), fields.paths(&mut room));
        let mut conflicts: Vec<_> = taken.into_iter().map(named).collect();
        conflicts.retain(|(_, paths)| !paths.is_empty());
        Err(Conflicts(conflicts))
    }
}

/// Makes one field of what was owned by parts, where it is one field now.
fn reconcile(shape: Shape<'_>, fields: &mut Set<'_>) {
    fields.change(|element, branch| {
        let inner = match element {
            Element::Field(name) => shape.field(name).map(|field| field.shape),
            Element::Key(_) | Element::Item(_) | Element::Index(_) => Some(shape.items()),
        };
        if let Some(inner) = inner.filter(|_| !branch.below.is_empty()) {
            if inner.is_one_field() {
                *branch = Branch::MEMBER;
            } else {
                reconcile(inner, &mut branch.below);
            }
        }
    });
}
