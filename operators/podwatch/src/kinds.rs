//! Which kind a name means.
//!
//! ```text
//!   --kind TEXT ──► KindRef ── find in what the server has (discovery) ──► Kind
//!                                  └── not there yet, but said in full ────► Kind, as far as it can be told
//! ```
//!
//! A name is what kubectl takes: plural, singular, short name or kind, and after dots the version and the group, or one of
//! them. What the server cannot list and watch is no candidate.

use std::{fmt, str::FromStr};

use windlass::kube::{
    Client,
    core::{ApiResource, GroupVersionKind, discovery::v2::APIGroupDiscoveryList},
};

/// A name of a kind, as somebody wrote it.
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
    /// What comes after the first dot; empty if there is none.
    rest: String,
}

/// A kind that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Where it is, and what it is called.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces. Of a kind that is not installed yet it is assumed.
    pub namespaced: bool,
    /// Whether the server had it when it was asked.
    pub installed: bool,
}

/// Why a name means no kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KindError {
    /// It cannot be a name.
    #[error(
        "`{0}` cannot be a kind: write it as in `pods`, `deployments.apps` or `foos.v1alpha1.samplecontroller.k8s.io`"
    )]
    Invalid(String),
    /// The server was not asked, or did not say.
    #[error("cannot ask the server which kinds there are, to find `{kind}`")]
    Discovery {
        /// The first that was looked for.
        kind: KindRef,
        /// What went wrong.
        #[source]
        cause: Box<windlass::kube::Error>,
    },
    /// There is none.
    #[error("the server has no kind `{kind}` that can be watched{}", did_you_mean(.similar))]
    Unknown {
        /// As it was written.
        kind: KindRef,
        /// What it might have been.
        similar: Vec<String>,
    },
    /// There is none, and it cannot be waited for.
    #[error(
        "the server has no kind `{kind}`: to wait until it is installed, name its version too, as in `{}.v1.{}`",
        .kind.name, .kind.rest
    )]
    NotInstalled {
        /// As it was written.
        kind: KindRef,
    },
    /// There are several.
    #[error("`{kind}` is the name of several kinds: write one of {}", .candidates.join(", "))]
    Ambiguous {
        /// As it was written.
        kind: KindRef,
        /// What each of them is called in full.
        candidates: Vec<String>,
    },
}

fn did_you_mean(names: &[String]) -> String {
    match names {
        [] => ": `kubectl api-resources` tells what there is".to_owned(),
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
            rest: rest.to_owned(),
        })
    }
}

impl fmt::Display for KindRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rest.as_str() {
            "" => f.write_str(&self.name),
            rest => write!(f, "{}.{rest}", self.name),
        }
    }
}

/// Finds the kinds that the names mean. Without names, nobody is asked.
pub async fn resolve(client: &Client, names: &[KindRef]) -> Result<Vec<Kind>, KindError> {
    let Some(first) = names.first() else {
        return Ok(Vec::new());
    };
    let failed = |cause| KindError::Discovery {
        kind: first.clone(),
        cause: Box::new(cause),
    };
    // In this order, so that of two kinds the one of the core group is told first.
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

/// A kind that the server has.
#[derive(Clone, Debug)]
struct Served {
    resource: ApiResource,
    namespaced: bool,
    /// Singular and short names.
    aliases: Vec<String>,
}

/// What can be listed and watched, the versions of a group in the order in which the server prefers them.
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

    /// What makes it the only one: `deployments.apps`, or `events.v1` in the core group.
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
            .filter(|kind| self.is_of(&kind.resource))
            .collect();
        // Of several versions, the server's preferred one; it is told first.
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
            [] => self.absent(served, &called),
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

    /// Whether the version and group, as far as they were said, are these.
    fn is_of(&self, resource: &ApiResource) -> bool {
        let ApiResource { group, version, .. } = resource;
        match self.rest.as_str() {
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

    /// What to do about a kind that the server does not have.
    fn absent(&self, served: &[Served], called: &[&Served]) -> Result<Kind, KindError> {
        let unknown = |similar: Vec<String>| KindError::Unknown {
            kind: self.clone(),
            similar: similar.iter().map(|name| format!("`{name}`")).collect(),
        };
        // Only groups with a dot can have kinds that come later.
        let (version, group) = match self.rest.split_once('.') {
            Some((version, group)) if is_version(version) => (Some(version), group),
            Some(_) => (None, self.rest.as_str()),
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
            resource: self.guess(group, version),
            namespaced: true,
            installed: false,
        })
    }

    /// A kind has a capital letter; what has none is its plural. The other one is made from it.
    fn guess(&self, group: &str, version: &str) -> ApiResource {
        let is_kind = self.name.starts_with(|first: char| first.is_ascii_uppercase());
        if is_kind {
            return ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &self.name));
        }
        let singular = singular(&self.name);
        let (first, rest) = singular.split_at(1);
        let kind = format!("{}{rest}", first.to_ascii_uppercase());
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), &self.name)
    }

    /// Names that might have been meant: the same in another group, or nearly the same in that one.
    fn similar(&self, served: &[Served], called: &[&Served]) -> Vec<String> {
        let mut near: Vec<String> = called.iter().map(|kind| kind.full_name()).collect();
        if near.is_empty() {
            let name = self.name.to_ascii_lowercase();
            let group_fits =
                |kind: &&Served| self.rest.is_empty() || self.rest.ends_with(&kind.resource.group);
            let close = served.iter().filter(group_fits).filter(|kind| {
                let mut known = vec![kind.resource.plural.as_str()];
                known.extend(
                    kind.aliases
                        .iter()
                        .filter(|alias| alias.len() > 3)
                        .map(String::as_str),
                );
                known.iter().any(|known| distance(known, &name) <= name.len() / 4)
            });
            near = close.map(Served::full_name).collect();
        }
        near.dedup();
        near.truncate(3);
        near
    }
}

/// `v1`, `v2beta1`: as Kubernetes' own rule says.
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

/// How many letters to change, put in or leave out.
fn distance(one: &str, other: &str) -> usize {
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
