//! One case's namespace: managers that run in it, what they write, and waits on changes.

use std::{
    fmt::Debug,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use http::{Method, Request};
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use windlass::{
    cache::{Cache, Cacheable, Selection},
    k8s_openapi::{NamespaceResourceScope, api::core::v1::Event},
    kube::{
        self,
        api::{ListParams, Patch, PatchParams, PostParams},
        client::Body,
    },
    prelude::*,
    runtime::{Install, ManagerError, Writer},
    serde::{Serialize, de::DeserializeOwned},
    serde_json::Value,
};
use windlass_suite::Context as Case;

use crate::garden::{Garden, GardenSpec};

/// No step takes nearly so long unless it never comes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A kind that lives in the case's namespace.
pub(crate) trait Namespaced:
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

pub(crate) struct World {
    pub(crate) case: Case,
    /// Notes writes on their way.
    noted: Client,
    writes: Arc<Mutex<Vec<String>>>,
    settled: AtomicUsize,
}

/// A manager that runs until it is told to stop.
#[must_use]
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    pub(crate) fn start(manager: Manager) -> Self {
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Self { stop, manager }
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        Ok(timeout(DEADLINE, self.manager)
            .await
            .context("the manager does not stop")???)
    }
}

impl World {
    /// Gardens are installed: by whichever case comes first, and harmlessly again by the others.
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        let installer = Writer::new(case.client(), "suite");
        Install::new([Garden::crd()]).apply().run(&installer).await?;
        let writes = Arc::<Mutex<Vec<_>>>::default();
        let (inner, log) = (case.client(), Arc::clone(&writes));
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            if request.method() != Method::GET && !path.contains("/events") {
                let name = path.rsplit_once("/namespaces/").map_or(path, |(_, name)| name);
                let name = name.split_once('/').map_or(name, |(_, name)| name);
                lock(&log).push(format!("{} {name}", request.method()));
            }
            let inner = inner.clone();
            async move { inner.send(request).await }
        });
        Ok(Self {
            case: case.clone(),
            noted: Client::new(service, case.namespace()),
            writes,
            settled: AtomicUsize::new(0),
        })
    }

    /// A manager for the case's namespace only: other cases run at the same time.
    pub(crate) fn manager(&self) -> Manager {
        Manager::new(self.noted.clone()).namespace(self.case.namespace())
    }

    /// The writes to objects whose path has this in it, since the last call for it.
    pub(crate) fn writes(&self, about: &str) -> Vec<String> {
        lock(&self.writes)
            .extract_if(.., |write| write.contains(about))
            .collect()
    }

    pub(crate) async fn garden(&self, name: &str, beds: &[&str]) -> kube::Result<Garden> {
        let beds = beds.iter().map(ToString::to_string).collect();
        self.create(Garden::new(name, GardenSpec { beds })).await
    }

    pub(crate) async fn create<K: Namespaced>(&self, object: K) -> kube::Result<K> {
        self.case.api::<K>().create(&PostParams::default(), &object).await
    }

    pub(crate) async fn get<K: Namespaced>(&self, name: &str) -> kube::Result<K> {
        self.case.api::<K>().get(name).await
    }

    pub(crate) async fn patch<K: Namespaced>(&self, name: &str, patch: Value) -> kube::Result<K> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.case.api::<K>().patch(name, &params, &patch).await
    }

    /// Waits until this holds of the object of this name, or of its absence.
    pub(crate) async fn wait<K: Namespaced>(
        &self,
        name: &str,
        holds: impl Fn(Option<&K>) -> bool,
    ) -> anyhow::Result<Option<Arc<K>>> {
        let selection = Selection::all().namespace(self.case.namespace());
        let lister = Cache::<K>::start(self.case.client(), &selection)
            .synced(DEADLINE)
            .await?;
        let mut changes = lister.subscribe();
        let key = ObjectKey::namespaced(self.case.namespace(), name);
        let waiting = async {
            loop {
                let object = lister.get(&key);
                if holds(object.as_deref()) {
                    return Ok(object);
                }
                changes.next().await.context("the watch ended")?;
            }
        };
        let waited = timeout(DEADLINE, waiting).await;
        waited.with_context(|| format!("{name} did not become what it should: {:#?}", lister.get(&key)))?
    }

    /// Waits until this holds of the object of this name.
    pub(crate) async fn wait_for<K: Namespaced>(
        &self,
        name: &str,
        holds: impl Fn(&K) -> bool,
    ) -> anyhow::Result<Arc<K>> {
        let found = self.wait::<K>(name, |object| object.is_some_and(&holds)).await?;
        found.context("it was just there")
    }

    /// Returns when everything that has happened so far has had its effect on a declared garden: one that is made now has
    /// been dealt with, and each worker has had a turn since.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        for _ in 0..2 {
            let name = format!("settle-{}", self.settled.fetch_add(1, Ordering::Relaxed));
            self.garden(&name, &[]).await?;
            self.wait_for::<Garden>(&name, |garden| garden.status.is_some())
                .await?;
        }
        Ok(())
    }

    /// Waits for an event about the object, found as `kubectl describe` finds it: by the selector that it sends.
    pub(crate) async fn told<K: Resource>(
        &self,
        object: &K,
        holds: impl Fn(&Event) -> bool,
    ) -> anyhow::Result<Event> {
        let meta = object.meta();
        let (name, uid) = (meta.name.as_deref(), meta.uid.as_deref());
        let about = format!(
            "involvedObject.name={},involvedObject.uid={}",
            name.context("it is named")?,
            uid.context("it was created")?
        );
        let events = self.case.api::<Event>();
        let about = ListParams::default().fields(&about);
        let told = async {
            loop {
                let found = events.list(&about).await?.items.into_iter().find(&holds);
                match found {
                    Some(event) => return anyhow::Ok(event),
                    // Selected lists cannot be watched with our own cache by what is asked for here.
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        timeout(DEADLINE, told).await.context("nobody was told")?
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds the lock")
}
