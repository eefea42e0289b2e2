//! A reboot that somebody asks for through the API, because no hand of theirs reaches the machine.
//!
//! ```text
//!   annotation simulation.windlass.dev/reboot: B ──► kubelet takes it off ──► B is this boot: reboots
//!                                                                        └──► it is not: says so
//! ```
//!
//! The value is the boot that is to end, so that asking again, late or twice ends no other one.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use windlass_runtime::{Context, Error};

use super::register::COMPONENT;
use crate::simulation;

/// Takes the request off the node, and says whether the boot that it names is `boot_id`.
///
/// It is gone before anything happens: whatever it leads to, it leads to it once.
pub(super) async fn take(node: &Node, boot_id: &str, ctx: &Context) -> Result<bool, Error> {
    let annotations = node.metadata.annotations.as_ref();
    let Some(asked) = annotations.and_then(|all| all.get(simulation::REBOOT)) else {
        return Ok(false);
    };
    let patch = json!({"metadata": {
        "uid": node.metadata.uid,
        "resourceVersion": node.metadata.resource_version,
        "annotations": {simulation::REBOOT: null},
    }});
    let params = PatchParams {
        field_manager: Some(COMPONENT.to_owned()),
        ..PatchParams::default()
    };
    let nodes = Api::<Node>::all(ctx.client().clone());
    let name = node.metadata.name.as_deref().unwrap_or_default();
    match nodes.patch(name, &params, &Patch::Merge(patch)).await {
        Ok(_) => {}
        // There is a newer state of the node, which is looked at when it comes.
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    if asked != boot_id {
        let text = format!(
            "the annotation {} asks to end boot {asked:?}, and this is boot {boot_id:?}",
            simulation::REBOOT
        );
        ctx.recorder().normal(node, "RebootNotMeant", text);
    }
    Ok(asked == boot_id)
}
