//! What the server serves: its kinds, by discovery.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use kube::{
    Client, Resource,
    core::{ApiResource, DynamicObject},
    discovery::{ApiCapabilities, Discovery, Scope, verbs},
};

use super::objects::Objects;

/// A kind that the server serves, in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) resource: ApiResource,
    pub(super) namespaced: bool,
    /// It has the subresource `scale`.
    pub(super) scales: bool,
    verbs: BTreeSet<String>,
}

impl Kind {
    fn new(resource: ApiResource, capabilities: &ApiCapabilities) -> Arc<Self> {
        Arc::new(Self {
            resource,
            namespaced: capabilities.scope == Scope::Namespaced,
            scales: capabilities
                .subresources
                .iter()
                .any(|(part, _)| part.plural == "scale"),
            verbs: capabilities.operations.iter().cloned().collect(),
        })
    }

    pub(super) fn can(&self, verb: &str) -> bool {
        self.verbs.contains(verb)
    }

    /// The kind whatever its version is: group and plural name.
    pub(super) fn name(&self) -> (String, String) {
        (self.resource.group.clone(), self.resource.plural.clone())
    }

    pub(super) fn is(&self, group: &str, plural: &str) -> bool {
        self.resource.group == group && self.resource.plural == plural
    }

    /// Its objects in this namespace, if it has namespaces.
    pub(super) fn objects(&self, client: &Client, namespace: Option<&str>) -> Objects {
        let namespace = namespace.filter(|_| self.namespaced);
        Objects::new(client, DynamicObject::url_path(&self.resource, namespace))
    }
}

/// Everything that is served at one time.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Each kind once, in the version that the server prefers.
    pub(super) preferred: Vec<Arc<Kind>>,
    /// By `apiVersion` and `kind`, in every version.
    by_type: HashMap<(String, String), Arc<Kind>>,
}

impl Served {
    pub(super) async fn discover(client: &Client) -> kube::Result<Self> {
        let discovery = Discovery::new(client.clone()).run_aggregated().await?;
        let mut served = Self::default();
        for group in discovery.groups_alphabetical() {
            let preferred = group.preferred_version_or_latest();
            let others = group.versions().filter(|version| *version != preferred);
            let mut seen = BTreeSet::new();
            for version in [preferred].into_iter().chain(others) {
                for (resource, capabilities) in group.versioned_resources(version) {
                    let kind = Kind::new(resource, &capabilities);
                    if seen.insert(kind.resource.plural.clone()) {
                        served.preferred.push(Arc::clone(&kind));
                    }
                    let named = (kind.resource.api_version.clone(), kind.resource.kind.clone());
                    served.by_type.entry(named).or_insert(kind);
                }
            }
        }
        Ok(served)
    }

    /// The kind that an owner reference means.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.by_type.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// The kinds whose objects can have owners and be owners. Events are not looked at, as in a real collector: there are
    /// many, they own nothing, and they expire.
    pub(super) fn collected(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.preferred.iter().filter(|kind| {
            let verbs = [verbs::DELETE, verbs::LIST, verbs::WATCH];
            verbs.iter().all(|verb| kind.can(verb))
                && !kind.is("", "events")
                && !kind.is("events.k8s.io", "events")
        })
    }

    /// The kinds whose objects live in namespaces and can be deleted.
    pub(super) fn namespaced(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.preferred
            .iter()
            .filter(|kind| kind.namespaced && kind.can(verbs::DELETE))
    }
}
