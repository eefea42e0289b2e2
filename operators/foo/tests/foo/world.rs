//! One case's namespace with a controller in it: what it writes is recorded, and waits are on changes, not on time.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use http::{Method, Request, request::Parts};
use http_body_util::BodyExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use windlass::{
    cache::{Cache, Cacheable, Selection, Subscription},
    k8s_openapi::{
        NamespaceResourceScope, api::apps::v1::Deployment,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::{
        self, Api,
        api::{Patch, PatchParams, PostParams},
        client::Body,
    },
    prelude::*,
    runtime::{ManagerError, Outcomes},
};
use windlass_foo::{Foo, FooSpec};
use windlass_suite::Context as Case;

/// No step takes nearly so long unless it never comes.
const DEADLINE: Duration = Duration::from_secs(30);

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
    case: Case,
    /// The controller's client: records writes on their way.
    recorded: Client,
    writes: Arc<Mutex<Vec<String>>>,
    /// The `fieldManager` of every write so far.
    managers: Arc<Mutex<BTreeSet<Option<String>>>>,
    settled: AtomicUsize,
    outcomes: Mutex<Arc<Outcomes>>,
}

/// A controller that runs until it is told to stop.
#[must_use]
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        Ok(timeout(DEADLINE, self.manager)
            .await
            .context("the controller does not stop")???)
    }
}

impl World {
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        install_crd(case.client()).await?;
        let writes = Arc::<Mutex<Vec<_>>>::default();
        let managers = Arc::<Mutex<BTreeSet<_>>>::default();
        let (inner, log, manager_log) = (case.client(), Arc::clone(&writes), Arc::clone(&managers));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, log, manager_log) = (inner.clone(), Arc::clone(&log), Arc::clone(&manager_log));
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                if parts.method != Method::GET {
                    lock(&log).push(describe(&parts, &body));
                }
                // Events are not fields of anybody.
                if parts.method != Method::GET && !parts.uri.path().contains("/events") {
                    lock(&manager_log).insert(field_manager(&parts));
                }
                inner
                    .send(Request::from_parts(parts, Body::from(body.to_vec())))
                    .await
            }
        });
        let recorded = Client::new(service, case.namespace());
        Ok(Self {
            case: case.clone(),
            recorded,
            writes,
            managers,
            settled: AtomicUsize::new(0),
            outcomes: Mutex::default(),
        })
    }

    /// Starts the controller, for the case's namespace only: other cases run at the same time.
    pub(crate) fn start(&self) -> Running {
        let controller = windlass_foo::controller();
        *lock(&self.outcomes) = controller.outcomes();
        let manager = Manager::new(self.recorded.clone())
            .namespace(self.case.namespace())
            .controller(controller);
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Running { stop, manager }
    }

    pub(crate) async fn create_foo(
        &self,
        name: &str,
        deployment: &str,
        replicas: Option<i32>,
    ) -> kube::Result<Foo> {
        let spec = FooSpec {
            deployment_name: deployment.to_owned(),
            replicas,
        };
        self.case
            .api::<Foo>()
            .create(&PostParams::default(), &Foo::new(name, spec))
            .await
    }

    pub(crate) async fn get<K: Namespaced>(&self, name: &str) -> kube::Result<K> {
        self.case.api::<K>().get(name).await
    }

    pub(crate) async fn version<K: Namespaced>(&self, name: &str) -> kube::Result<Option<String>> {
        Ok(self.get::<K>(name).await?.resource_version())
    }

    pub(crate) async fn patch<K: Namespaced>(&self, name: &str, patch: Value) -> kube::Result<K> {
        self.case
            .api::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Waits until the object is there and `holds`.
    ///
    /// It looks at what the server's watch cache has, as the controller's first list does: what was waited for, a
    /// controller that is started afterwards sees.
    pub(crate) async fn wait<K: Namespaced>(
        &self,
        name: &str,
        holds: impl Fn(&K) -> bool,
    ) -> anyhow::Result<K> {
        let mut changes = self.changes::<K>();
        let found = timeout(DEADLINE, async {
            while let Some(change) = changes.next().await {
                if let Change::Applied { new, .. } = change
                    && new.key().name() == name
                    && let Ok(object) = new.object()
                    && holds(&object)
                {
                    return Ok(K::clone(&object));
                }
            }
            bail!("the watch ended");
        });
        match found.await {
            Ok(found) => found,
            Err(_) => bail!(
                "{name} did not become what it should: {:#?}",
                self.get::<K>(name).await
            ),
        }
    }

    pub(crate) async fn wait_gone<K: Namespaced>(&self, name: &str) -> anyhow::Result<()> {
        let cache = self.cache::<K>();
        let lister = cache.synced(DEADLINE).await?;
        let key = ObjectKey::namespaced(self.case.namespace(), name);
        let mut changes = lister.subscribe();
        let gone = timeout(DEADLINE, async {
            while lister.get(&key).is_some() && changes.next().await.is_some() {}
        });
        gone.await.with_context(|| format!("{name} is still there"))
    }

    /// Returns when everything that has happened so far has had its effect: a Foo that is made now has been dealt
    /// with, and each worker has had a turn since.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        for _ in 0..2 {
            let name = format!("settle-{}", self.settled.fetch_add(1, Ordering::Relaxed));
            self.create_foo(&name, &name, None).await?;
            self.wait::<Foo>(&name, |foo| foo.status.is_some()).await?;
            self.wait::<Deployment>(&name, |_| true).await?;
        }
        Ok(())
    }

    /// Returns when so many reconciles have failed.
    pub(crate) async fn failed(&self, times: u64) -> anyhow::Result<()> {
        // Nothing on the server changes that could be watched; the backoff is 5 ms at first.
        let failed = async {
            while self.failures() < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(DEADLINE, failed).await.context("it does not fail")
    }

    pub(crate) fn failures(&self) -> u64 {
        lock(&self.outcomes).failed()
    }

    /// The controller's writes to objects with these names, as `METHOD resource/name`, in order.
    ///
    /// A write that is repeated counts once: as long as the cache does not show own writes at once, a reconcile that
    /// follows closely may repeat the last, and the server makes nothing of it. More often than that it is a loop.
    pub(crate) fn writes_about(&self, names: &[&str]) -> Vec<String> {
        let mut distinct = Vec::<(String, usize)>::new();
        for write in lock(&self.writes).iter() {
            if !write.split(['/', ' ']).any(|part| names.contains(&part)) {
                continue;
            }
            match distinct.iter_mut().find(|(known, _)| known == write) {
                Some((_, times)) => *times += 1,
                None => distinct.push((write.clone(), 1)),
            }
        }
        assert!(
            distinct.iter().all(|(_, times)| *times <= 2),
            "a write loop: {distinct:?}"
        );
        distinct.into_iter().map(|(write, _)| write).collect()
    }

    /// Whether every write so far said who wrote.
    pub(crate) fn wrote_as_sample_controller(&self) -> bool {
        *lock(&self.managers) == BTreeSet::from([Some("sample-controller".to_owned())])
    }

    pub(crate) fn forget_writes(&self) {
        lock(&self.writes).clear();
    }

    fn changes<K: Namespaced>(&self) -> Subscription<K> {
        self.cache::<K>().subscribe()
    }

    fn cache<K: Namespaced>(&self) -> Cache<K> {
        Cache::start(
            self.case.client(),
            &Selection::all().namespace(self.case.namespace()),
        )
    }
}

/// `POST deployments/web`: where the path of a creation ends, its object's name follows.
fn describe(parts: &Parts, body: &[u8]) -> String {
    let path = parts
        .uri
        .path()
        .split_once("/namespaces/")
        .and_then(|(_, path)| path.split_once('/'));
    let path = path.map_or(parts.uri.path(), |(_, path)| path);
    let name = serde_json::from_slice::<Value>(body)
        .ok()
        .filter(|_| parts.method == Method::POST);
    let name = name.and_then(|object| Some(format!("/{}", object["metadata"]["name"].as_str()?)));
    format!("{} {path}{}", parts.method, name.unwrap_or_default())
}

fn field_manager(parts: &Parts) -> Option<String> {
    let mut parameters = parts.uri.query().unwrap_or_default().split('&');
    parameters
        .find_map(|parameter| parameter.strip_prefix("fieldManager="))
        .map(str::to_owned)
}

/// Cases run at the same time: the first installs it for all.
async fn install_crd(client: Client) -> anyhow::Result<()> {
    let definition = Foo::crd();
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    match api.create(&PostParams::default(), &definition).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    let established = |definition: &CustomResourceDefinition| {
        let conditions = definition
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
    };
    let mut changes = Cache::<CustomResourceDefinition>::start(
        client.clone(),
        &Selection::all().fields(format!("metadata.name={}", definition.name_any())),
    )
    .subscribe();
    timeout(DEADLINE, async {
        while let Some(change) = changes.next().await {
            if matches!(&change, Change::Applied { new, .. } if new.object().is_ok_and(|new| established(&new))) {
                return;
            }
        }
    })
    .await
    .context("the definition is not established")?;
    // A server may say so a moment before it serves the kind; a cache waits for that.
    Cache::<Foo>::start(client, &Selection::all())
        .synced(DEADLINE)
        .await?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds the lock")
}
