//! Pods that wait for their claims: kube-scheduler assigns no node to a pod whose claims are not bound.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use windlass_runtime::{Context, Error, ObjectKey};

use crate::control_plane::pod_claims::{claims_of, is_bound, phase};

/// The pods that wait, with the names of their claims.
#[derive(Clone, Default)]
pub(super) struct WaitingPods(Arc<Mutex<BTreeMap<ObjectKey, Vec<String>>>>);

impl WaitingPods {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Vec<String>>> {
        self.0.lock().expect("no panic while locked")
    }

    pub(super) fn remove(&self, pod: &ObjectKey) {
        self.lock().remove(pod);
    }

    /// The pods that wait for this claim.
    pub(super) fn for_claim(&self, claim: &PersistentVolumeClaim) -> Vec<ObjectKey> {
        let (namespace, name) = (claim.namespace(), claim.name_any());
        let waiting = self.lock();
        let pods = waiting
            .iter()
            .filter(|(pod, names)| pod.namespace() == namespace.as_deref() && names.contains(&name));
        pods.map(|(pod, _)| pod.clone()).collect()
    }

    /// Returns why the pod has to wait for its claims, in kube-scheduler's words.
    pub(super) fn check(&self, key: &ObjectKey, pod: &Pod, ctx: &Context) -> Result<Option<String>, Error> {
        let names: Vec<_> = claims_of(pod).map(|claim| claim.name).collect();
        if names.is_empty() {
            return Ok(None);
        }
        // Before the claims are read, so that a change meanwhile tries the pod again.
        self.lock().insert(key.clone(), names);
        let claims = ctx.lister::<PersistentVolumeClaim>()?;
        let mut unbound = false;
        for used in claims_of(pod) {
            let claim = claims.get(&ObjectKey::namespaced(
                key.namespace().unwrap_or_default(),
                used.name.as_str(),
            ));
            let name = &used.name;
            let Some(claim) = claim else {
                return Ok(Some(if used.is_ephemeral {
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                    )
                } else {
                    format!("persistentvolumeclaim {name:?} not found")
                }));
            };
            if phase(&claim) == Some("Lost") {
                let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
                let volume = volume.unwrap_or_default();
                return Ok(Some(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                )));
            }
            if claim.metadata.deletion_timestamp.is_some() {
                return Ok(Some(format!("persistentvolumeclaim {name:?} is being deleted")));
            }
            unbound |= !is_bound(&claim);
        }
        if unbound {
            return Ok(Some(
                "pod has unbound immediate PersistentVolumeClaims".to_owned(),
            ));
        }
        self.remove(key);
        Ok(None)
    }
}
