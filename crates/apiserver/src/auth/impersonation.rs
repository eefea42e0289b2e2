//! Impersonation: the `Impersonate-` headers and the rights they need.
//!
//! A real server of this version tries several modes in turn. The constrained modes (as a node, as a service account,
//! as another user) need two rights: to do *this* while impersonating (`impersonate-on:MODE:VERB` on the requested
//! resource), and to impersonate *that* user (`impersonate:MODE`). The legacy mode needs only `impersonate`. The error
//! is that of the mode that was tried first.

use std::{collections::HashMap, sync::Arc};

use http::HeaderMap;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use windlass_api::{naming, request::Access};

use super::{
    AccessControl, Budget,
    user::{User, is_masters_group, service_account_groups, service_account_of},
};
use crate::status::Status;

/// Of all headers below.
const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// Extra key under which a service account's token names the node of its pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// From this number of names on, the constrained modes first check whether all names (`*`) are allowed.
const WILDCARD_THRESHOLD: usize = 4;

/// Maximum number of users whose last successful mode is cached.
const MAX_CACHED_MODES: usize = 10_000;

/// A mode of impersonation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// Unconstrained impersonation, from before there were modes.
    Legacy,
}

const MODES: [Mode; 5] = [
    Mode::AssociatedNode,
    Mode::ArbitraryNode,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

/// The last successful mode of each user, which is tried first.
#[derive(Default)]
pub(crate) struct LastModes(Mutex<HashMap<Box<str>, Mode>>);

impl AccessControl {
    /// Returns the impersonated user, or the user itself without `Impersonate-` headers. Void if the budget is exhausted.
    pub(crate) fn impersonate(
        &self,
        user: Arc<User>,
        access: &Access,
        headers: &HeaderMap,
        budget: &Budget,
    ) -> Result<Arc<User>, Status> {
        let Some(wanted) = requested_user(headers)? else {
            return Ok(user);
        };
        let last = self.impersonation_modes.0.lock().get(&*user.name).copied();
        let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
        let mut refusal = None;
        for mode in last.into_iter().chain(others) {
            match self.try_mode(mode, &user, &wanted, access, budget) {
                None => {}
                Some(_) if budget.is_exhausted() => return Err(Status::timeout()),
                Some(Ok(found)) => {
                    let mut known = self.impersonation_modes.0.lock();
                    if known.len() >= MAX_CACHED_MODES {
                        known.clear();
                    }
                    known.insert(user.name.as_str().into(), mode);
                    return Ok(Arc::new(found));
                }
                Some(Err(status)) => {
                    refusal.get_or_insert(status);
                }
            }
        }
        Err(refusal.expect("the legacy mode applies to every user"))
    }

    /// Returns `None` if the mode does not apply to the requested user.
    fn try_mode(
        &self,
        mode: Mode,
        user: &User,
        wanted: &User,
        access: &Access,
        budget: &Budget,
    ) -> Option<Result<User, Status>> {
        if !mode.applies_to(user, wanted) {
            return None;
        }
        if let Some(name) = mode.name() {
            let on = Access {
                verb: format!("impersonate-on:{name}:{}", access.verb),
                ..access.clone()
            };
            if let Err(status) = self.check_access(user, &on, budget) {
                return Some(Err(status));
            }
        }
        Some(self.check_impersonation(mode, user, wanted, budget))
    }

    /// Checks the right to each attribute of the impersonated user: name, UID, groups and extra.
    fn check_impersonation(
        &self,
        mode: Mode,
        user: &User,
        wanted: &User,
        budget: &Budget,
    ) -> Result<User, Status> {
        let verb = mode.verb();
        let narrow = mode.name().is_some();
        let group = if narrow { "authentication.k8s.io" } else { "" };
        let mut actual = wanted.clone();
        let mut who = Access::resource(&verb, group, "users").with_name(&wanted.name);
        if narrow && let Some(node) = node_name_of(&wanted.name) {
            let name = if mode == Mode::AssociatedNode { "*" } else { node };
            who = Access::resource(&verb, group, "nodes").with_name(name);
            actual.groups = vec!["system:nodes".to_owned()];
        } else if let Some((namespace, name)) = service_account_of(&wanted.name) {
            who = Access::resource(&verb, group, "serviceaccounts")
                .in_namespace(namespace)
                .with_name(name);
            if wanted.groups.is_empty() {
                actual.groups = service_account_groups(namespace).into();
            }
        }
        self.check_access(user, &who, budget)?;
        if !wanted.uid.is_empty() {
            self.check_access(
                user,
                &Access::resource(&verb, "authentication.k8s.io", "uids").with_name(&wanted.uid),
                budget,
            )?;
        }
        let of_group = |name: &str| Access::resource(&verb, group, "groups").with_name(name);
        if narrow {
            check_groups(user, wanted, &of_group)?;
        }
        let all = narrow
            && wanted.groups.len() >= WILDCARD_THRESHOLD
            && self.check_access(user, &of_group("*"), budget).is_ok();
        for name in wanted.groups.iter().filter(|_| !all) {
            self.check_access(user, &of_group(name), budget)?;
        }
        let of_extra = |key: &str, value: &str| {
            Access::resource(&verb, "authentication.k8s.io", "userextras")
                .with_subresource(key)
                .with_name(value)
        };
        if narrow {
            check_extra(user, wanted, &of_extra("", ""))?;
        }
        let pairs = || {
            wanted
                .extra
                .iter()
                .flat_map(|(key, values)| values.iter().map(move |value| (key, value)))
        };
        let all = narrow
            && pairs().count() >= WILDCARD_THRESHOLD
            && self.check_access(user, &of_extra("*", "*"), budget).is_ok();
        for (key, value) in pairs().filter(|_| !all) {
            self.check_access(user, &of_extra(key, value), budget)?;
        }
        Ok(actual.with_authentication_group())
    }

    fn check_access(&self, user: &User, access: &Access, budget: &Budget) -> Result<(), Status> {
        let verdict = self.decide_within(user, access, budget);
        if budget.is_exhausted() {
            return Err(Status::timeout());
        }
        if verdict.is_allowed() {
            return Ok(());
        }
        Err(Status::not_allowed(&user.name, access, &verdict.reason(user)))
    }
}

impl Mode {
    /// The name used in verbs; the legacy mode has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::AssociatedNode => Some("associated-node"),
            Self::ArbitraryNode => Some("arbitrary-node"),
            Self::ServiceAccount => Some("serviceaccount"),
            Self::UserInfo => Some("user-info"),
            Self::Legacy => None,
        }
    }

    fn verb(self) -> String {
        self.name()
            .map_or_else(|| "impersonate".to_owned(), |name| format!("impersonate:{name}"))
    }

    fn applies_to(self, user: &User, wanted: &User) -> bool {
        let only_named = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node_name_of(&wanted.name), service_account_of(&wanted.name));
        match self {
            Self::AssociatedNode => {
                let own = user.extra.get(NODE_NAME).map(Vec::as_slice);
                let same = matches!((own, node), (Some([own]), Some(node)) if own == node);
                only_named && same && service_account_of(&user.name).is_some()
            }
            Self::ArbitraryNode => only_named && node.is_some(),
            Self::ServiceAccount => only_named && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

/// The node that a user name stands for.
fn node_name_of(user: &str) -> Option<&str> {
    let node = user.strip_prefix("system:node:")?;
    naming::is_dns_subdomain(node).then_some(node)
}

/// The constrained modes reject the groups `system:masters` and "".
fn check_groups(user: &User, wanted: &User, of_group: &dyn Fn(&str) -> Access) -> Result<(), Status> {
    let refused = |name: &str, why: &str| Err(Status::not_allowed(&user.name, &of_group(name), why));
    if wanted.groups.iter().any(String::is_empty) {
        return refused("", "impersonating the empty string group is not allowed");
    }
    match wanted.groups.iter().find(|group| is_masters_group(group)) {
        Some(masters) => refused(masters, "impersonating the system:masters group is not allowed"),
        None => Ok(()),
    }
}

fn check_extra(user: &User, wanted: &User, access: &Access) -> Result<(), Status> {
    let refused = |why: &str| Err(Status::not_allowed(&user.name, access, why));
    for (key, values) in &wanted.extra {
        if key.is_empty() {
            return refused("impersonating the empty string key in extra is not allowed");
        }
        if let Some(problem) = prefixed_path_error(key) {
            let why = format!(
                "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {key:?}: {problem}"
            );
            return refused(&why);
        }
        if values.iter().any(String::is_empty) {
            return refused("impersonating the empty string value in extra is not allowed");
        }
    }
    Ok(())
}

/// Why a text is not a domain-prefixed path.
fn prefixed_path_error(text: &str) -> Option<String> {
    let Some((domain, path)) = text
        .split_once('/')
        .filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        return Some("must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned());
    };
    if let Some(problem) = naming::subdomain(domain).into_iter().next() {
        return Some(problem);
    }
    let sound = path
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte));
    (!sound).then(|| "Invalid path".to_owned())
}

/// Reads the user to impersonate from the headers.
fn requested_user(headers: &HeaderMap) -> Result<Option<User>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let text = |name: &str| {
        let value = headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()));
        value.unwrap_or_default().into_owned()
    };
    let mut wanted = User {
        name: text(USER),
        uid: text(UID),
        ..User::default()
    };
    let all = |name: &http::HeaderName| {
        let values = headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    for name in headers.keys() {
        if name == GROUP {
            wanted.groups.extend(all(name));
        } else if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
            wanted.extra.entry(key).or_default().extend(all(name));
        }
    }
    match &*wanted.name {
        "" if wanted == User::default() => Ok(None),
        "" => Err(Status::bad_request(format!(
            "requested {} without impersonating a user name",
            format_as_go(&wanted)
        ))),
        _ => Ok(Some(wanted)),
    }
}

/// Formats the user like Go's `%#v`.
fn format_as_go(user: &User) -> String {
    let list = |items: &[String]| {
        let quoted: Vec<_> = items.iter().map(|item| format!("{item:?}")).collect();
        quoted.join(", ")
    };
    let groups = match &user.groups[..] {
        [] => "[]string(nil)".to_owned(),
        groups => format!("[]string{{{}}}", list(groups)),
    };
    let extra: Vec<_> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key:?}:[]string{{{}}}", list(values)))
        .collect();
    let extra = match &extra[..] {
        [] => "map[string][]string(nil)".to_owned(),
        extra => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}",
        user.name, user.uid
    )
}
