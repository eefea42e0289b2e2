//! Reconciles one copy: compares it with its desired state, and writes it if it differs.

use std::sync::Arc;

use windlass::{
    cache::Uid,
    kube::{Client, api::ObjectMeta},
    prelude::ObjectKey,
};

use crate::{
    adoption::{Permission, is_token},
    api::{ADOPT_ANNOTATION, AdoptionPolicy, DeletionPolicy, RecreatePolicy, SOURCE_UID_LABEL, SourceKind},
    consent::Consent,
    content::Content,
    copy_metadata::CopyMetadata,
    engine::Engine,
    field_ownership::FieldOwnership,
    identity::{SyncId, SyncOwner},
    member::{DesiredCopy, Origin, released_body},
    metrics::Verb,
    plan::{ActiveSync, DesiredCopies, WantedCopy},
    requests::{self, RequestError},
    source_watch::{Source, is_excluded_type},
    work_tracker::CopyFailure,
};

/// The result for one copy.
pub(crate) enum CopyOutcome {
    Synced,
    /// Its type or name is never copied.
    Excluded,
    /// Its source is gone, or something else has to happen first; a watch will trigger another reconcile.
    Pending,
    Failed(CopyFailure, RetryPolicy),
}

/// Whether and how to retry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// With exponential backoff.
    Backoff,
    /// Periodically, since no watch reports the change.
    Poll,
    /// Only after a change.
    Never,
}

/// Reconciles the copies of one sync in one namespace.
pub(crate) struct CopyReconciler<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    pub(crate) annotation: Arc<str>,
}

impl CopyReconciler<'_> {
    /// Removes a copy that its sync no longer wants.
    pub(crate) async fn prune(
        &self,
        desired: &DesiredCopies,
        kind: SourceKind,
        name: &str,
        copy: &CopyMetadata,
    ) -> Result<(), RequestError> {
        let is_wanted = desired.wanted.iter().any(|wanted_copy| {
            let source = &wanted_copy.member.source;
            source.kind == kind && &*source.name == name && Uid::from(&*source.uid) == copy.source_uid
        });
        let is_given = desired
            .sync
            .as_ref()
            .is_none_or(|live| has_adoption_consent(live, copy));
        if is_wanted && is_given || copy.is_deleting || !copy.ownership.is_ours {
            return Ok(());
        }
        let stays = match &desired.sync {
            Some(live) if copy.owner.as_deref() == Some(&*live.owner) => {
                live.is_deleting && live.rules.deletion == DeletionPolicy::Orphan
            }
            _ => copy.is_orphaned_on_delete,
        };
        // An adopted object goes back to the target, whatever the sync's owner decides.
        if stays || copy.is_adopted {
            self.release(kind, name, copy).await
        } else {
            self.delete(kind, name, &copy.uid.to_string(), copy.version).await
        }
    }

    /// Removes our labels, annotations and managed fields, and leaves the rest.
    async fn release(&self, kind: SourceKind, name: &str, copy: &CopyMetadata) -> Result<(), RequestError> {
        let there = requests::get(self.client, kind, self.namespace, name).await?;
        let is_same =
            |there: &Content| Uid::from(there.uid()) == copy.uid && is_copy_of(there, copy.source_uid);
        let Some(there) = there.filter(is_same) else {
            return Ok(());
        };
        let released = self.replace(kind, name, released_body(&there, kind)).await;
        released.map_err(|failure| failure.redact(&there))
    }

    async fn delete(
        &self,
        kind: SourceKind,
        name: &str,
        uid: &str,
        version: u64,
    ) -> Result<(), RequestError> {
        let deleted = requests::delete(self.client, kind, self.namespace, name, uid, version).await;
        deleted.map_err(RequestError::redact_denial)?;
        self.engine.metrics.record_write(Verb::Delete);
        Ok(())
    }

    async fn replace(&self, kind: SourceKind, name: &str, body: bytes::Bytes) -> Result<(), RequestError> {
        requests::replace(self.client, kind, self.namespace, name, body).await?;
        self.engine.metrics.record_write(Verb::Update);
        Ok(())
    }

    async fn create(&self, kind: SourceKind, body: bytes::Bytes) -> Result<(), RequestError> {
        requests::create(self.client, kind, self.namespace, body).await?;
        self.engine.metrics.record_write(Verb::Create);
        Ok(())
    }

    pub(crate) async fn reconcile(&self, live: &ActiveSync, wanted_copy: &WantedCopy) -> CopyOutcome {
        let source = &wanted_copy.member.source;
        let name = &source.name;
        let named = matches!(&*live.owner, SyncOwner::Annotation { .. }) || live.rules.names_source(name);
        let excluded = |what: &str| {
            if !named {
                return CopyOutcome::Excluded;
            }
            let message = format!("{what} is never copied");
            failed_copy(name, "NeverCopied", message, RetryPolicy::Never)
        };
        if source.is_excluded() {
            return excluded("a token, or an object that belongs to a tool or to the cluster,");
        }
        if source.chain_contains(self.namespace) {
            let message = format!("the copy would create a loop ({})", source.chain());
            return failed_copy(name, "CopyLoop", message, RetryPolicy::Never);
        }
        let wanted = match wanted_copy.member.desired(self.client, &self.annotation).await {
            Ok(Some(wanted)) => wanted,
            // The watch will report it.
            Ok(None) => return CopyOutcome::Pending,
            Err(failure) => {
                return CopyOutcome::Failed(request_failure(name, &failure), RetryPolicy::Backoff);
            }
        };
        if is_excluded_type(wanted.content.secret_type()) {
            self.exclude_source(live, source);
            return excluded(&format!("a Secret of type {}", wanted.content.secret_type()));
        }
        if let Some(rival) = &wanted_copy.competitor
            && (rival.is_same_source || !self.owns_copy(live, source))
        {
            let message = format!(
                "an older sync wants a copy of the same name: {}",
                display_name(&rival.sync, live)
            );
            return conflict(name, "OwnedByOtherSync", message, RetryPolicy::Never);
        }
        match self
            .sync_copy(live, source.kind, name, &source.uid, &wanted)
            .await
        {
            Ok(outcome) => outcome,
            // The watch will report the end of the namespace.
            Err(failure) if failure.is_terminating() || failure.is_not_found() => CopyOutcome::Pending,
            Err(failure) => {
                let failure = failure.redact(&wanted.content);
                CopyOutcome::Failed(request_failure(name, &failure), RetryPolicy::Backoff)
            }
        }
    }

    /// Returns whether the existing copy is this sync's, of this source: then no other sync replaces it.
    fn owns_copy(&self, live: &ActiveSync, source: &Source) -> bool {
        let key = ObjectKey::namespaced(self.namespace, &*source.name);
        let copy = self.engine.listers().copies(source.kind).get(&key);
        copy.is_some_and(|copy| {
            copy.ownership.is_ours
                && !copy.is_deleting
                && copy.source_uid == Uid::from(&*source.uid)
                && copy.owner.as_deref() == Some(&*live.owner)
        })
    }

    /// Records that a source is never copied, and enqueues the other syncs that want a copy of its name.
    fn exclude_source(&self, live: &ActiveSync, source: &Source) {
        if source.content_cell.exclude() {
            return;
        }
        let own = live.owner.sync_id(source.kind, &source.name);
        let index = self.engine.index.read();
        let others = index.claimants(source.kind, &source.name).iter();
        let affected = others
            .filter(|other| **other != own)
            .flat_map(|other| index.all_targets(other));
        self.engine.enqueue(affected.collect());
    }

    /// Compares the copy with its desired state, and writes it if they differ.
    async fn sync_copy(
        &self,
        live: &ActiveSync,
        kind: SourceKind,
        name: &Arc<str>,
        source_uid: &str,
        wanted: &DesiredCopy,
    ) -> Result<CopyOutcome, RequestError> {
        let key = ObjectKey::namespaced(self.namespace, &**name);
        let Some(copy) = self.engine.listers().copies(kind).get(&key) else {
            return self.create_copy(live, kind, name, wanted).await;
        };
        if !copy.ownership.is_ours {
            // It has our label but was not written by us: a manual copy of a copy.
            return match requests::get_metadata(self.client, kind, self.namespace, name).await? {
                Some(there) => self.adopt(live, kind, name, wanted, &there).await,
                None => Ok(CopyOutcome::Pending),
            };
        }
        if copy.is_deleting {
            return Ok(CopyOutcome::Pending);
        }
        if copy.source_uid != Uid::from(source_uid) {
            return Ok(self.occupied_outcome(live, kind, name, &copy));
        }
        if !has_adoption_consent(live, &copy) {
            let message = "the target has withdrawn its consent to the adoption; the object is released";
            return Ok(conflict(
                name,
                "AdoptionNotAllowed",
                message.to_owned(),
                RetryPolicy::Poll,
            ));
        }
        let is_marked = copy.owner.as_deref() == Some(&*live.owner);
        let ownership = &copy.ownership;
        let origin = if copy.is_adopted {
            Origin::Adopted
        } else {
            Origin::Created
        };
        let is_untouched = ownership.fields_hash == wanted.field_hash(origin) && !ownership.has_foreign_data;
        if is_marked && is_untouched && copy.digest == Some(wanted.digest) {
            return Ok(CopyOutcome::Synced);
        }
        if let Some(applier) = &ownership.foreign_applier {
            let message = format!("`{applier}` applies other data to it; it is left unchanged");
            return Ok(conflict(name, "AppliedByOther", message, RetryPolicy::Never));
        }
        let state = (copy.uid, copy.version);
        if is_marked
            && copy.digest == Some(wanted.digest)
            && self.engine.verified.lock().get(&(kind, key.clone())) == Some(&state)
        {
            return Ok(CopyOutcome::Synced);
        }
        let Some(there) = requests::get(self.client, kind, self.namespace, name).await? else {
            return self.create_copy(live, kind, name, wanted).await;
        };
        // Its owner may have reclaimed it in the meantime; the watch will report that.
        let is_given = Origin::of(&there.metadata) == Origin::Created
            || live
                .adoption
                .still_allows(Some(&Consent::from_metadata(&there.metadata, ADOPT_ANNOTATION)));
        if Uid::from(there.uid()) != copy.uid || !is_copy_of(&there, copy.source_uid) || !is_given {
            return Ok(CopyOutcome::Pending);
        }
        self.update(live, kind, name, wanted, &there).await
    }

    /// The existing object is a copy of another source.
    fn occupied_outcome(
        &self,
        live: &ActiveSync,
        kind: SourceKind,
        name: &Arc<str>,
        copy: &CopyMetadata,
    ) -> CopyOutcome {
        let owner = self.engine.sync_of_copy(kind, name, copy);
        let index = self.engine.index.read();
        let message = match &owner {
            // A copy without a sync, or one that its sync no longer wants, will be deleted; the watch reports that.
            Some(owner) if copy.owner.as_deref() == Some(&*live.owner) || index.sync(owner).is_none() => {
                return CopyOutcome::Pending;
            }
            Some(owner) => format!("it is a copy that belongs to {}", display_name(owner, live)),
            None => "it is a copy of another source, written by an unknown sync".to_owned(),
        };
        conflict(name, "OwnedByOtherSync", message, RetryPolicy::Poll)
    }

    async fn create_copy(
        &self,
        live: &ActiveSync,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &DesiredCopy,
    ) -> Result<CopyOutcome, RequestError> {
        // After a conflict, checks whether the object still exists, instead of repeating a write that fails.
        if self.was_in_conflict(live, name)
            && let Some(there) = requests::get_metadata(self.client, kind, self.namespace, name).await?
        {
            return self.adopt(live, kind, name, wanted, &there).await;
        }
        match self.create(kind, wanted.create_body(&live.owner)).await {
            Ok(()) => Ok(CopyOutcome::Synced),
            Err(failure) if failure.is_already_exists() => {
                match requests::get_metadata(self.client, kind, self.namespace, name).await? {
                    Some(there) => self.adopt(live, kind, name, wanted, &there).await,
                    None => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns whether the last result was a conflict with an existing object.
    fn was_in_conflict(&self, live: &ActiveSync, name: &Arc<str>) -> bool {
        let sync = live.owner.sync_id(live.rules.kind, name);
        let tracker = self.engine.tracker.lock();
        tracker.is_in_conflict(&sync, self.namespace, name)
    }

    /// Handles an existing object that is not one of our copies: adopts it if that is allowed.
    async fn adopt(
        &self,
        live: &ActiveSync,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &DesiredCopy,
        there: &ObjectMeta,
    ) -> Result<CopyOutcome, RequestError> {
        // The cache may be stale: it already is a copy, and the watch will report it.
        let is_labelled = there
            .labels
            .as_ref()
            .is_some_and(|all| all.contains_key(SOURCE_UID_LABEL));
        if is_labelled && FieldOwnership::of(there).is_ours {
            return Ok(CopyOutcome::Pending);
        }
        if live.rules.adoption == AdoptionPolicy::Never {
            let message = "an object of that name exists; it is left unchanged".to_owned();
            return Ok(conflict(name, "Conflict", message, RetryPolicy::Poll));
        }
        // Without permission its content is not read, so that nothing can depend on it.
        let permission = |metadata: &ObjectMeta| {
            if is_token(metadata) {
                return Permission::Denied;
            }
            live.adoption.permission(live.rules.adoption, metadata)
        };
        if permission(there) == Permission::Denied {
            return Ok(not_allowed(live, name));
        }
        let found = requests::get(self.client, kind, self.namespace, name).await?;
        let Some(there) = found.filter(|found| Some(found.uid()) == there.uid.as_deref()) else {
            return Err(RequestError::Other(
                "the object was replaced while it was being read".to_owned(),
            ));
        };
        // The write is conditional on this version, so this version has to consent.
        let permission = permission(&there.metadata);
        if permission == Permission::Denied || is_excluded_type(there.secret_type()) {
            return Ok(not_allowed(live, name));
        }
        let is_fixed = there.is_immutable() || there.secret_type() != wanted.content.secret_type();
        let is_adopted = match permission {
            Permission::Denied => false,
            Permission::Overwrite => !is_fixed,
            Permission::Compare => wanted.has_content(&there),
            Permission::OverwriteOrCompare => !is_fixed || wanted.has_content(&there),
        };
        if !is_adopted {
            let message = match permission {
                Permission::Compare => "an object of that name exists and differs; it is left unchanged",
                _ => {
                    "an object of that name exists and is immutable or of another type; delete it, and a copy is \
                     created"
                }
            };
            return Ok(conflict(name, "Conflict", message.to_owned(), RetryPolicy::Poll));
        }
        self.overwrite(live, kind, name, wanted, &there, Origin::Adopted)
            .await
    }

    /// Replaces the existing object with the desired copy.
    async fn overwrite(
        &self,
        live: &ActiveSync,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &DesiredCopy,
        there: &Content,
        origin: Origin,
    ) -> Result<CopyOutcome, RequestError> {
        let replaced = self.replace(kind, name, wanted.update_body(there, &live.owner, origin));
        // The admission webhook sees the old object, too.
        replaced.await.map_err(|failure| failure.redact(there))?;
        Ok(CopyOutcome::Synced)
    }

    /// Updates a copy of ours.
    async fn update(
        &self,
        live: &ActiveSync,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &DesiredCopy,
        there: &Content,
    ) -> Result<CopyOutcome, RequestError> {
        if wanted.is_up_to_date(there, &live.owner) {
            let key = (kind, ObjectKey::namespaced(self.namespace, &**name));
            let state = (Uid::from(there.uid()), there.version());
            self.engine.verified.lock().insert(key, state);
            return Ok(CopyOutcome::Synced);
        }
        let origin = Origin::of(&there.metadata);
        let Some(reason) = wanted.recreate_reason(there) else {
            return self.overwrite(live, kind, name, wanted, there, origin).await;
        };
        if origin == Origin::Adopted {
            let message = "it cannot be updated, and adopted objects are never deleted: delete it, and a copy is created";
            return Ok(failed_copy(name, reason, message.to_owned(), RetryPolicy::Never));
        }
        if live.rules.recreate == RecreatePolicy::Never {
            let message = "it cannot be updated, only recreated, and `recreatePolicy` is `Never`".to_owned();
            return Ok(failed_copy(name, reason, message, RetryPolicy::Never));
        }
        self.delete(kind, name, there.uid(), there.version()).await?;
        match self.create(kind, wanted.create_body(&live.owner)).await {
            Ok(()) => Ok(CopyOutcome::Synced),
            // It has finalizers, and is deleted later.
            Err(failure) if failure.is_already_exists() => Ok(CopyOutcome::Pending),
            Err(failure) => Err(failure),
        }
    }
}

/// Returns whether the target still consents to an adopted copy. Copies that we created need no such consent.
fn has_adoption_consent(live: &ActiveSync, copy: &CopyMetadata) -> bool {
    !copy.is_adopted || live.adoption.still_allows(copy.adoption_consent.as_deref())
}

/// Returns whether the object is still our copy of this source.
fn is_copy_of(there: &Content, source: Uid) -> bool {
    let labels = there.metadata.labels.as_ref();
    let label = labels.and_then(|all| all.get(SOURCE_UID_LABEL));
    label.is_some_and(|uid| Uid::from(uid.as_str()) == source) && FieldOwnership::of(&there.metadata).is_ours
}

/// How a sync is named to the owner of another sync: its name is shown only within the same namespace.
fn display_name(other: &SyncId, live: &ActiveSync) -> String {
    match other {
        SyncId::Declared { namespace, .. } if *namespace != live.adoption.source => {
            "a sync of another namespace".to_owned()
        }
        SyncId::Annotated { .. } if live.adoption.configured != live.adoption.source => {
            "a sync of another namespace".to_owned()
        }
        other => other.to_string(),
    }
}

/// The message must not depend on the object's content: without consent, the sync's owner may learn nothing about it.
fn not_allowed(live: &ActiveSync, name: &Arc<str>) -> CopyOutcome {
    let whose = match live.rules.adoption {
        AdoptionPolicy::IfIdentical => "the object itself",
        _ => "the object or its namespace",
    };
    let message = format!(
        "an object of that name exists and is left unchanged: `{ADOPT_ANNOTATION}` on {whose} does not name `{}`",
        live.adoption.source
    );
    conflict(name, "AdoptionNotAllowed", message, RetryPolicy::Poll)
}

fn failed_copy(name: &Arc<str>, reason: &str, message: String, again: RetryPolicy) -> CopyOutcome {
    CopyOutcome::Failed(CopyFailure::new(name, reason, message), again)
}

fn conflict(name: &Arc<str>, reason: &str, message: String, again: RetryPolicy) -> CopyOutcome {
    let failure = CopyFailure::new(name, reason, message);
    CopyOutcome::Failed(
        CopyFailure {
            is_conflict: true,
            ..failure
        },
        again,
    )
}

/// Converts a failed request.
pub(crate) fn request_failure(name: &Arc<str>, failure: &RequestError) -> CopyFailure {
    CopyFailure::new(name, failure.reason(), failure.to_string())
}
