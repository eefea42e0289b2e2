//! Server-side apply: what we want, and nothing else.

use http::StatusCode;
use kube::api::Patch;
use serde_json::{Map, Value};

use super::{Refusal, Target, Writable, WriteError, Writer};

/// Metadata that the server sets. In a body it is a precondition or noise, never a wish.
const OF_THE_SERVER: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// A version that no object has, nor ever will: servers count up from one.
const NEVER: &str = "9223372036854775807";

/// How to apply. Default: fields that somebody else owns with another value are a conflict, and whatever object has the
/// name is meant.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Apply {
    force: bool,
    which: Which,
}

/// Which object is meant.
#[derive(Clone, Copy, Debug)]
enum Which {
    /// What has the name, and maybe this uid and this version.
    There { same_object: bool, same_version: bool },
    /// One that is not there yet.
    New,
}

impl Default for Which {
    fn default() -> Self {
        Self::There {
            same_object: false,
            same_version: false,
        }
    }
}

impl Apply {
    /// Takes fields over from other managers. Default: such a field is a [conflict](WriteError::is_conflict).
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// Only the object with this uid: one that is gone is not created again, and its successor is left alone.
    /// Default: the uid is not sent.
    pub fn same_object(mut self) -> Self {
        let same_version = matches!(
            self.which,
            Which::There {
                same_version: true,
                ..
            }
        );
        self.which = Which::There {
            same_object: true,
            same_version,
        };
        self
    }

    /// Only if the object still has this resource version. Default: the resource version is not sent; apply does not
    /// need it, because it changes nothing that others own.
    pub fn same_version(mut self) -> Self {
        let same_object = matches!(
            self.which,
            Which::There {
                same_object: true,
                ..
            }
        );
        self.which = Which::There {
            same_object,
            same_version: true,
        };
        self
    }

    /// Only if there is none: one that is there, whoever made it, is left as it is, and a [conflict](WriteError::is_conflict).
    /// Takes back what was said of the uid and the version. Default: one that is there gets what is applied.
    ///
    /// It is as atomic as a create, and what it makes can be applied to afterwards: the server notes the fields as applied.
    pub fn new_object(mut self) -> Self {
        self.which = Which::New;
        self
    }
}

/// What [`Writer::create_or_apply`] did.
#[derive(Clone, Debug)]
pub enum Applied<K> {
    /// There was none; it was created.
    Created(K),
    /// There was one; it now has what was applied. Whether that changed it, its resource version tells.
    Existed(K),
}

impl<K> Applied<K> {
    /// The object as the server has it.
    pub fn into_object(self) -> K {
        match self {
            Self::Created(object) | Self::Existed(object) => object,
        }
    }
}

impl<D> Writer<D> {
    /// Applies the object: the fields in it get these values, fields that this manager applied before and that are no
    /// longer in it go, and everything else stays. Creates it if it is not there.
    ///
    /// Give it what you want, not what you read: fields that you send become yours. What only the server sets
    /// (`managedFields`, `resourceVersion`, `uid` and the like) is left out.
    pub async fn apply<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        self.apply_with(object, Apply::default()).await
    }

    /// [Applies](Self::apply) with options.
    pub async fn apply_with<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        how: Apply,
    ) -> Result<K, WriteError> {
        self.create_or_apply(object, how).await.map(Applied::into_object)
    }

    /// [Applies](Self::apply), and tells whether that created the object: for an event or a log line.
    pub async fn create_or_apply<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        how: Apply,
    ) -> Result<Applied<K>, WriteError> {
        let target = self.target("apply", object);
        let mut body = target.body(object)?;
        strip(&target, &mut body, how)?;
        let (code, applied) = self.patch(&target, None, &Patch::Apply(body), how.force).await?;
        Ok(match code {
            StatusCode::CREATED => Applied::Created(applied),
            _ => Applied::Existed(applied),
        })
    }

    /// Applies the status of the object, and of its metadata nothing: its name, and its uid if it has one, so that a
    /// successor does not get the status of the one before.
    ///
    /// Conflicts are taken over: a status has one author, and older versions of it may have written in other ways.
    pub async fn apply_status<K: Writable<DynamicType = D>>(&self, object: &K) -> Result<K, WriteError> {
        let target = self.target("apply the status of", object);
        let mut whole = target.body(object)?;
        let status = whole.get_mut("status").map(Value::take).unwrap_or_default();
        if status.is_null() {
            return Err(target.refuse(Refusal::NoStatus));
        }
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid"] {
            if let Some(value) = whole.pointer(&format!("/metadata/{field}")) {
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

fn strip(target: &Target, body: &mut Value, how: Apply) -> Result<(), WriteError> {
    let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err(target.refuse(Refusal::NoName));
    };
    let Which::There {
        same_object,
        same_version,
    } = how.which
    else {
        metadata.retain(|field, _| !OF_THE_SERVER.contains(&field.as_str()));
        // A server that creates an object ignores its version, and refuses any change of another version.
        metadata.insert("resourceVersion".to_owned(), NEVER.into());
        return Ok(());
    };
    if same_object && !metadata.contains_key("uid") {
        return Err(target.refuse(Refusal::NoUid));
    }
    if same_version && !metadata.contains_key("resourceVersion") {
        return Err(target.refuse(Refusal::NoResourceVersion));
    }
    for field in OF_THE_SERVER {
        let wanted = (field == "uid" && same_object) || (field == "resourceVersion" && same_version);
        if !wanted {
            metadata.remove(field);
        }
    }
    Ok(())
}
