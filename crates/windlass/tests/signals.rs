//! What SIGTERM and SIGINT do to a process that is in the middle of its work.

use std::{
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use windlass::{
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{Api, api::PostParams},
    prelude::*,
};
use windlass_cluster::Cluster;

/// Set in the process that gets the signals: the file with its cluster.
const WITHIN: &str = "WINDLASS_TEST_OF_SIGNALS";

/// No step takes nearly so long unless it never comes.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the process ends with when its manager failed; the second signal ends it with 1.
const FAILED: i32 = 3;

/// The process: its reconcile says when it runs and when it has finished, or never does.
async fn work(kubeconfig: String, finishes: bool) -> ! {
    let mut options = Options::default();
    options.connection.kubeconfig = Some(kubeconfig.into());
    options.no_listen = true;
    let reconcile = move |_: Request, ctx: Context| async move {
        println!("running");
        if !finishes {
            // One that does not even wait: nothing can drop it.
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        ctx.stopping().await;
        println!("stopping");
        tokio::time::sleep(Duration::from_millis(100)).await;
        println!("finished");
        Ok(Action::done())
    };
    let manager = options.manager("signals").await.expect("the cluster is there");
    let controller = Controller::<ConfigMap>::new("signals").reconcile(reconcile);
    let ended = Box::pin(manager.controller(controller).run()).await;
    std::process::exit(ended.map_or(FAILED, |()| 0));
}

/// A cluster with one object, and the process that works on it.
struct Scene {
    _cluster: Cluster,
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Scene {
    async fn new(test: &str) -> Self {
        let cluster = Cluster::embedded().start().await.expect("a cluster");
        let config: ConfigMap = from_value(json!({ "metadata": { "name": "one" } })).expect("a config map");
        Api::default_namespaced(cluster.client())
            .create(&PostParams::default(), &config)
            .await
            .expect("created");
        let kubeconfig = cluster.kubeconfig().expect("a file");
        let mut process = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", test, "--nocapture"])
            .env(WITHIN, kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut scene = Self {
            _cluster: cluster,
            process,
            output,
        };
        scene.says("running").await;
        scene
    }

    /// Waits for a line that ends so; the test harness may have begun it.
    async fn says(&mut self, line: &str) {
        let said = async {
            while let Some(said) = self.output.next_line().await.expect("text") {
                if said.ends_with(line) {
                    return;
                }
            }
            panic!("the process ended and did not say `{line}`");
        };
        timeout(DEADLINE, said)
            .await
            .unwrap_or_else(|_| panic!("it does not say `{line}`"));
    }

    async fn signal(&self, signal: &str) {
        let process = self.process.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", signal, &process]).status().await;
        assert!(sent.expect("there is a `kill`").success());
    }

    async fn ends(mut self) -> ExitStatus {
        let ended = timeout(DEADLINE, self.process.wait()).await;
        ended.expect("it ends").expect("it was ours")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_lets_what_runs_finish() {
    if let Ok(kubeconfig) = std::env::var(WITHIN) {
        work(kubeconfig, true).await;
    }
    for signal in ["TERM", "INT"] {
        let mut scene = Scene::new("a_signal_lets_what_runs_finish").await;
        scene.signal(signal).await;
        scene.says("stopping").await;
        scene.says("finished").await;
        assert_eq!(scene.ends().await.code(), Some(0), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once_what_does_not_finish() {
    if let Ok(kubeconfig) = std::env::var(WITHIN) {
        work(kubeconfig, false).await;
    }
    let mut scene = Scene::new("a_second_signal_ends_at_once_what_does_not_finish").await;
    scene.signal("TERM").await;
    let early = timeout(Duration::from_millis(300), scene.process.wait()).await;
    assert!(early.is_err(), "the reconcile has its grace period");
    scene.signal("INT").await;
    assert_eq!(scene.ends().await.code(), Some(1));
}
