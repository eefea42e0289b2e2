//! Creates the service account `default` and the ConfigMap `kube-root-ca.crt` in every namespace, and recreates them
//! when they are deleted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{Resource, core::ObjectMeta};
use windlass_api::status::StatusClass;
use windlass_cache::{Cacheable, ObjectKey};
use windlass_runtime::{Action, Context, Controller, Error, Manager, Request, Watch, Writable, WriteError};

use super::{FIELD_MANAGER, Settings};

/// When to check an object again after its creation. A subscription skips an object that is deleted before its creation
/// was delivered, so an immediate deletion would be missed.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

const SERVICE_ACCOUNT: &str = "default";
const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// The key of the certificate in the ConfigMap, and the description that the Kubernetes controller adds.
const ROOT_CA_KEY: &str = "ca.crt";
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal \
     service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);

pub(super) fn add(manager: Manager, settings: &Settings) -> Manager {
    let accounts = Controller::<Namespace>::new("serviceaccount")
        .watch(watch_by_name::<ServiceAccount>(SERVICE_ACCOUNT))
        .field_manager(FIELD_MANAGER)
        .reconcile(ensure_service_account);
    let manager = manager.controller(accounts);
    let Some(root_ca) = settings.root_ca.clone() else {
        return manager;
    };
    let certificates = Controller::<Namespace>::new("root-ca-certificate-publisher")
        .watch(watch_by_name::<ConfigMap>(ROOT_CA_CONFIG_MAP))
        .field_manager(FIELD_MANAGER)
        .reconcile(move |request, ctx| ensure_root_ca(request, ctx, Arc::clone(&root_ca)));
    manager.controller(certificates)
}

/// Watches the objects of this name in all namespaces, and reconciles their namespace on changes.
fn watch_by_name<K>(name: &str) -> Watch<K>
where
    K: Cacheable + Resource<DynamicType: Default>,
{
    Watch::new()
        .fields(format!("metadata.name={name}"))
        .mapped(|object: &K| {
            let namespace = object.meta().namespace.as_deref();
            namespace.map(ObjectKey::cluster_scoped).into_iter().collect()
        })
}

async fn ensure_service_account(request: Request, ctx: Context) -> Result<Action, Error> {
    if is_active(&request, &ctx)? {
        let key = ObjectKey::namespaced(request.key.name(), SERVICE_ACCOUNT);
        if ctx.lister::<ServiceAccount>()?.try_get(&key)?.is_none() {
            let account = ServiceAccount {
                metadata: named(&key),
                ..ServiceAccount::default()
            };
            create(&ctx, &account).await?;
            return Ok(Action::requeue_after(RECHECK_AFTER));
        }
    }
    Ok(Action::done())
}

async fn ensure_root_ca(request: Request, ctx: Context, root_ca: Arc<str>) -> Result<Action, Error> {
    if !is_active(&request, &ctx)? {
        return Ok(Action::done());
    }
    let key = ObjectKey::namespaced(request.key.name(), ROOT_CA_CONFIG_MAP);
    let known = ctx.lister::<ConfigMap>()?.try_get(&key)?;
    let mut wanted = known.as_deref().cloned().unwrap_or_else(|| ConfigMap {
        metadata: named(&key),
        ..ConfigMap::default()
    });
    wanted.data = Some(BTreeMap::from([(ROOT_CA_KEY.to_owned(), root_ca.to_string())]));
    let (annotation, text) = DESCRIPTION;
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    // A description that a user has changed stays.
    let description = annotations.entry(annotation.to_owned()).or_default();
    if description.is_empty() {
        text.clone_into(description);
    }
    match known {
        None => {
            create(&ctx, &wanted).await?;
            return Ok(Action::requeue_after(RECHECK_AFTER));
        }
        Some(known) if *known != wanted => drop(ctx.writer().replace(&wanted).await?),
        Some(_) => {}
    }
    Ok(Action::done())
}

/// Whether the namespace exists and is not terminating.
fn is_active(request: &Request, ctx: &Context) -> Result<bool, Error> {
    let namespace = ctx.lister::<Namespace>()?.try_get(&request.key)?;
    let status = namespace.as_ref().and_then(|namespace| namespace.status.as_ref());
    Ok(status.is_some_and(|status| status.phase.as_deref() == Some("Active")))
}

fn named(key: &ObjectKey) -> ObjectMeta {
    ObjectMeta {
        name: Some(key.name().to_owned()),
        namespace: key.namespace().map(str::to_owned),
        ..ObjectMeta::default()
    }
}

/// Creates the object, unless it exists or its namespace is terminating.
async fn create<K: Writable<DynamicType = ()>>(ctx: &Context, object: &K) -> Result<(), WriteError> {
    use StatusClass::{AlreadyExists, NamespaceTerminating, NotFound};
    match ctx.writer().create(object).await {
        Err(error)
            if matches!(
                error.class(),
                Some(AlreadyExists | NamespaceTerminating | NotFound)
            ) =>
        {
            Ok(())
        }
        other => other.map(drop),
    }
}
