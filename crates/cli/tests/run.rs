//! `windlass run`: its help, its errors, its clusters and its shutdown.

use crate::process;

use std::{net::TcpListener, path::Path, process::Output, time::Duration};

use process::{Running, client, windlass};
use tokio::time::timeout;
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::{
        apps::v1::Deployment,
        core::v1::{Node, Pod},
    },
    kube::{
        Api,
        api::{ListParams, PostParams},
    },
    prelude::*,
    runtime::{CrdInstaller, Writer},
};
use windlass_cluster::Cluster;
use windlass_foo::{Foo, FooSpec};

/// Longer than any step takes, so that only a hang exceeds it.
const DEADLINE: Duration = Duration::from_mins(1);

/// The exit code, standard output and standard error without a cluster in reach.
fn run_without_cluster(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = windlass(&[&["run"], arguments].concat());
    let output = command.env_clear().env("HOME", "/nonexistent").output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn kubeconfig_error_is_printed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    for (content, cause) in [
        (None, "No such file or directory"),
        (Some("bad"), "failed to parse kubeconfig"),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).expect("a file");
        }
        let path = file.to_str().expect("text");
        let (code, _, error) = run_without_cluster(&["foo", "--no-listen", "--kubeconfig", path]);
        assert_eq!(code, Some(1));
        assert_eq!(error.matches(cause).count(), 1, "{error}");
        assert!(
            error.starts_with(&format!("windlass: cannot use kubeconfig {path}: ")),
            "{error}"
        );
    }
}

#[test]
fn help_lists_controllers_and_flags_by_heading() {
    let (code, help, _) = run_without_cluster(&["--help"]);
    assert_eq!(code, Some(0));
    for part in [
        "Usage: windlass run [OPTIONS] [NAME]...",
        "- foo:",
        "- icecream:",
        "- podwatch:",
        "podwatch: what to report:",
        "- secretsync:",
        "secretsync: what to copy:",
        "--source-namespace <NAMESPACE>",
        "--kind <KIND>",
        "- reboot:",
        "- reboot-agent:",
        "--simulated-agents",
        "--reboot-with <HOW>",
        "Embedded cluster:",
        "--embedded",
        "--nodes <NODES>",
        "Cluster:",
        "--kubeconfig <FILE>",
        "--install",
        "Leader election:",
        "--leader-elect",
        "Serving:",
        "--listen <ADDRESS>",
        "[default: 127.0.0.1:8080]",
        "--debug-listen <ADDRESS>",
        "--allow-root",
    ] {
        assert!(help.contains(part), "`{part}` in:\n{help}");
    }
}

#[test]
fn invalid_command_line_is_rejected_with_hints() {
    for (arguments, hints) in [
        (&[][..], &["name the controllers", "foo", "sample controller"][..]),
        (&["--embedded"], &["name the controllers", "foo"]),
        (&["fo"], &["'fo'", "foo"]),
        (&["foo", "foo"], &["`foo` is named twice"]),
        (
            &["foo", "--diff"],
            &["--diff is for podwatch", "name podwatch too"],
        ),
        (
            &["podwatch", "--annotation", "a"],
            &["--annotation is for secretsync", "name secretsync too"],
        ),
        (
            &["foo", "--simulated-agents"],
            &["--simulated-agents is for reboot", "name reboot too"],
        ),
        (
            &["reboot-agent", "--simulated-agents"],
            &["--simulated-agents is for reboot", "name reboot too"],
        ),
        (
            &["reboot", "--trigger-file", "/a"],
            &["--trigger-file is for reboot-agent"],
        ),
        (&["podwatch", "--filter", "object.("], &["--filter"]),
        (
            &["podwatch", "--sink", "webhook:http://h/,token-file=/t"],
            &["https://", "insecure-token=allow"],
        ),
        (
            &["foo", "--debug-listen", "0.0.0.0:8081"],
            &["loopback addresses only", "kubectl port-forward"],
        ),
        (&["foo", "--allow-root"], &["--allow-root is for reboot-agent"]),
        (&["foo", "--nodes", "2"], &["--embedded"]),
        (
            &["foo", "--embedded", "--context", "a"],
            &["cannot be used with", "--context"],
        ),
        (&["foo", "--embedded", "--speed", "0"], &["greater than 0"]),
    ] {
        let (code, _, error) = run_without_cluster(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        for hint in hints {
            assert!(error.contains(hint), "{arguments:?}: `{hint}` in:\n{error}");
        }
    }
}

#[test]
fn missing_cluster_error_suggests_kubeconfig_and_embedded() {
    let (code, _, error) = run_without_cluster(&["foo"]);
    assert_eq!(code, Some(1), "{error}");
    let last = error.lines().last().unwrap_or_default();
    for hint in ["windlass: no cluster to talk to", "--kubeconfig", "--embedded"] {
        assert!(last.contains(hint), "`{hint}` in:\n{error}");
    }
    let (code, _, error) = run_without_cluster(&["foo", "--kubeconfig", "/nonexistent/config"]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("/nonexistent/config"), "{error}");
}

#[test]
fn invalid_log_level_is_rejected_at_startup() {
    for arguments in [
        &["foo", "--log-level", "a=loud"][..],
        &["foo", "--embedded", "--log-level", "a=loud"],
    ] {
        let (code, stdout, error) = run_without_cluster(arguments);
        assert_eq!((code, &*stdout), (Some(1), ""), "{error}");
        assert!(error.contains("`a=loud` in --log-level"), "{error}");
    }
}

#[test]
fn port_in_use_is_reported_with_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (code, _, error) = run_without_cluster(&["foo", "--embedded", "--nodes", "0", "--listen", &address]);
    assert_eq!(code, Some(1), "{error}");
    let last = error.lines().last().unwrap_or_default();
    assert!(last.contains(&address) && last.contains("--listen"), "{error}");
    // The log of the embedded cluster's own controllers is not shown.
    assert!(!error.contains("node-lifecycle-controller"), "{error}");
}

/// Creates a Foo, and waits for its Deployment.
async fn assert_foo_reconciles(client: Client) {
    let writer = Writer::new(client.clone(), "test");
    let installed = CrdInstaller::new([Foo::crd()]).run(&writer).await;
    installed.expect("it is installed");
    let spec = FooSpec {
        deployment_name: "web".to_owned(),
        replicas: Some(2),
    };
    let created = Api::default_namespaced(client.clone())
        .create(&PostParams::default(), &Foo::new("example", spec))
        .await;
    created.expect("created");
    let mut deployments = Cache::<Deployment>::start(client, &WatchScope::all()).subscribe();
    let made = timeout(DEADLINE, deployments.next()).await.expect("it works");
    assert_eq!(made.expect("a change").key().name(), "web");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_installs_crd_and_reconciles_on_kubeconfig_cluster() {
    let cluster = Cluster::embedded().start().await.expect("a cluster");
    let kubeconfig = cluster.kubeconfig().expect("a file");
    let kubeconfig = kubeconfig.to_str().expect("text");
    let arguments = [
        "run",
        "foo",
        "--install",
        "--no-listen",
        "--kubeconfig",
        kubeconfig,
    ];
    let running = Running::start(windlass(&arguments));
    assert_foo_reconciles(cluster.client()).await;
    assert_eq!(running.interrupt().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_cluster_runs_pods_and_stops_with_the_process() {
    let arguments = [
        "run",
        "foo",
        "icecream",
        "secretsync",
        "podwatch",
        "--kind=deployments",
        "--sink=file:/dev/null",
        "--embedded",
        "--nodes",
        "2",
        "--speed",
        "instant",
        "--no-listen",
    ];
    let mut running = Running::start(windlass(&arguments));
    let kubeconfig = running.kubeconfig();
    let client = client(&kubeconfig).await;
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await;
    assert_eq!(nodes.expect("a list").items.len(), 2);
    assert_foo_reconciles(client.clone()).await;
    let mut pods = Cache::<Pod>::start(client, &WatchScope::all()).subscribe();
    let pod = timeout(DEADLINE, pods.next()).await.expect("it lives");
    assert!(pod.expect("a change").key().name().starts_with("web-"));
    assert_eq!(running.interrupt().code(), Some(0));
    let folder = kubeconfig.parent().map(Path::to_owned).expect("a folder");
    assert!(!folder.exists(), "{} still exists", folder.display());
}
