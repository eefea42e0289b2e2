//! One case's namespace, and a wire on which controllers work in it. Waits are on changes, not on time.

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
use windlass_cache::{Cache, Cacheable, Lister, ObjectKey, Query, Selection};
use windlass_runtime::{Install, Manager, Writer};

use crate::{Context, DEADLINE, Wire};

/// A kind that lives in a case's namespace. Every kind that does and is known at compile time is one.
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

/// A case's namespace: what the administrator does and sees there, and the wire of the controllers under test.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::{Action, Context, Controller, Request};
/// use windlass_suite::{Running, World};
///
/// async fn nothing_is_written(case: windlass_suite::Context) -> anyhow::Result<()> {
///     let world = World::new(&case);
///     let lazy = Controller::<ConfigMap>::new("lazy").reconcile(|_: Request, _: Context| async { Ok(Action::done()) });
///     let running = Running::start(world.manager().controller(lazy));
///     // … create things with `world.create`, await what follows with `world.wait_for`
///     assert!(world.wire().writes().is_empty());
///     running.stop().await
/// }
/// ```
#[derive(Clone)]
pub struct World {
    case: Context,
    wire: Wire,
}

impl World {
    /// Controllers have the administrator's rights.
    pub fn new(case: &Context) -> Self {
        Self::on(case, Wire::new(&case.client()))
    }

    /// Controllers have the rights of this client.
    pub fn of(case: &Context, client: &Client) -> Self {
        Self::on(case, Wire::new(client))
    }

    /// Controllers work on this wire.
    pub fn on(case: &Context, wire: Wire) -> Self {
        Self {
            case: case.clone(),
            wire: wire.within(case.namespace()),
        }
    }

    /// The same wire, and another namespace of the cluster, which is the caller's to make.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        Self {
            case: self.case.within(namespace),
            wire: self.wire.clone(),
        }
    }

    /// The case.
    pub fn case(&self) -> &Context {
        &self.case
    }

    /// What the controllers sent.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// A manager on the wire, for the case's namespace only: other cases run at the same time.
    pub fn manager(&self) -> Manager {
        Manager::new(self.wire.client()).namespace(self.case.namespace())
    }

    /// Creates an object.
    pub async fn create<K: Namespaced>(&self, object: K) -> kube::Result<K> {
        self.case.api::<K>().create(&PostParams::default(), &object).await
    }

    /// Reads an object from the server.
    pub async fn get<K: Namespaced>(&self, name: &str) -> kube::Result<K> {
        self.case.api::<K>().get(name).await
    }

    /// The version of an object.
    pub async fn version<K: Namespaced>(&self, name: &str) -> kube::Result<Option<String>> {
        Ok(self.get::<K>(name).await?.meta().resource_version.clone())
    }

    /// Changes an object by a merge patch.
    pub async fn patch<K: Namespaced>(&self, name: &str, patch: Value) -> kube::Result<K> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.case.api::<K>().patch(name, &params, &patch).await
    }

    /// Changes an object's status by a merge patch.
    pub async fn patch_status<K: Namespaced>(&self, name: &str, patch: Value) -> kube::Result<K> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.case.api::<K>().patch_status(name, &params, &patch).await
    }

    /// Deletes an object; what it owns follows when it is gone.
    pub async fn delete<K: Namespaced>(&self, name: &str) -> kube::Result<()> {
        let (api, how) = (self.case.api::<K>(), DeleteParams::background());
        api.delete(name, &how).await.map(drop)
    }

    /// Waits until this holds of the object of this name, or of its absence.
    ///
    /// It looks at what the server's watch cache has, as a controller's first list does: what was waited for, a
    /// controller that is started afterwards sees.
    pub async fn wait<K: Namespaced>(
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
            anyhow::anyhow!("{name} did not become what it should: {:#?}", lister.get(&key))
        })
    }

    /// Waits until the object of this name is there and this holds of it.
    pub async fn wait_for<K: Namespaced>(
        &self,
        name: &str,
        holds: impl Fn(&K) -> bool,
    ) -> anyhow::Result<Arc<K>> {
        let found = self.wait::<K>(name, |object| object.is_some_and(&holds)).await?;
        found.context("it was just there")
    }

    /// Waits until no object of this name is there.
    pub async fn wait_gone<K: Namespaced>(&self, name: &str) -> anyhow::Result<()> {
        self.wait::<K>(name, |object| object.is_none()).await.map(drop)
    }

    /// Waits for an event about the object, found as `kubectl describe` finds it: by the selector that it sends.
    pub async fn told<K: Resource>(
        &self,
        object: &K,
        holds: impl Fn(&Event) -> bool,
    ) -> anyhow::Result<Event> {
        let uid = object.meta().uid.as_deref().context("it was created")?;
        let found = self.watch(|lister: &Lister<Event>| {
            let mut about = lister.list(&Query::all()).into_iter();
            about.find(|event| event.involved_object.uid.as_deref() == Some(uid) && holds(event))
        });
        let told = found.await?;
        let events = self.told_of(object).await?;
        match told {
            Ok(_) => events
                .into_iter()
                .find(holds)
                .context("`describe` does not show it"),
            Err(_) => anyhow::bail!("nobody was told: {events:#?}"),
        }
    }

    /// The events about the object so far, as `kubectl describe` asks for them.
    pub async fn told_of<K: Resource>(&self, object: &K) -> anyhow::Result<Vec<Event>> {
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

    /// Looks at the objects of a kind after each change, until there is something to see. The error is the last look.
    async fn watch<K: Namespaced, T>(
        &self,
        look: impl Fn(&Lister<K>) -> Option<T>,
    ) -> anyhow::Result<Result<T, Lister<K>>> {
        let selection = Selection::all().namespace(self.case.namespace());
        let cache = Cache::<K>::start(self.case.client(), &selection);
        let lister = cache.synced(DEADLINE).await?;
        let mut changes = lister.subscribe();
        let seen = timeout(DEADLINE, async {
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

/// Installs kinds, and waits until they are served. Cases run at the same time: the first does it, and then it is
/// harmless.
pub async fn install(
    case: &Context,
    kinds: impl IntoIterator<Item = CustomResourceDefinition>,
) -> anyhow::Result<()> {
    let installer = Writer::new(case.client(), "suite");
    Install::new(kinds).apply().run(&installer).await?;
    Ok(())
}
