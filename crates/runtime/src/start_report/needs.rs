//! What a controller needs: the kinds that it lists, and the rights to what the runtime surely does for it.
//!
//! Rights that a controller may never use are left out, such as those of an author's own writes, and `get` of a child,
//! which must be read only if a foreign object has its name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use windlass_cache::{Cache, SyncFailure, WatchErrorKind};

use super::rights::{Resource, RightsByResource};

/// A kind that a controller needs, and how it gets on with its first list.
pub(crate) struct RequiredKind {
    /// For example `Deployment`.
    pub(crate) kind: String,
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    /// `None`: all, or cluster-scoped.
    pub(crate) namespaces: Option<BTreeSet<String>>,
    /// It has a field selector, which a right may be limited to.
    pub(crate) is_partial: bool,
    /// Its objects are children of the controller's.
    pub(crate) is_owned: bool,
    pub(crate) failures: Box<dyn Fn() -> Vec<SyncFailure> + Send + Sync>,
}

/// The caches that a custom source waits for. Filled by the source, while it is not ready.
#[derive(Clone, Default)]
pub(crate) struct CustomKinds(Arc<Mutex<Vec<RequiredKind>>>);

/// Upper bound of the caches that are reported for a custom source, which may open one for each object.
const MAX_CUSTOM_KINDS: usize = 32;

impl CustomKinds {
    pub(crate) fn add<T: Send + Sync + 'static>(&self, cache: &Cache<T>) {
        let mut kinds = self.0.lock();
        if kinds.len() < MAX_CUSTOM_KINDS {
            kinds.push(RequiredKind::of_cache(cache));
        }
    }

    /// Releases the caches.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    pub(super) fn for_each(&self, act: impl FnMut(&RequiredKind)) {
        self.0.lock().iter().for_each(act);
    }
}

impl RequiredKind {
    /// A kind of which only the cache is known. The plural is a guess, right for most.
    fn of_cache<T: Send + Sync + 'static>(cache: &Cache<T>) -> Self {
        let kind = cache.kind();
        let (group, version) = kind
            .api_version
            .split_once('/')
            .unwrap_or(("", &kind.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind.kind));
        let reported = cache.clone();
        Self {
            kind: kind.kind.clone(),
            group: resource.group,
            version: resource.version,
            plural: resource.plural,
            // Asked only about what the server has denied.
            namespaces: Some(BTreeSet::new()),
            is_partial: false,
            is_owned: false,
            failures: Box::new(move || reported.sync_failures()),
        }
    }

    /// The namespaces of its rights.
    fn places(&self) -> Vec<String> {
        match &self.namespaces {
            Some(namespaces) => namespaces.iter().cloned().collect(),
            None => vec![String::new()],
        }
    }

    /// The kind, or a subresource such as `/status`, in a namespace.
    fn resource(&self, namespace: &str, subresource: &str) -> Resource {
        Resource {
            namespace: namespace.to_owned(),
            group: self.group.clone(),
            plural: format!("{}{subresource}", self.plural),
            name: String::new(),
        }
    }

    /// The rights to list and watch it. Empty if they may be limited to a part of the objects, which cannot be asked about.
    pub(crate) fn read_rights(&self) -> RightsByResource {
        let places = self.places().into_iter().filter(|_| !self.is_partial);
        places.map(|namespace| self.read_right(&namespace)).collect()
    }

    /// Those of them that the server has already denied.
    pub(super) fn denied_rights(&self) -> RightsByResource {
        let failures = (self.failures)().into_iter();
        let denied = failures.filter(|failure| failure.error.kind == WatchErrorKind::Forbidden);
        denied
            .map(|failure| self.read_right(&failure.namespace))
            .collect()
    }

    fn read_right(&self, namespace: &str) -> (Resource, BTreeSet<&'static str>) {
        (self.resource(namespace, ""), BTreeSet::from(["list", "watch"]))
    }

    /// What is missing and the fix, if the server does not know the kind. `installable` are the CRDs that the program has.
    pub(super) fn describe_missing(&self, installable: &BTreeSet<String>) -> String {
        if !self.group.contains('.') {
            return format!("the server does not serve {}: install it", self.plural);
        }
        let crd = format!("{}.{}", self.plural, self.group);
        let fix = if installable.contains(&crd) {
            "start with --install, or apply its manifest with kubectl"
        } else {
            "install it"
        };
        format!(
            "the CRD {crd} is not installed, or does not serve {}: {fix}",
            self.version
        )
    }
}

/// What the runtime writes for a declarative controller.
#[derive(Clone, Copy)]
pub(crate) struct DeclarativeWrites {
    /// The standard conditions.
    pub(crate) conditions: bool,
    /// The finalizer of a cleanup.
    pub(crate) finalizer: bool,
    /// The controller's own kind is cluster-scoped.
    pub(crate) is_cluster_scoped: bool,
}

impl DeclarativeWrites {
    /// The rights to these writes, for a controller of the first of these kinds.
    pub(crate) fn rights(self, kinds: &[RequiredKind]) -> RightsByResource {
        let mut rights = RightsByResource::new();
        let mut add = |resource: Resource, verbs: &[&'static str]| {
            rights.entry(resource).or_default().extend(verbs);
        };
        if let Some(own) = kinds.first() {
            for namespace in own.places() {
                if self.finalizer {
                    add(own.resource(&namespace, ""), &["patch"]);
                }
                if self.conditions {
                    // Read to find out which fields are of others.
                    add(own.resource(&namespace, ""), &["get"]);
                    add(own.resource(&namespace, "/status"), &["patch"]);
                }
                let events = Resource {
                    // Events about cluster-scoped objects are there.
                    namespace: if self.is_cluster_scoped {
                        "default".to_owned()
                    } else {
                        namespace
                    },
                    plural: "events".to_owned(),
                    ..Resource::default()
                };
                add(events, &["create", "patch"]);
            }
        }
        for kind in kinds.iter().filter(|kind| kind.is_owned) {
            for namespace in kind.places() {
                add(kind.resource(&namespace, ""), &["create", "delete", "patch"]);
            }
        }
        rights
    }
}

/// The rights that leader election needs.
pub(crate) fn election_rights(namespace: &str, lease: &str) -> RightsByResource {
    let lease = Resource {
        namespace: namespace.to_owned(),
        group: "coordination.k8s.io".to_owned(),
        plural: "leases".to_owned(),
        name: lease.to_owned(),
    };
    BTreeMap::from([(lease, BTreeSet::from(["create", "get", "update"]))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(plural: &str, namespaces: &[&str], is_owned: bool) -> RequiredKind {
        let namespaces: BTreeSet<_> = namespaces.iter().map(ToString::to_string).collect();
        RequiredKind {
            kind: plural.to_owned(),
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            namespaces: Some(namespaces).filter(|namespaces| !namespaces.is_empty()),
            is_partial: false,
            is_owned,
            failures: Box::new(Vec::new),
        }
    }

    fn shown(writes: DeclarativeWrites, kinds: &[RequiredKind]) -> Vec<String> {
        let rights = writes.rights(kinds).into_iter();
        rights
            .map(|(resource, verbs)| {
                let verbs: Vec<_> = verbs.into_iter().collect();
                format!("{}/{} {}", resource.namespace, resource.plural, verbs.join(" "))
            })
            .collect()
    }

    #[test]
    fn declarative_controller_needs_the_writes_of_the_runtime() {
        let bare = DeclarativeWrites {
            conditions: false,
            finalizer: false,
            is_cluster_scoped: false,
        };
        let kinds = [
            kind("shops", &[], false),
            kind("shelves", &[], true),
            kind("secrets", &[], false),
        ];
        assert_eq!(
            shown(bare, &kinds),
            ["/events create patch", "/shelves create delete patch"]
        );
        let all = DeclarativeWrites {
            conditions: true,
            finalizer: true,
            ..bare
        };
        assert_eq!(
            shown(all, &kinds[..1]),
            ["/events create patch", "/shops get patch", "/shops/status patch"]
        );
        assert_eq!(
            shown(bare, &[kind("shops", &["a", "b"], false)]),
            ["a/events create patch", "b/events create patch"]
        );
        let cluster_scoped = DeclarativeWrites {
            is_cluster_scoped: true,
            ..bare
        };
        assert_eq!(
            shown(cluster_scoped, &[kind("shops", &[], false)]),
            ["default/events create patch"]
        );
    }
}
