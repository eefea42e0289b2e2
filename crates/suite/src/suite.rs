//! A suite runs its cases on every selected backend.

use std::{process::ExitCode, sync::Arc};

use futures::{FutureExt, future::LocalBoxFuture};
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    Context, Target,
    settings::{Availability, Settings},
    shared_cluster::SharedCluster,
};

/// Named cases that run on every selected and available backend.
#[must_use = "a suite does nothing before `run`"]
pub struct Suite {
    name: &'static str,
    controllers: bool,
    nodes: usize,
    paused: bool,
    cluster_per_case: bool,
    missing: Option<String>,
    cases: Vec<Case>,
    /// Cases that need a paused clock, and why.
    embedded_only: Vec<(&'static str, &'static str)>,
}

struct Case {
    name: &'static str,
    body: Body,
}

type Outcome = LocalBoxFuture<'static, anyhow::Result<()>>;

#[derive(Clone)]
enum Body {
    EveryBackend(Arc<dyn Fn(Context) -> Outcome + Send + Sync>),
    OneBackend(Target, Arc<dyn Fn() -> Outcome + Send + Sync>),
}

impl Suite {
    /// Creates a suite without cases. The name is part of the names of its cases and namespaces.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            controllers: false,
            nodes: 0,
            paused: false,
            cluster_per_case: false,
            missing: None,
            cases: Vec::new(),
            embedded_only: Vec::new(),
        }
    }

    /// Starts clusters with the built-in controllers (garbage collection, namespaces, Deployments, …). Default: only the API
    /// server.
    pub fn controllers(mut self) -> Self {
        self.controllers = true;
        self
    }

    /// Gives embedded clusters this number of simulated nodes, which run pods. Implies [`controllers`](Self::controllers).
    /// Other clusters get no nodes: a case checks `ctx.cluster().nodes()`. Default: 0.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self.controllers()
    }

    /// On the embedded backend, gives each case its own cluster and a paused tokio clock on a current-thread runtime. The
    /// clock advances when all tasks are idle, so waits of minutes pass at once and are exact. No effect on other backends.
    /// Default: one cluster for all cases, and real time.
    ///
    /// Wait for other processes and sockets inside of [`outside`](windlass_runtime::testing::outside), or the clock advances
    /// meanwhile.
    pub fn paused(mut self) -> Self {
        self.paused = true;
        self
    }

    /// Gives each case and each [`Context::fresh`] its own cluster, on every backend: for controllers that watch the whole
    /// cluster and would interfere. A real cluster takes seconds to start; on an existing one the cases are ignored. Default:
    /// cases share a cluster.
    pub fn cluster_per_case(mut self) -> Self {
        self.cluster_per_case = true;
        self
    }

    /// Declares something on this machine that every case needs, such as a program. If it is an error, the cases are ignored
    /// with it as the reason; with `WINDLASS_REQUIRE_REAL` they run, and fail themselves.
    pub fn requires<T, E: std::fmt::Display>(mut self, thing: Result<T, E>) -> Self {
        self.missing = self.missing.or(thing.err().map(|error| error.to_string()));
        self
    }

    /// Declares that a case runs on the embedded backend only; on others it is ignored with this reason. For behaviour that
    /// depends on nothing but time, and takes too long where time is real.
    pub fn embedded_only(mut self, case: &'static str, reason: &'static str) -> Self {
        self.embedded_only.push((case, reason));
        self
    }

    /// Adds a case that runs on every backend.
    pub fn case<F, R>(mut self, name: &'static str, case: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<()>> + 'static,
    {
        let body = Body::EveryBackend(Arc::new(move |context| case(context).boxed_local()));
        self.cases.push(Case { name, body });
        self
    }

    /// Adds a case that runs only on `target`, if that is selected and available, and starts its own clusters.
    pub fn case_on<F, R>(mut self, target: Target, name: &'static str, case: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<()>> + 'static,
    {
        let body = Body::OneBackend(target, Arc::new(move || case().boxed_local()));
        self.cases.push(Case { name, body });
        self
    }

    fn execute(self, args: &Arguments, mut settings: Settings) -> (Conclusion, String) {
        if self.controllers {
            settings.embedded = settings.embedded.controllers();
            settings.real = settings.real.controllers();
        }
        if self.nodes > 0 {
            settings.embedded = settings.embedded.nodes(self.nodes);
        }
        let runtime = Runtime::new().expect("cannot create a tokio runtime");
        let concerned = settings
            .targets
            .iter()
            .filter(|target| self.cases.iter().any(|case| case.runs_on(**target)));
        let backends: Vec<_> = concerned
            .map(|target| {
                Arc::new(SharedCluster::new(
                    *target,
                    &settings,
                    self.missing.as_ref(),
                    self.cluster_per_case,
                ))
            })
            .collect();
        for (name, _) in &self.embedded_only {
            let is_case = self.cases.iter().any(|case| case.name == *name);
            assert!(is_case, "suite {}: `{name}` is not a case", self.name);
        }
        let mut trials = Vec::new();
        for backend in &backends {
            let clock = match backend.target {
                Target::Embedded if self.paused => Clock::Paused,
                _ => Clock::RealTime(runtime.handle().clone()),
            };
            for case in &self.cases {
                let only = self.embedded_only.iter().find(|(name, _)| *name == case.name);
                let reason = only.filter(|_| backend.target != Target::Embedded);
                trials.extend(match reason {
                    Some((_, reason)) => Some(ignored(trial_name(self.name, case, backend), reason)),
                    None => trial(self.name, case, backend, &clock),
                });
            }
        }
        let conclusion = libtest_mimic::run(args, trials);
        let counts: Vec<_> = backends.iter().map(|backend| backend.summary()).collect();
        for backend in backends {
            if let Some(backend) = Arc::into_inner(backend) {
                runtime.block_on(backend.stop());
            }
        }
        (
            conclusion,
            format!("suite {}: ran {}", self.name, counts.join(", ")),
        )
    }
}

/// Runs suites one after another, according to the environment and the command line. Returns the exit code for `main`.
///
/// One test binary runs all suites of a crate, because each binary is linked with everything.
pub fn run(suites: impl IntoIterator<Item = Suite>) -> ExitCode {
    let args = Arguments::from_args();
    let mut succeeded = true;
    for suite in suites {
        let settings = match Settings::from_env() {
            Ok(settings) => settings,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let (conclusion, summary) = suite.execute(&args, settings);
        let selected = conclusion.num_passed + conclusion.num_failed + conclusion.num_ignored;
        if !args.list && selected > 0 {
            println!("{summary}\n");
        }
        succeeded &= !conclusion.has_failed();
    }
    if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}

impl Case {
    fn runs_on(&self, target: Target) -> bool {
        match self.body {
            Body::EveryBackend(_) => true,
            Body::OneBackend(only, _) => only == target,
        }
    }
}

/// The clock of a case.
#[derive(Clone)]
enum Clock {
    /// Real time, on the runtime of the shared cluster.
    RealTime(Handle),
    /// A paused clock on its own runtime, which advances only when all tasks are idle.
    Paused,
}

/// Builds the trial of a case on a backend, if the case runs there.
fn trial(suite: &'static str, case: &Case, backend: &Arc<SharedCluster>, clock: &Clock) -> Option<Trial> {
    if !case.runs_on(backend.target) {
        return None;
    }
    let name = trial_name(suite, case, backend);
    match &backend.availability {
        Availability::Missing(reason) => Some(ignored(name, reason)),
        Availability::Ready => {
            let (body, backend, clock) = (case.body.clone(), backend.clone(), clock.clone());
            Some(Trial::test(name, move || {
                let outcome = match (body, clock) {
                    (Body::EveryBackend(case), Clock::RealTime(runtime)) => {
                        runtime.block_on(backend.run(suite, |context| case(context)))
                    }
                    (Body::EveryBackend(case), Clock::Paused) => {
                        paused_runtime().block_on(backend.run_paused(suite, |context| case(context)))
                    }
                    (Body::OneBackend(_, case), Clock::RealTime(runtime)) => {
                        runtime.block_on(async { backend.run_without_cluster(case()).await })
                    }
                    (Body::OneBackend(_, case), Clock::Paused) => {
                        paused_runtime().block_on(async { backend.run_without_cluster(case()).await })
                    }
                };
                outcome.map_err(|error| Failed::from(format!("{error:?}")))
            }))
        }
    }
}

fn trial_name(suite: &str, case: &Case, backend: &SharedCluster) -> String {
    format!("{suite}::{}::{}", backend.target, case.name)
}

fn ignored(name: String, reason: &str) -> Trial {
    let reason = reason.to_owned();
    Trial::ignorable_test(name, move || Ok(Completion::ignored_with(reason)))
}

fn paused_runtime() -> Runtime {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("cannot create a tokio runtime")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    use kube::{
        Api,
        api::{ListParams, ObjectMeta, PostParams},
    };
    use serde_json::json;
    use tokio::time::Instant;
    use windlass_cluster::Cluster;

    use super::*;

    fn suite() -> Suite {
        Suite::new("example")
            .case("shared", |_| async { Ok(()) })
            .case_on(Target::Real, "alone", || async { Ok(()) })
    }

    fn without_assets(require_real: bool, targets: Vec<Target>) -> Settings {
        Settings {
            targets,
            require_real,
            embedded: Cluster::embedded(),
            real: Cluster::real().assets("/nowhere"),
            existing: Cluster::existing().kubeconfig("/nowhere"),
        }
    }

    /// Hides the output of the inner run, which would look like results of this one.
    fn without_output() -> Arguments {
        Arguments {
            logfile: Some("/dev/null".to_owned()),
            ..Arguments::default()
        }
    }

    #[test]
    fn real_cases_without_control_plane_are_ignored_with_reason() {
        let (conclusion, summary) =
            suite().execute(&without_output(), without_assets(false, vec![Target::Real]));
        assert_eq!(
            (
                conclusion.num_ignored,
                conclusion.num_passed,
                conclusion.num_failed
            ),
            (2, 0, 0)
        );
        assert!(
            summary.starts_with("suite example: ran 0 on real (ignored: no etcd in /nowhere"),
            "{summary}"
        );
    }

    #[test]
    fn cases_with_unmet_requirement_are_ignored_unless_real_is_required() {
        let lame = || suite().requires(Err::<(), _>("no kubectl anywhere"));
        let (conclusion, summary) =
            lame().execute(&without_output(), without_assets(false, vec![Target::Embedded]));
        assert_eq!((conclusion.num_ignored, conclusion.num_passed), (1, 0));
        assert!(
            summary.ends_with("on embedded (ignored: no kubectl anywhere)"),
            "{summary}"
        );
        let (conclusion, _) = lame().execute(&without_output(), without_assets(true, vec![Target::Embedded]));
        assert_eq!((conclusion.num_ignored, conclusion.num_passed), (0, 1));
    }

    #[test]
    fn missing_required_control_plane_fails_the_cases() {
        let (conclusion, summary) =
            suite().execute(&without_output(), without_assets(true, vec![Target::Real]));
        assert_eq!((conclusion.num_ignored, conclusion.num_failed), (0, 1));
        assert!(summary.ends_with("on real (did not start)"), "{summary}");
    }

    #[test]
    fn unreachable_existing_cluster_fails_the_cases() {
        let (conclusion, _) =
            suite().execute(&without_output(), without_assets(false, vec![Target::Existing]));
        assert_eq!((conclusion.num_ignored, conclusion.num_failed), (0, 1));
    }

    #[test]
    fn embedded_cases_run_and_are_counted() {
        let (conclusion, summary) =
            suite().execute(&without_output(), without_assets(false, vec![Target::Embedded]));
        assert_eq!(
            (
                conclusion.num_passed,
                conclusion.num_failed,
                conclusion.num_ignored
            ),
            (1, 0, 0)
        );
        assert!(
            summary.starts_with("suite example: ran 1 on embedded (in this process, v"),
            "{summary}"
        );
    }

    #[test]
    fn embedded_only_case_is_ignored_elsewhere_with_its_reason() {
        let suite = || {
            Suite::new("example")
                .case("short", |_| async { Ok(()) })
                .case("long", |_| async { anyhow::bail!("it does not run here") })
                .embedded_only("long", "it takes an hour")
        };
        let count = |targets| {
            let (conclusion, _) = suite().execute(&without_output(), without_assets(false, targets));
            (conclusion.num_failed, conclusion.num_ignored)
        };
        assert_eq!(count(vec![Target::Embedded]), (1, 0));
        assert_eq!(count(vec![Target::Real]), (0, 2));
    }

    #[test]
    #[should_panic(expected = "`lnog` is not a case")]
    fn embedded_only_refuses_an_unknown_case() {
        let suite = suite().embedded_only("lnog", "it takes an hour");
        let _ = suite.execute(&without_output(), without_assets(false, vec![Target::Embedded]));
    }

    #[test]
    fn panicking_case_fails_and_is_counted() {
        let suite = Suite::new("example")
            .case_on(Target::Existing, "passes", || async { Ok(()) })
            .case_on(Target::Existing, "fails", || async {
                anyhow::bail!("as it should")
            })
            .case_on(Target::Existing, "panics", || async { panic!("as it should") });
        let (conclusion, summary) =
            suite.execute(&without_output(), without_assets(false, vec![Target::Existing]));
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (1, 2));
        assert_eq!(
            summary,
            "suite example: ran 3 on existing (no shared cluster needed)"
        );
    }

    #[test]
    fn paused_case_has_its_own_clock_and_cluster() {
        let alone = |ctx: Context| async move {
            let before = Instant::now();
            tokio::time::sleep(Duration::from_hours(3)).await;
            assert_eq!(before.elapsed().as_secs(), 3 * 60 * 60);
            let config = ConfigMap {
                metadata: ObjectMeta {
                    name: Some("mine".to_owned()),
                    ..ObjectMeta::default()
                },
                ..ConfigMap::default()
            };
            ctx.api().create(&PostParams::default(), &config).await?;
            let everywhere = Api::<ConfigMap>::all(ctx.client())
                .list(&ListParams::default())
                .await?;
            assert_eq!(everywhere.items.len(), 1);
            anyhow::Ok(())
        };
        let suite = Suite::new("example")
            .paused()
            .case("one", alone)
            .case("other", alone);
        let began = std::time::Instant::now();
        let (conclusion, summary) =
            suite.execute(&without_output(), without_assets(false, vec![Target::Embedded]));
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (2, 0));
        assert!(began.elapsed() < Duration::from_mins(1));
        assert!(
            summary.starts_with("suite example: ran 2 on embedded (a cluster each, in this process, v"),
            "{summary}"
        );
    }

    #[test]
    fn cluster_per_case_isolates_cases_and_fresh_contexts() {
        let alone = |ctx: Context| async move {
            let runs = [ctx.fresh().await?, ctx.fresh().await?, ctx];
            for run in runs {
                let named: Namespace = serde_json::from_value(json!({ "metadata": { "name": "the-same" } }))?;
                Api::all(run.client())
                    .create(&PostParams::default(), &named)
                    .await?;
                let within = run.in_namespace("the-same");
                assert_eq!(within.namespace(), "the-same");
                let own = Api::<Namespace>::all(run.client()).get(run.namespace()).await?;
                assert_eq!(Some(within.owner().uid), own.metadata.uid);
            }
            anyhow::Ok(())
        };
        for paused in [true, false] {
            let suite = Suite::new("example")
                .cluster_per_case()
                .case("one", alone)
                .case("other", alone);
            let suite = if paused { suite.paused() } else { suite };
            let (conclusion, summary) =
                suite.execute(&without_output(), without_assets(false, vec![Target::Embedded]));
            assert_eq!((conclusion.num_passed, conclusion.num_failed), (2, 0));
            assert!(summary.contains("ran 2 on embedded (a cluster each"), "{summary}");
        }
    }

    #[test]
    fn paused_case_that_waits_forever_fails_immediately() {
        let suite = Suite::new("example")
            .paused()
            .case("waits", |_| std::future::pending())
            .case("panics", |_| async { panic!("as it should") });
        let (conclusion, _) = suite.execute(&without_output(), without_assets(false, vec![Target::Embedded]));
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (0, 2));
    }

    #[test]
    fn suite_with_nodes_has_nodes() {
        let suite = Suite::new("example")
            .paused()
            .nodes(2)
            .case("nodes", |ctx| async move {
                let nodes = ctx.cluster().nodes().expect("it is embedded and has controllers");
                assert_eq!(nodes.names().len(), 2);
                Api::<Namespace>::all(ctx.client()).get(ctx.namespace()).await?;
                Ok(())
            });
        let (conclusion, _) = suite.execute(&without_output(), without_assets(false, vec![Target::Embedded]));
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (1, 0));
    }
}
