//! The lifecycle of a CRD: names accepted, established, served, changed, instances deleted, removed.
//!
//! Each step looks at the stored CRD and does what is missing, with one write. So it does not matter which write
//! triggered it or how many there were, and a watcher sees the same steps as from a real server's controllers:
//!
//! ```text
//!   created ─► NamesAccepted, Installing ─► Established ─► served
//!   deleted (Terminating: pending) ─► Terminating: in progress ─► its instances deleted ─► removed
//! ```

use std::sync::Arc;

use serde_json::Value;

use super::{
    CLEANUP_FINALIZER, Definition, ca_bundle,
    conditions::{self, APPROVED, Condition, ESTABLISHED, NAMES_ACCEPTED},
    definition,
    names::{self, NamesInUse},
    spec, text,
};
use crate::{
    object::Object,
    object_store::ObjectStore,
    registry::Resource,
    request::Target,
    storage::{Change, Entry, Expect, Key},
    verbs::{DeleteOptions, WriteOptions, delete_object, set_managed_fields_on_update},
};

/// The annotation in which CRDs of protected groups refer to their approval.
pub(super) const APPROVAL_ANNOTATION: &str = "api-approved.kubernetes.io";

/// The CustomResourceDefinitions of a server. A stored one is brought up to date step by step, and then served.
pub(crate) struct Definitions {
    store: Arc<ObjectStore>,
    /// Held while the served resources are updated from a stored definition.
    refresh: parking_lot::Mutex<()>,
}

impl Definitions {
    pub(crate) fn new(store: Arc<ObjectStore>) -> Self {
        Self {
            store,
            refresh: parking_lot::Mutex::new(()),
        }
    }

    /// Serves the stored CRDs.
    pub(crate) fn load(&self) {
        for name in self.definition_names() {
            self.sync(&name);
        }
    }

    /// Brings what is served in line with a stored CRD, then retries CRDs of its group that may wait for names it
    /// released.
    pub(crate) fn sync(&self, name: &str) {
        let _one_at_a_time = self.refresh.lock();
        let released = self.reconcile_definition(name);
        if let Some(group) = released {
            for other in self.definition_names() {
                if *other != *name && other.ends_with(&group) {
                    self.reconcile_definition(&other);
                }
            }
        }
    }

    /// Goes on with the deletion of a CRD after one of its instances was removed. Nothing is left to do for another CRD.
    pub(crate) fn after_removal_of_instance(&self, name: &str) {
        // The stored CRD decides: it is marked before its instances are counted.
        let is_kept = |(_, entry): (_, Arc<Entry>)| !entry.object.is_deleting();
        if !self.definition(name).is_some_and(is_kept) {
            self.sync(name);
        }
    }

    /// Reconciles a CRD until nothing is left to do. If it may have released names, returns its group's suffix of CRD
    /// names.
    fn reconcile_definition(&self, name: &str) -> Option<String> {
        let group = || name.split_once('.').map(|(_, group)| format!(".{group}"));
        let mut released = None;
        loop {
            let Some((resource, entry)) = self.definition(name) else {
                self.store.registry.define(name, None, Vec::new());
                return group();
            };
            let mut crd = match entry.object.decode() {
                Ok(crd) => crd,
                Err(error) => {
                    tracing::error!(
                        crd = name,
                        error = error.message(),
                        "cannot serve a stored CustomResourceDefinition"
                    );
                    return released;
                }
            };
            let before = crd.clone();
            let change = self.next_step(&mut crd);
            if crd == before && change == Change::Put {
                if self.store.registry.serves(name, &crd) {
                    return released;
                }
                let earlier = self.store.registry.definition(name);
                match Definition::from_crd(&crd, entry.revision, earlier.as_deref()) {
                    Ok(definition) => {
                        let unusable = definition::unusable_resources(&crd);
                        self.store.registry.define(name, definition, unusable);
                    }
                    Err(error) => tracing::error!(
                        crd = name,
                        error,
                        "cannot serve a stored CustomResourceDefinition"
                    ),
                }
                return released;
            }
            if crd.fields()["status"]["acceptedNames"] != before.fields()["status"]["acceptedNames"] {
                released = group();
            }
            // A removal is committed with the object as stored. On a conflict another write came first: look again.
            let written = if change == Change::Remove {
                before
            } else {
                let options = WriteOptions::internal();
                // CRDs have one version, so nothing is converted, which could fail.
                let _ = set_managed_fields_on_update(
                    &self.store,
                    &resource,
                    "status",
                    &options,
                    &mut crd,
                    &before,
                );
                crd
            };
            let _ = self
                .store
                .commit(&resource, &mut { written }, Expect::At(entry.revision), change);
        }
    }

    /// Changes a CRD by one step, or not at all if nothing is left to do.
    fn next_step(&self, crd: &mut Object) -> Change {
        let now = self.store.environment.now_rfc3339();
        if crd.is_deleting() && crd.finalizers().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
            return self.finalize_definition(crd, &now);
        }
        self.accept_and_establish(crd, &now);
        Change::Put
    }

    /// Accepts names, then sets the approval condition, then establishes.
    fn accept_and_establish(&self, crd: &mut Object, now: &str) {
        let accepted = crd.fields()["status"]["acceptedNames"].clone();
        let wanted = spec(crd)["names"].clone();
        if wanted != accepted {
            let (names, condition) = names::accept(&wanted, &accepted, &self.names_in_use(crd));
            if names != accepted || !conditions::has(crd, &condition) {
                let good = condition.status == "True";
                crd.fields_mut()["status"]["acceptedNames"] = names;
                conditions::set(crd, condition, now);
                if !conditions::is_true(crd, ESTABLISHED) {
                    let fresh = conditions::find(crd, ESTABLISHED).is_none();
                    match (good, fresh) {
                        (true, _) => conditions::set(crd, conditions::INSTALLING, now),
                        (false, true) => conditions::set(crd, conditions::NOT_ACCEPTED, now),
                        (false, false) => {}
                    }
                }
                return;
            }
        }
        if let Some(approval) = approval_condition(crd)
            && !conditions::has(crd, &approval)
        {
            conditions::set(crd, approval, now);
            return;
        }
        if conditions::is_true(crd, NAMES_ACCEPTED) && !conditions::is_true(crd, ESTABLISHED) {
            let condition = match ca_bundle::problem(ca_bundle::of(crd)) {
                Some(_) => conditions::INVALID_CA_BUNDLE,
                None => conditions::IS_ESTABLISHED,
            };
            conditions::set(crd, condition, now);
        }
    }

    /// Deletes the instances of a CRD that is being deleted, and removes the finalizer when none are left.
    fn finalize_definition(&self, crd: &mut Object, now: &str) -> Change {
        let in_progress = Condition::from(conditions::DELETING);
        if !conditions::has(crd, &in_progress) {
            conditions::set(crd, in_progress, now);
            return Change::Put;
        }
        if conditions::is_true(crd, ESTABLISHED) {
            if self.delete_instances(crd) > 0 {
                return Change::Put;
            }
            conditions::set(crd, conditions::DELETED, now);
        } else {
            conditions::set(crd, conditions::NEVER_ESTABLISHED, now);
        }
        let kept: Vec<_> = crd
            .finalizers()
            .filter(|f| *f != CLEANUP_FINALIZER)
            .map(Value::from)
            .collect();
        if kept.is_empty() {
            crd.metadata_mut().remove("finalizers");
            return Change::Remove;
        }
        crd.set_meta("finalizers", kept);
        Change::Put
    }

    /// Deletes a CRD's instances. Returns how many remain, held by their own finalizers.
    fn delete_instances(&self, crd: &Object) -> usize {
        let catalogue = self.store.registry.catalogue();
        let spec = spec(crd);
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let Some(served) = catalogue
            .resources
            .iter()
            .find(|r| *r.group == *group && *r.plural == *plural)
        else {
            return 0;
        };
        let Ok(snapshot) = self.store.storage.snapshot(&served.table, None, None) else {
            return 0;
        };
        let mut left = 0;
        for entry in snapshot.range(None, None) {
            let target = Target {
                resource: served.clone(),
                namespace: entry.key.namespace.as_ref().into(),
                name: entry.key.name.as_ref().into(),
                subresource: "".into(),
            };
            // An instance that is already deleted is fine.
            let _ = delete_object(&self.store, &target, &DeleteOptions::default(), |_| Ok(()));
            left += usize::from(self.store.storage.get(&served.table, &entry.key).is_some());
        }
        left
    }

    /// The accepted names of the other CRDs in a CRD's group.
    fn names_in_use(&self, crd: &Object) -> NamesInUse {
        let mut taken = NamesInUse::default();
        for name in self.definition_names() {
            let other = self
                .definition(&name)
                .and_then(|(_, entry)| entry.object.decode().ok());
            if let Some(other) =
                other.filter(|other| other.name() != crd.name() && spec(other)["group"] == spec(crd)["group"])
            {
                taken.add(&other.fields()["status"]["acceptedNames"]);
            }
        }
        taken
    }

    fn definition_names(&self) -> Vec<Arc<str>> {
        let resource = self.definitions_resource();
        let snapshot = self
            .store
            .storage
            .snapshot(&resource.table, None, None)
            .expect("the current revision is never compacted");
        snapshot
            .range(None, None)
            .map(|entry| entry.key.name.clone())
            .collect()
    }

    fn definition(&self, name: &str) -> Option<(Arc<Resource>, Arc<Entry>)> {
        let resource = self.definitions_resource();
        let entry = self.store.storage.get(&resource.table, &Key::new("", name))?;
        Some((resource, entry))
    }

    fn definitions_resource(&self) -> Arc<Resource> {
        let catalogue = self.store.registry.catalogue();
        catalogue
            .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .expect("built in")
            .clone()
    }
}

/// Whether the group belongs to the Kubernetes community.
pub(super) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// API approval state of a CRD in a protected group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    Missing,
    Bypassed,
    Approved,
    Invalid,
}

impl Approval {
    pub(super) fn from_crd(crd: &Object) -> (Self, String) {
        let annotation = approval_text(crd);
        if annotation.is_empty() {
            let why = format!(
                "protected groups must have approval annotation {APPROVAL_ANNOTATION:?}, see https://github.com/kubernetes/enhancements/pull/1111"
            );
            return (Self::Missing, why);
        }
        if annotation.starts_with("unapproved") {
            return (Self::Bypassed, format!("not approved: {annotation:?}"));
        }
        let is_url = annotation.split_once("://").is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
                && rest.split(['/', '?']).next().is_some_and(|host| !host.is_empty())
                && !rest.contains([' ', '\t', '\n'])
        });
        if is_url {
            return (Self::Approved, format!("approved in {annotation}"));
        }
        let why = format!(
            "protected groups must have approval annotation {APPROVAL_ANNOTATION:?} with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        (Self::Invalid, why)
    }
}

/// The value of a CRD's approval annotation.
pub(super) fn approval_text(crd: &Object) -> &str {
    let annotations = crd.metadata().get("annotations");
    annotations.map_or("", |annotations| text(&annotations[APPROVAL_ANNOTATION]))
}

fn approval_condition(crd: &Object) -> Option<Condition> {
    if !is_protected(text(&spec(crd)["group"])) {
        return None;
    }
    let (approval, message) = Approval::from_crd(crd);
    let (status, reason) = match approval {
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
    };
    Some(Condition {
        kind: APPROVED,
        status,
        reason,
        message,
    })
}
