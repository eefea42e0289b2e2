//! The claims that a pod's volumes use.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;

/// A claim that a volume of a pod uses.
pub(super) struct PodClaim<'a> {
    pub(super) volume: &'a str,
    pub(super) name: String,
    /// The claim is created for this pod, from the template of an ephemeral volume.
    pub(super) is_ephemeral: bool,
}

/// The claims of a pod, in the order of its volumes.
pub(super) fn claims_of(pod: &Pod) -> impl Iterator<Item = PodClaim<'_>> {
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    volumes.filter_map(|volume| {
        let is_ephemeral = volume.ephemeral.is_some();
        let name = match &volume.persistent_volume_claim {
            Some(source) => source.claim_name.clone(),
            // The claim of an ephemeral volume is named after the pod and the volume.
            None if is_ephemeral => format!("{}-{}", pod.name_any(), volume.name),
            None => return None,
        };
        Some(PodClaim {
            volume: &volume.name,
            name,
            is_ephemeral,
        })
    })
}

/// Whether a claim is bound to a volume.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    phase(claim) == Some("Bound")
}

/// The phase of a claim.
pub(super) fn phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}
