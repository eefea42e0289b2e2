//! The program from the outside: its help, its errors, and how it stops.

use std::{net::TcpListener, process::Stdio};

use tokio::{process::Command, time::timeout};
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::apps::v1::Deployment,
    kube::{Api, api::PostParams},
    prelude::*,
    runtime::{CrdInstaller, Writer},
};
use windlass_cluster::Cluster;
use windlass_foo::{Foo, FooSpec};
use windlass_suite::{STEP_TIMEOUT, output, program};

fn foo(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_foo"), arguments)
}

#[tokio::test]
async fn help_lists_every_flag_and_default() {
    let (code, help, _) = output(foo(&["--help"])).await;
    assert_eq!(code, Some(0));
    for expected in [
        "Usage: foo [OPTIONS]",
        "--kubeconfig <",
        "--context <",
        "--namespace <NAME>",
        "--install",
        "--listen <ADDRESS>",
        "[default: 127.0.0.1:8080]",
        "--leader-elect",
        "--log-format <",
    ] {
        assert!(help.contains(expected), "`{expected}` in:\n{help}");
    }
    assert!(!help.contains("windlass_runtime"), "no Rust paths:\n{help}");
}

#[tokio::test]
async fn unknown_flag_is_rejected_with_suggestion() {
    let (code, _, error) = output(foo(&["--kubeconfg", "a"])).await;
    assert_eq!(code, Some(2));
    assert!(
        error.contains("--kubeconfg") && error.contains("--kubeconfig"),
        "{error}"
    );
}

#[tokio::test]
async fn missing_cluster_is_reported_in_one_line() {
    for arguments in [&[][..], &["--kubeconfig", "/nonexistent/config"]] {
        let (code, _, error) = output(foo(arguments)).await;
        assert_eq!(code, Some(1), "{error}");
        let last = error.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("foo: ") && last.contains("kubeconfig"),
            "{error}"
        );
        assert!(!error.contains("panicked"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn port_in_use_is_reported_with_the_flag() {
    let cluster = Cluster::embedded().start().await.expect("a cluster");
    let kubeconfig = cluster.kubeconfig().expect("a file");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let kubeconfig = kubeconfig.to_str().expect("text");
    let (code, _, error) = output(foo(&["--kubeconfig", kubeconfig, "--listen", &address])).await;
    assert_eq!(code, Some(1));
    let last = error.lines().last().unwrap_or_default();
    assert!(last.starts_with("foo: cannot listen on"), "{error}");
    assert!(last.contains(&address) && last.contains("`--listen`"), "{error}");
}

/// `--install` installs the CRD, a Foo gets its Deployment, and SIGTERM stops the process with code 0.
#[tokio::test(flavor = "multi_thread")]
async fn program_installs_crd_reconciles_and_stops_on_sigterm() {
    let cluster = Cluster::embedded().start().await.expect("a cluster");
    let kubeconfig = cluster.kubeconfig().expect("a file");
    let kubeconfig = kubeconfig.to_str().expect("text");
    let mut process = foo(&["--kubeconfig", kubeconfig, "--no-listen", "--install"])
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let waiting = CrdInstaller::new([Foo::crd()])
        .run(&Writer::new(cluster.client(), "test"))
        .await;
    waiting.expect("it is installed");
    let spec = FooSpec {
        deployment_name: "web".to_owned(),
        replicas: Some(2),
    };
    Api::default_namespaced(cluster.client())
        .create(&PostParams::default(), &Foo::new("example", spec))
        .await
        .expect("created");
    let mut deployments = Cache::<Deployment>::start(cluster.client(), &WatchScope::all()).subscribe();
    let made = timeout(STEP_TIMEOUT, deployments.next()).await.expect("it works");
    assert_eq!(made.expect("a change").key().name(), "web");

    let id = process.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &id]).status().await;
    assert!(sent.expect("there is a `kill`").success());
    let ended = timeout(STEP_TIMEOUT, process.wait()).await.expect("it ends");
    assert_eq!(ended.expect("it was ours").code(), Some(0));
}
