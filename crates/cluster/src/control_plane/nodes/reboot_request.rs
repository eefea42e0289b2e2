//! Reboot requests that come through the API, from programs outside of the cluster's process.
//!
//! ```text
//!   annotation simulation.windlass.dev/reboot: B ──► kubelet removes it ──► B is the current boot ID: reboots
//!                                                                      └──► B is another one: event StaleRebootRequest
//! ```
//!
//! The value is the ID of the boot to end, so a late or repeated request does not end a later boot.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use windlass_api::status::StatusClass;
use windlass_runtime::{Context, Error};

use super::register::COMPONENT;
use crate::simulation;

/// Removes the request from the node, and returns whether it names the boot `boot_id`.
///
/// Removing it first makes sure that the node reboots at most once per request.
pub(super) async fn take(node: &Node, boot_id: &str, ctx: &Context) -> Result<bool, Error> {
    let annotations = node.metadata.annotations.as_ref();
    let Some(asked) = annotations.and_then(|all| all.get(simulation::REBOOT_ANNOTATION)) else {
        return Ok(false);
    };
    let patch = json!({"metadata": {
        "uid": node.metadata.uid,
        "resourceVersion": node.metadata.resource_version,
        "annotations": {simulation::REBOOT_ANNOTATION: null},
    }});
    let params = PatchParams {
        field_manager: Some(COMPONENT.to_owned()),
        ..PatchParams::default()
    };
    let nodes = Api::<Node>::all(ctx.client().clone());
    let name = node.metadata.name.as_deref().unwrap_or_default();
    match nodes.patch(name, &params, &Patch::Merge(patch)).await {
        Ok(_) => {}
        Err(error) => match StatusClass::of_error(&error) {
            // The node has changed; its watch event triggers another reconcile.
            Some(StatusClass::Conflict | StatusClass::NotFound | StatusClass::UidMismatch) => {
                return Ok(false);
            }
            _ => return Err(error.into()),
        },
    }
    if asked != boot_id {
        let text = format!(
            "annotation {} requests the end of boot {asked:?}, but the current boot is {boot_id:?}",
            simulation::REBOOT_ANNOTATION
        );
        ctx.recorder().normal(node, "StaleRebootRequest", text);
    }
    Ok(asked == boot_id)
}
