//! The one cluster that all cases of a suite share on a backend.

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
    context::Origin,
    settings::{Availability, Settings},
};

/// A case that takes longer hangs.
const CASE_LIMIT: Duration = Duration::from_mins(2);

/// The same for one that may start clusters of its own, each of which takes seconds.
const APART_LIMIT: Duration = Duration::from_mins(6);

/// The same on a paused clock, on which hours are nothing.
const PAUSED_LIMIT: Duration = Duration::from_hours(24);

/// A backend's cluster, which starts with the first case that needs it, and the count of the cases that ran.
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) availability: Availability,
    origin: Arc<Origin>,
    /// Whether each case has a cluster of its own.
    apart: bool,
    /// The start is tried once: all cases share its error as they would share the cluster.
    cluster: OnceCell<Result<Arc<Cluster>, String>>,
    /// What the clusters of cases that have their own speak.
    own_version: OnceLock<String>,
    ran: AtomicUsize,
}

impl Shared {
    /// `missing` is what the suite needs besides a cluster and this machine does not have.
    pub(crate) fn new(target: Target, settings: &Settings, missing: Option<&String>, apart: bool) -> Self {
        let availability = match missing {
            Some(reason) if !settings.require_real => Availability::Missing(reason.clone()),
            _ if apart && target == Target::Existing => {
                Availability::Missing("its cases need clusters of their own".to_owned())
            }
            _ => settings.availability(target),
        };
        let settings = settings.clone();
        Self {
            target,
            availability,
            origin: Arc::new(Origin { target, settings }),
            apart,
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
        if self.apart {
            return self.run_on_its_own(suite, case, APART_LIMIT).await;
        }
        let cluster = match self.cluster.get_or_init(|| self.start()).await {
            Ok(cluster) => cluster.clone(),
            Err(error) => bail!("no {} cluster: {error}", self.target),
        };
        let context = Context::create(cluster, suite, None).await?;
        let namespaces = Api::<Namespace>::all(context.client());
        let namespace = context.namespace().to_owned();
        let outcome = AssertUnwindSafe(self.run_alone(case(context)))
            .catch_unwind()
            .await;
        let deleted = namespaces.delete(&namespace, &DeleteParams::background()).await;
        match outcome {
            Ok(result) => result.and(deleted.map(|_| ()).context("cannot delete the case's namespace")),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Runs a case on a cluster of its own, on the paused clock of the runtime that it is called on.
    pub(crate) async fn run_paused(
        &self,
        suite: &str,
        case: impl FnOnce(Context) -> LocalBoxFuture<'static, anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        self.run_on_its_own(suite, case, PAUSED_LIMIT).await
    }

    async fn run_on_its_own(
        &self,
        suite: &str,
        case: impl FnOnce(Context) -> LocalBoxFuture<'static, anyhow::Result<()>>,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let cluster = self.origin.cluster().await;
        let cluster = cluster.with_context(|| format!("no {} cluster", self.target))?;
        let cluster = Arc::new(cluster);
        self.own_version.get_or_init(|| cluster.version().to_owned());
        let apart = self.apart.then(|| Arc::clone(&self.origin));
        let context = Context::create(Arc::clone(&cluster), suite, apart).await?;
        self.ran.fetch_add(1, Ordering::Relaxed);
        let outcome = tokio::time::timeout(limit, case(context)).await;
        // A case that kept its context keeps the cluster; then it ends with the runtime.
        if let Some(cluster) = Arc::into_inner(cluster) {
            cluster.stop().await;
        }
        outcome.map_err(|_| anyhow!("the case waits for something that does not come"))?
    }

    /// Runs a case that brings its own clusters.
    pub(crate) async fn run_alone(
        &self,
        case: LocalBoxFuture<'static, anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        self.ran.fetch_add(1, Ordering::Relaxed);
        tokio::time::timeout(CASE_LIMIT, case)
            .await
            .map_err(|_| anyhow!("the case took longer than {CASE_LIMIT:?}"))?
    }

    /// A part of the suite's last line: how many cases ran, and on what.
    pub(crate) fn summary(&self) -> String {
        let what = match (&self.availability, self.cluster.get()) {
            (Availability::Missing(reason), _) => format!("ignored: {reason}"),
            (Availability::Ready, Some(Ok(cluster))) if self.target == Target::Embedded => {
                format!("in this process, speaking {}", cluster.version())
            }
            (Availability::Ready, Some(Ok(cluster))) => format!("kube-apiserver {}", cluster.version()),
            (Availability::Ready, Some(Err(_))) => "did not start".to_owned(),
            (Availability::Ready, None) => match self.own_version.get() {
                None => "no shared cluster needed".to_owned(),
                Some(version) if self.target == Target::Embedded => {
                    format!("a cluster each, in this process, speaking {version}")
                }
                Some(version) => format!("a kube-apiserver {version} each"),
            },
        };
        format!("{} on {} ({what})", self.ran.load(Ordering::Relaxed), self.target)
    }

    pub(crate) async fn stop(self) {
        if let Some(Ok(cluster)) = self.cluster.into_inner() {
            // A case that kept its context keeps the cluster; then it ends with the process.
            if let Some(cluster) = Arc::into_inner(cluster) {
                cluster.stop().await;
            }
        }
    }

    async fn start(&self) -> Result<Arc<Cluster>, String> {
        self.origin
            .cluster()
            .await
            .map(Arc::new)
            .map_err(|error| error.to_string())
    }
}
