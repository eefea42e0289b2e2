//! Finalizers: added before the first outside effect, removed after the last one is undone.

use kube::ResourceExt;
use serde_json::json;

use super::{Refusal, Writable, WriteError, Writer};
use crate::names::{is_domain, is_word};

impl<D> Writer<D> {
    /// Sees to it that the object has the finalizer, and returns the object that has it, so that the same reconcile
    /// goes on with it.
    ///
    /// No request if it is there. Else one patch that holds for this uid and resource version only, so that it neither
    /// touches a successor nor loses a finalizer that somebody else adds meanwhile; that is a
    /// [conflict](WriteError::is_conflict), and the next reconcile sees the newer object.
    ///
    /// An object that is being deleted gets no new finalizer; the server would refuse it as well.
    pub async fn add_finalizer<K: Writable<DynamicType = D>>(
        &self,
        object: &K,
        finalizer: &str,
    ) -> Result<K, WriteError> {
        if object.finalizers().iter().any(|present| present == finalizer) {
            return Ok(object.clone());
        }
        let refuse = |why| Err(self.target("patch", object).refuse(why));
        if let Err(invalid) = check_finalizer(finalizer) {
            return refuse(Refusal::Finalizer(invalid));
        }
        if object.meta().deletion_timestamp.is_some() {
            return refuse(Refusal::Deleting(finalizer.to_owned()));
        }
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(finalizer.to_owned());
        self.set_finalizers(object, &finalizers).await
    }

    /// Removes the finalizer, and returns what is left of the object, or `None` if it is gone. If that was its last
    /// finalizer and it is being deleted, it is gone from the server then, and what is returned is its last state.
    ///
    /// No request if it is not there. Else one patch, as in [`add_finalizer`](Self::add_finalizer).
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
        let refuse = |why| Err(self.target("patch", object).refuse(why));
        let Some(version) = object.meta().resource_version.as_deref() else {
            return refuse(Refusal::NoResourceVersion);
        };
        if object.meta().uid.is_none() {
            return refuse(Refusal::NoUid);
        }
        let patch = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
        self.merge(object, &patch).await
    }
}

/// A finalizer that the server would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no finalizer: {why}")]
pub struct InvalidFinalizer {
    name: String,
    why: &'static str,
}

/// Whether the server takes this as a finalizer: a DNS domain of its author, `/`, and a name, for example
/// `example.com/tidy`.
///
/// The domain may be missing, because the server takes that for custom kinds, with a warning. For built-in kinds it
/// knows only a few such names and refuses the others.
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
    if !domain.is_none_or(is_domain) {
        return invalid(
            "what is before the `/` must be a DNS domain: lower-case letters, digits, `-` and `.`, at most 253",
        );
    }
    if !is_word(name) {
        return invalid(
            "its name must be 1 to 63 letters, digits, `-`, `_` or `.`, a letter or digit first and last",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_finalizer;

    #[test]
    fn a_finalizer_is_a_domain_and_a_name() {
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
                error.starts_with(&format!("`{name}` is no finalizer: ")),
                "{error}"
            );
        }
    }
}
