//! Reconciles one copy: compares it with its desired state, and writes it if it differs.

use std::sync::Arc;

use windlass::{
    cache::Uid,
    kube::{Client, api::ObjectMeta},
    prelude::ObjectKey,
};

use crate::{
    action_log::{ActionLog, CopyAction},
    adoption::{AdoptionConsent, Permission, is_token},
    api::{ADOPT_ANNOTATION, AdoptionPolicy, DeletionPolicy, RecreatePolicy, SOURCE_UID_LABEL, SourceKind},
    consent::Consent,
    content::Content,
    copy_metadata::CopyMetadata,
    copy_outcome::{
        CopyOutcome, RetryPolicy, conflict, display_name, failed_copy, failed_request, not_allowed,
    },
    digest::Digest,
    engine::{Cause, Engine},
    field_ownership::FieldOwnership,
    identity::{SyncId, SyncOwner},
    member::{DesiredCopy, Member, Origin, released_body},
    metrics::Verb,
    plan::{ActiveSync, DesiredCopies, WantedCopy},
    removal_count::CopyAt,
    requests::{self, RequestError, WrittenVersion},
    source_watch::{Source, is_excluded_type},
};

/// Fewer copies are read one by one.
const MIN_COMPARED_TOGETHER: usize = 10;

/// More than any source has: a server must not keep a worker busy without end.
const MAX_PAGES: usize = 10_000;

/// What happened to a copy that may be unwanted.
pub(crate) enum Pruned {
    /// It was removed or released, or it is wanted.
    Done,
    /// Its removal waits for a confirmation.
    Held,
    /// It would be removed, but the status does not say so yet.
    Unplanned,
}

/// Reconciles the copies of one sync in one namespace.
pub(crate) struct CopyReconciler<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    pub(crate) annotation: Arc<str>,
    pub(crate) actions: &'a ActionLog<'a>,
}

impl CopyReconciler<'_> {
    /// Removes a copy that its sync no longer wants, unless the removal waits for a confirmation.
    pub(crate) async fn prune(
        &self,
        sync: &SyncId,
        desired: &DesiredCopies,
        kind: SourceKind,
        name: &str,
        copy: &CopyMetadata,
    ) -> Result<Pruned, RequestError> {
        let is_wanted = desired.wanted.iter().any(|wanted_copy| {
            let source = &wanted_copy.member.source;
            source.kind == kind && &*source.name == name && Uid::from(&*source.uid) == copy.source_uid
        });
        let is_given = desired
            .sync
            .as_ref()
            .is_none_or(|live| self.consent_to_adopted(live, copy) != AdoptionConsent::Withdrawn);
        if is_wanted && is_given || copy.is_deleting || !copy.ownership.is_ours {
            return Ok(Pruned::Done);
        }
        let stays = match &desired.sync {
            Some(live) if copy.owner.as_deref() == Some(&*live.owner) => {
                live.is_deleting && live.rules.deletion == DeletionPolicy::Orphan
            }
            _ => copy.is_orphaned_on_delete,
        };
        // An adopted object goes back to the target, whatever the sync's owner decides.
        if stays || copy.is_adopted {
            return self.release(kind, name, copy).await.map(|()| Pruned::Done);
        }
        let at = CopyAt {
            kind,
            namespace: self.namespace,
            name,
            copy,
        };
        let is_guarded = self.engine.guards_removal(sync, at);
        if is_guarded && self.engine.held_removal(sync).is_some() {
            return Ok(Pruned::Held);
        }
        if is_guarded && !self.engine.is_removal_planned(sync) {
            return Ok(Pruned::Unplanned);
        }
        self.delete(kind, name, &copy.uid.to_string(), copy.version)
            .await?;
        if is_guarded {
            self.engine.record_removal(sync);
        }
        Ok(Pruned::Done)
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
        released.map_err(|failure| {
            let uid = Some(copy.uid);
            self.actions
                .attempt(CopyAction::Released, kind, name, uid, &failure);
            failure.redact(&there)
        })?;
        self.actions.record(CopyAction::Released, kind, name, copy.uid);
        Ok(())
    }

    async fn delete(
        &self,
        kind: SourceKind,
        name: &str,
        uid: &str,
        version: u64,
    ) -> Result<(), RequestError> {
        let deleted = requests::delete(self.client, kind, self.namespace, name, uid, version).await;
        let deleted = deleted.map_err(|failure| {
            let uid = Some(Uid::from(uid));
            self.actions
                .attempt(CopyAction::Deleted, kind, name, uid, &failure);
            failure.redact_denial()
        });
        if deleted? {
            self.engine.metrics.record_write(Verb::Delete);
            self.actions
                .record(CopyAction::Deleted, kind, name, Uid::from(uid));
        }
        Ok(())
    }

    async fn replace(
        &self,
        kind: SourceKind,
        name: &str,
        body: bytes::Bytes,
    ) -> Result<WrittenVersion, RequestError> {
        let written = requests::replace(self.client, kind, self.namespace, name, body).await?;
        self.engine.metrics.record_write(Verb::Update);
        Ok(written)
    }

    async fn create(
        &self,
        live: &ActiveSync,
        kind: SourceKind,
        name: &str,
        wanted: &DesiredCopy,
    ) -> Result<(), RequestError> {
        let body = wanted.create_body(&live.owner);
        let created = requests::create(self.client, kind, self.namespace, body).await;
        let written = created.inspect_err(|failure| {
            self.actions
                .attempt(CopyAction::Created, kind, name, None, failure);
        })?;
        self.engine.metrics.record_write(Verb::Create);
        self.actions.record(CopyAction::Created, kind, name, written.uid);
        self.remember(kind, name, written, wanted.digest);
        Ok(())
    }

    /// Remembers that this version has the desired state with this digest. If the cache does not have this version,
    /// because others have changed the object since, or the watch is late, it is read when it is next reconciled.
    fn remember(&self, kind: SourceKind, name: &str, written: WrittenVersion, digest: Digest) {
        self.remember_in(self.namespace, kind, name, written, digest);
    }

    fn remember_in(
        &self,
        namespace: &str,
        kind: SourceKind,
        name: &str,
        written: WrittenVersion,
        digest: Digest,
    ) {
        let key = ObjectKey::namespaced(namespace, name);
        if let Some(copy) = self.engine.listers().copies(kind).get(&key)
            && (copy.uid, copy.version) == (written.uid, written.version)
        {
            copy.set_content(digest);
        }
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
                return failed_request(name, failure);
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
        match self.sync_copy(live, &wanted_copy.member, &wanted).await {
            Ok(outcome) => outcome,
            // The watch will report the end of the namespace.
            Err(failure) if failure.is_terminating() || failure.is_not_found() => CopyOutcome::Pending,
            Err(failure) => failed_request(name, failure.redact(&wanted.content)),
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
        self.engine.enqueue(affected.collect(), &Cause::Other(None));
    }

    /// Compares the copy with its desired state, and writes it if they differ.
    async fn sync_copy(
        &self,
        live: &ActiveSync,
        member: &Member,
        wanted: &DesiredCopy,
    ) -> Result<CopyOutcome, RequestError> {
        let Source { kind, name, uid, .. } = &*member.source;
        let (kind, source_uid) = (*kind, &**uid);
        let key = ObjectKey::namespaced(self.namespace, &**name);
        let copies = self.engine.listers().copies(kind);
        let Some(mut copy) = copies.get(&key) else {
            return self.create_copy(live, kind, name, wanted).await;
        };
        if copy.content().is_none() && copy.ownership.is_ours && self.compare_all(live, member, wanted).await
        {
            copy = copies.get(&key).unwrap_or(copy);
        }
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
        match self.consent_to_adopted(live, &copy) {
            AdoptionConsent::Given => {}
            AdoptionConsent::Unclear => {
                let message = format!(
                    "the value of `{ADOPT_ANNOTATION}` is invalid; the object stays, and is not updated"
                );
                return Ok(failed_copy(name, "InvalidConsent", message, RetryPolicy::Never));
            }
            AdoptionConsent::Withdrawn => {
                let message = "the target has withdrawn its consent to the adoption; the object is released";
                return Ok(conflict(
                    name,
                    "AdoptionNotAllowed",
                    message.to_owned(),
                    RetryPolicy::Poll,
                ));
            }
        }
        let known = copy
            .content()
            .filter(|_| copy.owner.as_deref() == Some(&*live.owner));
        if known == Some(wanted.digest) {
            return Ok(CopyOutcome::Synced);
        }
        if known.is_some()
            && let Some(outcome) = self.replace_unread(live, kind, name, wanted, &copy).await?
        {
            return Ok(outcome);
        }
        let Some(there) = requests::get(self.client, kind, self.namespace, name).await? else {
            return self.create_copy(live, kind, name, wanted).await;
        };
        // Its owner may have reclaimed it in the meantime; the watch will report that.
        let own_consent = Consent::from_metadata(&there.metadata, ADOPT_ANNOTATION);
        let is_given = Origin::of(&there.metadata) == Origin::Created
            || self.adoption_consent(live, Some(&own_consent)) == AdoptionConsent::Given;
        if Uid::from(there.uid()) != copy.uid || !is_copy_of(&there, copy.source_uid) || !is_given {
            return Ok(CopyOutcome::Pending);
        }
        self.update(live, kind, name, wanted, &there).await
    }

    /// Returns whether the target still consents to an adopted copy. Copies that we created need no such consent.
    fn consent_to_adopted(&self, live: &ActiveSync, copy: &CopyMetadata) -> AdoptionConsent {
        if !copy.is_adopted {
            return AdoptionConsent::Given;
        }
        self.adoption_consent(live, copy.adoption_consent.as_deref())
    }

    fn adoption_consent(&self, live: &ActiveSync, object: Option<&Consent>) -> AdoptionConsent {
        let index = self.engine.index.read();
        live.adoption
            .consent_to_adopted(object, |name| index.has_namespace(name))
    }

    /// After a start, compares all copies of a source in a few requests, instead of one for each. Returns whether it did, or
    /// another task has. Copies that differ, or that it could not compare, are read one by one.
    async fn compare_all(&self, live: &ActiveSync, member: &Member, wanted: &DesiredCopy) -> bool {
        let source = &member.source;
        let sync = live.owner.sync_id(source.kind, &source.name);
        // Later, single copies are changed. Lists of all namespaces may not be allowed.
        if self.engine.tracker.lock().is_complete(&sync)
            || !self.engine.index.read().config.restricted_to.is_empty()
        {
            return false;
        }
        let mut is_compared = member.compared.lock().await;
        if std::mem::replace(&mut *is_compared, true) {
            return true;
        }
        if !self.has_many_unread(source) {
            return false;
        }
        let (size, mut token) = (wanted.content.size(), String::new());
        for _ in 0..MAX_PAGES {
            let page = requests::list_copies(self.client, source.kind, &source.uid, size, &token).await;
            let (found, next) = match page {
                Ok(page) => page,
                Err(failure) => {
                    let error = failure.redact(&wanted.content);
                    tracing::debug!(%sync, %error, "copies are read one by one");
                    break;
                }
            };
            for there in &found {
                let is_copy = there.metadata.name.as_deref() == Some(&*source.name)
                    && there.metadata.deletion_timestamp.is_none()
                    && is_copy_of(there, Uid::from(&*source.uid));
                if is_copy && wanted.is_up_to_date(there, &live.owner) {
                    let namespace = there.metadata.namespace.as_deref().unwrap_or_default();
                    let found = WrittenVersion {
                        uid: Uid::from(there.uid()),
                        version: there.version(),
                    };
                    self.remember_in(namespace, source.kind, &source.name, found, wanted.digest);
                }
            }
            if next.is_empty() {
                break;
            }
            token = next;
        }
        true
    }

    /// Returns whether enough copies of a source have not been compared: a list is more work for a server than a few reads.
    fn has_many_unread(&self, source: &Source) -> bool {
        let copies = self.engine.listers().copies(source.kind);
        let index = self.engine.index.read();
        let unread = index.namespaces.keys().filter(|namespace| {
            let copy = copies.get(&ObjectKey::namespaced(&***namespace, &*source.name));
            copy.is_some_and(|copy| copy.content().is_none())
        });
        unread.take(MIN_COMPARED_TOGETHER).count() == MIN_COMPARED_TOGETHER
    }

    /// Replaces a copy whose content is known, in one request. `None` if it has to be read first: others have added
    /// metadata to it, apply data to it, or have changed it meanwhile; or the server rejects the update.
    async fn replace_unread(
        &self,
        live: &ActiveSync,
        kind: SourceKind,
        name: &Arc<str>,
        wanted: &DesiredCopy,
        copy: &CopyMetadata,
    ) -> Result<Option<CopyOutcome>, RequestError> {
        if copy.is_adopted || copy.ownership.has_foreign_metadata || copy.ownership.foreign_applier.is_some()
        {
            return Ok(None);
        }
        match self
            .replace(kind, name, wanted.replace_body(copy, &live.owner))
            .await
        {
            Ok(written) => {
                self.actions.record(CopyAction::Updated, kind, name, written.uid);
                self.remember(kind, name, written, wanted.digest);
                Ok(Some(CopyOutcome::Synced))
            }
            // An admission webhook's reason may quote the old content, which is not known here.
            Err(failure) if failure.is_rejected() => Ok(None),
            Err(failure) => {
                let uid = Some(copy.uid);
                self.actions
                    .attempt(CopyAction::Updated, kind, name, uid, &failure);
                Err(failure.redact_denial())
            }
        }
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
        match self.create(live, kind, name, wanted).await {
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
        let is_fixed = there.is_immutable() || there.secret_type() != wanted.secret_type();
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
        let action = match (origin, Origin::of(&there.metadata)) {
            (Origin::Adopted, Origin::Created) => CopyAction::Adopted,
            _ => CopyAction::Updated,
        };
        let replaced = self.replace(kind, name, wanted.update_body(there, &live.owner, origin));
        let written = replaced.await.map_err(|failure| {
            let uid = Some(Uid::from(there.uid()));
            self.actions.attempt(action, kind, name, uid, &failure);
            // The admission webhook sees the old object, too.
            failure.redact(there)
        })?;
        self.actions.record(action, kind, name, written.uid);
        self.remember(kind, name, written, wanted.digest);
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
            let found = WrittenVersion {
                uid: Uid::from(there.uid()),
                version: there.version(),
            };
            self.remember(kind, name, found, wanted.digest);
            return Ok(CopyOutcome::Synced);
        }
        if let Some(applier) = FieldOwnership::of(&there.metadata).foreign_applier {
            let message = format!("`{applier}` applies other data to it; it is left unchanged");
            return Ok(conflict(name, "AppliedByOther", message, RetryPolicy::Never));
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
        match self.create(live, kind, name, wanted).await {
            Ok(()) => Ok(CopyOutcome::Synced),
            // It has finalizers, and is deleted later.
            Err(failure) if failure.is_already_exists() => Ok(CopyOutcome::Pending),
            Err(failure) => Err(failure),
        }
    }
}

/// Returns whether the object is still our copy of this source.
fn is_copy_of(there: &Content, source: Uid) -> bool {
    let labels = there.metadata.labels.as_ref();
    let label = labels.and_then(|all| all.get(SOURCE_UID_LABEL));
    label.is_some_and(|uid| Uid::from(uid.as_str()) == source) && FieldOwnership::of(&there.metadata).is_ours
}
