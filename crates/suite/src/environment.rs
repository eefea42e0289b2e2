//! The environment of controllers under test: a case's namespace and a proxy. Waits follow watch events, not time.

use std::{fmt::Debug, sync::Arc};

use anyhow::Context as _;
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::Event,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;
use windlass_cache::{Cache, Cacheable, Lister, ObjectKey, Query, WatchScope};
use windlass_runtime::{CrdInstaller, Manager, Writer};

use crate::{Context, RequestProxy, STEP_TIMEOUT};

/// A namespaced kind. Implemented for all static namespaced kinds.
pub trait Namespaced:
    Cacheable
    + Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Namespaced for K where
    K: Cacheable
        + Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

/// The environment of controllers under test: a case's namespace with administrator access, and the proxy of the
/// controllers.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::{Action, Context, Controller, Request};
/// use windlass_suite::{RunningManager, TestEnvironment};
///
/// async fn lazy_controller_writes_nothing(case: windlass_suite::Context) -> anyhow::Result<()> {
///     let env = TestEnvironment::new(&case);
///     let lazy = Controller::<ConfigMap>::new("lazy").reconcile(|_: Request, _: Context| async { Ok(Action::done()) });
///     let running = RunningManager::start(env.manager().controller(lazy));
///     // … create objects with `env.create`, wait for the effects with `env.wait_for`
///     assert!(env.proxy().writes().is_empty());
///     running.stop().await
/// }
/// ```
#[derive(Clone)]
pub struct TestEnvironment {
    case: Context,
    proxy: RequestProxy,
}

impl TestEnvironment {
    /// Creates an environment whose controllers have the administrator's rights.
    pub fn new(case: &Context) -> Self {
        Self::with_proxy(case, RequestProxy::new(&case.client()))
    }

    /// Creates an environment whose controllers have the rights of this client.
    pub fn with_client(case: &Context, client: &Client) -> Self {
        Self::with_proxy(case, RequestProxy::new(client))
    }

    /// Creates an environment whose controllers use this proxy.
    pub fn with_proxy(case: &Context, proxy: RequestProxy) -> Self {
        Self {
            case: case.clone(),
            proxy: proxy.in_namespace(case.namespace()),
        }
    }

    /// Returns this environment with another namespace, which the caller creates.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            case: self.case.in_namespace(namespace),
            proxy: self.proxy.clone(),
        }
    }

    /// Returns the case's context.
    pub fn case(&self) -> &Context {
        &self.case
    }

    /// Returns the proxy of the controllers.
    pub fn proxy(&self) -> &RequestProxy {
        &self.proxy
    }

    /// Returns a manager on the proxy, limited to the case's namespace, since other cases run at the same time.
    pub fn manager(&self) -> Manager {
        Manager::new(self.proxy.client()).namespace(self.case.namespace())
    }

    /// Creates an object.
    pub async fn create<K: Namespaced>(&self, object: K) -> kube::Result<K> {
        self.case.api::<K>().create(&PostParams::default(), &object).await
    }

    /// Reads an object from the server.
    pub async fn get<K: Namespaced>(&self, name: &str) -> kube::Result<K> {
        self.case.api::<K>().get(name).await
    }

    /// Returns the resource version of an object.
    pub async fn version<K: Namespaced>(&self, name: &str) -> kube::Result<Option<String>> {
        Ok(self.get::<K>(name).await?.meta().resource_version.clone())
    }

    /// Changes an object with a merge patch.
    pub async fn patch<K: Namespaced>(&self, name: &str, patch: Value) -> kube::Result<K> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.case.api::<K>().patch(name, &params, &patch).await
    }

    /// Changes an object's status with a merge patch.
    pub async fn patch_status<K: Namespaced>(&self, name: &str, patch: Value) -> kube::Result<K> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.case.api::<K>().patch_status(name, &params, &patch).await
    }

    /// Deletes an object with background propagation.
    pub async fn delete<K: Namespaced>(&self, name: &str) -> kube::Result<()> {
        let (api, how) = (self.case.api::<K>(), DeleteParams::background());
        api.delete(name, &how).await.map(drop)
    }

    /// Waits until `holds` returns true for the object, or for `None` if it does not exist.
    ///
    /// It reads from the server's watch cache, like a controller's first list, so a controller that starts afterwards sees at
    /// least this state.
    pub async fn wait_until<K: Namespaced>(
        &self,
        name: &str,
        holds: impl Fn(Option<&K>) -> bool,
    ) -> anyhow::Result<Option<Arc<K>>> {
        let key = ObjectKey::namespaced(self.case.namespace(), name);
        let found = self.watch(|lister: &Lister<K>| {
            let object = lister.get(&key);
            holds(object.as_deref()).then_some(object)
        });
        let found = found.await?;
        found.map_err(|lister| {
            anyhow::anyhow!("timed out waiting for {name}, which is {:#?}", lister.get(&key))
        })
    }

    /// Waits until the object exists and `holds` returns true for it.
    pub async fn wait_for<K: Namespaced>(
        &self,
        name: &str,
        holds: impl Fn(&K) -> bool,
    ) -> anyhow::Result<Arc<K>> {
        let found = self
            .wait_until::<K>(name, |object| object.is_some_and(&holds))
            .await?;
        found.context("the object exists")
    }

    /// Waits until the object does not exist.
    pub async fn wait_until_deleted<K: Namespaced>(&self, name: &str) -> anyhow::Result<()> {
        self.wait_until::<K>(name, |object| object.is_none())
            .await
            .map(drop)
    }

    /// Waits for an event about the object, found with the field selector of `kubectl describe`.
    pub async fn wait_for_event<K: Resource>(
        &self,
        object: &K,
        holds: impl Fn(&Event) -> bool,
    ) -> anyhow::Result<Event> {
        let uid = object.meta().uid.as_deref().context("it was created")?;
        let found = self.watch(|lister: &Lister<Event>| {
            let mut about = lister.list(&Query::all()).into_iter();
            about.find(|event| event.involved_object.uid.as_deref() == Some(uid) && holds(event))
        });
        let outcome = found.await?;
        let events = self.events(object).await?;
        match outcome {
            Ok(_) => events
                .into_iter()
                .find(holds)
                .context("the field selector of `kubectl describe` does not find the event"),
            Err(_) => anyhow::bail!("timed out waiting for an event; found {events:#?}"),
        }
    }

    /// Returns the events about the object so far, with the field selector of `kubectl describe`.
    pub async fn events<K: Resource>(&self, object: &K) -> anyhow::Result<Vec<Event>> {
        let meta = object.meta();
        let name = meta.name.as_deref().context("it is named")?;
        let uid = meta.uid.as_deref().context("it was created")?;
        let about = format!("involvedObject.name={name},involvedObject.uid={uid}");
        let events = self
            .case
            .api::<Event>()
            .list(&ListParams::default().fields(&about))
            .await?;
        Ok(events.items)
    }

    /// Calls `look` after each change of the objects of a kind, until it returns a value. On timeout, returns the lister as
    /// the inner error.
    async fn watch<K: Namespaced, T>(
        &self,
        look: impl Fn(&Lister<K>) -> Option<T>,
    ) -> anyhow::Result<Result<T, Lister<K>>> {
        let selection = WatchScope::all().namespace(self.case.namespace());
        let cache = Cache::<K>::start(self.case.client(), &selection);
        let lister = cache.synced(STEP_TIMEOUT).await?;
        let mut changes = lister.subscribe();
        let seen = timeout(STEP_TIMEOUT, async {
            loop {
                if let Some(seen) = look(&lister) {
                    return anyhow::Ok(seen);
                }
                changes.next().await.context("the watch ended")?;
            }
        });
        match seen.await {
            Ok(seen) => Ok(Ok(seen?)),
            Err(_) => Ok(Err(lister)),
        }
    }
}

/// Installs custom resource definitions, and waits until they are served. Cases may do this concurrently.
pub async fn install_crds(
    case: &Context,
    kinds: impl IntoIterator<Item = CustomResourceDefinition>,
) -> anyhow::Result<()> {
    let installer = Writer::new(case.client(), "suite");
    CrdInstaller::new(kinds).apply().run(&installer).await?;
    Ok(())
}
