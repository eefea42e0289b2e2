//! The program as a stranger meets it: what it says of itself, what it says when something is wrong, and how it stops.

use std::{net::TcpListener, process::Stdio};

use tokio::{process::Command, time::timeout};
use windlass::{
    cache::{Cache, Selection},
    k8s_openapi::api::apps::v1::Deployment,
    kube::{Api, api::PostParams},
    prelude::*,
    runtime::{Install, Writer},
};
use windlass_cluster::Cluster;
use windlass_foo::{Foo, FooSpec};
use windlass_suite::{DEADLINE, output, program};

fn foo(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_foo"), arguments)
}

#[tokio::test]
async fn its_help_tells_every_flag_and_its_default() {
    let (code, help, _) = output(foo(&["--help"])).await;
    assert_eq!(code, Some(0));
    for said in [
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
        assert!(help.contains(said), "`{said}` in:\n{help}");
    }
    assert!(!help.contains("windlass_runtime"), "for people:\n{help}");
}

#[tokio::test]
async fn a_flag_that_does_not_exist_is_named_and_the_right_one_suggested() {
    let (code, _, error) = output(foo(&["--kubeconfg", "a"])).await;
    assert_eq!(code, Some(2));
    assert!(
        error.contains("--kubeconfg") && error.contains("--kubeconfig"),
        "{error}"
    );
}

#[tokio::test]
async fn without_a_cluster_one_line_says_where_it_looked_and_what_to_do() {
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
async fn a_port_that_is_taken_is_told_with_the_flag_that_chooses_another() {
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

/// From nothing: `--install` brings the CRD, a Foo gets its Deployment, and SIGTERM ends it well.
#[tokio::test(flavor = "multi_thread")]
async fn it_installs_itself_works_and_ends_well_when_it_is_told_to() {
    let cluster = Cluster::embedded().start().await.expect("a cluster");
    let kubeconfig = cluster.kubeconfig().expect("a file");
    let kubeconfig = kubeconfig.to_str().expect("text");
    let mut process = foo(&["--kubeconfig", kubeconfig, "--no-listen", "--install"])
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let waiting = Install::new([Foo::crd()])
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
    let mut deployments = Cache::<Deployment>::start(cluster.client(), &Selection::all()).subscribe();
    let made = timeout(DEADLINE, deployments.next()).await.expect("it works");
    assert_eq!(made.expect("a change").key().name(), "web");

    let id = process.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &id]).status().await;
    assert!(sent.expect("there is a `kill`").success());
    let ended = timeout(DEADLINE, process.wait()).await.expect("it ends");
    assert_eq!(ended.expect("it was ours").code(), Some(0));
}
