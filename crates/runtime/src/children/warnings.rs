//! Warning events for errors that retries do not fix.

use windlass_api::status::StatusClass;

use super::{Parent, error::ChildError};
use crate::{error::Error, writer::WriteError};

/// Event reason: an object of another owner has a child's name. Reason and message are those of Kubernetes'
/// sample-controller.
const EXISTS_REASON: &str = "ErrResourceExists";

/// Event reason: the desired state is invalid, so the object must be changed.
const INVALID_REASON: &str = "ErrInvalid";

/// Event reason: the controller lacks a permission or quota.
const FORBIDDEN_REASON: &str = "ErrForbidden";

impl Parent<'_> {
    /// Records a warning event about the object if a retry does not fix the error. Outages and conflicts are transient.
    pub(super) fn record_warning(&self, error: &Error) {
        let Some(reason) = warning_reason(error) else {
            return;
        };
        let message = match error.find() {
            Some(ChildError::AlreadyExists { key, owner, .. }) => {
                format!(
                    "Resource {:?} already exists and is not managed by {owner}",
                    key.name()
                )
            }
            _ => error.to_string(),
        };
        let about = self.object.object_ref();
        self.ctx.recorder().lasting().warning(&about, reason, message);
    }
}

/// The reason of the warning event about an error; `None` if a retry may fix it.
pub(crate) fn warning_reason(error: &Error) -> Option<&'static str> {
    if let Some(ChildError::AlreadyExists { .. }) = error.find() {
        return Some(EXISTS_REASON);
    }
    if error.is_terminal() {
        return Some(INVALID_REASON);
    }
    match error.find::<WriteError>()?.class()? {
        StatusClass::Invalid => Some(INVALID_REASON),
        StatusClass::Forbidden => Some(FORBIDDEN_REASON),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;
    use windlass_cache::ObjectKey;

    use super::*;
    use crate::writer::WriteErrorKind;

    fn refused(code: u16, cause: &serde_json::Value) -> Error {
        let status = json!({ "code": code, "details": { "causes": [cause] } });
        let status: Status = serde_json::from_value(status).expect("valid Status");
        let why = WriteErrorKind::Server(Box::new(status));
        WriteError::new(
            "apply",
            "Deployment".to_owned(),
            ObjectKey::cluster_scoped("web"),
            why,
        )
        .into()
    }

    #[test]
    fn warning_is_recorded_only_for_errors_that_retries_do_not_fix() {
        let nothing = json!({});
        for (error, expected) in [
            (Error::terminal("replicas must be positive"), Some(INVALID_REASON)),
            (Error::from("the network is down"), None),
            (
                refused(422, &json!({ "field": "metadata.name" })),
                Some(INVALID_REASON),
            ),
            (refused(422, &json!({ "field": "metadata.uid" })), None),
            (refused(400, &nothing), Some(INVALID_REASON)),
            (refused(403, &nothing), Some(FORBIDDEN_REASON)),
            (refused(403, &json!({ "reason": "NamespaceTerminating" })), None),
            (refused(409, &nothing), None),
            (refused(500, &nothing), None),
        ] {
            assert_eq!(warning_reason(&error), expected, "{error:?}");
        }
    }
}
