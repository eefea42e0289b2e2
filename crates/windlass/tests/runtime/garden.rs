//! The custom resource of the test cases, and its controller.

use windlass::{
    k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition},
    prelude::*,
};

/// Desired state of a [`Garden`]: a ConfigMap for each bed.
#[windlass::resource(group = "suite.windlass.dev", version = "v1")]
#[kube(kind = "Garden", namespaced, status = "GardenStatus")]
pub(crate) struct GardenSpec {
    pub(crate) beds: Vec<String>,
}

/// Observed state of a [`Garden`].
#[windlass::api_type]
pub(crate) struct GardenStatus {
    pub(crate) planted: usize,
    #[serde(default)]
    pub(crate) conditions: Vec<Condition>,
}

/// Returns a ConfigMap for each bed, named after the garden.
pub(crate) async fn desired(garden: Arc<Garden>, _ctx: Context) -> Result<Desired, Error> {
    let beds = garden.spec.beds.iter().map(|bed| {
        from_value::<ConfigMap>(json!({
            "metadata": { "name": format!("{}-{bed}", garden.name_any()) },
            "data": { "bed": bed },
        }))
    });
    let beds = beds.collect::<Result<Vec<_>, _>>()?;
    let planted = json!({ "planted": beds.len() });
    let desired = Desired::new().children(beds).status(planted);
    Ok(desired.condition(ConditionUpdate::true_("Planted", "AllBeds")))
}

pub(crate) fn gardener() -> Controller<Garden, impl Reconciler> {
    gardens().declare(desired)
}

pub(crate) fn gardens() -> Controller<Garden> {
    Controller::<Garden>::new("gardener").owns::<ConfigMap>()
}
