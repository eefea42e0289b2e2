//! A cluster with consenting and other namespaces, and secretsync with the shipped rights.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use tokio::time::Instant;
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::{
        ByteString,
        api::core::v1::{ConfigMap, Event, Namespace, Secret},
    },
    kube::{
        self, Api,
        api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
    runtime::{
        CrdInstaller,
        metrics::{Format, Metrics},
    },
    serde_json::Value,
};
use windlass_cluster::Backend;
use windlass_rights::AccessTarget;
use windlass_secretsync::{
    Arguments, SecretSync,
    api::{DEFAULT_SOURCE_NAMESPACE, SYNC_ANNOTATION},
    setup,
};
use windlass_suite::{
    Context as Case, ManifestRoles, Namespaced, RecordedRequest, RunningManager, STEP_TIMEOUT,
    TestEnvironment as Inner, install_crds,
};

/// The namespace of annotated sources.
pub(crate) const HOME: &str = DEFAULT_SOURCE_NAMESPACE;

/// In every value, as it is and in base64; must never occur outside of the data of a Secret.
pub(crate) const CANARY: &str = "c4n4ryc4n4ry";

pub(crate) struct TestCluster {
    inner: Inner,
    /// A client with the shipped rights.
    client: Client,
    arguments: Arguments,
    /// The metrics of the latest manager.
    metrics: Mutex<Metrics>,
}

impl Deref for TestCluster {
    type Target = Inner;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

/// The shipped rights.
pub(crate) fn shipped() -> ManifestRoles {
    ManifestRoles::parse(include_str!("../../rbac.yaml")).expect("valid roles")
}

impl TestCluster {
    /// With an empty source namespace.
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        Self::with(case, &shipped()).await
    }

    pub(crate) async fn with(case: &Case, rights: &ManifestRoles) -> anyhow::Result<Self> {
        install_crds(case, [SecretSync::crd()]).await?;
        let client = rights.client(case).await?;
        let env = Self::of(Inner::with_client(case, &client), client);
        env.namespace(HOME, json!({})).await?;
        Ok(env)
    }

    pub(crate) fn of(inner: Inner, client: Client) -> Self {
        Self {
            inner,
            client,
            arguments: Arguments::default(),
            metrics: Mutex::new(Metrics::new()),
        }
    }

    /// `token` of [`HOME`] is copied into `asks`, and nothing is pending.
    pub(crate) async fn in_sync(case: &Case) -> anyhow::Result<(Self, RunningManager)> {
        let env = Self::new(case).await?;
        env.consenting(&["asks"]).await?;
        env.source("token", "1").await?;
        let running = env.start().await?;
        env.wait_for_copy("asks", "token", "1").await?;
        env.settle().await;
        Ok((env, running))
    }

    /// The same with other flags.
    pub(crate) fn with_arguments(mut self, change: impl FnOnce(&mut Arguments)) -> Self {
        change(&mut self.arguments);
        self
    }

    /// The flags.
    pub(crate) fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// Another process on another proxy, in the same cluster.
    pub(crate) fn another_process(&self) -> Self {
        let beside = Self::of(Inner::with_client(self.case(), &self.client), self.client.clone());
        beside.with_arguments(|arguments| *arguments = self.arguments.clone())
    }

    pub(crate) async fn start(&self) -> anyhow::Result<RunningManager> {
        Ok(RunningManager::start(self.new_manager().await?))
    }

    /// A manager as the program creates it.
    pub(crate) async fn new_manager(&self) -> anyhow::Result<Manager> {
        self.new_manager_with(self.proxy().client()).await
    }

    pub(crate) async fn new_manager_with(&self, client: Client) -> anyhow::Result<Manager> {
        let manager = Manager::new(client.clone()).install(CrdInstaller::new([SecretSync::crd()]));
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner) = manager.metrics();
        Ok(setup(manager, &client, &[], &self.arguments).await?)
    }

    /// The text of `/metrics`.
    pub(crate) fn scrape(&self) -> String {
        let metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.scrape(Format::Prometheus)
    }

    /// The value of a metric, summed over all matching series.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let scraped = self.scrape();
        let lines = scraped
            .lines()
            .filter(|line| !line.starts_with('#') && line.contains(series));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Creates a namespace with this metadata.
    pub(crate) async fn namespace(&self, name: &str, metadata: Value) -> anyhow::Result<Namespace> {
        let mut namespace = json!({ "metadata": metadata });
        namespace["metadata"]["name"] = name.into();
        let namespace: Namespace = from_value(namespace)?;
        let namespace = self
            .namespaces()
            .create(&PostParams::default(), &namespace)
            .await?;
        Ok(namespace)
    }

    /// Creates namespaces that consent to copies from [`HOME`].
    pub(crate) async fn consenting(&self, names: &[&str]) -> anyhow::Result<()> {
        for name in names {
            self.namespace(name, consent("true")).await?;
        }
        Ok(())
    }

    pub(crate) async fn patch_namespace(&self, name: &str, metadata: Value) -> anyhow::Result<Namespace> {
        if name.starts_with("kube-") {
            // A new server creates its own namespaces a moment after it is ready, unless they exist.
            let own: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
            match self.namespaces().create(&PostParams::default(), &own).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                made => drop(made?),
            }
        }
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let params = PatchParams::default();
        Ok(self.namespaces().patch(name, &params, &patch).await?)
    }

    /// Deletes a namespace and its content, as the namespace controller would, which does not run here.
    pub(crate) async fn remove_namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespaces = self.namespaces();
        namespaces.delete(name, &DeleteParams::background()).await?;
        let (how, all) = (DeleteParams::background(), ListParams::default());
        let within = self.in_namespace(name);
        within
            .case()
            .api::<Secret>()
            .delete_collection(&how, &all)
            .await?;
        within
            .case()
            .api::<ConfigMap>()
            .delete_collection(&how, &all)
            .await?;
        let mut namespace = namespaces.get(name).await?;
        namespace.spec.get_or_insert_default().finalizers = None;
        let finalize = kube::core::Request::new("/api/v1/namespaces").replace_subresource(
            "finalize",
            name,
            &PostParams::default(),
            serde_json::to_vec(&namespace)?,
        )?;
        self.case().client().request_text(finalize).await?;
        Ok(())
    }

    pub(crate) fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.case().client())
    }

    /// Creates an annotated Secret in [`HOME`].
    pub(crate) async fn source(&self, name: &str, value: &str) -> anyhow::Result<Secret> {
        let mut source = secret(name, value);
        source
            .annotations_mut()
            .insert(SYNC_ANNOTATION.to_owned(), String::new());
        Ok(self.in_namespace(HOME).create(source).await?)
    }

    /// Creates a SecretSync in a namespace.
    pub(crate) async fn sync(&self, namespace: &str, name: &str, spec: Value) -> anyhow::Result<SecretSync> {
        let sync: SecretSync = from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
        Ok(self.in_namespace(namespace).create(sync).await?)
    }

    /// Waits until the copy in this namespace has this value.
    pub(crate) async fn wait_for_copy(
        &self,
        namespace: &str,
        name: &str,
        value: &str,
    ) -> anyhow::Result<Arc<Secret>> {
        let is_copy = |secret: &Secret| {
            secret.data.as_ref().is_some_and(|data| {
                data.len() == 1
                    && data
                        .get("password")
                        .is_some_and(|found| found.0 == value_of(value))
            })
        };
        self.in_namespace(namespace)
            .wait_for::<Secret>(name, is_copy)
            .await
    }

    /// Waits until each of these copies has this value, or is gone, using one watch for all.
    pub(crate) async fn wait_for_copies(
        &self,
        expected: &[(String, &str, Option<&str>)],
    ) -> anyhow::Result<()> {
        let cache = Cache::<Secret>::start(self.case().client(), &WatchScope::all());
        let lister = cache.synced(STEP_TIMEOUT).await?;
        let mut changes = lister.subscribe();
        for (namespace, name, value) in expected {
            let key = ObjectKey::namespaced(namespace.as_str(), *name);
            let wanted = value.map(|value| secret(name, value).data);
            let is_so = async {
                while lister.get(&key).map(|copy| copy.data.clone()) != wanted {
                    changes.next().await.context("the watch ended")?;
                }
                anyhow::Ok(())
            };
            let in_time = tokio::time::timeout(STEP_TIMEOUT, is_so).await;
            in_time.with_context(|| {
                format!("{key} has not reached the expected state: {:?}", lister.get(&key))
            })??;
        }
        Ok(())
    }

    /// Waits until this holds for the status of a SecretSync.
    pub(crate) async fn wait_for_status(
        &self,
        namespace: &str,
        name: &str,
        holds: impl Fn(&windlass_secretsync::SecretSyncStatus) -> bool,
    ) -> anyhow::Result<Arc<SecretSync>> {
        let says = |sync: &SecretSync| sync.status.as_ref().is_some_and(&holds);
        self.in_namespace(namespace)
            .wait_for::<SecretSync>(name, says)
            .await
    }

    /// Returns when nothing is pending.
    pub(crate) async fn settle(&self) {
        let millis = match self.case().cluster().backend() {
            Backend::Embedded => 5_000,
            _ => 1_500,
        };
        let long = Duration::from_millis(millis);
        let work = || {
            let sent = self.proxy().requests();
            sent.iter().filter(|sent| sent.resource() != "leases").count()
        };
        let mut before = work();
        // With leases there is always traffic.
        while tokio::time::timeout(2 * long, self.proxy().wait_until_idle(long))
            .await
            .is_err()
        {
            let now = work();
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// Lets enough time pass to notice repeated work: an hour with simulated time.
    pub(crate) async fn let_time_pass(&self) {
        let while_ = match self.case().cluster().backend() {
            Backend::Embedded => Duration::from_hours(1),
            _ => Duration::from_secs(3),
        };
        tokio::time::sleep(while_).await;
    }

    /// All writes so far except events and leases, as `create team-a/token`.
    pub(crate) fn all_writes(&self) -> Vec<String> {
        let writes = self.proxy().writes();
        writes
            .iter()
            .filter(|write| is_neither_event_nor_lease(write))
            .map(describe_request)
            .collect()
    }

    /// The writes and deletions of copies since the last [`forget`](windlass_suite::Wire::forget).
    pub(crate) fn copy_writes(&self) -> Vec<String> {
        let writes = self.proxy().writes();
        let copying = writes
            .iter()
            .filter(|write| ["secrets", "configmaps"].contains(&write.resource()));
        copying.map(describe_request).collect()
    }

    /// The object as the server returns it, as text.
    pub(crate) async fn bytes(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        let get = kube::core::Request::new(path).get(name, &kube::api::GetParams::default())?;
        Ok(self.case().client().request_text(get).await?)
    }

    /// The names of the objects in a namespace.
    pub(crate) async fn names<K: Namespaced>(&self, namespace: &str) -> anyhow::Result<Vec<String>> {
        let all = self
            .in_namespace(namespace)
            .case()
            .api::<K>()
            .list(&ListParams::default())
            .await?;
        Ok(all.items.iter().map(ResourceExt::name_any).collect())
    }

    pub(crate) async fn events(&self) -> anyhow::Result<Vec<Event>> {
        let all = Api::<Event>::all(self.case().client());
        Ok(all.list(&ListParams::default()).await?.items)
    }

    pub(crate) async fn warnings(&self) -> anyhow::Result<Vec<Event>> {
        let mut events = self.events().await?;
        events.retain(|event| event.type_.as_deref() == Some("Warning"));
        Ok(events)
    }

    /// Fails if this takes two seconds or more.
    pub(crate) async fn within_two_seconds<T>(
        &self,
        what: &str,
        doing: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let began = Instant::now();
        let done = doing.await?;
        let took = began.elapsed();
        anyhow::ensure!(took < Duration::from_secs(2), "{what} took {took:?}");
        Ok(done)
    }
}

/// Metadata of a namespace that consents.
pub(crate) fn consent(value: &str) -> Value {
    json!({ "annotations": { SYNC_ANNOTATION: value } })
}

/// A Secret with one value, which contains the canary.
pub(crate) fn secret(name: &str, value: &str) -> Secret {
    let data = BTreeMap::from([("password".to_owned(), ByteString(value_of(value)))]);
    Secret {
        metadata: kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            ..kube::api::ObjectMeta::default()
        },
        data: Some(data),
        ..Secret::default()
    }
}

pub(crate) fn value_of(value: &str) -> Vec<u8> {
    // With a length that is a multiple of three, the base64 form does not depend on what follows.
    format!("{CANARY}{value}").into_bytes()
}

pub(crate) fn is_neither_event_nor_lease(write: &RecordedRequest) -> bool {
    !["events", "leases"].contains(&write.resource())
}

/// `create team-a/token`.
pub(crate) fn describe_request(sent: &RecordedRequest) -> String {
    let verb = &sent.access.verb;
    match &sent.access.target {
        AccessTarget::Resource {
            namespace,
            name,
            subresource,
            ..
        } if subresource.is_empty() => format!("{verb} {namespace}/{name}"),
        AccessTarget::Resource {
            namespace,
            name,
            subresource,
            ..
        } => format!("{verb} {namespace}/{name}/{subresource}"),
        AccessTarget::Path(path) => format!("{verb} {path}"),
    }
}

pub(crate) fn namespace_of(sent: &RecordedRequest) -> &str {
    match &sent.access.target {
        AccessTarget::Resource { namespace, .. } => namespace,
        AccessTarget::Path(_) => "",
    }
}

/// Whether a condition has this status.
pub(crate) fn condition(status: &windlass_secretsync::SecretSyncStatus, name: &str, is: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == name && condition.status == is)
}
