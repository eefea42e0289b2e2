//! A suite: cases times backends, run as tests.

use std::{process::ExitCode, sync::Arc};

use futures::{FutureExt, future::LocalBoxFuture};
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    Context, Target,
    settings::{Availability, Settings},
    shared::Shared,
};

/// Named cases, to be run on every backend that is selected and available.
#[must_use = "a suite does nothing before `run`"]
pub struct Suite {
    name: &'static str,
    controllers: bool,
    nodes: usize,
    paused: bool,
    apart: bool,
    missing: Option<String>,
    cases: Vec<Case>,
}

struct Case {
    name: &'static str,
    body: Body,
}

type Outcome = LocalBoxFuture<'static, anyhow::Result<()>>;

#[derive(Clone)]
enum Body {
    Everywhere(Arc<dyn Fn(Context) -> Outcome + Send + Sync>),
    Alone(Target, Arc<dyn Fn() -> Outcome + Send + Sync>),
}

impl Suite {
    /// A suite without cases. The name is a part of its namespaces' names.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            controllers: false,
            nodes: 0,
            paused: false,
            apart: false,
            missing: None,
            cases: Vec::new(),
        }
    }

    /// The cases need the built-in controllers (garbage collection, namespaces, Deployments, …). Default: only the API.
    pub fn controllers(mut self) -> Self {
        self.controllers = true;
        self
    }

    /// An embedded cluster also has so many simulated nodes, with which pods run. Implies [`controllers`](Self::controllers).
    /// On other clusters nobody runs pods but those who do it there: a case asks `ctx.cluster().nodes()`. Default: none.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self.controllers()
    }

    /// On the embedded backend each case has a cluster and a paused clock of its own, on one thread: whoever waits waits no
    /// longer than it takes the others to do what they can, and a backoff of minutes is over at once, and exact. Other
    /// backends are as without it. Default: one cluster for all cases, and the clock on the wall.
    ///
    /// What waits for another process must say so, since time flies meanwhile: see [`Context::kubectl`].
    pub fn paused(mut self) -> Self {
        self.paused = true;
        self
    }

    /// On every backend each case has a cluster of its own, and so has each [`Context::anew`]: for controllers that look at a
    /// whole cluster, which would get in each other's way. A real one takes seconds to start; on an existing one such cases
    /// are ignored. Default: cases share a cluster.
    pub fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    /// Something on this machine that every case needs, such as a program. Where it is an error, the cases are ignored
    /// with it as the reason; where `WINDLASS_REQUIRE_REAL` is set they run, and it is theirs to fail.
    pub fn needs<T, E: std::fmt::Display>(mut self, thing: Result<T, E>) -> Self {
        self.missing = self.missing.or(thing.err().map(|error| error.to_string()));
        self
    }

    /// Adds a case that holds on every backend.
    pub fn case<F, R>(mut self, name: &'static str, case: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<()>> + 'static,
    {
        let body = Body::Everywhere(Arc::new(move |context| case(context).boxed_local()));
        self.cases.push(Case { name, body });
        self
    }

    /// Adds a case about `target` itself. It runs when that backend is selected and available, and starts what it
    /// needs.
    pub fn alone<F, R>(mut self, target: Target, name: &'static str, case: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<()>> + 'static,
    {
        let body = Body::Alone(target, Arc::new(move || case().boxed_local()));
        self.cases.push(Case { name, body });
        self
    }

    /// Runs the suite as the environment and the command line ask for. For the end of `main`.
    pub fn run(self) -> ExitCode {
        let args = Arguments::from_args();
        let settings = match Settings::from_env() {
            Ok(settings) => settings,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let (conclusion, summary) = self.execute(&args, settings);
        if !args.list {
            println!("{summary}\n");
        }
        conclusion.exit_code()
    }

    fn execute(self, args: &Arguments, mut settings: Settings) -> (Conclusion, String) {
        if self.controllers {
            settings.embedded = settings.embedded.controllers();
            settings.real = settings.real.controllers();
        }
        if self.nodes > 0 {
            settings.embedded = settings.embedded.nodes(self.nodes);
        }
        let runtime = Runtime::new().expect("the operating system gives us threads and a poller");
        let concerned = settings
            .targets
            .iter()
            .filter(|target| self.cases.iter().any(|case| case.belongs_on(**target)));
        let backends: Vec<_> = concerned
            .map(|target| Arc::new(Shared::new(*target, &settings, self.missing.as_ref(), self.apart)))
            .collect();
        let mut trials = Vec::new();
        for backend in &backends {
            let clock = match backend.target {
                Target::Embedded if self.paused => Clock::Paused,
                _ => Clock::OnTheWall(runtime.handle().clone()),
            };
            for case in &self.cases {
                trials.extend(trial(self.name, case, backend, &clock));
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

impl Case {
    fn belongs_on(&self, target: Target) -> bool {
        match self.body {
            Body::Everywhere(_) => true,
            Body::Alone(only, _) => only == target,
        }
    }
}

/// Which time a case lives in.
#[derive(Clone)]
enum Clock {
    /// Everybody's, on the runtime that the shared cluster lives on.
    OnTheWall(Handle),
    /// Its own, which stands still while anybody has something to do.
    Paused,
}

/// One case on one backend, if it belongs there.
fn trial(suite: &'static str, case: &Case, backend: &Arc<Shared>, clock: &Clock) -> Option<Trial> {
    if !case.belongs_on(backend.target) {
        return None;
    }
    let name = format!("{}::{}", backend.target, case.name);
    match &backend.availability {
        Availability::Missing(reason) => {
            let reason = reason.clone();
            Some(Trial::ignorable_test(name, move || {
                Ok(Completion::ignored_with(reason))
            }))
        }
        Availability::Ready => {
            let (body, backend, clock) = (case.body.clone(), backend.clone(), clock.clone());
            Some(Trial::test(name, move || {
                let outcome = match (body, clock) {
                    (Body::Everywhere(case), Clock::OnTheWall(runtime)) => {
                        runtime.block_on(backend.run(suite, |context| case(context)))
                    }
                    (Body::Everywhere(case), Clock::Paused) => {
                        paused().block_on(backend.run_paused(suite, |context| case(context)))
                    }
                    (Body::Alone(_, case), Clock::OnTheWall(runtime)) => {
                        runtime.block_on(async { backend.run_alone(case()).await })
                    }
                    (Body::Alone(_, case), Clock::Paused) => {
                        paused().block_on(async { backend.run_alone(case()).await })
                    }
                };
                outcome.map_err(|error| Failed::from(format!("{error:?}")))
            }))
        }
    }
}

fn paused() -> Runtime {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("the operating system gives us a poller")
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
            .alone(Target::Real, "alone", || async { Ok(()) })
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

    /// What the inner run prints would look like results of this one.
    fn silent() -> Arguments {
        Arguments {
            logfile: Some("/dev/null".to_owned()),
            ..Arguments::default()
        }
    }

    #[test]
    fn without_a_control_plane_real_cases_are_ignored_and_the_summary_says_why() {
        let (conclusion, summary) = suite().execute(&silent(), without_assets(false, vec![Target::Real]));
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
    fn cases_that_need_what_is_missing_are_ignored_unless_the_real_thing_is_required() {
        let lame = || suite().needs(Err::<(), _>("no kubectl anywhere"));
        let (conclusion, summary) = lame().execute(&silent(), without_assets(false, vec![Target::Embedded]));
        assert_eq!((conclusion.num_ignored, conclusion.num_passed), (1, 0));
        assert!(
            summary.ends_with("on embedded (ignored: no kubectl anywhere)"),
            "{summary}"
        );
        let (conclusion, _) = lame().execute(&silent(), without_assets(true, vec![Target::Embedded]));
        assert_eq!((conclusion.num_ignored, conclusion.num_passed), (0, 1));
    }

    #[test]
    fn a_required_control_plane_that_is_missing_fails_the_cases() {
        let (conclusion, summary) = suite().execute(&silent(), without_assets(true, vec![Target::Real]));
        assert_eq!((conclusion.num_ignored, conclusion.num_failed), (0, 1));
        assert!(summary.ends_with("on real (did not start)"), "{summary}");
    }

    #[test]
    fn an_existing_cluster_was_asked_for_so_its_absence_is_a_failure() {
        let (conclusion, _) = suite().execute(&silent(), without_assets(false, vec![Target::Existing]));
        assert_eq!((conclusion.num_ignored, conclusion.num_failed), (0, 1));
    }

    #[test]
    fn the_embedded_backend_needs_nothing_and_is_counted() {
        let (conclusion, summary) = suite().execute(&silent(), without_assets(false, vec![Target::Embedded]));
        assert_eq!(
            (
                conclusion.num_passed,
                conclusion.num_failed,
                conclusion.num_ignored
            ),
            (1, 0, 0)
        );
        assert!(
            summary.starts_with("suite example: ran 1 on embedded (in this process, speaking v"),
            "{summary}"
        );
    }

    #[test]
    fn a_case_that_panics_fails_and_is_counted() {
        let suite = Suite::new("example")
            .alone(Target::Existing, "passes", || async { Ok(()) })
            .alone(Target::Existing, "fails", || async {
                anyhow::bail!("as it should")
            })
            .alone(Target::Existing, "panics", || async { panic!("as it should") });
        let (conclusion, summary) = suite.execute(&silent(), without_assets(false, vec![Target::Existing]));
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (1, 2));
        assert_eq!(
            summary,
            "suite example: ran 3 on existing (no shared cluster needed)"
        );
    }

    #[test]
    fn a_paused_case_has_a_clock_and_a_cluster_of_its_own() {
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
        let (conclusion, summary) = suite.execute(&silent(), without_assets(false, vec![Target::Embedded]));
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (2, 0));
        assert!(began.elapsed() < Duration::from_mins(1));
        assert!(
            summary
                .starts_with("suite example: ran 2 on embedded (a cluster each, in this process, speaking v"),
            "{summary}"
        );
    }

    #[test]
    fn cases_that_are_apart_share_nothing_and_neither_do_their_runs() {
        let alone = |ctx: Context| async move {
            let runs = [ctx.anew().await?, ctx.anew().await?, ctx];
            for run in runs {
                let named: Namespace = serde_json::from_value(json!({ "metadata": { "name": "the-same" } }))?;
                Api::all(run.client())
                    .create(&PostParams::default(), &named)
                    .await?;
                let within = run.within("the-same");
                assert_eq!(within.namespace(), "the-same");
                let own = Api::<Namespace>::all(run.client()).get(run.namespace()).await?;
                assert_eq!(Some(within.owner().uid), own.metadata.uid);
            }
            anyhow::Ok(())
        };
        for paused in [true, false] {
            let suite = Suite::new("example")
                .apart()
                .case("one", alone)
                .case("other", alone);
            let suite = if paused { suite.paused() } else { suite };
            let (conclusion, summary) =
                suite.execute(&silent(), without_assets(false, vec![Target::Embedded]));
            assert_eq!((conclusion.num_passed, conclusion.num_failed), (2, 0));
            assert!(summary.contains("ran 2 on embedded (a cluster each"), "{summary}");
        }
    }

    #[test]
    fn a_paused_case_that_waits_for_what_never_comes_fails_at_once() {
        let suite = Suite::new("example")
            .paused()
            .case("waits", |_| std::future::pending())
            .case("panics", |_| async { panic!("as it should") });
        let (conclusion, _) = suite.execute(&silent(), without_assets(false, vec![Target::Embedded]));
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (0, 2));
    }

    #[test]
    fn a_suite_may_ask_for_nodes() {
        let suite = Suite::new("example")
            .paused()
            .nodes(2)
            .case("nodes", |ctx| async move {
                let nodes = ctx.cluster().nodes().expect("it is embedded and has controllers");
                assert_eq!(nodes.names().len(), 2);
                Api::<Namespace>::all(ctx.client()).get(ctx.namespace()).await?;
                Ok(())
            });
        let (conclusion, _) = suite.execute(&silent(), without_assets(false, vec![Target::Embedded]));
        assert_eq!((conclusion.num_passed, conclusion.num_failed), (1, 0));
    }
}
