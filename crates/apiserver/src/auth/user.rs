//! Who asks.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A user, as authentication finds out and RBAC knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name that bindings name.
    pub name: String,
    /// Tells users of the same name apart, over time; mostly empty.
    pub uid: String,
    /// The groups that bindings name.
    pub groups: Vec<String>,
    /// What else is known of them.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// May do everything, whatever the roles say.
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// What the names of service accounts begin with, and those of the groups that each is in.
const ACCOUNT: &str = "system:serviceaccount:";
const ACCOUNTS: &str = "system:serviceaccounts";

/// What tells with which proof somebody came.
pub(super) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

impl User {
    /// An authenticated user: in these groups, and in `system:authenticated`.
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
        user.settled()
    }

    /// Who may do everything: a member of `system:masters`.
    pub fn administrator() -> Self {
        Self::new("admin", [MASTERS])
    }

    /// Who comes without credentials.
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [] as [&str; 0])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(&account_name(namespace, name), account_groups(namespace))
    }

    /// In the group of those who are known, or of those who are not.
    pub(super) fn settled(mut self) -> Self {
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

    pub(crate) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// As reviews show it: without what is empty.
    pub(super) fn shown(&self) -> Value {
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

/// The name by which RBAC knows a service account.
pub(super) fn account_name(namespace: &str, name: &str) -> String {
    format!("{ACCOUNT}{namespace}:{name}")
}

/// Whether a group makes its members masters.
pub(super) fn is_masters(group: &str) -> bool {
    group == MASTERS
}

/// The groups that every service account of a namespace is in.
pub(super) fn account_groups(namespace: &str) -> [String; 2] {
    [ACCOUNTS.to_owned(), format!("{ACCOUNTS}:{namespace}")]
}

/// The namespace and the name of the service account that a user is, if it is one.
pub(super) fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(ACCOUNT)?.split_once(':')?;
    let sound = crate::naming::label(namespace).is_empty() && crate::naming::subdomain(name).is_empty();
    sound.then_some((namespace, name))
}
