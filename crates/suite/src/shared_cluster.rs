//! The cluster that all cases of a suite share on a backend.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use futures::{FutureExt, future::LocalBoxFuture};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::DeleteParams};
use tokio::sync::OnceCell;
use windlass_cluster::Cluster;

use crate::{
    Context, Target,
    context::ClusterSource,
    settings::{Availability, Settings},
};

/// Timeout of a case.
const CASE_TIMEOUT: Duration = Duration::from_mins(2);

/// Timeout of a case that may start its own clusters, each of which takes seconds.
const OWN_CLUSTER_TIMEOUT: Duration = Duration::from_mins(6);

/// Timeout of a case on a paused clock, where hours pass in no time.
const PAUSED_TIMEOUT: Duration = Duration::from_hours(24);

/// A backend's cluster, which the first case that needs it starts, and the number of cases that ran.
pub(crate) struct SharedCluster {
    pub(crate) target: Target,
    pub(crate) availability: Availability,
    source: Arc<ClusterSource>,
    /// Whether each case has its own cluster.
    cluster_per_case: bool,
    /// Started once: all cases share the cluster or its error.
    cluster: OnceCell<Result<Arc<Cluster>, String>>,
    /// The version of the clusters of single cases.
    own_version: OnceLock<String>,
    ran: AtomicUsize,
}

impl SharedCluster {
    /// `missing` is a requirement of the suite that this machine does not meet.
    pub(crate) fn new(
        target: Target,
        settings: &Settings,
        missing: Option<&String>,
        cluster_per_case: bool,
    ) -> Self {
        let availability = match missing {
            Some(reason) if !settings.require_real => Availability::Missing(reason.clone()),
            _ if cluster_per_case && target == Target::Existing => {
                Availability::Missing("every case needs its own cluster".to_owned())
            }
            _ => settings.availability(target),
        };
        let settings = settings.clone();
        Self {
            target,
            availability,
            source: Arc::new(ClusterSource { target, settings }),
            cluster_per_case,
            cluster: OnceCell::new(),
            own_version: OnceLock::new(),
            ran: AtomicUsize::new(0),
        }
    }

    /// Runs a case in a new namespace, which is deleted whether the case passes, fails or panics.
    pub(crate) async fn run(
        &self,
        suite: &str,
        case: impl FnOnce(Context) -> LocalBoxFuture<'static, anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        if self.cluster_per_case {
            return self.run_on_own_cluster(suite, case, OWN_CLUSTER_TIMEOUT).await;
        }
        let cluster = match self.cluster.get_or_init(|| self.start()).await {
            Ok(cluster) => cluster.clone(),
            Err(error) => bail!("no {} cluster: {error}", self.target),
        };
        let context = Context::create(cluster, suite, None).await?;
        let namespaces = Api::<Namespace>::all(context.client());
        let namespace = context.namespace().to_owned();
        let outcome = AssertUnwindSafe(self.run_without_cluster(case(context)))
            .catch_unwind()
            .await;
        let deleted = namespaces.delete(&namespace, &DeleteParams::background()).await;
        match outcome {
            Ok(result) => result.and(deleted.map(|_| ()).context("cannot delete the case's namespace")),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Runs a case on its own cluster, on the paused clock of the current runtime.
    pub(crate) async fn run_paused(
        &self,
        suite: &str,
        case: impl FnOnce(Context) -> LocalBoxFuture<'static, anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        self.run_on_own_cluster(suite, case, PAUSED_TIMEOUT).await
    }

    async fn run_on_own_cluster(
        &self,
        suite: &str,
        case: impl FnOnce(Context) -> LocalBoxFuture<'static, anyhow::Result<()>>,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let cluster = self.source.start_cluster().await;
        let cluster = cluster.with_context(|| format!("no {} cluster", self.target))?;
        let cluster = Arc::new(cluster);
        self.own_version.get_or_init(|| cluster.version().to_owned());
        let cluster_source = self.cluster_per_case.then(|| Arc::clone(&self.source));
        let context = Context::create(Arc::clone(&cluster), suite, cluster_source).await?;
        self.ran.fetch_add(1, Ordering::Relaxed);
        let outcome = tokio::time::timeout(limit, case(context)).await;
        // If the case has kept its context, the cluster ends with the runtime.
        if let Some(cluster) = Arc::into_inner(cluster) {
            cluster.stop().await;
        }
        outcome.map_err(|_| anyhow!("the case timed out after {limit:?}"))?
    }

    /// Runs a case that starts its own clusters.
    pub(crate) async fn run_without_cluster(
        &self,
        case: LocalBoxFuture<'static, anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        self.ran.fetch_add(1, Ordering::Relaxed);
        tokio::time::timeout(CASE_TIMEOUT, case)
            .await
            .map_err(|_| anyhow!("the case took longer than {CASE_TIMEOUT:?}"))?
    }

    /// Returns the backend's part of the suite's last line: how many cases ran, and on what.
    pub(crate) fn summary(&self) -> String {
        let what = match (&self.availability, self.cluster.get()) {
            (Availability::Missing(reason), _) => format!("ignored: {reason}"),
            (Availability::Ready, Some(Ok(cluster))) if self.target == Target::Embedded => {
                format!("in this process, {}", cluster.version())
            }
            (Availability::Ready, Some(Ok(cluster))) => format!("kube-apiserver {}", cluster.version()),
            (Availability::Ready, Some(Err(_))) => "did not start".to_owned(),
            (Availability::Ready, None) => match self.own_version.get() {
                None => "no shared cluster needed".to_owned(),
                Some(version) if self.target == Target::Embedded => {
                    format!("a cluster each, in this process, {version}")
                }
                Some(version) => format!("a kube-apiserver {version} each"),
            },
        };
        format!("{} on {} ({what})", self.ran.load(Ordering::Relaxed), self.target)
    }

    pub(crate) async fn stop(self) {
        if let Some(Ok(cluster)) = self.cluster.into_inner() {
            // If a case has kept its context, the cluster ends with the process.
            if let Some(cluster) = Arc::into_inner(cluster) {
                cluster.stop().await;
            }
        }
    }

    async fn start(&self) -> Result<Arc<Cluster>, String> {
        self.source
            .start_cluster()
            .await
            .map(Arc::new)
            .map_err(|error| error.to_string())
    }
}
