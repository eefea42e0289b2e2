//! The version `v1beta1`: what belongs to the Deployment is in one place. Objects are stored as `v1alpha1`.

use windlass::webhook::convert_spec;

use crate::IcecreamStatus;

/// Desired state of an [`Icecream`]: its Deployment, and the pods to report.
#[windlass::resource(group = "controller.nicoleh.io", version = "v1beta1")]
#[kube(kind = "Icecream", namespaced, status = "IcecreamStatus")]
#[kube(printcolumn = r#"{"name": "Deployment", "type": "string", "jsonPath": ".spec.deployment.name"}"#)]
#[kube(printcolumn = r#"{"name": "Flavor", "type": "string", "jsonPath": ".spec.flavor"}"#)]
#[kube(printcolumn = r#"{"name": "CPU", "type": "string", "jsonPath": ".status.totalAllocatedCPU"}"#)]
#[kube(printcolumn = r#"{"name": "Memory", "type": "string", "jsonPath": ".status.totalAllocatedMemory"}"#)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
pub struct IcecreamSpec {
    /// Its Deployment.
    #[serde(default)]
    pub deployment: DeploymentSpec,
    /// Reports the pods with this value in the label `ice-cream-flavor`. Default, also if empty: the pods of its Deployment.
    pub flavor: Option<String>,
}

/// The Deployment of an [`Icecream`].
#[windlass::api_type]
#[derive(Default)]
pub struct DeploymentSpec {
    /// Its name, in the Icecream's namespace. Default: the Icecream's name.
    #[serde(default)]
    pub name: String,
    /// The number of replicas. Default: one at creation; later changes to the Deployment are kept.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

impl From<crate::IcecreamSpec> for IcecreamSpec {
    fn from(spec: crate::IcecreamSpec) -> Self {
        Self {
            deployment: DeploymentSpec {
                name: spec.deployment_name,
                replicas: spec.replicas,
            },
            flavor: spec.flavor,
        }
    }
}

impl From<IcecreamSpec> for crate::IcecreamSpec {
    fn from(spec: IcecreamSpec) -> Self {
        Self {
            deployment_name: spec.deployment.name,
            replicas: spec.deployment.replicas,
            flavor: spec.flavor,
        }
    }
}

convert_spec!(crate::Icecream, Icecream, status);
