//! Deletion of the object that was meant, and of no other.

use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use serde_json::Value;

use super::{Target, Writable, WriteError, WriteErrorKind, Writer};

/// What became of an object that was to be deleted.
#[derive(Clone, Debug)]
pub enum Deleted<K> {
    /// It is gone.
    Now,
    /// It is marked, and waits for finalizers or for its grace period.
    Pending(K),
    /// It had gone before; if there is another one of its name, that one stays.
    Before,
}

impl<D> Writer<D> {
    /// Deletes this very object: its successor of the same name is left alone.
    pub async fn delete<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<Deleted<K>, WriteError> {
        self.delete_with(object, &DeleteParams::default()).await
    }

    /// [Deletes](Self::delete) with options: propagation, grace period, preconditions.
    ///
    /// The object's uid is a precondition unless the options have one. A resource version among the preconditions
    /// that does not hold is a [conflict](WriteError::is_conflict).
    pub async fn delete_with<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        options: &DeleteParams,
    ) -> Result<Deleted<K>, WriteError> {
        let target = self.target("delete", object);
        let options = self.of_this_object(object, options);
        let request = kube::core::Request::new(target.path()?).delete(target.key.name(), &options);
        let answer = match self.send::<Value>(&target, request).await {
            Ok((_, answer)) => answer,
            Err(error) if error.is_not_found() => return Ok(Deleted::Before),
            Err(error) if error.is_conflict() => {
                let replaced = self.is_replaced(&target, object).await?;
                return if replaced { Ok(Deleted::Before) } else { Err(error) };
            }
            Err(error) => return Err(error),
        };
        if answer["kind"] == "Status" {
            return Ok(Deleted::Now);
        }
        let left = serde_json::from_value::<K>(answer).map_err(|error| {
            target.failed(WriteErrorKind::Client(Box::new(kube::Error::SerdeError(error))))
        })?;
        // What goes at once is answered by its last state; what waits is marked and has something to wait for.
        let waits = left.meta().deletion_timestamp.is_some()
            && (!left.finalizers().is_empty() || left.meta().deletion_grace_period_seconds.unwrap_or(0) > 0);
        Ok(if waits {
            Deleted::Pending(left)
        } else {
            Deleted::Now
        })
    }

    /// The options with the object's uid as precondition, and with our dry run.
    pub(super) fn of_this_object<K: Resource>(&self, object: &K, options: &DeleteParams) -> DeleteParams {
        let mut options = options.clone();
        options.dry_run |= self.dry_run;
        if let Some(uid) = object.meta().uid.clone() {
            let preconditions = options.preconditions.get_or_insert_with(Preconditions::default);
            preconditions.uid.get_or_insert(uid);
        }
        options
    }

    /// Whether the object is gone or has a successor. A conflict does not say which precondition failed, except in
    /// prose.
    pub(super) async fn is_replaced<K: Writable<DynamicType = D>>(
        &self,
        target: &Target,
        object: &K,
    ) -> Result<bool, WriteError> {
        let request = kube::core::Request::new(target.path()?)
            .get_metadata(target.key.name(), &kube::api::GetParams::default());
        match self.send::<Value>(target, request).await {
            Ok((_, live)) => {
                let meant = object.meta().uid.as_deref();
                Ok(meant.is_some_and(|uid| live["metadata"]["uid"] != uid))
            }
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }
}
