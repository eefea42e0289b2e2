//! The workload controllers: Deployments, ReplicaSets and DaemonSets.
//!
//! ```text
//!   Deployment ──► ReplicaSet ──► Pod ◄── DaemonSet ──► ControllerRevision
//!        ▲              ▲          │ ready, deleted
//!        └── status ────┴── status ┘
//! ```
//!
//! They read the shared caches and write as `kube-controller-manager`. Their only state is [`Orphans`]. A reconcile reads
//! its object and that object's children, by index, never all pods.
//!
//! Kubernetes' controllers track expectations, so that a lagging cache does not make them create pods twice. These
//! controllers need none: a write is in the cache before it returns, and late watch events do not undo it.

mod claim;
mod daemonset;
mod deployment;
mod orphans;
mod pod;
mod replicaset;

use k8s_openapi::{NamespaceResourceScope, api::core::v1::PodTemplateSpec};
use kube::{
    Api, Resource,
    api::{PatchParams, PostParams},
};
use windlass_api::status::StatusClass;
use windlass_runtime::{Context, Error, Manager, Writable, Writer};

use self::orphans::Orphans;

/// Field manager of the writes; in a real cluster they are one process.
const FIELD_MANAGER: &str = "kube-controller-manager";

/// Adds the workload controllers.
pub(crate) fn add(manager: Manager) -> Manager {
    let manager = replicaset::add(manager);
    let manager = deployment::add(manager);
    daemonset::add(manager)
}

fn writer(ctx: &Context) -> Writer {
    Writer::new(ctx.client().clone(), FIELD_MANAGER)
}

fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Writes a status. After a conflict it is written to the current object: it is still valid, since it states its
/// `observedGeneration`.
async fn write_status<K>(ctx: &Context, object: &K, put: impl Fn(&mut K)) -> Result<(), Error>
where
    K: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let all = Api::<K>::namespaced(ctx.client().clone(), namespace(object));
    let mut next = object.clone();
    put(&mut next);
    match all.replace_status(name(object), &post_params(), &next).await {
        Err(kube::Error::Api(refused)) if StatusClass::of(&refused) == StatusClass::Conflict => {
            let mut live = all.get(name(object)).await?;
            put(&mut live);
            all.replace_status(name(object), &post_params(), &live).await?;
            Ok(())
        }
        outcome => Ok(outcome.map(drop)?),
    }
}

fn name(object: &impl Resource) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

fn namespace(object: &impl Resource) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

fn uid(object: &impl Resource) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

/// Omits counts of zero, as Kubernetes does in statuses.
fn omit_zero(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

/// Converts a length to the type of status counts.
fn to_count(objects: usize) -> i32 {
    i32::try_from(objects).unwrap_or(i32::MAX)
}

/// Returns a hash of a template in Kubernetes' alphabet and length. Kubernetes hashes Go's representation of the template,
/// which other programs cannot compute; this one hashes its JSON. It is equally stable.
fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut text = serde_json::to_vec(template).unwrap_or_default();
    if let Some(collisions) = collisions {
        text.extend(i64::from(collisions).to_le_bytes());
    }
    // FNV-1a
    let hash = text.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    let letter = |digit: u8| char::from(LETTERS[usize::from(digit) % LETTERS.len()]);
    hash.to_string().bytes().map(letter).collect()
}
