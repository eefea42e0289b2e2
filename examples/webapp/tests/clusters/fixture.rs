//! Fixture: a namespace, the data service, and the controller with its shipped rights.

use std::{
    fmt::Debug,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use serde_yaml_ng::Deserializer;
use windlass::{
    cache::{Cache, Cacheable, WatchScope},
    k8s_openapi::{
        NamespaceResourceScope,
        api::{
            apps::v1::Deployment,
            core::v1::{Event, Namespace},
            rbac::v1::ClusterRole,
        },
    },
    kube::{
        Api, Client,
        api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
    runtime::{CrdInstaller, Writer},
    serde::{Deserialize, Serialize, de::DeserializeOwned},
    serde_json::Value,
    tokio::{self, sync::oneshot, task::JoinHandle, time::timeout},
};
use windlass_cluster::{Backend, Cluster};
use windlass_webapp::{DataService, WebApp, controller};

/// Limit of one step, in paused time on an embedded cluster.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// A kind of these tests: namespaced, and known at compile time.
pub(crate) trait Kind:
    Cacheable
    + Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Kind for K where
    K: Cacheable
        + Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

/// A namespace with the CRD, a user with the shipped rights, and a data service.
pub(crate) struct Fixture {
    pub(crate) backend: Backend,
    /// The administrator's.
    client: Client,
    /// The controller's.
    robot: Client,
    namespace: String,
    pub(crate) data: FakeDataService,
}

/// A controller that runs in the background.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    manager: JoinHandle<anyhow::Result<()>>,
}

impl Fixture {
    pub(crate) async fn new(cluster: &Cluster, namespace: &str) -> anyhow::Result<Self> {
        let client = cluster.client();
        let crds = CrdInstaller::new([WebApp::crd()]).apply();
        crds.run(&Writer::new(client.clone(), "test")).await?;
        let created: Namespace = from_value(json!({ "metadata": { "name": namespace } }))?;
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &created).await?;
        let mut robot = cluster.user(&format!("robot-{namespace}"), [""; 0]).await?;
        for document in Deserializer::from_str(include_str!("../../rbac.yaml")) {
            let mut role = ClusterRole::deserialize(document)?;
            role.metadata.name = Some(format!("webapp-{namespace}"));
            robot = robot.with_cluster_role(&role).await?;
        }
        Ok(Self {
            backend: cluster.backend(),
            client,
            robot: robot.client(),
            namespace: namespace.to_owned(),
            data: FakeDataService::start()?,
        })
    }

    pub(crate) fn start(&self) -> anyhow::Result<Running> {
        let data = DataService::new(format!("http://{}/data", self.data.address).parse()?);
        let manager = Manager::new(self.robot.clone()).namespace(self.namespace.as_str());
        let running = manager.controller(controller(data));
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(async move {
            let ended = running.run_until(async move { drop(stopped.await) }).await;
            ended.map_err(Into::into)
        });
        Ok(Running { stop, manager })
    }

    /// Creates a WebApp `shop` with these fields besides its image.
    pub(crate) async fn create_shop(&self, mut spec: Value) -> anyhow::Result<WebApp> {
        spec["image"] = json!("shop:1");
        let app = json!({ "apiVersion": "example.com/v1", "kind": "WebApp", "metadata": { "name": "shop" }, "spec": spec });
        self.create(from_value(app)?).await
    }

    fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create<K: Kind>(&self, object: K) -> anyhow::Result<K> {
        Ok(self.api().create(&PostParams::default(), &object).await?)
    }

    pub(crate) async fn get<K: Kind>(&self, name: &str) -> anyhow::Result<K> {
        Ok(self.api().get(name).await?)
    }

    /// Changes an object with a merge patch.
    pub(crate) async fn patch<K: Kind>(&self, name: &str, patch: Value) -> anyhow::Result<K> {
        let params = PatchParams::default();
        Ok(self.api().patch(name, &params, &Patch::Merge(patch)).await?)
    }

    pub(crate) async fn patch_status<K: Kind>(&self, name: &str, patch: Value) -> anyhow::Result<K> {
        let params = PatchParams::default();
        Ok(self
            .api()
            .patch_status(name, &params, &Patch::Merge(patch))
            .await?)
    }

    /// Writes the status of a Deployment whose pods all run and have its current spec, as no controller does it here.
    pub(crate) async fn roll_out(&self, name: &str) -> anyhow::Result<()> {
        let deployment = self.get::<Deployment>(name).await?;
        let replicas = deployment.spec.and_then(|spec| spec.replicas);
        let replicas = replicas.unwrap_or_default();
        self.report_replicas(name, replicas, replicas, replicas).await
    }

    /// Writes the status of a Deployment with so many replicas, of which so many have its current spec, and so many are ready.
    pub(crate) async fn report_replicas(
        &self,
        name: &str,
        replicas: i32,
        updated: i32,
        ready: i32,
    ) -> anyhow::Result<()> {
        let status = json!({
            "observedGeneration": self.get::<Deployment>(name).await?.metadata.generation,
            "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
        });
        self.patch_status::<Deployment>(name, json!({ "status": status }))
            .await?;
        Ok(())
    }

    pub(crate) async fn delete<K: Kind>(&self, name: &str) -> anyhow::Result<()> {
        self.api::<K>().delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// A cache of the kind in the namespace.
    pub(crate) fn cache<K: Kind>(&self) -> Cache<K> {
        Cache::start(
            self.client.clone(),
            &WatchScope::all().namespace(self.namespace.as_str()),
        )
    }

    /// Waits until this holds for the object, or for `None` if it does not exist.
    pub(crate) async fn wait_until<K: Kind>(
        &self,
        name: &str,
        holds: impl Fn(Option<&K>) -> bool,
    ) -> anyhow::Result<Option<Arc<K>>> {
        let cache = self.cache::<K>();
        let lister = cache.synced(STEP_TIMEOUT).await?;
        let (mut changes, key) = (
            lister.subscribe(),
            ObjectKey::namespaced(self.namespace.as_str(), name),
        );
        let waiting = async {
            loop {
                let object = lister.get(&key);
                if holds(object.as_deref()) {
                    return anyhow::Ok(object);
                }
                changes.next().await.context("the cache has ended")?;
            }
        };
        let waited = timeout(STEP_TIMEOUT, waiting).await;
        waited.with_context(|| format!("{name} is {:#?}", lister.get(&key)))?
    }

    pub(crate) async fn wait_for<K: Kind>(
        &self,
        name: &str,
        holds: impl Fn(&K) -> bool,
    ) -> anyhow::Result<Arc<K>> {
        let found = self.wait_until(name, |object| object.is_some_and(&holds)).await?;
        found.context("the object exists")
    }

    pub(crate) async fn wait_until_deleted<K: Kind>(&self, name: &str) -> anyhow::Result<()> {
        self.wait_until::<K>(name, |object| object.is_none())
            .await
            .map(drop)
    }

    /// The events in the namespace, such as `Warning PruneBlocked`.
    pub(crate) async fn events(&self) -> anyhow::Result<Vec<String>> {
        let events = self.api::<Event>().list(&ListParams::default()).await?;
        let shown = events.items.into_iter().map(|event| {
            let part = Option::unwrap_or_default;
            format!("{} {}", part(event.type_), part(event.reason))
        });
        Ok(shown.collect())
    }
}

impl Running {
    /// Stops the controller, and waits for its end.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        timeout(STEP_TIMEOUT, self.manager).await??
    }
}

/// An HTTP server on a thread of its own. It takes real time to answer, and answers the first requests with an error.
pub(crate) struct FakeDataService {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    requests: Vec<String>,
    errors: usize,
}

impl FakeDataService {
    fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, state) = (listener.local_addr()?, Arc::<Mutex<State>>::default());
        let shared = Arc::clone(&state);
        // Ends with the process.
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.expect("a client connects");
                let mut lines = BufReader::new(connection.try_clone().expect("a socket")).lines();
                let Some(Ok(request)) = lines.next() else { continue };
                // The headers.
                while lines
                    .next()
                    .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
                {}
                thread::sleep(Duration::from_millis(50));
                let status = shared.lock().expect("no panic while locked").answer(&request);
                let _ = write!(
                    connection,
                    "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
            }
        });
        Ok(Self { address, state })
    }

    /// Answers the next requests with 503.
    pub(crate) fn fail(&self, requests: usize) {
        self.state.lock().expect("no panic while locked").errors = requests;
    }

    /// The requests so far, such as `DELETE /data/<uid>`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().expect("no panic while locked").requests.clone()
    }
}

impl State {
    fn answer(&mut self, request: &str) -> &'static str {
        self.requests
            .push(request.trim_end_matches(" HTTP/1.1").to_owned());
        if self.errors > 0 {
            self.errors -= 1;
            return "503 Service Unavailable";
        }
        "204 No Content"
    }
}
