//! The variable `authorizer`: asks the server's own authorizer about the user of the request, or a service account.

use std::sync::Arc;

use windlass_api::request::Access;
use windlass_cel::{Authorizer, Check, Decision};

use crate::auth::{AccessControl, Caller, User};

/// Decides for one request.
pub(crate) struct RequestAuthorizer {
    pub(crate) access: Arc<AccessControl>,
    pub(crate) caller: Arc<Caller>,
}

impl Authorizer for RequestAuthorizer {
    fn authorize(&self, check: &Check) -> Decision {
        let account = check.service_account.as_ref();
        let account = account.map(|(namespace, name)| User::service_account(namespace, name));
        let user = account.as_ref().unwrap_or(&self.caller.user);
        let access = match &check.path {
            Some(path) => Access::path(&*check.verb, &**path),
            None => Access::resource(&check.verb, &check.group, &check.resource)
                .with_subresource(&check.subresource)
                .in_namespace(&check.namespace)
                .with_name(&check.name),
        };
        let decision = self.access.decide(user, &access);
        Decision {
            allowed: decision.is_allowed(),
            reason: decision.reason(user),
            error: None,
        }
    }
}
