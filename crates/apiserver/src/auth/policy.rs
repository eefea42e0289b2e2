//! The roles and bindings in force, by whom they concern.
//!
//! ```text
//!   storage history ──► Index ── place (namespace, or the cluster) ── user or group ──► bindings ──► role ──► rules
//! ```
//!
//! Before each decision the index takes in what was written to the four tables since; with nothing new that is a look at
//! four counters. No object is decoded twice.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::ControlFlow,
    sync::Arc,
};

use parking_lot::RwLock;
use tokio::sync::watch;
use windlass_rights::{Access, Rule};

use super::{
    rules::{RoleFacts, read_binding, read_role},
    user::{User, account_name},
};
use crate::storage::{Entry, Key, Revision, Storage, TableName};

/// The tables that make the policy.
const TABLES: [(&str, Kind); 4] = [
    ("clusterroles.rbac.authorization.k8s.io", Kind::Role),
    ("roles.rbac.authorization.k8s.io", Kind::Role),
    ("clusterrolebindings.rbac.authorization.k8s.io", Kind::Binding),
    ("rolebindings.rbac.authorization.k8s.io", Kind::Binding),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Role,
    Binding,
}

/// The policy of one server.
pub(crate) struct Policy {
    index: RwLock<Index>,
}

struct Index {
    tables: Vec<Followed>,
    /// By namespace and name; cluster roles are in the empty namespace.
    roles: HashMap<Box<str>, BTreeMap<Arc<str>, Arc<RoleFacts>>>,
    bindings: HashMap<Key, Arc<Binding>>,
    /// Who is bound where; the cluster is the empty namespace.
    places: HashMap<Box<str>, Place>,
}

/// A table, and how much of it is in the index.
struct Followed {
    table: TableName,
    kind: Kind,
    news: watch::Receiver<Revision>,
    /// All events up to this one are in the index.
    seen: Revision,
}

/// Whom the bindings of one place concern. A service account is under its user name.
#[derive(Default)]
struct Place {
    users: HashMap<Box<str>, Vec<Arc<Binding>>>,
    groups: HashMap<Box<str>, Vec<Arc<Binding>>>,
}

/// A binding, read once.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(super) key: Key,
    /// `Role` or `ClusterRole`.
    pub(super) role_kind: Box<str>,
    pub(super) role: Box<str>,
    pub(super) subjects: Vec<Subject>,
}

/// Somebody whom a binding names.
#[derive(Debug)]
pub(crate) enum Subject {
    User(Box<str>),
    Group(Box<str>),
    Account {
        namespace: Box<str>,
        name: Box<str>,
        /// The name that RBAC knows.
        user: Box<str>,
    },
}

impl Subject {
    pub(super) fn account(namespace: &str, name: &str) -> Self {
        Self::Account {
            namespace: namespace.into(),
            name: name.into(),
            user: account_name(namespace, name).into(),
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) | Self::Account { user: name, .. } => **name == *user.name,
            Self::Group(name) => user.is_in(name),
        }
    }
}

/// Whether somebody may do something.
pub(crate) enum Verdict {
    /// They may do everything.
    Master,
    /// A binding says so, and this is how it tells.
    Granted(Arc<Binding>, usize),
    /// No rule says so; these roles were bound, but are not there.
    Refused(Vec<String>),
}

impl Verdict {
    pub(crate) fn is_allowed(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    /// As reviews and refusals say it; empty where there is nothing to say.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Master => String::new(),
            Self::Granted(binding, subject) => format!("RBAC: allowed by {}", Grant(binding, *subject)),
            Self::Refused(missing) => match together(missing) {
                empty if empty.is_empty() => empty,
                missing => format!("RBAC: {missing}"),
            },
        }
    }
}

/// Several problems as one, as Go's aggregates show them.
pub(super) fn together(problems: &[String]) -> String {
    let mut unique: Vec<&str> = Vec::new();
    for problem in problems {
        if !unique.contains(&problem.as_str()) {
            unique.push(problem);
        }
    }
    match unique[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        _ => format!("[{}]", unique.join(", ")),
    }
}

/// What a binding grants to one of its subjects, in words.
struct Grant<'a>(&'a Binding, usize);

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(binding, subject) = self;
        let Key { namespace, name } = &binding.key;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding \"{name}\"")?;
        } else {
            write!(f, "RoleBinding \"{name}/{namespace}\"")?;
        }
        write!(f, " of {} \"{}\" to ", binding.role_kind, binding.role)?;
        match &binding.subjects[*subject] {
            Subject::User(name) => write!(f, "User \"{name}\""),
            Subject::Group(name) => write!(f, "Group \"{name}\""),
            Subject::Account { namespace, name, .. } => write!(f, "ServiceAccount \"{name}/{namespace}\""),
        }
    }
}

impl Policy {
    pub(crate) fn new(storage: &dyn Storage) -> Self {
        let tables = TABLES.map(|(name, kind)| {
            let table: TableName = name.into();
            let mut news = storage.subscribe(&table);
            // A storage that was used before has much to tell.
            news.mark_changed();
            Followed {
                table,
                kind,
                news,
                seen: Revision(0),
            }
        });
        Self {
            index: RwLock::new(Index {
                tables: tables.into(),
                roles: HashMap::new(),
                bindings: HashMap::new(),
                places: HashMap::new(),
            }),
        }
    }

    pub(super) fn decide(&self, storage: &dyn Storage, user: &User, access: &Access) -> Verdict {
        let mut missing = Vec::new();
        let granted = self.visit(storage, user, access.namespace(), |binding, role| {
            let Some(role) = role else {
                missing.push(no_role(&binding.role_kind, &binding.role));
                return ControlFlow::Continue(());
            };
            if role.rules.iter().any(|rule| rule.allows(access)) {
                let applies = binding.subjects.iter().position(|subject| subject.is(user));
                return ControlFlow::Break((binding.clone(), applies.unwrap_or_default()));
            }
            ControlFlow::Continue(())
        });
        match granted {
            Some((binding, subject)) => Verdict::Granted(binding, subject),
            None => Verdict::Refused(missing),
        }
    }

    /// All rules that a user has in a namespace, and the roles that are bound but not there.
    pub(super) fn rules_of(
        &self,
        storage: &dyn Storage,
        user: &User,
        namespace: &str,
    ) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        self.visit(storage, user, namespace, |binding, role| -> ControlFlow<()> {
            match role {
                Some(role) => rules.extend_from_slice(&role.rules),
                None => missing.push(no_role(&binding.role_kind, &binding.role)),
            }
            ControlFlow::Continue(())
        });
        (rules, missing)
    }

    /// The rules of the role that a binding in a namespace would name.
    pub(super) fn role(
        &self,
        storage: &dyn Storage,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> Option<Arc<RoleFacts>> {
        self.with_index(storage, |index| index.role(namespace, kind, name).cloned())
    }

    /// All cluster roles, in order of their names.
    pub(super) fn cluster_roles(&self, storage: &dyn Storage) -> Vec<(Arc<str>, Arc<RoleFacts>)> {
        self.with_index(storage, |index| {
            let cluster = index.roles.get("").into_iter().flatten();
            cluster.map(|(name, role)| (name.clone(), role.clone())).collect()
        })
    }

    /// Shows each binding that concerns a user in a namespace, with its role if that is there: those of the cluster
    /// first, in order of their names.
    fn visit<T>(
        &self,
        storage: &dyn Storage,
        user: &User,
        namespace: &str,
        mut visitor: impl FnMut(&Arc<Binding>, Option<&RoleFacts>) -> ControlFlow<T>,
    ) -> Option<T> {
        self.with_index(storage, |index| {
            let places: &[&str] = if namespace.is_empty() {
                &[""]
            } else {
                &["", namespace]
            };
            for place in places {
                for binding in index.bindings_of(user, place) {
                    let role = index.role(place, &binding.role_kind, &binding.role);
                    if let ControlFlow::Break(found) = visitor(binding, role.map(|role| &**role)) {
                        return Some(found);
                    }
                }
            }
            None
        })
    }

    /// Looks at the index after taking in what is new.
    fn with_index<T>(&self, storage: &dyn Storage, look: impl FnOnce(&Index) -> T) -> T {
        let index = self.index.read();
        if !index.is_behind() {
            return look(&index);
        }
        drop(index);
        let mut index = self.index.write();
        index.catch_up(storage);
        look(&index)
    }
}

/// How a role that is not there is spoken of.
fn no_role(kind: &str, name: &str) -> String {
    format!(
        "{}.rbac.authorization.k8s.io \"{name}\" not found",
        kind.to_lowercase()
    )
}

impl Index {
    fn is_behind(&self) -> bool {
        // The sender lives in the storage, which outlives the policy.
        self.tables
            .iter()
            .any(|table| table.news.has_changed().unwrap_or(false))
    }

    fn catch_up(&mut self, storage: &dyn Storage) {
        for place in 0..self.tables.len() {
            let followed = &mut self.tables[place];
            if !followed.news.has_changed().unwrap_or(false) {
                continue;
            }
            followed.news.mark_unchanged();
            let (table, kind, seen) = (followed.table.clone(), followed.kind, followed.seen);
            let seen = match storage.events(&table, seen, usize::MAX) {
                Ok(events) => {
                    for event in &events {
                        self.take_in(kind, &event.entry, !event.deleted);
                    }
                    events.last().map_or(seen, |event| event.revision)
                }
                // The history does not reach back so far.
                Err(_) => self.read_anew(storage, &table, kind),
            };
            self.tables[place].seen = seen;
        }
    }

    fn read_anew(&mut self, storage: &dyn Storage, table: &TableName, kind: Kind) -> Revision {
        let snapshot = storage
            .snapshot(table, None)
            .expect("the present is always known");
        let clustered = table.starts_with("cluster");
        let mine = |key: &Key| key.namespace.is_empty() == clustered;
        match kind {
            Kind::Role => self.roles.retain(|place, _| place.is_empty() != clustered),
            Kind::Binding => {
                let gone: Vec<_> = self.bindings.keys().filter(|key| mine(key)).cloned().collect();
                for key in &gone {
                    self.unbind(key);
                }
            }
        }
        for entry in snapshot.range(None, None) {
            self.take_in(kind, entry, true);
        }
        snapshot.revision
    }

    fn take_in(&mut self, kind: Kind, entry: &Entry, present: bool) {
        let key = &entry.key;
        match kind {
            Kind::Role if present => {
                let place = self.roles.entry((*key.namespace).into()).or_default();
                place.insert(key.name.clone(), Arc::new(read_role(entry)));
            }
            Kind::Role => {
                if let Some(place) = self.roles.get_mut(&*key.namespace) {
                    place.remove(&key.name);
                    if place.is_empty() {
                        self.roles.remove(&*key.namespace);
                    }
                }
            }
            Kind::Binding => {
                self.unbind(key);
                if present {
                    self.bind(Arc::new(read_binding(entry)));
                }
            }
        }
    }

    fn bind(&mut self, binding: Arc<Binding>) {
        let place = self
            .places
            .entry(binding.key.namespace.as_ref().into())
            .or_default();
        for subject in &binding.subjects {
            let bound = match subject {
                Subject::User(name) | Subject::Account { user: name, .. } => place.users.entry(name.clone()),
                Subject::Group(name) => place.groups.entry(name.clone()),
            };
            bound.or_default().push(binding.clone());
        }
        self.bindings.insert(binding.key.clone(), binding);
    }

    fn unbind(&mut self, key: &Key) {
        let (Some(binding), Some(place)) = (self.bindings.remove(key), self.places.get_mut(&*key.namespace))
        else {
            return;
        };
        for subject in &binding.subjects {
            let (map, name) = match subject {
                Subject::User(name) | Subject::Account { user: name, .. } => (&mut place.users, name),
                Subject::Group(name) => (&mut place.groups, name),
            };
            if let Some(bound) = map.get_mut(name) {
                bound.retain(|other| other.key != *key);
                if bound.is_empty() {
                    map.remove(name);
                }
            }
        }
        if place.users.is_empty() && place.groups.is_empty() {
            self.places.remove(&*key.namespace);
        }
    }

    /// The bindings of a place that concern a user, each once, in order of their names.
    fn bindings_of(&self, user: &User, place: &str) -> Vec<&Arc<Binding>> {
        let Some(place) = self.places.get(place) else {
            return Vec::new();
        };
        let own = place.users.get(&*user.name).into_iter();
        let shared = user.groups.iter().filter_map(|group| place.groups.get(&**group));
        let mut found: Vec<_> = own.chain(shared).flatten().collect();
        found.sort_unstable_by(|a, b| a.key.name.cmp(&b.key.name));
        found.dedup_by(|a, b| Arc::ptr_eq(a, b));
        found
    }

    fn role(&self, place: &str, kind: &str, name: &str) -> Option<&Arc<RoleFacts>> {
        let namespace = match kind {
            "Role" => place,
            "ClusterRole" => "",
            _ => return None,
        };
        self.roles.get(namespace)?.get(name)
    }
}
