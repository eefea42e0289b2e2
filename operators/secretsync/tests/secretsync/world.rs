//! A cluster with namespaces that consent or do not, and secretsync on it with the rights that it ships with.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use tokio::time::Instant;
use windlass::{
    cache::{Cache, Selection},
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
        Install,
        metrics::{Format, Metrics},
    },
    serde_json::Value,
};
use windlass_cluster::Backend;
use windlass_rights::Object;
use windlass_secretsync::{
    Arguments, SecretSync,
    api::{SOURCE_NAMESPACE, SYNC},
    setup,
};
use windlass_suite::{
    Context as Case, DEADLINE, Namespaced, Running, Sent, Shipped, World as Inner, install,
};

/// Where annotated sources are.
pub(crate) const HOME: &str = SOURCE_NAMESPACE;

/// What must never be seen outside of the data of a Secret: it is in every value, and so is its base64 form.
pub(crate) const CANARY: &str = "c4n4ryc4n4ry";

pub(crate) struct World {
    inner: Inner,
    /// With the rights that it has.
    client: Client,
    arguments: Arguments,
    /// Of the manager that was made last.
    metrics: Mutex<Metrics>,
}

impl Deref for World {
    type Target = Inner;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

/// The rights that it ships with.
pub(crate) fn shipped() -> Shipped {
    Shipped::read(include_str!("../../rbac.yaml")).expect("a manifest of roles")
}

impl World {
    /// With the namespace of annotated sources, and nothing in it.
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        Self::with(case, &shipped()).await
    }

    pub(crate) async fn with(case: &Case, rights: &Shipped) -> anyhow::Result<Self> {
        install(case, [SecretSync::crd()]).await?;
        let client = rights.client(case).await?;
        let world = Self::of(Inner::of(case, &client), client);
        world.namespace(HOME, json!({})).await?;
        Ok(world)
    }

    pub(crate) fn of(inner: Inner, client: Client) -> Self {
        Self {
            inner,
            client,
            arguments: Arguments::default(),
            metrics: Mutex::new(Metrics::new()),
        }
    }

    /// Where `token` of [`HOME`] is copied into `asks`, and nothing is left to do.
    pub(crate) async fn in_sync(case: &Case) -> anyhow::Result<(Self, Running)> {
        let world = Self::new(case).await?;
        world.consenting(&["asks"]).await?;
        world.source("token", "1").await?;
        let running = world.start().await?;
        world.copied("asks", "token", "1").await?;
        world.settle().await;
        Ok((world, running))
    }

    /// The same, told something else on the command line.
    pub(crate) fn told_to(mut self, change: impl FnOnce(&mut Arguments)) -> Self {
        change(&mut self.arguments);
        self
    }

    /// Another process on another wire, in the same cluster.
    pub(crate) fn beside(&self) -> Self {
        let beside = Self::of(Inner::of(self.case(), &self.client), self.client.clone());
        beside.told_to(|arguments| *arguments = self.arguments.clone())
    }

    pub(crate) async fn start(&self) -> anyhow::Result<Running> {
        Ok(Running::start(self.whole().await?))
    }

    /// A manager as the program makes it.
    pub(crate) async fn whole(&self) -> anyhow::Result<Manager> {
        self.whole_on(self.wire().client()).await
    }

    pub(crate) async fn whole_on(&self, client: Client) -> anyhow::Result<Manager> {
        let manager = Manager::new(client.clone()).install(Install::new([SecretSync::crd()]));
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner) = manager.metrics();
        Ok(setup(manager, &client, &[], &self.arguments).await?)
    }

    /// What `/metrics` would say.
    pub(crate) fn scrape(&self) -> String {
        let metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.scrape(Format::Prometheus)
    }

    /// What a metric says, summed over all series that this is a part of.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let scraped = self.scrape();
        let lines = scraped
            .lines()
            .filter(|line| !line.starts_with('#') && line.contains(series));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Makes a namespace with this metadata.
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

    /// Makes namespaces that consent to copies from [`HOME`].
    pub(crate) async fn consenting(&self, names: &[&str]) -> anyhow::Result<()> {
        for name in names {
            self.namespace(name, consent("true")).await?;
        }
        Ok(())
    }

    pub(crate) async fn patch_namespace(&self, name: &str, metadata: Value) -> anyhow::Result<Namespace> {
        if name.starts_with("kube-") {
            // A new server makes its own ones a moment after it is ready, unless somebody was faster.
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

    /// Nobody deletes what is in a namespace here, so the test does, as the namespace controller would.
    pub(crate) async fn remove_namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespaces = self.namespaces();
        namespaces.delete(name, &DeleteParams::background()).await?;
        let (how, all) = (DeleteParams::background(), ListParams::default());
        let within = self.within(name);
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

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.case().client())
    }

    /// An annotated Secret in [`HOME`].
    pub(crate) async fn source(&self, name: &str, value: &str) -> anyhow::Result<Secret> {
        let mut source = secret(name, value);
        source.annotations_mut().insert(SYNC.to_owned(), String::new());
        Ok(self.within(HOME).create(source).await?)
    }

    /// A SecretSync in a namespace.
    pub(crate) async fn sync(&self, namespace: &str, name: &str, spec: Value) -> anyhow::Result<SecretSync> {
        let sync: SecretSync = from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
        Ok(self.within(namespace).create(sync).await?)
    }

    /// Waits until the copy in this namespace holds this value.
    pub(crate) async fn copied(
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
        self.within(namespace).wait_for::<Secret>(name, is_copy).await
    }

    /// Waits until each of these copies holds this value, or is not there. One look at the cluster for all of them.
    pub(crate) async fn all(&self, expected: &[(String, &str, Option<&str>)]) -> anyhow::Result<()> {
        let cache = Cache::<Secret>::start(self.case().client(), &Selection::all());
        let lister = cache.synced(DEADLINE).await?;
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
            let in_time = tokio::time::timeout(DEADLINE, is_so).await;
            in_time.with_context(|| format!("{key} is not as it should be: {:?}", lister.get(&key)))??;
        }
        Ok(())
    }

    /// Waits until a SecretSync says so.
    pub(crate) async fn says(
        &self,
        namespace: &str,
        name: &str,
        holds: impl Fn(&windlass_secretsync::SecretSyncStatus) -> bool,
    ) -> anyhow::Result<Arc<SecretSync>> {
        let says = |sync: &SecretSync| sync.status.as_ref().is_some_and(&holds);
        self.within(namespace).wait_for::<SecretSync>(name, says).await
    }

    /// Returns when all that could be done is done.
    pub(crate) async fn settle(&self) {
        let millis = match self.case().cluster().backend() {
            Backend::Embedded => 5_000,
            _ => 1_500,
        };
        let long = Duration::from_millis(millis);
        let work = || {
            let sent = self.wire().sent();
            sent.iter().filter(|sent| sent.resource() != "leases").count()
        };
        let mut before = work();
        // Where a lease is renewed it is never quiet.
        while tokio::time::timeout(2 * long, self.wire().quiet(long))
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

    /// A while that shows whether something is done again and again: an hour where that costs nothing.
    pub(crate) async fn a_while(&self) {
        let while_ = match self.case().cluster().backend() {
            Backend::Embedded => Duration::from_hours(1),
            _ => Duration::from_secs(3),
        };
        tokio::time::sleep(while_).await;
    }

    /// All that was written so far except events and leases, as `create team-a/token`.
    pub(crate) fn written(&self) -> Vec<String> {
        let writes = self.wire().writes();
        writes
            .iter()
            .filter(|write| is_work(write))
            .map(spelled)
            .collect()
    }

    /// How often copies were written or deleted since the last [`forget`](windlass_suite::Wire::forget).
    pub(crate) fn copying(&self) -> Vec<String> {
        let writes = self.wire().writes();
        let copying = writes
            .iter()
            .filter(|write| ["secrets", "configmaps"].contains(&write.resource()));
        copying.map(spelled).collect()
    }

    /// The object as the server has it, byte by byte.
    pub(crate) async fn bytes(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        let get = kube::core::Request::new(path).get(name, &kube::api::GetParams::default())?;
        Ok(self.case().client().request_text(get).await?)
    }

    /// The names of the Secrets in a namespace.
    pub(crate) async fn names<K: Namespaced>(&self, namespace: &str) -> anyhow::Result<Vec<String>> {
        let all = self
            .within(namespace)
            .case()
            .api::<K>()
            .list(&ListParams::default())
            .await?;
        Ok(all.items.iter().map(ResourceExt::name_any).collect())
    }

    /// Every event that there is.
    pub(crate) async fn events(&self) -> anyhow::Result<Vec<Event>> {
        let all = Api::<Event>::all(self.case().client());
        Ok(all.list(&ListParams::default()).await?.items)
    }

    /// What it takes from now on until this is done must be less than two seconds.
    pub(crate) async fn soon<T>(
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
    json!({ "annotations": { SYNC: value } })
}

/// A Secret with one value, in which the canary is.
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
    // A length that is a multiple of three has a base64 form that does not depend on what follows.
    format!("{CANARY}{value}").into_bytes()
}

/// Whether it is more than telling.
pub(crate) fn is_work(write: &Sent) -> bool {
    !["events", "leases"].contains(&write.resource())
}

/// `create team-a/token`.
pub(crate) fn spelled(sent: &Sent) -> String {
    let verb = &sent.access.verb;
    match &sent.access.object {
        Object::Resource {
            namespace,
            name,
            subresource,
            ..
        } if subresource.is_empty() => format!("{verb} {namespace}/{name}"),
        Object::Resource {
            namespace,
            name,
            subresource,
            ..
        } => format!("{verb} {namespace}/{name}/{subresource}"),
        Object::Path(path) => format!("{verb} {path}"),
    }
}

/// The namespace that a request is about.
pub(crate) fn namespace_of(sent: &Sent) -> &str {
    match &sent.access.object {
        Object::Resource { namespace, .. } => namespace,
        Object::Path(_) => "",
    }
}

/// Whether a condition of a status has this status.
pub(crate) fn condition(status: &windlass_secretsync::SecretSyncStatus, name: &str, is: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == name && condition.status == is)
}
