//! The controllers of workloads: ReplicaSets make pods, Deployments make ReplicaSets, DaemonSets put pods on nodes.
//!
//! ```text
//!   Deployment ──► ReplicaSet ──► Pod ◄── DaemonSet ──► ControllerRevision
//!        ▲              ▲          │ ready, gone
//!        └── counts ────┴── counts ┘
//! ```
//!
//! Each reads the shared caches and writes as `kube-controller-manager`. None keeps state of its own but [`Strays`]; a pass
//! looks at its object and that object's children, by index, never at all pods.
//!
//! Kubernetes' controllers count what they expect to see, so that a cache that lags does not make them create twice.
//! These need no such accounts: what they write is in the caches before the write returns, and nothing that the watch tells
//! late undoes it.

mod claim;
mod daemonset;
mod deployment;
mod pod;
mod replicaset;
mod strays;

use k8s_openapi::{NamespaceResourceScope, api::core::v1::PodTemplateSpec};
use kube::{
    Api, Resource,
    api::{PatchParams, PostParams},
};
use windlass_runtime::{Context, Error, Manager, Writable, Writer};

use self::strays::Strays;
use super::Settings;

/// Whose name their writes carry: in a real cluster they are one process.
const FIELD_MANAGER: &str = "kube-controller-manager";

/// Adds the controllers of workloads.
pub(crate) fn add(manager: Manager, settings: &Settings) -> Manager {
    let clock = settings.clock;
    let manager = replicaset::add(manager, clock);
    let manager = deployment::add(manager, clock);
    daemonset::add(manager, clock)
}

fn writer(ctx: &Context) -> Writer {
    Writer::new(ctx.client().clone(), FIELD_MANAGER)
}

fn post() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn patch() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Writes a status. Somebody who changed the object in between does not make it wrong: it says which generation it is
/// about, and goes onto what there is then.
async fn write_status<K>(ctx: &Context, object: &K, put: impl Fn(&mut K)) -> Result<(), Error>
where
    K: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let all = Api::<K>::namespaced(ctx.client().clone(), namespace(object));
    let mut next = object.clone();
    put(&mut next);
    match all.replace_status(name(object), &post(), &next).await {
        Err(kube::Error::Api(refused)) if refused.code == 409 => {
            let mut live = all.get(name(object)).await?;
            put(&mut live);
            all.replace_status(name(object), &post(), &live).await?;
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

/// Counts of zero are left out of statuses.
fn count(number: i32) -> Option<i32> {
    (number != 0).then_some(number)
}

/// How many objects there are, as statuses count.
fn number(objects: usize) -> i32 {
    i32::try_from(objects).unwrap_or(i32::MAX)
}

/// A short name for a template, of the letters and the length that Kubernetes uses. Theirs is a hash of how Go prints the
/// template, which nobody else can compute; this one is of its JSON. It is as stable, and nobody may rely on more.
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
