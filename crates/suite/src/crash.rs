//! Crash tests: a controller process dies at each of its requests, and a new one must reach the same state.
//!
//! ```text
//!   undisturbed:  prepare ──► run ────────────────────────► done ──► state ─┐
//!   for every n:  prepare ──► run ──► crash at request n                    ├─ equal, and only allowed writes
//!                                     run again ──────────► done ──► state ─┘
//! ```
//!
//! Each run has its own namespace, and with [`Suite::cluster_per_case`](crate::Suite::cluster_per_case) its own cluster.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::DeleteParams};
use serde_json::Value;
use windlass_cluster::Backend;
use windlass_runtime::Manager;

use crate::{
    Context, CrashPoint, RecordedRequest, RequestProxy, RunningManager, TestEnvironment,
    snapshot::differences,
};

/// A controller that sends more requests than this is in a loop.
const MAX_REQUESTS: usize = 1_000;

/// A scenario for crash tests: its setup, its controllers, its end state and the writes they may send.
pub trait CrashScenario {
    /// Returns the client of the controllers, with the rights they have in production. Default: the administrator's.
    fn client(&self, case: &Context) -> impl Future<Output = anyhow::Result<Client>> {
        let client = case.client();
        async { Ok(client) }
    }

    /// Creates the objects that exist when the controllers start.
    fn prepare(&self, env: &TestEnvironment) -> impl Future<Output = anyhow::Result<()>>;

    /// Adds the controllers. Default: none, for a scenario that implements [`manager`](Self::manager).
    fn controllers(&self, manager: Manager) -> Manager {
        manager
    }

    /// Returns a manager with the controllers, on the environment's proxy. Its requests count as requests of the process.
    /// Default: a manager for the environment's namespace with the [`controllers`](Self::controllers).
    fn manager(&self, env: &TestEnvironment) -> impl Future<Output = anyhow::Result<Manager>> {
        let manager = self.controllers(env.manager());
        async { Ok(manager) }
    }

    /// Waits until the end state is reached. Changes that happen while the controllers run belong here too; they must be
    /// repeatable, since this runs again after a crash.
    fn wait_until_done(&self, env: &TestEnvironment) -> impl Future<Output = anyhow::Result<()>>;

    /// Returns the end state, without values that differ between runs; see [`Snapshot`](crate::Snapshot).
    fn end_state(&self, env: &TestEnvironment) -> impl Future<Output = anyhow::Result<Value>>;

    /// Whether the controllers may send this write.
    fn may_write(&self, write: &RecordedRequest) -> bool;
}

/// How many runs a crash test had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashReport {
    /// The number of requests of the undisturbed run.
    pub requests: usize,
    /// The number of runs with a crash.
    pub crashes: usize,
}

/// Runs the scenario undisturbed, and then once for every n so that the process dies at the n-th request: before it reaches
/// the server, and after it had its effect. A new process must then reach the same end state. No process may send a write
/// that is not allowed.
///
/// On other backends than the embedded one a run takes real time, so only n = 1, 2, 3, 5, 7, 10, 14, 19, … are tried, each
/// a third further.
pub async fn crash_at_every_request(
    case: &Context,
    scenario: &impl CrashScenario,
) -> anyhow::Result<CrashReport> {
    let embedded = case.cluster().backend() == Backend::Embedded;
    crash_at_requests(case, scenario, |n| n + if embedded { 1 } else { 1 + n / 3 }).await
}

/// Like [`crash_at_every_request`], for a sample of the requests: the first, and after n the one that `next(n)` returns. For
/// long scenarios.
pub async fn crash_at_requests(
    case: &Context,
    scenario: &impl CrashScenario,
    next: impl Fn(usize) -> usize,
) -> anyhow::Result<CrashReport> {
    let embedded = case.cluster().backend() == Backend::Embedded;
    let idle_time = Duration::from_millis(if embedded { 1000 } else { 200 });
    let run = CrashTest {
        case,
        scenario,
        idle_time,
    };
    let (expected, requests) = run.run_undisturbed().await.context("undisturbed")?;
    let mut crashes = 0;
    for moment in [CrashPoint::Before, CrashPoint::After] {
        let mut n = 1;
        loop {
            let ended = run.run_with_crash(n, moment).await;
            let Some(state) = ended.with_context(|| format!("crash {moment:?} request {n}"))? else {
                break;
            };
            ensure!(
                state == expected,
                "crash {moment:?} request {n} of {requests}: different end state:\n{}",
                differences(&state, &expected).join("\n")
            );
            crashes += 1;
            n = next(n).max(n + 1);
            ensure!(n < MAX_REQUESTS, "not done after {n} requests");
        }
    }
    Ok(CrashReport { requests, crashes })
}

struct CrashTest<'a, S> {
    case: &'a Context,
    scenario: &'a S,
    /// A controller without requests for this long is done.
    idle_time: Duration,
}

impl<S: CrashScenario> CrashTest<'_, S> {
    async fn run_undisturbed(&self) -> anyhow::Result<(Value, usize)> {
        let case = self.case.fresh().await?;
        let client = self.scenario.client(&case).await?;
        let env = TestEnvironment::with_client(&case, &client);
        self.scenario.prepare(&env).await?;
        let state = self.run_to_end(&env).await?;
        delete_namespace(&case).await?;
        Ok((state, env.proxy().request_count()))
    }

    /// Runs with a crash at the `n`-th request. `None` if there were fewer requests.
    async fn run_with_crash(&self, n: usize, moment: CrashPoint) -> anyhow::Result<Option<Value>> {
        let case = self.case.fresh().await?;
        let client = self.scenario.client(&case).await?;
        let first = TestEnvironment::with_proxy(&case, RequestProxy::crashing_at(&client, n, moment));
        self.scenario.prepare(&first).await?;
        let mut running = None;
        let life = async {
            running = Some(self.start(&first).await?);
            self.done(&first).await
        };
        let died = tokio::select! {
            // A crash at the last request counts as a crash.
            biased;
            () = first.proxy().wait_until_crashed() => true,
            done = life => {
                done?;
                false
            }
        };
        if let Some(running) = running {
            running.kill().await;
        }
        self.check(&first)?;
        let state = if died {
            let second = TestEnvironment::with_client(&case, &client);
            Some(
                self.run_to_end(&second)
                    .await
                    .context("the process after the crash")?,
            )
        } else {
            None
        };
        delete_namespace(&case).await?;
        Ok(state)
    }

    async fn run_to_end(&self, env: &TestEnvironment) -> anyhow::Result<Value> {
        let running = self.start(env).await?;
        self.done(env).await?;
        running.stop().await?;
        self.check(env)?;
        self.scenario.end_state(env).await
    }

    async fn start(&self, env: &TestEnvironment) -> anyhow::Result<RunningManager> {
        Ok(RunningManager::start(self.scenario.manager(env).await?))
    }

    async fn done(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        self.scenario.wait_until_done(env).await?;
        env.proxy().wait_until_idle(self.idle_time).await;
        Ok(())
    }

    fn check(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        for write in env.proxy().writes() {
            if !self.scenario.may_write(&write) {
                bail!("forbidden write: {write} {}", write.body);
            }
        }
        Ok(())
    }
}

async fn delete_namespace(case: &Context) -> anyhow::Result<()> {
    if case.has_own_cluster() {
        // Its cluster is stopped anyway.
        return Ok(());
    }
    let namespaces = Api::<Namespace>::all(case.client());
    namespaces
        .delete(case.namespace(), &DeleteParams::background())
        .await?;
    Ok(())
}
