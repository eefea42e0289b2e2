//! Finalizers: added before the first external effect, removed after the cleanup.

use kube::ResourceExt;
use serde_json::json;
use windlass_api::naming::{is_dns_subdomain, is_qualified_name};

use super::{InvalidWrite, Writable, WriteError, Writer};

impl<D> Writer<D> {
    /// Adds the finalizer if it is missing, and returns the object with it, so that the same reconcile can continue.
    ///
    /// Sends no request if the finalizer is present. Otherwise sends one patch with the UID and resource version as
    /// preconditions, so it neither changes a recreated object nor loses a finalizer that was added concurrently; that is a
    /// [conflict](WriteError::is_conflict), and the next reconcile sees the newer object.
    ///
    /// Fails for an object that is being deleted, as the server would.
    pub async fn add_finalizer<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        finalizer: &str,
    ) -> Result<K, WriteError> {
        if object.finalizers().iter().any(|present| present == finalizer) {
            return Ok(object.clone());
        }
        let refuse = |why| Err(self.target("patch", object).invalid(why));
        if let Err(invalid) = check_finalizer(finalizer) {
            return refuse(InvalidWrite::Finalizer(invalid));
        }
        if object.meta().deletion_timestamp.is_some() {
            return refuse(InvalidWrite::Deleting(finalizer.to_owned()));
        }
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(finalizer.to_owned());
        self.set_finalizers(object, &finalizers).await
    }

    /// Removes the finalizer. Returns the object, or `None` if it does not exist any more. If this was the last finalizer of
    /// an object that is being deleted, the server deletes it, and the last state is returned.
    ///
    /// Sends no request if the finalizer is absent. Otherwise sends one patch, as in
    /// [`add_finalizer`](Self::add_finalizer).
    pub async fn remove_finalizer<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        finalizer: &str,
    ) -> Result<Option<K>, WriteError> {
        let present = object.finalizers();
        let left: Vec<_> = present
            .iter()
            .filter(|name| *name != finalizer)
            .cloned()
            .collect();
        if left.len() == present.len() {
            return Ok(Some(object.clone()));
        }
        match self.set_finalizers(object, &left).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn set_finalizers<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        finalizers: &[String],
    ) -> Result<K, WriteError> {
        let refuse = |why| Err(self.target("patch", object).invalid(why));
        let Some(version) = object.meta().resource_version.as_deref() else {
            return refuse(InvalidWrite::NoResourceVersion);
        };
        if object.meta().uid.is_none() {
            return refuse(InvalidWrite::NoUid);
        }
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
        self.merge_patch(object, &patch).await
    }
}

/// A finalizer that the server would reject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid finalizer {name:?}: {why}")]
pub struct InvalidFinalizer {
    name: String,
    why: &'static str,
}

/// Checks a finalizer: a DNS domain of its owner, `/`, and a name, for example `example.com/tidy`.
///
/// The domain may be missing: the server accepts that for custom resources, with a warning. For built-in kinds it accepts
/// only a few such names.
pub fn check_finalizer(finalizer: &str) -> Result<(), InvalidFinalizer> {
    let invalid = |why| {
        Err(InvalidFinalizer {
            name: finalizer.to_owned(),
            why,
        })
    };
    let (domain, name) = match finalizer.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, finalizer),
    };
    if !domain.is_none_or(is_dns_subdomain) {
        return invalid(
            "the part before the `/` must be a DNS domain: lower-case letters, digits, `-` and `.`, at most 253",
        );
    }
    if !is_qualified_name(name) {
        return invalid(
            "the name must be 1 to 63 letters, digits, `-`, `_` or `.`, a letter or digit first and last",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_finalizer;

    #[test]
    fn finalizer_is_a_domain_and_a_name() {
        let long = |length| format!("example.com/{}", "a".repeat(length));
        let valid = [
            "example.com/tidy",
            "a/B_c.d-9",
            "a-b.example.com/x",
            "foregroundDeletion",
            "orphan",
            "tidy",
            &long(63),
        ];
        for name in valid {
            assert_eq!(check_finalizer(name), Ok(()));
        }
        let invalid = [
            "",
            "ti dy",
            "/tidy",
            "example.com/",
            "Example.com/tidy",
            "example..com/tidy",
            "-a.com/tidy",
            "a-.com/tidy",
            "example.com/a/b",
            "example.com/-a",
            "example.com/a_",
            "example.com/ä",
            &long(64),
            &format!("{}/a", "a".repeat(254)),
        ];
        for name in invalid {
            let error = check_finalizer(name).expect_err(name).to_string();
            assert!(
                error.starts_with(&format!("invalid finalizer {name:?}: ")),
                "{error}"
            );
        }
    }
}
