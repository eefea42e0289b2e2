//! Adoption of what fits and belongs to nobody, and release of what no longer fits.

use std::sync::Arc;

use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Resource,
    api::Patch,
    core::{Selector, SelectorExt},
};
use serde_json::json;
use windlass_runtime::{Context, Error, Writable};

use super::{name, namespace, patch, uid};

/// Who controls this object.
pub(super) fn controller_of(object: &impl Resource) -> Option<&OwnerReference> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true))
}

/// How a child says that this object controls it.
pub(super) fn reference<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: name(owner).to_owned(),
        uid: uid(owner).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Of these objects, those that the owner controls, after it took what it selects and let go of what it does not.
/// An owner that is being deleted does neither.
pub(super) async fn claim<O, K>(
    ctx: &Context,
    owner: &O,
    selector: &Selector,
    candidates: Vec<Arc<K>>,
) -> Result<Vec<Arc<K>>, Error>
where
    O: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let leaving = owner.meta().deletion_timestamp.is_some();
    let unlabelled = std::collections::BTreeMap::new();
    let mut claimed = Vec::with_capacity(candidates.len());
    let mut checked = false;
    for object in candidates {
        let fits = selector.matches(object.meta().labels.as_ref().unwrap_or(&unlabelled));
        match controller_of(&*object) {
            Some(controller) if controller.uid != uid(owner) => {}
            Some(_) if fits => claimed.push(object),
            Some(_) => {
                if !leaving {
                    release(ctx, owner, &*object).await?;
                }
            }
            None if leaving || !fits || object.meta().deletion_timestamp.is_some() => {}
            None => {
                // The cache may not know yet that the owner goes; what it took then would be deleted with it.
                if !checked && !is_staying(ctx, owner).await? {
                    return Err("it is being deleted, and adopts nothing any more".into());
                }
                checked = true;
                claimed.extend(adopt(ctx, owner, &*object).await?.map(Arc::new));
            }
        }
    }
    Ok(claimed)
}

async fn is_staying<O>(ctx: &Context, owner: &O) -> Result<bool, Error>
where
    O: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let owners = Api::<O>::namespaced(ctx.client().clone(), namespace(owner));
    let live = owners.get_metadata_opt(name(owner)).await?;
    let stays = |meta: &ObjectMeta| meta.uid == owner.meta().uid && meta.deletion_timestamp.is_none();
    Ok(live.is_some_and(|live| stays(&live.metadata)))
}

/// `None` if the object is gone.
async fn adopt<O, K>(ctx: &Context, owner: &O, object: &K) -> Result<Option<K>, Error>
where
    O: Resource<DynamicType = ()>,
    K: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let metadata = json!({ "ownerReferences": [reference(owner)], "uid": uid(object) });
    match write(ctx, object, metadata).await {
        Ok(adopted) => Ok(Some(adopted)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn release<O, K>(ctx: &Context, owner: &O, object: &K) -> Result<(), Error>
where
    O: Resource<DynamicType = ()>,
    K: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let metadata = json!({
        "ownerReferences": [{ "$patch": "delete", "uid": uid(owner) }],
        "uid": uid(object),
    });
    match write(ctx, object, metadata).await {
        // It is gone, it is another one, or it has no such owner.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 422) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

async fn write<K>(ctx: &Context, object: &K, metadata: serde_json::Value) -> Result<K, kube::Error>
where
    K: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let objects = Api::<K>::namespaced(ctx.client().clone(), namespace(object));
    let change = Patch::Strategic(json!({ "metadata": metadata }));
    objects.patch(name(object), &patch(), &change).await
}
