//! Shutdown by SIGTERM and SIGINT during a reconcile.

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

/// Set in the child process that gets the signals: the path of its kubeconfig.
const CHILD_KUBECONFIG_ENV: &str = "WINDLASS_TEST_CHILD_KUBECONFIG";

/// Much longer than any step takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// The exit code when the manager failed; a second signal exits with 1.
const MANAGER_FAILED: i32 = 3;

/// Runs the child process: its reconcile prints when it runs and when it has finished, or never finishes.
async fn run_child(kubeconfig: String, finishes: bool) -> ! {
    let mut options = Options::default();
    options.connection.kubeconfig = Some(kubeconfig.into());
    options.no_listen = true;
    let reconcile = move |_: Request, ctx: Context| async move {
        println!("running");
        if !finishes {
            // It never awaits, so it cannot be cancelled.
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
    let manager = options
        .manager("signals")
        .await
        .expect("the cluster is reachable");
    let controller = Controller::<ConfigMap>::new("signals").reconcile(reconcile);
    let ended = Box::pin(manager.controller(controller).run()).await;
    std::process::exit(ended.map_or(MANAGER_FAILED, |()| 0));
}

/// A cluster with one object, and the child process that reconciles it.
struct ChildProcess {
    _cluster: Cluster,
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
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
            .env(CHILD_KUBECONFIG_ENV, kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut child = Self {
            _cluster: cluster,
            process,
            output,
        };
        child.wait_for_line("running").await;
        child
    }

    /// Waits for an output line with this suffix; the test harness may have printed the start of the line.
    async fn wait_for_line(&mut self, line: &str) {
        let found = async {
            while let Some(printed) = self.output.next_line().await.expect("text") {
                if printed.ends_with(line) {
                    return;
                }
            }
            panic!("the process ended without printing `{line}`");
        };
        timeout(DEADLINE, found)
            .await
            .unwrap_or_else(|_| panic!("the process did not print `{line}`"));
    }

    async fn signal(&self, signal: &str) {
        let process = self.process.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", signal, &process]).status().await;
        assert!(sent.expect("`kill` runs").success());
    }

    async fn wait_for_exit(mut self) -> ExitStatus {
        let ended = timeout(DEADLINE, self.process.wait()).await;
        ended.expect("it ends").expect("a child process")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_lets_running_reconciles_finish() {
    if let Ok(kubeconfig) = std::env::var(CHILD_KUBECONFIG_ENV) {
        run_child(kubeconfig, true).await;
    }
    for signal in ["TERM", "INT"] {
        let mut child = ChildProcess::new("signal_lets_running_reconciles_finish").await;
        child.signal(signal).await;
        child.wait_for_line("stopping").await;
        child.wait_for_line("finished").await;
        assert_eq!(child.wait_for_exit().await.code(), Some(0), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn second_signal_exits_immediately() {
    if let Ok(kubeconfig) = std::env::var(CHILD_KUBECONFIG_ENV) {
        run_child(kubeconfig, false).await;
    }
    let mut child = ChildProcess::new("second_signal_exits_immediately").await;
    child.signal("TERM").await;
    let early = timeout(Duration::from_millis(300), child.process.wait()).await;
    assert!(early.is_err(), "the reconcile has its grace period");
    child.signal("INT").await;
    assert_eq!(child.wait_for_exit().await.code(), Some(1));
}
