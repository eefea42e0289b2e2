//! The revision history of a DaemonSet: its templates as ControllerRevisions, for rollbacks.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, DaemonSet},
        core::v1::Pod,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use kube::Api;
use serde_json::{Value, json};
use windlass_api::labels::Selector;
use windlass_runtime::{Context, Error};

use super::template::HASH_LABEL;
use crate::control_plane::workloads::{
    Orphans,
    claim::{claim, controller_reference},
    name, namespace, patch_params, post_params, template_hash, writer,
};

/// The revisions of a DaemonSet.
pub(super) struct History {
    /// The hash of the current revision.
    pub(super) hash: String,
    /// The other revisions.
    old: Vec<Arc<ControllerRevision>>,
}

/// Finds or creates the revision of the current template, and gives it the highest number.
pub(super) async fn sync_history(
    ctx: &Context,
    set: &DaemonSet,
    selector: &Selector,
    orphans: &Orphans<DaemonSet, ControllerRevision>,
    pods: &[Arc<Pod>],
) -> Result<History, Error> {
    let known = claim(ctx, set, selector, orphans.candidates(ctx, set)?).await?;
    let data = rollback_patch(set)?;
    let is_current = |revision: &Arc<ControllerRevision>| {
        let kept = revision.data.as_ref();
        kept.is_some_and(|kept| kept.0 == data)
    };
    let (current, old): (Vec<_>, Vec<_>) = known.into_iter().partition(is_current);
    let number = old
        .iter()
        .map(|revision| revision.revision)
        .max()
        .unwrap_or_default()
        + 1;
    let Some(kept) = current.iter().max_by_key(|revision| revision.revision) else {
        let hash = create(ctx, set, data, number).await?;
        return Ok(History { hash, old });
    };
    let hash = hash_of(kept);
    for other in current.iter().filter(|other| !Arc::ptr_eq(other, kept)) {
        relabel(ctx, pods, &hash_of(other), &hash).await?;
        writer(ctx).delete(&**other).await?;
    }
    if kept.revision < number {
        let mut raised = ControllerRevision::clone(kept);
        raised.revision = number;
        writer(ctx).replace(&raised).await?;
    }
    Ok(History { hash, old })
}

fn hash_of(revision: &ControllerRevision) -> String {
    let labels = revision.metadata.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get(HASH_LABEL));
    hash.map_or_else(|| name(revision).to_owned(), Clone::clone)
}

/// Builds the patch that a rollback to this revision applies.
fn rollback_patch(set: &DaemonSet) -> Result<Value, Error> {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let mut template = serde_json::to_value(template)?;
    template["$patch"] = "replace".into();
    Ok(json!({ "spec": { "template": template } }))
}

async fn create(ctx: &Context, set: &DaemonSet, data: Value, number: i64) -> Result<String, Error> {
    let template = set
        .spec
        .as_ref()
        .map(|spec| spec.template.clone())
        .unwrap_or_default();
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&template, collisions);
    let mut labels = template
        .metadata
        .and_then(|metadata| metadata.labels)
        .unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let revision = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", name(set))),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: Some(vec![controller_reference(set)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: number,
    };
    match writer(ctx).create(&revision).await {
        Ok(_) => Ok(hash),
        Err(error) if error.is_already_exists() => {
            // Hash collision with another template: the collision count changes the next hash.
            let sets = Api::<DaemonSet>::namespaced(ctx.client().clone(), namespace(set));
            let mut next = set.clone();
            next.status.get_or_insert_default().collision_count = Some(collisions.unwrap_or_default() + 1);
            sets.replace_status(name(set), &post_params(), &next).await?;
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Moves the pods of a duplicate revision to the one that is kept.
async fn relabel(ctx: &Context, pods: &[Arc<Pod>], from: &str, to: &str) -> Result<(), Error> {
    let is_of = |pod: &&Arc<Pod>| {
        let labels = pod.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(HASH_LABEL))
            .is_some_and(|hash| hash == from)
    };
    for pod in pods.iter().filter(is_of) {
        let api = Api::<Pod>::namespaced(ctx.client().clone(), namespace(&**pod));
        let change = json!({ "metadata": { "labels": { HASH_LABEL: to } } });
        api.patch(name(&**pod), &patch_params(), &kube::api::Patch::Merge(change))
            .await?;
    }
    Ok(())
}

impl History {
    /// Deletes the oldest revisions beyond `revisionHistoryLimit`, except those with pods.
    pub(super) async fn prune(self, ctx: &Context, set: &DaemonSet, pods: &[Arc<Pod>]) -> Result<(), Error> {
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit);
        let kept = usize::try_from(limit.unwrap_or(10)).unwrap_or_default();
        let mut surplus = self.old.len().saturating_sub(kept);
        if surplus == 0 {
            return Ok(());
        }
        let labels = pods.iter().filter_map(|pod| pod.metadata.labels.as_ref());
        let live: BTreeSet<_> = labels.filter_map(|labels| labels.get(HASH_LABEL)).collect();
        let mut old = self.old;
        old.sort_by_key(|revision| revision.revision);
        for revision in old {
            if surplus > 0 && !live.contains(&hash_of(&revision)) {
                writer(ctx).delete(&*revision).await?;
                surplus -= 1;
            }
        }
        Ok(())
    }
}
