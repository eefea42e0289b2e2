//! What only people can put right, told where they look.

use kube::Resource;
use windlass_cache::Cacheable;

use super::Parent;
use crate::{error::Error, writer::WriteError};

/// What is asked for cannot be: the object must be changed.
const INVALID: &str = "ErrInvalid";

/// The controller may not do it: somebody must grant it, or lift a limit.
const FORBIDDEN: &str = "ErrForbidden";

impl<K: Cacheable + Resource> Parent<'_, K> {
    /// Tells of a failure, as a warning about the object, if waiting does not mend it. Outages and conflicts come and go; an
    /// object of somebody else's was told of when it was found.
    pub(super) fn tell(&self, error: &Error) {
        if let Some(reason) = reason(error) {
            let about = self.object.object_ref(self.kind);
            self.ctx.recorder().warning(&about, reason, error.to_string());
        }
    }
}

fn reason(error: &Error) -> Option<&'static str> {
    if error.is_terminal() {
        return Some(INVALID);
    }
    let write = error.cause().downcast_ref::<WriteError>()?;
    match write.status()?.code {
        400 | 422 if !write.is_other_object() => Some(INVALID),
        403 if !write.is_namespace_terminating() => Some(FORBIDDEN),
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
        let status: Status = serde_json::from_value(status).expect("a status");
        let why = WriteErrorKind::Server(Box::new(status));
        WriteError::new("apply", "Deployment".to_owned(), ObjectKey::cluster("web"), why).into()
    }

    #[test]
    fn what_waiting_does_not_mend_is_for_people() {
        let nothing = json!({});
        for (error, expected) in [
            (Error::terminal("replicas must be positive"), Some(INVALID)),
            (Error::from("the network is down"), None),
            (refused(422, &json!({ "field": "metadata.name" })), Some(INVALID)),
            (refused(422, &json!({ "field": "metadata.uid" })), None),
            (refused(400, &nothing), Some(INVALID)),
            (refused(403, &nothing), Some(FORBIDDEN)),
            (refused(403, &json!({ "reason": "NamespaceTerminating" })), None),
            (refused(409, &nothing), None),
            (refused(500, &nothing), None),
        ] {
            assert_eq!(reason(&error), expected, "{error:?}");
        }
    }
}
