//! An index of the roles and bindings in the storage, by subject.
//!
//! ```text
//!   storage history ──► Index ── namespace, or the cluster ──  user or group ──► bindings ──► role ──► rules
//! ```
//!
//! Before each decision the index applies what was written to the four tables since. If nothing is new, that is a look
//! at four counters. No object is decoded twice.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    ops::ControlFlow,
    sync::Arc,
};

use parking_lot::RwLock;
use windlass_api::request::Access;
use windlass_rights::Rule;

use super::{
    role_objects::{ParsedRole, parse_binding, parse_role},
    user::{User, service_account_user_name},
};
use crate::storage::{Entry, Key, Storage, TableChanges, TableFollower};

/// The tables that make up the policy.
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
    tables: Vec<IndexedTable>,
    /// By namespace and name; cluster roles are in the empty namespace.
    roles: HashMap<Box<str>, BTreeMap<Arc<str>, Arc<ParsedRole>>>,
    bindings: HashMap<Key, Arc<Binding>>,
    /// The bindings in each namespace; cluster role bindings are in the empty namespace.
    bindings_by_namespace: HashMap<Box<str>, NamespaceBindings>,
}

/// A table of roles or bindings, of one scope.
struct IndexedTable {
    follower: TableFollower,
    kind: Kind,
    is_cluster_scoped: bool,
}

/// The bindings of one namespace by subject. A service account is indexed by its user name.
#[derive(Default)]
struct NamespaceBindings {
    users: HashMap<Box<str>, BindingsByName>,
    groups: HashMap<Box<str>, BindingsByName>,
}

/// The bindings of one subject in one namespace. Adding and removing one takes as long with many others as with few:
/// both happen under the policy's write lock.
type BindingsByName = BTreeMap<Arc<str>, Arc<Binding>>;

/// A parsed binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(super) key: Key,
    /// `Role` or `ClusterRole`.
    pub(super) role_kind: Box<str>,
    pub(super) role: Box<str>,
    /// Each once.
    pub(super) subjects: Vec<Subject>,
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    User(Box<str>),
    Group(Box<str>),
    ServiceAccount {
        namespace: Box<str>,
        name: Box<str>,
        /// Its user name.
        user: Box<str>,
    },
}

impl Subject {
    pub(super) fn service_account(namespace: &str, name: &str) -> Self {
        Self::ServiceAccount {
            namespace: namespace.into(),
            name: name.into(),
            user: service_account_user_name(namespace, name).into(),
        }
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            Self::User(name) | Self::ServiceAccount { user: name, .. } => **name == *user.name,
            Self::Group(name) => user.is_in(name),
        }
    }
}

/// The authorizer's decision.
pub(crate) enum Decision {
    /// Allowed without a rule: RBAC is off, or the user is in `system:masters`.
    Unrestricted,
    /// Allowed by this binding.
    Allowed(Arc<Binding>),
    /// Denied; lists the bound roles that do not exist.
    Denied(Vec<String>),
}

impl Decision {
    pub(crate) fn is_allowed(&self) -> bool {
        !matches!(self, Self::Denied(_))
    }

    /// The reason shown to a user in reviews and 403 responses; may be empty.
    pub(crate) fn reason(&self, user: &User) -> String {
        match self {
            Self::Unrestricted => String::new(),
            Self::Allowed(binding) => format!("RBAC: allowed by {}", Grant(binding, user)),
            Self::Denied(missing) => match aggregate_messages(missing) {
                empty if empty.is_empty() => empty,
                missing => format!("RBAC: {missing}"),
            },
        }
    }
}

/// From this number of rules on, a role that several bindings refer to is visited once or twice, not for each of them. A
/// thousand bindings to a role of ten thousand rules would be more than fits into memory.
const MANY_RULES: usize = 1_000;

/// How many messages are listed. A real server lists all of them.
const MAX_MESSAGES: usize = 100;

/// Joins messages like Go's `errors.Aggregate`, each once; of very many, only the first and the number of the others.
pub(crate) fn aggregate_messages(problems: &[String]) -> String {
    let mut seen = HashSet::new();
    let mut unique = Vec::new();
    for problem in problems {
        if seen.insert(problem) && unique.len() < MAX_MESSAGES {
            unique.push(problem.as_str());
        }
    }
    let others = seen.len() - unique.len();
    match unique[..] {
        [] => String::new(),
        [one] => one.to_owned(),
        _ if others > 0 => format!("[{}, and {others} more]", unique.join(", ")),
        _ => format!("[{}]", unique.join(", ")),
    }
}

/// Displays which binding grants access to a user, by which of its subjects. A binding may have thousands: they are
/// searched only for the few requests that show this.
struct Grant<'a>(&'a Binding, &'a User);

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(binding, user) = self;
        let Key { namespace, name } = &binding.key;
        if namespace.is_empty() {
            write!(f, "ClusterRoleBinding \"{name}\"")?;
        } else {
            write!(f, "RoleBinding \"{name}/{namespace}\"")?;
        }
        write!(f, " of {} \"{}\" to ", binding.role_kind, binding.role)?;
        match binding.subjects.iter().find(|subject| subject.matches(user)) {
            Some(Subject::User(name)) => write!(f, "User \"{name}\""),
            Some(Subject::Group(name)) => write!(f, "Group \"{name}\""),
            Some(Subject::ServiceAccount { namespace, name, .. }) => {
                write!(f, "ServiceAccount \"{name}/{namespace}\"")
            }
            None => Ok(()),
        }
    }
}

/// How many bindings and strings of rules decisions may look at. A user who may write roles can make decisions about a user take
/// long; so on a thread that serves other requests they are made within a budget, and if that is not enough, as large work.
pub(crate) struct Budget(Cell<usize>);

/// The budget on a thread that serves other requests. The bootstrap roles of an administrator are 500 strings.
const INLINE_BUDGET: usize = 20_000;

/// The budget of a review that lists rules.
const LIST_BUDGET: usize = 200_000;

impl Budget {
    pub(crate) fn unlimited() -> Self {
        Self(Cell::new(usize::MAX))
    }

    pub(crate) fn inline() -> Self {
        Self(Cell::new(INLINE_BUDGET))
    }

    pub(super) fn for_list() -> Self {
        Self(Cell::new(LIST_BUDGET))
    }

    /// Whether it was not enough: then decisions made with it are void.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.0.get() == 0
    }

    fn spend(&self, count: usize) {
        if self.0.get() < usize::MAX {
            self.0.set(self.0.get().saturating_sub(count));
        }
    }
}

impl Policy {
    pub(crate) fn new(storage: &dyn Storage) -> Self {
        let tables = TABLES.map(|(name, kind)| IndexedTable {
            follower: TableFollower::new(storage, name),
            kind,
            is_cluster_scoped: name.starts_with("cluster"),
        });
        Self {
            index: RwLock::new(Index {
                tables: tables.into(),
                roles: HashMap::new(),
                bindings: HashMap::new(),
                bindings_by_namespace: HashMap::new(),
            }),
        }
    }

    pub(super) fn decide(
        &self,
        storage: &dyn Storage,
        user: &User,
        access: &Access,
        budget: &Budget,
    ) -> Decision {
        let mut missing = Vec::new();
        let granted = self.visit(storage, user, access.namespace(), budget, |binding, role| {
            let Some(role) = role else {
                missing.push(role_not_found(&binding.role_kind, &binding.role));
                return ControlFlow::Continue(());
            };
            if role.rules.iter().any(|rule| rule.allows(access)) {
                return ControlFlow::Break(binding.clone());
            }
            ControlFlow::Continue(())
        });
        match granted {
            Some(binding) => Decision::Allowed(binding),
            None => Decision::Denied(missing),
        }
    }

    /// The rules that a user has in a namespace, as many as fit into the budget, and the bound roles that do not exist.
    pub(super) fn rules_of(
        &self,
        storage: &dyn Storage,
        user: &User,
        namespace: &str,
        budget: &Budget,
    ) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        self.visit(
            storage,
            user,
            namespace,
            budget,
            |binding, role| -> ControlFlow<()> {
                match role {
                    Some(role) => rules.extend_from_slice(&role.rules),
                    None => missing.push(role_not_found(&binding.role_kind, &binding.role)),
                }
                ControlFlow::Continue(())
            },
        );
        (rules, missing)
    }

    /// The role that a binding in a namespace refers to.
    pub(super) fn role(
        &self,
        storage: &dyn Storage,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> Option<Arc<ParsedRole>> {
        self.with_index(storage, |index| index.role(namespace, kind, name).cloned())
    }

    /// All cluster roles, ordered by name.
    pub(super) fn cluster_roles(&self, storage: &dyn Storage) -> Vec<(Arc<str>, Arc<ParsedRole>)> {
        self.with_index(storage, |index| {
            let cluster = index.roles.get("").into_iter().flatten();
            cluster.map(|(name, role)| (name.clone(), role.clone())).collect()
        })
    }

    /// Visits each binding that applies to a user in a namespace, with its role if that exists: cluster role bindings
    /// first, ordered by name. After [`MANY_RULES`], further bindings to the same role are skipped. Ends when the budget is
    /// exhausted.
    fn visit<T>(
        &self,
        storage: &dyn Storage,
        user: &User,
        namespace: &str,
        budget: &Budget,
        mut visitor: impl FnMut(&Arc<Binding>, Option<&ParsedRole>) -> ControlFlow<T>,
    ) -> Option<T> {
        self.with_index(storage, |index| {
            let places: &[&str] = if namespace.is_empty() {
                &[""]
            } else {
                &["", namespace]
            };
            let (mut rules, mut seen) = (0, HashSet::new());
            for place in places {
                budget.spend(index.count_bindings_of(user, place));
                if budget.is_exhausted() {
                    return None;
                }
                for binding in index.bindings_of(user, place) {
                    let role = index.role(place, &binding.role_kind, &binding.role);
                    if let Some(role) = role {
                        if rules > MANY_RULES && !seen.insert(Arc::as_ptr(role)) {
                            continue;
                        }
                        rules += role.rules.len();
                        budget.spend(role.strings);
                        if budget.is_exhausted() {
                            return None;
                        }
                    }
                    if let ControlFlow::Break(found) = visitor(binding, role.map(|role| &**role)) {
                        return Some(found);
                    }
                }
            }
            None
        })
    }

    /// Brings the index up to date.
    pub(super) fn catch_up(&self, storage: &dyn Storage) {
        self.with_index(storage, |_| ());
    }

    /// Brings the index up to date and reads it.
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

/// The message for a role that does not exist.
fn role_not_found(kind: &str, name: &str) -> String {
    format!(
        "{}.rbac.authorization.k8s.io \"{name}\" not found",
        kind.to_lowercase()
    )
}

impl Index {
    fn is_behind(&self) -> bool {
        self.tables.iter().any(|table| table.follower.is_behind())
    }

    fn catch_up(&mut self, storage: &dyn Storage) {
        for place in 0..self.tables.len() {
            let table = &mut self.tables[place];
            let (kind, is_cluster_scoped) = (table.kind, table.is_cluster_scoped);
            match table.follower.catch_up(storage) {
                TableChanges::Events(written) => {
                    for (entry, exists) in written {
                        self.apply_event(kind, &entry, exists);
                    }
                }
                TableChanges::Relist(entries) => {
                    self.clear(kind, is_cluster_scoped);
                    for entry in entries {
                        self.apply_event(kind, &entry, true);
                    }
                }
            }
        }
    }

    /// Forgets the roles or bindings of one scope.
    fn clear(&mut self, kind: Kind, is_cluster_scoped: bool) {
        match kind {
            Kind::Role => self
                .roles
                .retain(|place, _| place.is_empty() != is_cluster_scoped),
            Kind::Binding => {
                let is_gone = |key: &&Key| key.namespace.is_empty() == is_cluster_scoped;
                let gone: Vec<_> = self.bindings.keys().filter(is_gone).cloned().collect();
                for key in &gone {
                    self.unbind(key);
                }
            }
        }
    }

    fn apply_event(&mut self, kind: Kind, entry: &Entry, present: bool) {
        let key = &entry.key;
        match kind {
            Kind::Role if present => {
                let place = self.roles.entry((*key.namespace).into()).or_default();
                place.insert(key.name.clone(), Arc::new(parse_role(entry)));
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
                    self.bind(Arc::new(parse_binding(entry)));
                }
            }
        }
    }

    fn bind(&mut self, binding: Arc<Binding>) {
        let place = self
            .bindings_by_namespace
            .entry(binding.key.namespace.as_ref().into())
            .or_default();
        for subject in &binding.subjects {
            let bound = match subject {
                Subject::User(name) | Subject::ServiceAccount { user: name, .. } => {
                    place.users.entry(name.clone())
                }
                Subject::Group(name) => place.groups.entry(name.clone()),
            };
            bound
                .or_default()
                .insert(binding.key.name.clone(), binding.clone());
        }
        self.bindings.insert(binding.key.clone(), binding);
    }

    fn unbind(&mut self, key: &Key) {
        let (Some(binding), Some(place)) = (
            self.bindings.remove(key),
            self.bindings_by_namespace.get_mut(&*key.namespace),
        ) else {
            return;
        };
        for subject in &binding.subjects {
            let (map, name) = match subject {
                Subject::User(name) | Subject::ServiceAccount { user: name, .. } => (&mut place.users, name),
                Subject::Group(name) => (&mut place.groups, name),
            };
            if let Some(bound) = map.get_mut(name) {
                bound.remove(&key.name);
                if bound.is_empty() {
                    map.remove(name);
                }
            }
        }
        if place.users.is_empty() && place.groups.is_empty() {
            self.bindings_by_namespace.remove(&*key.namespace);
        }
    }

    /// How many bindings [`bindings_of`](Self::bindings_of) looks at.
    fn count_bindings_of(&self, user: &User, place: &str) -> usize {
        let Some(place) = self.bindings_by_namespace.get(place) else {
            return 0;
        };
        let own = place.users.get(&*user.name).into_iter();
        let shared = user.groups.iter().filter_map(|group| place.groups.get(&**group));
        own.chain(shared).map(BTreeMap::len).sum()
    }

    /// The bindings of a namespace that apply to a user, each once, ordered by name.
    fn bindings_of(&self, user: &User, place: &str) -> Vec<&Arc<Binding>> {
        let Some(place) = self.bindings_by_namespace.get(place) else {
            return Vec::new();
        };
        let own = place.users.get(&*user.name).into_iter();
        let shared = user.groups.iter().filter_map(|group| place.groups.get(&**group));
        let mut found: Vec<_> = own.chain(shared).flat_map(BTreeMap::values).collect();
        // Merges the ordered bindings of several subjects; those of one are in order.
        found.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        found.dedup_by(|a, b| Arc::ptr_eq(a, b));
        found
    }

    fn role(&self, place: &str, kind: &str, name: &str) -> Option<&Arc<ParsedRole>> {
        let namespace = match kind {
            "Role" => place,
            "ClusterRole" => "",
            _ => return None,
        };
        self.roles.get(namespace)?.get(name)
    }
}
