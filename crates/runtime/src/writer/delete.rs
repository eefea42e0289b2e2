//! Deletes with the UID as precondition.

use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use serde_json::Value;

use super::{Target, Writable, WriteError, WriteErrorKind, Writer, decode, send};

/// Result of a delete.
#[derive(Clone, Debug)]
pub enum DeleteOutcome<K> {
    /// The object was deleted.
    Deleted,
    /// The object has a deletion timestamp and waits for finalizers or its grace period.
    Pending(K),
    /// The object did not exist any more. A recreated object of the same name is left alone.
    AlreadyGone,
}

impl<D> Writer<D> {
    /// Deletes the object, but not a recreated one of the same name.
    pub async fn delete<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
    ) -> Result<DeleteOutcome<K>, WriteError> {
        self.delete_with(object, &DeleteParams::default()).await
    }

    /// [Deletes](Self::delete) with options: propagation, grace period, preconditions.
    ///
    /// The object's UID is a precondition unless the options have one. A failed resource version precondition is a
    /// [conflict](WriteError::is_conflict).
    pub async fn delete_with<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        options: &DeleteParams,
    ) -> Result<DeleteOutcome<K>, WriteError> {
        let target = self.target("delete", object);
        let options = self.with_uid_precondition(object, options);
        let request = kube::core::Request::new(target.path()?).delete(target.key.name(), &options);
        let answer = match send(&self.client, &target, request).await {
            Ok((_, answer)) => answer,
            Err(error) if error.is_not_found() => return Ok(DeleteOutcome::AlreadyGone),
            Err(error) if error.is_conflict() || error.is_uid_mismatch() => {
                let replaced = self.is_gone_or_recreated(&target, object).await?;
                return if replaced {
                    Ok(DeleteOutcome::AlreadyGone)
                } else {
                    Err(error)
                };
            }
            Err(error) => return Err(error),
        };
        let failed = |error| target.failed(WriteErrorKind::Client(Box::new(kube::Error::SerdeError(error))));
        if decode::<Value>(&answer).map_err(failed)?["kind"] == "Status" {
            return Ok(DeleteOutcome::Deleted);
        }
        let left: K = decode(&answer).map_err(failed)?;
        // The server may answer an immediate deletion with the last state. A pending one has something to wait for.
        let is_pending = left.meta().deletion_timestamp.is_some()
            && (!left.finalizers().is_empty() || left.meta().deletion_grace_period_seconds.unwrap_or(0) > 0);
        Ok(if is_pending {
            DeleteOutcome::Pending(left)
        } else {
            DeleteOutcome::Deleted
        })
    }

    /// The options with the object's UID as precondition, and with the writer's dry run.
    pub(super) fn with_uid_precondition<K: Resource>(
        &self,
        object: &K,
        options: &DeleteParams,
    ) -> DeleteParams {
        let mut options = options.clone();
        options.dry_run |= self.dry_run;
        if let Some(uid) = object.meta().uid.clone() {
            let preconditions = options.preconditions.get_or_insert_with(Preconditions::default);
            preconditions.uid.get_or_insert(uid);
        }
        options
    }

    /// Whether the object was deleted or recreated: asked after a conflict, since the failed precondition may be one of the
    /// caller's.
    pub(super) async fn is_gone_or_recreated<K: Writable<DynamicType = D>>(
        &self,
        target: &Target,
        object: &K,
    ) -> Result<bool, WriteError> {
        let request = kube::core::Request::new(target.path()?)
            .get_metadata(target.key.name(), &kube::api::GetParams::default());
        match self.send::<Value>(target, request).await {
            Ok((_, live)) => {
                let expected = object.meta().uid.as_deref();
                Ok(expected.is_some_and(|uid| live["metadata"]["uid"] != uid))
            }
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }
}
