//! The resource that a handler is about.

use kube::{Resource, core::ApiResource};
use windlass_cache::is_cluster_scoped;

/// A resource, or a subresource of one, that a webhook is about.
///
/// Most handlers name a type instead, of which it is made:
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
/// use windlass_webhook::Target;
///
/// assert_eq!(Target::of::<Deployment>().to_string(), "deployments.v1.apps");
/// assert_eq!(Target::of::<Deployment>().subresource("scale").to_string(), "deployments/scale.v1.apps");
/// assert_eq!(Target::new("", "v1", "pods").subresource("exec").to_string(), "pods/exec.v1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) subresource: Option<String>,
    /// `None` if it is not known.
    pub(crate) is_namespaced: Option<bool>,
}

impl Target {
    /// The resource of a type.
    pub fn of<K: Resource<DynamicType: Default, Scope: 'static>>() -> Self {
        let dynamic = K::DynamicType::default();
        Self {
            group: K::group(&dynamic).into_owned(),
            version: K::version(&dynamic).into_owned(),
            plural: K::plural(&dynamic).into_owned(),
            subresource: None,
            is_namespaced: Some(!is_cluster_scoped::<K>()),
        }
    }

    /// A resource that is known at run time.
    pub fn dynamic(resource: &ApiResource) -> Self {
        Self::new(&resource.group, &resource.version, &resource.plural)
    }

    /// A resource by its names: `apps`, `v1`, `deployments`. The core group is the empty one.
    pub fn new(group: &str, version: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            subresource: None,
            is_namespaced: None,
        }
    }

    /// A subresource of it, such as `scale`. Objects of a subresource have a type of their own: that of `scale` is
    /// `autoscaling/v1 Scale`, also for custom resources, and that of `status` is the object's.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.subresource = Some(name.to_owned());
        self
    }

    /// `deployments/scale`, as in rules.
    pub(crate) fn resource(&self) -> String {
        match &self.subresource {
            Some(name) => format!("{}/{name}", self.plural),
            None => self.plural.clone(),
        }
    }

    /// The scope in rules.
    pub(crate) fn scope(&self) -> &'static str {
        match self.is_namespaced {
            Some(true) => "Namespaced",
            Some(false) => "Cluster",
            None => "*",
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.resource(), self.version)?;
        if self.group.is_empty() {
            return Ok(());
        }
        write!(f, ".{}", self.group)
    }
}
