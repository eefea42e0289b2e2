//! Authentication, impersonation and authorization.
//!
//! ```text
//!   request ─► Authenticator ─► User ─► impersonate ─► User ─► authorize ─► verbs ─► escalation (roles and bindings only)
//!                   │                                             │
//!     client certificate, bearer              Policy: an index of roles and bindings by subject,
//!     token, or trusted                      kept up from the storage's own history
//! ```
//!
//! A server without RBAC allows everything to every user, and so does one with RBAC and `AlwaysAllow`. In each case, a [`Server`](crate::Server) handle in
//! the process is trusted as the administrator; [`Server::authenticated`](crate::Server::authenticated) and sockets check
//! credentials.
//!
//! The policy has no state besides the storage: before every decision the index reads what was written since its last
//! update, so a binding takes effect as soon as its write is answered.

mod aggregation;
mod authenticator;
mod bootstrap;
#[cfg(test)]
mod bootstrap_table;
mod certificate;
mod escalation;
mod impersonation;
mod policy;
mod role_objects;
mod service_account_tokens;
mod user;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
};

use windlass_api::request::{Access, RequestInfo};
use windlass_rights::{Recorder, Rule};

pub(crate) use authenticator::{AnonymousAuth, Authenticator, Peer};
pub(crate) use certificate::ClientVerifier;
pub(crate) use impersonation::LastModes;
pub(crate) use policy::{Budget, Policy, aggregate_messages};
pub(crate) use service_account_tokens::TokenSigner;
pub use user::User;

use crate::{
    object_store::ObjectStore,
    status::Status,
    webhook::{Answers, Draws},
};
use policy::Decision;

/// Issuer of service account tokens, and their audience if the client names none.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// An authorizer; see [`Builder::authorization`](crate::Builder::authorization).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Every user may do everything.
    AlwaysAllow,
    /// Users may do what roles and bindings allow.
    Rbac,
}

/// Authentication and authorization state of a server.
pub(crate) struct AccessControl {
    /// Has the roles, bindings and service accounts.
    pub(crate) store: Arc<ObjectStore>,
    /// The authorizers, in order: the first that allows a request decides.
    pub(crate) modes: Vec<AuthorizationMode>,
    /// Roles and bindings. `None` without RBAC.
    pub(crate) policy: Option<Policy>,
    /// Whether requests without credentials are accepted as `system:anonymous`.
    pub(crate) anonymous: AnonymousAuth,
    /// Static bearer tokens and their users.
    pub(crate) tokens: HashMap<Box<str>, Arc<User>>,
    pub(crate) token_signer: TokenSigner,
    pub(crate) impersonation_modes: LastModes,
    pub(crate) recorder: Option<Recorder>,
    /// Held while aggregated roles are updated.
    pub(crate) aggregation_lock: parking_lot::Mutex<()>,
}

/// The user who makes a request, and the request. Writes of roles and bindings use it to check for privilege escalation.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) user: Arc<User>,
    pub(crate) info: Arc<RequestInfo>,
    /// What webhooks have answered so far.
    pub(crate) answers: Answers,
    /// What stays the same when the verb runs again with their answers.
    pub(crate) draws: Draws,
    /// Whether the verb runs where it delays other requests, so that it has to stop if it takes long.
    pub(crate) must_be_brief: AtomicBool,
}

impl Caller {
    pub(crate) fn new(user: Arc<User>, info: Arc<RequestInfo>) -> Self {
        Self {
            user,
            info,
            answers: Answers::default(),
            draws: Draws::default(),
            must_be_brief: AtomicBool::new(false),
        }
    }

    /// The access that the request needs.
    pub(crate) fn access(&self) -> &Access {
        &self.info.access
    }
}

impl AccessControl {
    /// Reads what was written of roles and bindings. The write does so, which runs as large work, so that no other request has
    /// to.
    pub(crate) fn catch_up(&self) {
        if let Some(policy) = &self.policy {
            policy.catch_up(&*self.store.storage);
        }
    }

    /// Decides whether a user may do something, and by which binding.
    pub(crate) fn decide(&self, user: &User, access: &Access) -> Decision {
        self.decide_within(user, access, &Budget::unlimited())
    }

    /// Decides within a budget.
    fn decide_within(&self, user: &User, access: &Access, budget: &Budget) -> Decision {
        let mut decision = Decision::Unrestricted;
        if user.is_master() {
            return decision;
        }
        for mode in &self.modes {
            decision = match (mode, &self.policy) {
                (AuthorizationMode::Rbac, Some(policy)) => {
                    policy.decide(&*self.store.storage, user, access, budget)
                }
                _ => Decision::Unrestricted,
            };
            if decision.is_allowed() {
                break;
            }
        }
        decision
    }

    /// The rules that apply to a user in a namespace, errors of their evaluation, and whether these are all of them.
    pub(crate) fn rules_of(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>, bool) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        let budget = Budget::for_list();
        for mode in &self.modes {
            let (more_rules, more_errors) = match (mode, &self.policy) {
                (AuthorizationMode::Rbac, Some(policy)) => {
                    policy.rules_of(&*self.store.storage, user, namespace, &budget)
                }
                _ => {
                    let everything = vec![
                        Rule::for_resources(["*"], ["*"], ["*"]),
                        Rule::for_paths(["*"], ["*"]),
                    ];
                    (everything, Vec::new())
                }
            };
            rules.extend(more_rules);
            errors.extend(more_errors);
        }
        (rules, errors, !budget.is_exhausted())
    }

    /// An update or patch that creates the object needs the `create` verb too.
    pub(crate) fn authorize_creation(&self, caller: Option<&Caller>) -> Result<(), Status> {
        match caller {
            Some(caller) if matches!(&*caller.access().verb, "update" | "patch") => {
                let verb = "create".to_owned();
                let target = caller.access().target.clone();
                self.authorize(&caller.user, &Access { verb, target })
            }
            _ => Ok(()),
        }
    }

    /// Returns 403 if a user may not do something, and notes the access in the recorder.
    pub(crate) fn authorize(&self, user: &User, access: &Access) -> Result<(), Status> {
        self.authorize_within(user, access, &Budget::unlimited())
    }

    /// Like [`authorize`](Self::authorize); void if the budget is exhausted.
    pub(crate) fn authorize_within(
        &self,
        user: &User,
        access: &Access,
        budget: &Budget,
    ) -> Result<(), Status> {
        let verdict = self.decide_within(user, access, budget);
        if budget.is_exhausted() {
            return Err(Status::timeout());
        }
        if let Some(recorder) = &self.recorder {
            recorder.record(&user.name, access);
            if !verdict.is_allowed() {
                recorder.record_forbidden(&user.name, access);
            }
        }
        if verdict.is_allowed() {
            return Ok(());
        }
        Err(Status::not_allowed(&user.name, access, &verdict.reason(user)))
    }
}
