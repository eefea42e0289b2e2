//! What the examples share: a `main` with the flag `--embedded`, and the user of their demos.
//!
//! [`example`] is [`launch`] with one more flag. A program of your own calls `launch`.

use std::{fmt::Debug, process::ExitCode, time::Duration};

use clap::{CommandFactory, FromArgMatches, Parser};
use tokio::time::timeout;
use windlass::{
    cache::{Cache, Cacheable, WatchScope},
    k8s_openapi::{
        NamespaceResourceScope,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams},
    prelude::*,
    runtime::CrdInstaller,
    serde::{Serialize, de::DeserializeOwned},
    serde_json::Value,
};
use windlass_cluster::Cluster;

/// How long a [`User`] waits.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The flags of an example.
#[derive(Parser)]
pub struct Flags {
    /// Start an embedded cluster with two nodes, play the demo on it, and exit
    #[arg(long)]
    pub embedded: bool,
    /// The flags of every controller program.
    #[command(flatten)]
    pub options: Options,
}

/// Runs a controller program like [`launch`]; or with `--embedded` on an embedded cluster, until `demo` returns. The demo does
/// what a user would do with kubectl, and prints what happens.
pub fn example(
    name: &'static str,
    crds: impl IntoIterator<Item = CustomResourceDefinition>,
    setup: impl FnOnce(Manager) -> Manager,
    demo: impl AsyncFnOnce(User) -> Result<(), Error>,
) -> ExitCode {
    let matches = Flags::command().name(name).get_matches();
    let flags = Flags::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    flags.run(name, crds, async |manager, _| Ok(setup(manager)), demo)
}

impl Flags {
    /// Like [`example`], for a program with flags of its own, or whose setup queries the cluster.
    pub fn run(
        mut self,
        name: &str,
        crds: impl IntoIterator<Item = CustomResourceDefinition>,
        setup: impl AsyncFnOnce(Manager, Client) -> Result<Manager, Error>,
        demo: impl AsyncFnOnce(User) -> Result<(), Error>,
    ) -> ExitCode {
        if !self.embedded {
            return launch_with(name, &self.options, crds, setup);
        }
        self.options.no_listen = true;
        let run = async {
            self.options.init_logging()?;
            let cluster = Cluster::embedded().nodes(2).start().await?;
            let manager = self.options.manager_with_client(cluster.client(), name);
            let manager = manager.install(CrdInstaller::new(crds).apply());
            let manager = setup(manager, cluster.client()).await?;
            let controllers = manager.controllers();
            let mut played = Ok(());
            let ended = manager.run_until(async {
                controllers.ready().await;
                played = demo(User::new(cluster.client())).await;
            });
            ended.await?;
            cluster.stop().await;
            played
        };
        match tokio::runtime::Runtime::new()
            .map_err(Error::from)
            .and_then(|runtime| runtime.block_on(run))
        {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Does in the namespace `default` what a user would do with kubectl.
pub struct User(Client);

/// A namespaced kind. Implemented for all static namespaced kinds.
pub trait Namespaced:
    Cacheable
    + Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Namespaced for K where
    K: Cacheable
        + Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

impl User {
    /// Creates a user with the rights of the client.
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// Returns the client.
    pub fn client(&self) -> Client {
        self.0.clone()
    }

    fn api<K: Namespaced>(&self) -> Api<K> {
        Api::default_namespaced(self.0.clone())
    }

    /// Creates an object from a manifest.
    pub async fn create<K: Namespaced>(&self, manifest: Value) -> Result<K, Error> {
        let object = from_value(manifest)?;
        Ok(self.api().create(&PostParams::default(), &object).await?)
    }

    /// Changes an object with a merge patch.
    pub async fn patch<K: Namespaced>(&self, name: &str, patch: Value) -> Result<K, Error> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        Ok(self.api().patch(name, &params, &patch).await?)
    }

    /// Deletes an object.
    pub async fn delete<K: Namespaced>(&self, name: &str) -> Result<(), Error> {
        self.api::<K>().delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Waits until the object exists and `holds` returns true for it.
    pub async fn wait_for<K: Namespaced>(
        &self,
        name: &str,
        holds: impl Fn(&K) -> bool,
    ) -> Result<Arc<K>, Error> {
        self.wait(name, |object| object.filter(|object| holds(object)))
            .await
    }

    /// Waits until the object does not exist.
    pub async fn wait_until_deleted<K: Namespaced>(&self, name: &str) -> Result<(), Error> {
        self.wait::<K, _>(name, |object| object.is_none().then_some(()))
            .await
    }

    /// Calls `look` with the object, or `None` if it does not exist, after each change until it returns a value.
    async fn wait<K: Namespaced, T>(
        &self,
        name: &str,
        look: impl Fn(Option<Arc<K>>) -> Option<T>,
    ) -> Result<T, Error> {
        let key = ObjectKey::namespaced("default", name);
        let scope = WatchScope::all().namespace("default");
        let objects = Cache::<K>::start(self.0.clone(), &scope);
        let objects = objects.synced(TIMEOUT).await?;
        let mut changes = objects.subscribe();
        let found = timeout(TIMEOUT, async {
            loop {
                if let Some(found) = look(objects.get(&key)) {
                    return Ok(found);
                }
                changes.next().await.ok_or("the watch has ended")?;
            }
        });
        found
            .await
            .map_err(|_| format!("timed out waiting for {} {key}", K::kind(&())))?
    }
}

/// Compiles the code in the READMEs of the repository and of its crates, and in the user guides.
#[cfg(doctest)]
mod readmes {
    #[doc = include_str!("../../README.md")]
    struct Repository;
    #[doc = include_str!("../../docs/status.md")]
    struct Status;
    #[doc = include_str!("../../docs/webhooks.md")]
    struct Webhooks;
    #[doc = include_str!("../../crates/apiserver/README.md")]
    struct Apiserver;
    #[doc = include_str!("../../crates/cache/README.md")]
    struct Cache;
    #[doc = include_str!("../../crates/cluster/README.md")]
    struct Cluster;
    #[doc = include_str!("../../crates/windlass/README.md")]
    struct Facade;
    #[doc = include_str!("../../crates/workqueue/README.md")]
    struct Workqueue;
}
