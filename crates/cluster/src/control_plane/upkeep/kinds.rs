//! Discovers the kinds that the server serves.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use kube::{
    Client, Resource,
    core::{ApiResource, DynamicObject},
    discovery::{ApiCapabilities, Discovery, Scope, verbs},
};

use super::objects::MetadataApi;

/// A kind that the server serves, in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) resource: ApiResource,
    pub(super) namespaced: bool,
    /// Whether it has the `scale` subresource.
    pub(super) has_scale: bool,
    verbs: BTreeSet<String>,
}

impl Kind {
    fn new(resource: ApiResource, capabilities: &ApiCapabilities) -> Arc<Self> {
        Arc::new(Self {
            resource,
            namespaced: capabilities.scope == Scope::Namespaced,
            has_scale: capabilities
                .subresources
                .iter()
                .any(|(part, _)| part.plural == "scale"),
            verbs: capabilities.operations.iter().cloned().collect(),
        })
    }

    pub(super) fn supports(&self, verb: &str) -> bool {
        self.verbs.contains(verb)
    }

    /// Returns group and plural name, which identify the kind across versions.
    pub(super) fn group_resource(&self) -> (String, String) {
        (self.resource.group.clone(), self.resource.plural.clone())
    }

    pub(super) fn is(&self, group: &str, plural: &str) -> bool {
        self.resource.group == group && self.resource.plural == plural
    }

    /// Returns its objects, in this namespace if it is namespaced.
    pub(super) fn objects(&self, client: &Client, namespace: Option<&str>) -> MetadataApi {
        let namespace = namespace.filter(|_| self.namespaced);
        MetadataApi::new(client, DynamicObject::url_path(&self.resource, namespace))
    }
}

/// All kinds that the server serves, as of one discovery.
#[derive(Debug, Default)]
pub(super) struct ServedKinds {
    /// Each kind once, in its preferred version.
    pub(super) preferred: Vec<Arc<Kind>>,
    /// By `apiVersion` and `kind`, in every version.
    by_type: HashMap<(String, String), Arc<Kind>>,
}

impl ServedKinds {
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

    /// Returns the kind that an owner reference names.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.by_type.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// Returns the kinds that a resource in a rule names. The core group, which has no name, stands for any group.
    pub(super) fn named(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> impl Iterator<Item = &ApiResource> {
        let resources = self.by_type.values().map(|kind| &kind.resource);
        resources.filter(move |kind| {
            (group.is_empty() || kind.group == group)
                && kind.version == version
                && (kind.plural == resource || kind.kind.to_lowercase() == resource)
        })
    }

    /// Returns the kinds to garbage collect. Events are excluded, as in Kubernetes: there are many, they own nothing, and
    /// they expire.
    pub(super) fn collectable(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.preferred.iter().filter(|kind| {
            let verbs = [verbs::DELETE, verbs::LIST, verbs::WATCH];
            verbs.iter().all(|verb| kind.supports(verb))
                && !kind.is("", "events")
                && !kind.is("events.k8s.io", "events")
        })
    }

    /// Returns the namespaced kinds that can be deleted.
    pub(super) fn namespaced(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.preferred
            .iter()
            .filter(|kind| kind.namespaced && kind.supports(verbs::DELETE))
    }
}
