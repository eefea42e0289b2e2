//! The API endpoint of a kind and the scope to request from it.

use std::collections::BTreeSet;

use http::{Request, header};
use kube::client::Body;
use windlass_api::labels;

use crate::{
    kind::{Cacheable, WatchScope, is_cluster_scoped},
    meta::Meta,
    protocol::{ListCall, WatchCall},
    store::NamespaceScope,
    watch_error::WatchError,
};

/// The API endpoint of a kind and the scope to request from it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The group and version as a path, for example `/api/v1`.
    prefix: String,
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// For example `pods`.
    pub(crate) plural: String,
    pub(crate) watch_scope: WatchScope,
    /// The label selector of the scope; `None` if it does not parse.
    labels: Option<labels::Selector>,
    cluster_scoped: bool,
    accept: &'static str,
}

impl Target {
    pub(crate) fn of<K: Cacheable>(
        dynamic: &K::DynamicType,
        selection: &WatchScope,
        metadata_only: bool,
    ) -> Self {
        let path = K::url_path(dynamic, None);
        let (prefix, plural) = path.rsplit_once('/').unwrap_or(("", &path));
        Self {
            prefix: prefix.to_owned(),
            group: K::group(dynamic).into_owned(),
            version: K::version(dynamic).into_owned(),
            plural: plural.to_owned(),
            watch_scope: selection.clone(),
            labels: selection.labels.as_deref().unwrap_or_default().parse().ok(),
            cluster_scoped: is_cluster_scoped::<K>(),
            accept: if metadata_only || selection.metadata_only {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
            } else {
                "application/json"
            },
        }
    }

    /// Returns whether the labels of a written object match the scope; `None` if the selector cannot be evaluated here.
    pub(crate) fn labels_match(&self, meta: &Meta) -> Option<bool> {
        let selector = self.labels.as_ref()?;
        Some(selector.matches(|name| meta.label(name)))
    }

    /// Returns the RBAC rule that allows to list and watch the kind, in YAML's flow style.
    pub(crate) fn read_rule(&self) -> String {
        let Self { group, plural, .. } = self;
        format!("{{apiGroups: [\"{group}\"], resources: [{plural}], verbs: [list, watch]}}")
    }

    /// Returns the namespaces that need a watch each; the empty one stands for all.
    pub(crate) fn scopes(&self) -> BTreeSet<NamespaceScope> {
        match &self.watch_scope.namespaces {
            Some(namespaces) if !self.cluster_scoped => namespaces
                .iter()
                .map(|namespace| NamespaceScope::from(namespace.as_str()))
                .collect(),
            _ => BTreeSet::from([NamespaceScope::from("")]),
        }
    }

    pub(crate) fn list(&self, scope: &NamespaceScope, call: &ListCall) -> Result<Request<Body>, WatchError> {
        let limit = call.limit.map(|limit| limit.to_string());
        let mut parameters = Vec::new();
        // An empty version is the default; a continue token contains its own.
        if !call.resource_version.is_empty() {
            parameters.push(("resourceVersion", call.resource_version.as_str()));
        }
        parameters.extend(limit.as_deref().map(|limit| ("limit", limit)));
        parameters.extend(call.continue_token.as_deref().map(|token| ("continue", token)));
        self.request(scope, &parameters)
    }

    pub(crate) fn watch(
        &self,
        scope: &NamespaceScope,
        call: &WatchCall,
    ) -> Result<Request<Body>, WatchError> {
        let seconds = call.timeout.as_secs().to_string();
        let mut parameters = vec![
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds),
        ];
        if call.initial_events {
            parameters.extend([
                ("sendInitialEvents", "true"),
                ("resourceVersionMatch", "NotOlderThan"),
            ]);
        }
        if !call.resource_version.is_empty() || !call.initial_events {
            parameters.push(("resourceVersion", &call.resource_version));
        }
        self.request(scope, &parameters)
    }

    fn request(
        &self,
        scope: &NamespaceScope,
        parameters: &[(&str, &str)],
    ) -> Result<Request<Body>, WatchError> {
        let Self { prefix, plural, .. } = self;
        let path = match &**scope {
            "" => format!("{prefix}/{plural}"),
            namespace => format!("{prefix}/namespaces/{namespace}/{plural}"),
        };
        let WatchScope { labels, fields, .. } = &self.watch_scope;
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in [("labelSelector", labels), ("fieldSelector", fields)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.extend_pairs(parameters);
        Request::get(format!("{path}?{}", query.finish()))
            .header(header::ACCEPT, self.accept)
            .body(Body::empty())
            .map_err(|error| WatchError::other(error.to_string()))
    }
}
