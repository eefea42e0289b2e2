//! The user of a request.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use windlass_api::naming;

/// A user, as determined by authentication and used by RBAC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user name, which bindings refer to.
    pub name: String,
    /// Distinguishes users of the same name over time; usually empty.
    pub uid: String,
    /// The groups, which bindings refer to.
    pub groups: Vec<String>,
    /// Additional attributes from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Members may do everything, regardless of roles.
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// Prefixes of the user names and groups of service accounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";

/// Extra key of the ID of the credential that authenticated the user.
pub(super) const CREDENTIAL_ID_KEY: &str = "authentication.kubernetes.io/credential-id";

impl User {
    /// An authenticated user in these groups and in `system:authenticated`.
    pub fn new<G>(name: &str, groups: G) -> Self
    where
        G: IntoIterator,
        G::Item: Into<String>,
    {
        let user = Self {
            name: name.to_owned(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..Self::default()
        };
        user.with_authentication_group()
    }

    /// A member of `system:masters`, who may do everything.
    pub fn administrator() -> Self {
        Self::new("admin", [MASTERS])
    }

    /// The user of requests without credentials.
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [] as [&str; 0])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(
            &service_account_user_name(namespace, name),
            service_account_groups(namespace),
        )
    }

    /// Adds `system:authenticated` or `system:unauthenticated` to the groups.
    pub(super) fn with_authentication_group(mut self) -> Self {
        let missing = match &*self.name {
            ANONYMOUS => UNAUTHENTICATED,
            _ if self.is_in(UNAUTHENTICATED) => return self,
            _ => AUTHENTICATED,
        };
        if !self.is_in(missing) {
            self.groups.push(missing.to_owned());
        }
        self
    }

    pub(super) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    pub(crate) fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// Whose share of the server's capacity the user's requests take. The service accounts of a namespace have one share:
    /// a user who may create one account may create many.
    pub(crate) fn tenant(&self) -> &str {
        let account = self.name.strip_prefix(SERVICE_ACCOUNT_PREFIX);
        let namespace = account.and_then(|account| account.split_once(':'));
        let length = namespace.map(|(namespace, _)| SERVICE_ACCOUNT_PREFIX.len() + namespace.len());
        &self.name[..length.unwrap_or(self.name.len())]
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// The `UserInfo` of reviews; omits empty fields.
    pub(crate) fn to_user_info(&self) -> Value {
        let mut shown = Map::new();
        let mut show = |key: &str, value: Value| {
            shown.insert(key.to_owned(), value);
        };
        if !self.name.is_empty() {
            show("username", self.name.clone().into());
        }
        if !self.uid.is_empty() {
            show("uid", self.uid.clone().into());
        }
        if !self.groups.is_empty() {
            show("groups", json!(self.groups));
        }
        if !self.extra.is_empty() {
            show("extra", json!(self.extra));
        }
        shown.into()
    }
}

/// The user name of a service account.
pub(super) fn service_account_user_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Whether a group is `system:masters`.
pub(super) fn is_masters_group(group: &str) -> bool {
    group == MASTERS
}

/// The groups of every service account in a namespace.
pub(super) fn service_account_groups(namespace: &str) -> [String; 2] {
    [
        SERVICE_ACCOUNTS_GROUP.to_owned(),
        format!("{SERVICE_ACCOUNTS_GROUP}:{namespace}"),
    ]
}

/// The namespace and name of the service account that a user name stands for.
pub(super) fn service_account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let sound = naming::is_dns_label(namespace) && naming::is_dns_subdomain(name);
    sound.then_some((namespace, name))
}
