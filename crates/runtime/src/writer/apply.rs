//! Server-side apply.

use http::StatusCode;
use kube::api::Patch;
use serde_json::{Map, Value};

use super::{InvalidWrite, Target, Writable, WriteError, Writer};

/// Metadata that the server sets. In a request it is a precondition or ignored.
const SERVER_METADATA: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// A resource version that no object ever has, because servers count up from one.
const IMPOSSIBLE_RESOURCE_VERSION: &str = "9223372036854775807";

/// Options of a server-side apply. Default: it takes over fields that other managers own with other values, and there are
/// no preconditions.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct ApplyOptions {
    without_force: bool,
    precondition: Precondition,
}

/// Precondition on the existing object.
#[derive(Clone, Copy, Debug)]
enum Precondition {
    /// An existing object must have this UID or resource version.
    Existing { uid: bool, resource_version: bool },
    /// The object must not exist.
    Absent,
}

impl Default for Precondition {
    fn default() -> Self {
        Self::Existing {
            uid: false,
            resource_version: false,
        }
    }
}

impl ApplyOptions {
    /// Does not take over fields that other managers own with other values: such a field is a
    /// [conflict](WriteError::is_field_conflict), and nothing is written. For fields that people or other controllers may
    /// decide. Default: the apply is forced, as Kubernetes advises for controllers: what a controller declares is what it
    /// decides, and drift is repaired.
    pub fn without_force(mut self) -> Self {
        self.without_force = true;
        self
    }

    /// Requires the object's UID: a deleted object is not created again, and a recreated one is not changed. Default: the
    /// UID is not sent.
    pub fn require_uid(mut self) -> Self {
        let resource_version = matches!(
            self.precondition,
            Precondition::Existing {
                resource_version: true,
                ..
            }
        );
        self.precondition = Precondition::Existing {
            uid: true,
            resource_version,
        };
        self
    }

    /// Requires the object's resource version. Default: it is not sent; apply does not need it, because it does not change
    /// fields that other managers own.
    pub fn require_resource_version(mut self) -> Self {
        let uid = matches!(self.precondition, Precondition::Existing { uid: true, .. });
        self.precondition = Precondition::Existing {
            uid,
            resource_version: true,
        };
        self
    }

    /// Requires that the object does not exist; otherwise it is a [conflict](WriteError::is_conflict) and the existing object
    /// is left alone. Overrides [`require_uid`](Self::require_uid) and
    /// [`require_resource_version`](Self::require_resource_version). Default: an existing object is changed.
    ///
    /// It is as atomic as a create, but the server records the fields as applied, so later applies can remove them.
    pub fn require_absent(mut self) -> Self {
        self.precondition = Precondition::Absent;
        self
    }
}

/// Result of [`Writer::create_or_apply`].
#[derive(Clone, Debug)]
pub enum ApplyOutcome<K> {
    /// The object was created.
    Created(K),
    /// The object existed and was applied to. Its resource version shows whether it changed.
    Existed(K),
}

impl<K> ApplyOutcome<K> {
    /// Returns the object as the server stored it.
    pub fn into_object(self) -> K {
        match self {
            Self::Created(object) | Self::Existed(object) => object,
        }
    }
}

impl<D> Writer<D> {
    /// Applies the object server-side: sets the fields in it, removes fields that this manager applied before and that are no
    /// longer in it, and keeps all others. Creates the object if it does not exist. Takes over fields from other managers;
    /// see [`ApplyOptions::without_force`].
    ///
    /// Pass the desired fields, not an object that was read: this manager becomes the owner of every field in it. Fields that
    /// only the server sets (`managedFields`, `resourceVersion`, `uid` and the like) are left out.
    pub async fn apply<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        self.apply_with(object, ApplyOptions::default()).await
    }

    /// [Applies](Self::apply) with options.
    pub async fn apply_with<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        how: ApplyOptions,
    ) -> Result<K, WriteError> {
        self.create_or_apply(object, how)
            .await
            .map(ApplyOutcome::into_object)
    }

    /// [Applies](Self::apply), and returns whether that created the object, for an event or a log line.
    pub async fn create_or_apply<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        how: ApplyOptions,
    ) -> Result<ApplyOutcome<K>, WriteError> {
        let target = self.target("apply", object);
        let mut body = target.body(object)?;
        strip(&target, &mut body, how)?;
        let (code, applied) = self
            .patch(&target, None, &Patch::Apply(body), !how.without_force)
            .await?;
        Ok(match code {
            StatusCode::CREATED => ApplyOutcome::Created(applied),
            _ => ApplyOutcome::Existed(applied),
        })
    }

    /// Applies only the status of the object. Its UID, if set, is sent too, so a recreated object does not get the status of
    /// its predecessor.
    ///
    /// Takes over fields on conflict: a status has one writer, and older versions of it may have used another field manager.
    pub async fn apply_status<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        let target = self.target("apply the status of", object);
        let mut body = target.body(object)?;
        let status = body.get_mut("status").map(Value::take).unwrap_or_default();
        if status.is_null() {
            return Err(target.invalid(InvalidWrite::NoStatus));
        }
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid"] {
            if let Some(value) = body.pointer(&format!("/metadata/{field}")) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        let body = serde_json::json!({
            "apiVersion": target.api_version,
            "kind": target.kind,
            "metadata": metadata,
            "status": status,
        });
        self.patch(&target, Some("status"), &Patch::Apply(body), true)
            .await
            .map(|(_, applied)| applied)
    }
}

fn strip(target: &Target, body: &mut Value, how: ApplyOptions) -> Result<(), WriteError> {
    let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err(target.invalid(InvalidWrite::NoName));
    };
    let Precondition::Existing {
        uid: same_object,
        resource_version,
    } = how.precondition
    else {
        metadata.retain(|field, _| !SERVER_METADATA.contains(&field.as_str()));
        // The server ignores the resource version of a create and rejects a change of any other version.
        metadata.insert("resourceVersion".to_owned(), IMPOSSIBLE_RESOURCE_VERSION.into());
        return Ok(());
    };
    if same_object && !metadata.contains_key("uid") {
        return Err(target.invalid(InvalidWrite::NoUid));
    }
    if resource_version && !metadata.contains_key("resourceVersion") {
        return Err(target.invalid(InvalidWrite::NoResourceVersion));
    }
    for field in SERVER_METADATA {
        let wanted = (field == "uid" && same_object) || (field == "resourceVersion" && resource_version);
        if !wanted {
            metadata.remove(field);
        }
    }
    Ok(())
}
