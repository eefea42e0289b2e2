//! Rights to approve and sign certificate signing requests, which depend on the request's signer.

use serde_json::Value;
use windlass_api::request::Access;

use super::{AccessControl, Caller};
use crate::{object::Object, request::Target, status::Status};

impl AccessControl {
    /// Rejects an approval or a signature by a caller without the right for the request's signer.
    pub(crate) fn check_signer(
        &self,
        target: &Target,
        caller: Option<&Caller>,
        object: &Object,
        old: &Object,
    ) -> Result<(), Status> {
        let resource = &target.resource;
        let kind = (&*resource.group, &*resource.kind);
        let (Some(caller), ("certificates.k8s.io", "CertificateSigningRequest")) = (caller, kind) else {
            return Ok(());
        };
        let verb = match &*target.subresource {
            "approval" => "approve",
            "status" if signer_result(object) != signer_result(old) => "sign",
            _ => return Ok(()),
        };
        let spec = old.fields().get("spec").unwrap_or(&Value::Null);
        let signer = spec["signerName"].as_str().unwrap_or_default();
        let domain = signer.split('/').next().unwrap_or_default();
        let may = |name: &str| {
            let access = Access::resource(verb, &resource.group, "signers").with_name(name);
            self.decide(&caller.user, &access).is_allowed()
        };
        if may(signer) || may(&format!("{domain}/*")) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
        Err(Status::forbidden(resource, &target.name, &why))
    }
}

/// The result of a signer: the certificate, or conditions that say why there is none.
fn signer_result(object: &Object) -> [Option<&Value>; 2] {
    let status = object.fields().get("status");
    ["certificate", "conditions"].map(|key| status.and_then(|status| status.get(key)))
}
