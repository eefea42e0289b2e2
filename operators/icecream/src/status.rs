//! Computes the status from the pods. Pure and deterministic.

use std::{collections::BTreeSet, sync::Arc};

use windlass::{
    api::quantity::{InvalidQuantity, sum},
    k8s_openapi::{
        api::core::v1::{Pod, PodStatus},
        apimachinery::pkg::api::resource::Quantity,
    },
    prelude::*,
};

use crate::IcecreamStatus;

impl IcecreamStatus {
    /// The status for these pods, without the finished ones.
    pub(crate) fn from_pods(pods: &[Arc<Pod>]) -> Result<Self, InvalidQuantity> {
        let pods: Vec<_> = pods.iter().filter(|pod| !is_finished(pod)).collect();
        let specs = || pods.iter().filter_map(|pod| pod.spec.as_ref());
        let statuses = || pods.iter().filter_map(|pod| pod.status.as_ref());
        let total = |resource: &str| {
            let containers = specs().flat_map(|spec| &spec.containers);
            let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
            sum(requests.filter_map(|requests| requests.get(resource))).map(|Quantity(total)| total)
        };
        Ok(Self {
            node_names: sorted(specs().filter_map(|spec| spec.node_name.clone())),
            pod_names: sorted(pods.iter().map(|pod| pod.name_any())),
            pod_ips: sorted(statuses().flat_map(addresses)),
            total_allocated_cpu: total("cpu")?,
            total_allocated_memory: total("memory")?,
        })
    }
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A dual-stack pod has two addresses.
fn addresses(status: &PodStatus) -> impl Iterator<Item = String> {
    let all = status.pod_ips.iter().flatten().map(|address| address.ip.clone());
    status.pod_ip.clone().into_iter().chain(all)
}

fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    let texts: BTreeSet<_> = texts.filter(|text| !text.is_empty()).collect();
    texts.into_iter().collect()
}
