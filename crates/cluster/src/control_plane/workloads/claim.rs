//! Adopts matching objects without a controller, and releases those that no longer match.

use std::sync::Arc;

use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Api, Resource, api::Patch};
use serde_json::json;
use windlass_api::{labels::Selector, status::StatusClass};
use windlass_runtime::{Context, Error, Writable};

use super::{name, namespace, patch_params, uid};

pub(super) fn controller_of(object: &impl Resource) -> Option<&OwnerReference> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true))
}

/// Builds the controller reference to this owner.
pub(super) fn controller_reference<O: Resource<DynamicType = ()>>(owner: &O) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: name(owner).to_owned(),
        uid: uid(owner).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Adopts the candidates that the owner selects and releases those that it does not. Returns those that it controls.
/// An owner that is being deleted neither adopts nor releases.
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
        let fits = selector.matches_map(object.meta().labels.as_ref().unwrap_or(&unlabelled));
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
                // The cache may lag behind the owner's deletion, and adopted objects would be garbage collected with it.
                if !checked && !is_owner_alive(ctx, owner).await? {
                    return Err("the owner is being deleted: cannot adopt".into());
                }
                checked = true;
                claimed.extend(adopt(ctx, owner, &*object).await?.map(Arc::new));
            }
        }
    }
    Ok(claimed)
}

async fn is_owner_alive<O>(ctx: &Context, owner: &O) -> Result<bool, Error>
where
    O: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let owners = Api::<O>::namespaced(ctx.client().clone(), namespace(owner));
    let live = owners.get_metadata_opt(name(owner)).await?;
    let stays = |meta: &ObjectMeta| meta.uid == owner.meta().uid && meta.deletion_timestamp.is_none();
    Ok(live.is_some_and(|live| stays(&live.metadata)))
}

/// Returns `None` if the object no longer exists.
async fn adopt<O, K>(ctx: &Context, owner: &O, object: &K) -> Result<Option<K>, Error>
where
    O: Resource<DynamicType = ()>,
    K: Writable<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let metadata = json!({ "ownerReferences": [controller_reference(owner)], "uid": uid(object) });
    match write(ctx, object, metadata).await {
        Ok(adopted) => Ok(Some(adopted)),
        Err(kube::Error::Api(status)) if StatusClass::of(&status) == StatusClass::NotFound => Ok(None),
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
    let is_no_owner = |class| {
        matches!(
            class,
            StatusClass::NotFound | StatusClass::UidMismatch | StatusClass::Invalid
        )
    };
    match write(ctx, object, metadata).await {
        // It no longer exists, has another UID, or does not have this owner.
        Err(error) if StatusClass::of_error(&error).is_some_and(is_no_owner) => Ok(()),
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
    objects.patch(name(object), &patch_params(), &change).await
}
