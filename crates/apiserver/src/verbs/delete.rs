//! Deletion of objects and of collections.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Answer, DeleteOptions, ListOptions, Page, WriteVerbs,
    options::Propagation,
    read::{MissingEntries, page},
    render_entry,
};
use crate::{
    admission::{Admitted, Operation},
    admission_plugins::AdmissionPlugin,
    crd::WriteConversion,
    kinds::DeletionMarks,
    object::Object,
    object_store::ObjectStore,
    registry::Resource,
    request::Target,
    selector::Selector,
    status::{Missing, Status},
    storage::{Change, Entry, Expect},
    warnings::Warnings,
    webhook::RequestEnvironment,
};

/// Finalizers that keep an object until its dependents are deleted or orphaned.
const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
const ORPHAN_FINALIZER: &str = "orphan";

/// How many webhooks the deletion of a collection asks before it continues.
const MAX_CALLS: usize = 100;

/// A collection whose deletion waits for webhooks.
pub(crate) struct CollectionDeletion {
    page: Page,
    /// The entries that are not deleted yet, nor marked as deleted.
    pending: Vec<usize>,
    /// What webhooks said about those that are.
    warnings: Warnings,
}

/// The result of a deletion.
pub(crate) enum Deletion {
    /// The object was removed. This is its last state, at the deletion's revision.
    Removed(Arc<Entry>),
    /// The object waits for its finalizers or its grace period. This is its current state.
    Pending(Arc<Entry>),
}

impl WriteVerbs {
    pub(crate) fn delete(&self, target: &Target, options: &DeleteOptions) -> Result<Answer, Status> {
        self.delete_one(target, options, false)
    }

    /// Deletes one object, which may be one of a collection that is deleted.
    fn delete_one(
        &self,
        target: &Target,
        options: &DeleteOptions,
        is_collection: bool,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        if self.admission.plugins.has(AdmissionPlugin::NamespaceLifecycle) {
            resource.strategy.check_delete(resource, &target.name)?;
        }
        let warning = resource
            .facts
            .deletion_warning
            .filter(|_| options.propagation.is_none());
        let mut warnings = Warnings::default();
        warnings.extend(warning.map(str::to_owned));
        let mut shown = options.caller.as_ref().map(|_| options.to_json());
        let admit = |old: &Object| {
            if let Some(shown) = shown.as_mut().filter(|_| resource.facts.graceful_deletion) {
                shown["gracePeriodSeconds"] = shown_grace_seconds(resource, old, options).into();
            }
            let admitted = Admitted {
                target,
                operation: Operation::Delete,
                caller: options.caller.as_ref(),
                dry_run: options.dry_run,
                options: shown.as_ref(),
                is_collection,
            };
            self.admission.mutate_deletion(&admitted, old, &mut warnings)?;
            self.admission
                .validate(&admitted, [None, Some(old)], &mut warnings)
        };
        match delete_object(&self.store, target, options, admit)? {
            Deletion::Removed(removed) if resource.facts.returns_deleted => {
                self.after_removal(resource, &removed);
                Ok(Answer::Object {
                    code: 200,
                    json: render_entry(&removed, resource),
                    warnings,
                })
            }
            Deletion::Removed(removed) => {
                self.after_removal(resource, &removed);
                let uid = removed.object.uid();
                let json = success_status(resource, &target.name, uid).to_string().into();
                Ok(Answer::Object {
                    code: 200,
                    json,
                    warnings,
                })
            }
            Deletion::Pending(entry) => {
                self.after_write(resource, &entry);
                Ok(Answer::Object {
                    code: 200,
                    json: render_entry(&entry, resource),
                    warnings,
                })
            }
        }
    }

    /// Deletes the selected objects, and answers with their list from before. What is left to do stays in `deleting` if
    /// webhooks have to be asked first.
    pub(crate) fn delete_collection(
        &self,
        target: &Target,
        options: &DeleteOptions,
        list: &ListOptions,
        selector: &Selector,
        deleting: &mut Option<CollectionDeletion>,
    ) -> Result<Answer, Status> {
        let CollectionDeletion {
            page,
            pending,
            mut warnings,
        } = match deleting.take() {
            Some(deletion) => deletion,
            None => {
                let page = page(&self.store, target, list, selector)?;
                let pending = (0..page.entries.len()).collect();
                CollectionDeletion {
                    page,
                    pending,
                    warnings: Warnings::default(),
                }
            }
        };
        let (mut calls, mut unconverted) = (Vec::new(), MissingEntries::default());
        let (mut unfinished, mut pending) = (Vec::new(), pending.into_iter());
        let mut failure = None;
        for index in pending.by_ref() {
            let entry = &page.entries[index];
            let stored = self.store.storage.get(&target.resource.table, &entry.key);
            if stored.is_none_or(|stored| stored.object.uid() != entry.object.uid()) {
                continue;
            }
            let one = Target {
                namespace: entry.key.namespace.as_ref().into(),
                name: entry.key.name.as_ref().into(),
                ..target.clone()
            };
            match self.delete_one(&one, options, true) {
                Err(mut status) if status.is_unfinished() => {
                    unfinished.push(index);
                    match status.take_missing() {
                        Some(Missing::Answers(missing)) => calls.extend(missing),
                        Some(Missing::Converted(missing)) => {
                            unconverted.collect::<()>(Err(Status::unconverted(missing)))?;
                        }
                        Some(Missing::Time) => {
                            failure = Some(Status::needs_time());
                            break;
                        }
                        None => {
                            failure = Some(status);
                            break;
                        }
                    }
                }
                // Already deleted by another client.
                Err(status) if status.code == 404 => {}
                Err(mut status) => {
                    unfinished.push(index);
                    warnings.extend(&*status.warnings);
                    status.warnings = (*warnings).into();
                    failure = Some(status);
                    break;
                }
                Ok(answer) => warnings.extend(&*answer.into_warnings()),
            }
            if calls.len() + unconverted.len() >= MAX_CALLS {
                break;
            }
        }
        if unfinished.is_empty() && failure.is_none() {
            return Ok(Answer::List { page, warnings });
        }
        unfinished.extend(pending);
        *deleting = Some(CollectionDeletion {
            page,
            pending: unfinished,
            warnings,
        });
        // If the failure was the depth of an answer, the verb goes on from here on a larger stack.
        if let Some(failure) = failure {
            return Err(failure);
        }
        unconverted.finish()?;
        Err(Status::unanswered(calls))
    }
}

/// The grace period that admission sees in the options of a graceful deletion.
fn shown_grace_seconds(resource: &Resource, old: &Object, options: &DeleteOptions) -> i64 {
    let left = old
        .metadata()
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    match left.filter(|_| old.is_deleting() && options.grace_seconds.is_none()) {
        Some(left) => left,
        None => resource.strategy.grace_seconds(old, options.grace_seconds),
    }
}

/// Deletes one object and retries on conflict. `admit` may refuse to delete a state of it. Runs no side effects.
pub(crate) fn delete_object(
    store: &ObjectStore,
    target: &Target,
    options: &DeleteOptions,
    mut admit: impl FnMut(&Object) -> Result<(), Status>,
) -> Result<Deletion, Status> {
    loop {
        let entry = store.current_for(target, options.caller.as_deref())?;
        if let Some(outcome) = delete_entry(store, &target.resource, &entry, options, &mut admit)? {
            return Ok(outcome);
        }
    }
}

/// Deletes an object if it is still in the given state; `None` on conflict.
fn delete_entry(
    store: &ObjectStore,
    resource: &Resource,
    entry: &Arc<Entry>,
    options: &DeleteOptions,
    admit: &mut impl FnMut(&Object) -> Result<(), Status>,
) -> Result<Option<Deletion>, Status> {
    let old = entry.object.decode()?;
    check_preconditions(resource, entry, &old, options)?;
    admit(&old)?;
    let mut object = old.clone();
    let default = resource.facts.orphan_by_default.then_some(Propagation::Orphan);
    if resource.facts.deletion_marks != DeletionMarks::TimestampOnly {
        set_propagation(&mut object, options.propagation.or(default));
    }
    if !old.is_deleting() {
        resource.strategy.prepare_deletion(
            &mut object,
            &options.environment(&store.environment).now_rfc3339(),
        );
    }
    let grace = resource.strategy.grace_seconds(&object, options.grace_seconds);
    let waits =
        object.finalizers().next().is_some() || resource.strategy.has_other_finalizers(&object) || grace > 0;
    let graceful = resource.facts.graceful_deletion;
    if waits || graceful {
        mark_deleting(
            options.environment(&store.environment),
            resource,
            &mut object,
            grace,
        );
    }
    if options.dry_run {
        let object = object.encode(entry.revision, &[]);
        let result = Arc::new(Entry {
            key: entry.key.clone(),
            revision: entry.revision,
            object,
        });
        return Ok(Some(if waits {
            Deletion::Pending(result)
        } else {
            Deletion::Removed(result)
        }));
    }
    if object == old && waits {
        return Ok(Some(Deletion::Pending(entry.clone())));
    }
    // A kind with grace periods is marked before its removal, even an immediate one: watchers see both.
    let mut expect = Expect::At(entry.revision);
    if graceful && !waits && object != old {
        let conversion = WriteConversion::of(resource, &object, options.caller.as_deref())?;
        conversion.check_storable(resource)?;
        match store.commit_converted(resource, &mut object, conversion, expect, Change::Put) {
            Ok(marked) => expect = Expect::At(marked.revision),
            Err(_) => return Ok(None),
        }
    }
    let change = if waits { Change::Put } else { Change::Remove };
    let conversion = if waits {
        WriteConversion::of(resource, &object, options.caller.as_deref())?
    } else {
        WriteConversion::Computed
    };
    let written = store.commit_converted(resource, &mut object, conversion, expect, change);
    Ok(written.ok().map(|entry| {
        if waits {
            Deletion::Pending(entry)
        } else {
            Deletion::Removed(entry)
        }
    }))
}

/// Sets the deletion timestamp. A second deletion may only bring it forward.
fn mark_deleting(environment: RequestEnvironment<'_>, resource: &Resource, object: &mut Object, grace: i64) {
    let earlier = object
        .metadata()
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let marks = resource.facts.deletion_marks;
    if object.is_deleting() && marks == DeletionMarks::TimestampOnly {
        object.set_meta("deletionGracePeriodSeconds", 0);
        return;
    }
    if object.is_deleting() && grace >= earlier {
        return;
    }
    let counts = object.metadata().contains_key("generation") && marks != DeletionMarks::TimestampOnly;
    if !object.is_deleting() && counts {
        let generation = object.metadata()["generation"].as_i64().unwrap_or(0);
        object.set_meta("generation", generation + 1);
    }
    let grace_period = std::time::Duration::from_secs(grace.unsigned_abs());
    let when = environment
        .now()
        .saturating_add(grace_period)
        .unwrap_or(jiff::Timestamp::MAX);
    object.set_meta("deletionTimestamp", crate::environment::rfc3339(when));
    if marks == DeletionMarks::All {
        object.set_meta("deletionGracePeriodSeconds", grace);
    }
}

fn set_propagation(object: &mut Object, propagation: Option<Propagation>) {
    let wanted = match propagation {
        None => return,
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND_FINALIZER),
        Some(Propagation::Orphan) => Some(ORPHAN_FINALIZER),
    };
    let kept = object
        .finalizers()
        .filter(|f| ![FOREGROUND_FINALIZER, ORPHAN_FINALIZER].contains(f))
        .map(Value::from);
    let finalizers: Vec<_> = kept.chain(wanted.map(Value::from)).collect();
    if finalizers.is_empty() {
        object.metadata_mut().remove("finalizers");
    } else {
        object.set_meta("finalizers", finalizers);
    }
}

fn check_preconditions(
    resource: &Resource,
    entry: &Entry,
    object: &Object,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let refuse = |why: String| Err(Status::precondition(resource, object.name(), &why));
    let uid = object.meta("uid");
    if let Some(wanted) = options.uid.as_ref().filter(|wanted| *wanted != uid) {
        return refuse(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ));
    }
    let revision = entry.revision.to_string();
    if let Some(wanted) = options
        .resource_version
        .as_ref()
        .filter(|wanted| **wanted != revision)
    {
        return refuse(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        ));
    }
    Ok(())
}

fn success_status(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": &*resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.to_string().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
