//! Deletion, of one object and of collections.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Api, DeleteOptions, ListOptions, options::Propagation, rendered};
use crate::{
    crd,
    object::Object,
    particular,
    registry::Resource,
    request::Target,
    selector::Selector,
    status::Status,
    storage::{Change, Entry, Expect},
};

/// The finalizers that hold an object until its dependents are dealt with.
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What a deletion did.
pub(crate) enum Outcome {
    /// The object is gone; this was its last state, under the deletion's revision.
    Gone(Arc<Entry>),
    /// The object waits for its finalizers or its grace period; this is how it looks.
    Waiting(Arc<Entry>),
}

impl Api {
    pub(crate) fn delete(&self, target: &Target, options: &DeleteOptions) -> Result<Answer, Status> {
        let resource = &target.resource;
        particular::may_delete(resource, &target.name)?;
        let warnings = particular::deletion_warnings(resource, options.propagation.is_some());
        match self.delete_object(target, options)? {
            Outcome::Gone(removed) if resource.strategy.shows_deleted => {
                self.after_removal(resource, &removed);
                Ok(Answer::Object {
                    code: 200,
                    json: rendered(&removed, resource),
                    warnings,
                })
            }
            Outcome::Gone(removed) => {
                self.after_removal(resource, &removed);
                let uid = removed.object.uid();
                let json = success(resource, &target.name, &uid).to_string().into();
                Ok(Answer::Object {
                    code: 200,
                    json,
                    warnings,
                })
            }
            Outcome::Waiting(entry) => {
                self.after(resource, &entry);
                Ok(Answer::Object {
                    code: 200,
                    json: rendered(&entry, resource),
                    warnings,
                })
            }
        }
    }

    /// Deletes one object, as often as it takes to win against other writers, and tells nobody.
    pub(crate) fn delete_object(&self, target: &Target, options: &DeleteOptions) -> Result<Outcome, Status> {
        loop {
            let entry = self.current(target)?;
            if let Some(outcome) = self.delete_entry(&target.resource, &entry, options)? {
                return Ok(outcome);
            }
        }
    }

    /// Deletes what a selector selects; answers with the list of it as it was.
    pub(crate) fn delete_collection(
        &self,
        target: &Target,
        options: &DeleteOptions,
        list: &ListOptions,
        selector: &Selector,
    ) -> Result<Answer, Status> {
        let page = self.page(target, list, selector)?;
        for entry in &page.entries {
            let one = Target {
                name: entry.key.name.as_ref().into(),
                ..target.clone()
            };
            match self.delete(&one, options) {
                // What is gone already is as good as deleted.
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        Ok(Answer::List(page))
    }

    /// Deletes an object in the state that was read; `None` if somebody else wrote in between.
    fn delete_entry(
        &self,
        resource: &Resource,
        entry: &Arc<Entry>,
        options: &DeleteOptions,
    ) -> Result<Option<Outcome>, Status> {
        let old = entry.object.decode()?;
        check_preconditions(resource, entry, &old, options)?;
        let mut object = old.clone();
        let default = resource.strategy.orphans.then_some(Propagation::Orphan);
        // A definition's objects go with it, whatever is wished for.
        if !crd::is_definition(resource) {
            set_propagation(&mut object, options.propagation.or(default));
        }
        if !old.is_deleting() {
            particular::prepare_deletion(resource, &mut object, &self.world.now_text());
        }
        let grace = particular::grace_seconds(resource, &object, options.grace_seconds);
        let waits = object.finalizers().next().is_some() || particular::holds(resource, &object) || grace > 0;
        let graceful = particular::is_graceful(resource);
        if waits || graceful {
            self.mark_deleting(resource, &mut object, grace);
        }
        if options.dry_run {
            let object = object.encode(entry.revision, &[]);
            let seen = Arc::new(Entry {
                key: entry.key.clone(),
                revision: entry.revision,
                object,
            });
            return Ok(Some(if waits {
                Outcome::Waiting(seen)
            } else {
                Outcome::Gone(seen)
            }));
        }
        if object == old && waits {
            return Ok(Some(Outcome::Waiting(entry.clone())));
        }
        // A kind with grace periods is marked before it goes, even when it goes at once: watchers see both.
        let mut expect = Expect::At(entry.revision);
        if graceful && !waits && object != old {
            match self.commit(resource, &mut object, expect, Change::Put) {
                Ok(marked) => expect = Expect::At(marked.revision),
                Err(_) => return Ok(None),
            }
        }
        let change = if waits { Change::Put } else { Change::Remove };
        let written = self.commit(resource, &mut object, expect, change);
        Ok(written.ok().map(|entry| {
            if waits {
                Outcome::Waiting(entry)
            } else {
                Outcome::Gone(entry)
            }
        }))
    }

    /// Sets when the object goes; a second deletion may only bring that forward.
    fn mark_deleting(&self, resource: &Resource, object: &mut Object, grace: i64) {
        let earlier = object
            .metadata()
            .get("deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if object.is_deleting() && crd::is_definition(resource) {
            // The first deletion of a definition is not an ordinary one; the second is.
            object.set_meta("deletionGracePeriodSeconds", 0);
            return;
        }
        if object.is_deleting() && grace >= earlier {
            return;
        }
        let counts = object.metadata().contains_key("generation") && !crd::is_definition(resource);
        if !object.is_deleting() && counts {
            let generation = object.metadata()["generation"].as_i64().unwrap_or(0);
            object.set_meta("generation", generation + 1);
        }
        let grace_period = std::time::Duration::from_secs(grace.unsigned_abs());
        let when = self
            .world
            .now()
            .saturating_add(grace_period)
            .unwrap_or(jiff::Timestamp::MAX);
        object.set_meta("deletionTimestamp", crate::world::rfc3339(when));
        if particular::shows_grace(resource) {
            object.set_meta("deletionGracePeriodSeconds", grace);
        }
    }
}

fn set_propagation(object: &mut Object, propagation: Option<Propagation>) {
    let wanted = match propagation {
        None => return,
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
    };
    let kept = object
        .finalizers()
        .filter(|f| ![FOREGROUND, ORPHAN].contains(f))
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

fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": &*resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.to_string().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
