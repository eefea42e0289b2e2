//! Resolves the name of a kind.
//!
//! ```text
//!   --kind TEXT ──► KindRef ── look up in discovery ─────────────────────────────► Kind
//!                                  └── not installed, but with version and group ──► Kind, guessed
//! ```
//!
//! A name is what kubectl accepts: plural, singular, short name or kind, then after dots the version, the group, or both.
//! Kinds that the server cannot list and watch are ignored.

use std::{fmt, str::FromStr};

use windlass::kube::{
    Client,
    core::{ApiResource, GroupVersionKind, discovery::v2::APIGroupDiscoveryList},
};

/// The name of a kind, as given by the user.
///
/// ```
/// use windlass_podwatch::KindRef;
///
/// for name in ["pods", "po", "Deployment", "deployments.apps", "deployments.v1.apps", "Foo.v1alpha1.samplecontroller.k8s.io"] {
///     assert!(name.parse::<KindRef>().is_ok());
/// }
/// assert!("pods,".parse::<KindRef>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindRef {
    name: String,
    /// Everything after the first dot; empty if there is none.
    suffix: String,
}

/// A kind that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether it is namespaced. Assumed for a kind that is not installed yet.
    pub namespaced: bool,
    /// Whether discovery listed it.
    pub installed: bool,
}

/// Why a name cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KindError {
    /// The name is malformed.
    #[error(
        "invalid kind `{0}`: write it as in `pods`, `deployments.apps` or `foos.v1alpha1.samplecontroller.k8s.io`"
    )]
    Invalid(String),
    /// Discovery failed.
    #[error("cannot discover the server's kinds to find `{kind}`")]
    Discovery {
        /// The first kind to resolve.
        kind: KindRef,
        /// What went wrong.
        #[source]
        cause: Box<windlass::kube::Error>,
    },
    /// The server has no such kind.
    #[error("the server has no kind `{kind}` that can be watched{}", suggestion(.similar))]
    Unknown {
        /// The name as given.
        kind: KindRef,
        /// Similar names.
        similar: Vec<String>,
    },
    /// The server has no such kind, and the name is too short to wait for it.
    #[error(
        "the server has no kind `{kind}`: to wait until it is installed, name its version too, as in `{}.v1.{}`",
        .kind.name, .kind.suffix
    )]
    NotInstalled {
        /// The name as given.
        kind: KindRef,
    },
    /// Several kinds have the name.
    #[error("`{kind}` is the name of several kinds: write one of {}", .candidates.join(", "))]
    Ambiguous {
        /// The name as given.
        kind: KindRef,
        /// The full name of each.
        candidates: Vec<String>,
    },
}

fn suggestion(names: &[String]) -> String {
    match names {
        [] => ": see `kubectl api-resources`".to_owned(),
        names => format!(": did you mean {}?", names.join(" or ")),
    }
}

impl FromStr for KindRef {
    type Err = KindError;

    fn from_str(text: &str) -> Result<Self, KindError> {
        let part = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if !text.split('.').all(part) {
            return Err(KindError::Invalid(text.to_owned()));
        }
        let (name, rest) = text.split_once('.').unwrap_or((text, ""));
        Ok(Self {
            name: name.to_owned(),
            suffix: rest.to_owned(),
        })
    }
}

impl fmt::Display for KindRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.suffix.as_str() {
            "" => f.write_str(&self.name),
            rest => write!(f, "{}.{rest}", self.name),
        }
    }
}

/// Resolves names to kinds through discovery. Without names, it sends no request.
pub async fn resolve(client: &Client, names: &[KindRef]) -> Result<Vec<Kind>, KindError> {
    let Some(first) = names.first() else {
        return Ok(Vec::new());
    };
    let failed = |cause| KindError::Discovery {
        kind: first.clone(),
        cause: Box::new(cause),
    };
    // In this order, so that error messages list the core group first.
    let core = client.list_core_api_versions_aggregated().await.map_err(failed)?;
    let others = client.list_api_groups_aggregated().await.map_err(failed)?;
    let served = served([core, others]);
    let mut kinds: Vec<Kind> = Vec::new();
    for name in names {
        let kind = name.find(&served)?;
        let place = |kind: &Kind| (kind.resource.api_version.clone(), kind.resource.plural.clone());
        if !kinds.iter().any(|known| place(known) == place(&kind)) {
            kinds.push(kind);
        }
    }
    Ok(kinds)
}

/// A kind that the server lists and watches.
#[derive(Clone, Debug)]
struct Served {
    resource: ApiResource,
    namespaced: bool,
    /// Singular and short names.
    aliases: Vec<String>,
}

/// The kinds that can be listed and watched, each group's versions in the server's order of preference.
fn served(lists: impl IntoIterator<Item = APIGroupDiscoveryList>) -> Vec<Served> {
    let mut served = Vec::new();
    for group in lists.into_iter().flat_map(|list| list.items) {
        let name = group
            .metadata
            .and_then(|metadata| metadata.name)
            .unwrap_or_default();
        for version in group.versions {
            let number = version.version.unwrap_or_default();
            for found in version.resources {
                let can = |wanted: &str| found.verbs.iter().any(|verb| verb == wanted);
                let (Some(plural), true) = (found.resource, can("list") && can("watch")) else {
                    continue;
                };
                let kind = found
                    .response_kind
                    .and_then(|response| response.kind)
                    .unwrap_or_default();
                let gvk = GroupVersionKind::gvk(&name, &number, &kind);
                let mut aliases = found.short_names;
                aliases.extend(found.singular_resource);
                served.push(Served {
                    resource: ApiResource::from_gvk_with_plural(&gvk, &plural),
                    namespaced: found.scope.as_deref() != Some("Cluster"),
                    aliases,
                });
            }
        }
    }
    served
}

impl Served {
    fn is_called(&self, name: &str) -> bool {
        let same = |known: &str| known.eq_ignore_ascii_case(name);
        same(&self.resource.plural)
            || same(&self.resource.kind)
            || self.aliases.iter().any(|alias| same(alias))
    }

    /// An unambiguous name: `deployments.apps`, or `events.v1` in the core group.
    fn full_name(&self) -> String {
        let ApiResource {
            group,
            version,
            plural,
            ..
        } = &self.resource;
        match group.as_str() {
            "" => format!("{plural}.{version}"),
            group => format!("{plural}.{group}"),
        }
    }
}

impl KindRef {
    fn find(&self, served: &[Served]) -> Result<Kind, KindError> {
        let called: Vec<_> = served.iter().filter(|kind| kind.is_called(&self.name)).collect();
        let mut meant: Vec<&Served> = called
            .iter()
            .copied()
            .filter(|kind| self.matches_group_version(&kind.resource))
            .collect();
        // Of several versions, the server's preferred one, which discovery lists first.
        let mut groups: Vec<String> = Vec::new();
        meant.retain(|kind| {
            let full = kind.full_name();
            let first = !groups.contains(&full);
            if first {
                groups.push(full);
            }
            first
        });
        match meant.as_slice() {
            [] => self.resolve_absent(served, &called),
            [only] => Ok(Kind {
                resource: only.resource.clone(),
                namespaced: only.namespaced,
                installed: true,
            }),
            _ => Err(KindError::Ambiguous {
                kind: self.clone(),
                candidates: groups.iter().map(|name| format!("`{name}`")).collect(),
            }),
        }
    }

    /// Whether the version and group match, as far as they were given.
    fn matches_group_version(&self, resource: &ApiResource) -> bool {
        let ApiResource { group, version, .. } = resource;
        match self.suffix.as_str() {
            "" => true,
            rest if rest == group => true,
            rest if group.is_empty() => rest == version,
            rest => {
                rest.strip_prefix(version.as_str())
                    .and_then(|rest| rest.strip_prefix('.'))
                    == Some(group)
            }
        }
    }

    /// Resolves a kind that the server does not have: guesses it if the name has version and group, else fails.
    fn resolve_absent(&self, served: &[Served], called: &[&Served]) -> Result<Kind, KindError> {
        let unknown = |similar: Vec<String>| KindError::Unknown {
            kind: self.clone(),
            similar: similar.iter().map(|name| format!("`{name}`")).collect(),
        };
        // CRD groups contain a dot, so only these can be installed later.
        let (version, group) = match self.suffix.split_once('.') {
            Some((version, group)) if is_version(version) => (Some(version), group),
            Some(_) => (None, self.suffix.as_str()),
            None => return Err(unknown(self.similar(served, called))),
        };
        if !group.contains('.') {
            return Err(unknown(self.similar(served, called)));
        }
        let Some(version) = version else {
            let near = self.similar(served, called);
            return Err(if near.is_empty() {
                KindError::NotInstalled { kind: self.clone() }
            } else {
                unknown(near)
            });
        };
        Ok(Kind {
            resource: self.guess_resource(group, version),
            namespaced: true,
            installed: false,
        })
    }

    /// Derives the plural from a capitalized kind, or the kind from a lower-case plural.
    fn guess_resource(&self, group: &str, version: &str) -> ApiResource {
        let is_kind = self.name.starts_with(|first: char| first.is_ascii_uppercase());
        if is_kind {
            return ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &self.name));
        }
        let singular = singular(&self.name);
        let (first, rest) = singular.split_at(1);
        let kind = format!("{}{rest}", first.to_ascii_uppercase());
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), &self.name)
    }

    /// Suggestions: the same name in another group, or a similar one in this group.
    fn similar(&self, served: &[Served], called: &[&Served]) -> Vec<String> {
        let mut near: Vec<String> = called.iter().map(|kind| kind.full_name()).collect();
        if near.is_empty() {
            let name = self.name.to_ascii_lowercase();
            let group_fits =
                |kind: &&Served| self.suffix.is_empty() || self.suffix.ends_with(&kind.resource.group);
            let close = served.iter().filter(group_fits).filter(|kind| {
                let mut known = vec![kind.resource.plural.as_str()];
                known.extend(
                    kind.aliases
                        .iter()
                        .filter(|alias| alias.len() > 3)
                        .map(String::as_str),
                );
                known
                    .iter()
                    .any(|known| edit_distance(known, &name) <= name.len() / 4)
            });
            near = close.map(Served::full_name).collect();
        }
        near.dedup();
        near.truncate(3);
        near
    }
}

/// Whether the text is a Kubernetes API version, as in `v1` or `v2beta1`.
fn is_version(text: &str) -> bool {
    let rest = text.strip_prefix('v').unwrap_or_default();
    rest.starts_with(|first: char| first.is_ascii_digit())
        && rest
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn singular(plural: &str) -> String {
    if let Some(stem) = plural.strip_suffix("ies") {
        return format!("{stem}y");
    }
    for ending in ["sses", "shes", "ches", "xes"] {
        if plural.ends_with(ending) {
            return plural[..plural.len() - 2].to_owned();
        }
    }
    plural
        .strip_suffix('s')
        .filter(|stem| !stem.is_empty())
        .unwrap_or(plural)
        .to_owned()
}

/// The Levenshtein distance.
fn edit_distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;
