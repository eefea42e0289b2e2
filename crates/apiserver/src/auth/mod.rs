//! Who asks, and whether they may.
//!
//! ```text
//!   request ─► Door ─► User ─► impersonate ─► User ─► authorise ─► verbs ─► escalation (roles and bindings only)
//!               │                                         │
//!     certificate, token, account              Policy: an index of roles and bindings by subject,
//!     or taken as given                        kept up from the storage's own history
//! ```
//!
//! A server without RBAC lets everybody do everything, as themselves. With and without, [`Server`](crate::Server) trusts whoever
//! holds it in the process, as its administrator; [`Server::guarded`](crate::Server::guarded) and sockets look at credentials.
//!
//! The policy is owned by nobody but the storage: the index reads what was written since it last looked, before every
//! decision, so that a binding counts from the moment it is answered.

mod account;
mod aggregation;
mod bootstrap;
mod certificate;
mod door;
mod escalation;
mod impersonation;
mod policy;
mod requester;
mod reviews;
mod rules;
mod signers;
#[cfg(test)]
mod table;
mod user;

use std::{collections::HashMap, sync::Arc};

use windlass_rights::{Access, Recorder};

pub(crate) use account::Signatures;
pub(crate) use certificate::Clients;
pub(crate) use door::{Anonymous, Door, Peer};
pub(crate) use impersonation::Modes;
pub(crate) use policy::Policy;
pub(crate) use requester::note_requester;
pub(crate) use reviews::is_review;
pub use user::User;

use crate::{status::Status, verbs::Api};
use policy::Verdict;

/// Who issues the tokens of service accounts, and whom they are for where the client does not say.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Everything that decides about access.
pub(crate) struct Guard {
    /// Without one, everybody may do everything.
    pub(crate) policy: Option<Policy>,
    /// Whether requests without credentials are made by anybody.
    pub(crate) anonymous: Anonymous,
    /// Static bearer tokens, and whose they are.
    pub(crate) tokens: HashMap<Box<str>, Arc<User>>,
    pub(crate) signatures: Signatures,
    pub(crate) modes: Modes,
    pub(crate) recorder: Option<Recorder>,
    /// Held while gathering roles are brought in line with those that they gather.
    pub(crate) aggregating: parking_lot::Mutex<()>,
}

/// Who makes a request, and what it asks for: what a write has to know to see whether it grants more than its writer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) user: Arc<User>,
    pub(crate) access: Access,
}

impl Api {
    /// Whether a user may do something, and by what right.
    pub(crate) fn decide(&self, user: &User, access: &Access) -> Verdict {
        match &self.guard.policy {
            Some(policy) if !user.is_master() => policy.decide(&*self.storage, user, access),
            _ => Verdict::Master,
        }
    }

    /// What an update or a patch creates needs the right to create too.
    pub(crate) fn authorise_creation(&self, caller: Option<&Caller>) -> Result<(), Status> {
        match caller {
            Some(Caller { user, access }) if matches!(&*access.verb, "update" | "patch") => {
                let verb = "create".to_owned();
                let object = access.object.clone();
                self.authorise(user, &Access { verb, object })
            }
            _ => Ok(()),
        }
    }

    /// Refuses what a user may not do.
    pub(crate) fn authorise(&self, user: &User, access: &Access) -> Result<(), Status> {
        let verdict = self.decide(user, access);
        if let Some(recorder) = &self.guard.recorder {
            recorder.note(&user.name, access);
            if !verdict.is_allowed() {
                recorder.note_refusal(&user.name, access);
            }
        }
        if verdict.is_allowed() {
            return Ok(());
        }
        Err(Status::not_allowed(&user.name, access, &verdict.reason()))
    }
}
