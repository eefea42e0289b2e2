//! `windlass demo`: its output, its exit code and its cleanup.

mod process;

use std::{
    io::{BufRead, BufReader},
    process::Output,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use process::{Running, client, windlass};
use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{Api, api::ListParams},
};

/// Serializes the tests: each runs a whole cluster under a time limit.
static SERIAL: Mutex<()> = Mutex::new(());

fn serialize() -> MutexGuard<'static, ()> {
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn demo_checks_all_claims_and_exits() {
    let _turn = serialize();
    let started = Instant::now();
    let Output {
        status,
        stdout,
        stderr,
    } = windlass(&["demo", "--plain"]).output().expect("it runs");
    let took = started.elapsed();
    let (shown, errors) = (text(&stdout), text(&stderr));
    assert!(status.success(), "{shown}{errors}");
    assert!(took < Duration::from_secs(75), "it took {took:?}");
    assert_eq!(errors, "", "no errors are logged");
    assert!(shown.is_ascii(), "{shown}");
    for event in [
        "do   create Foo demo/example-foo",
        "do   delete the Deployment by hand",
        "ok   the drift was repaired",
        "sample-controller: Synced Foo demo/example-foo",
        "do   reboot node-",
        "ok   the foreign Secret",
        "do   annotate every node with reboot.windlass.dev/reboot-needed",
        "windlass-reboot: RebootCompleted Node node-",
        "ok   all ten nodes have rebooted, each exactly once by its boot ID",
        "podwatch: Sync/Add/Update for Pod example-foo-",
        "nicole-controller: Synced Icecream demo/sundae",
    ] {
        assert!(shown.contains(event), "`{event}` in:\n{shown}");
    }
    assert!(!shown.contains("  NO  "), "{shown}");
    // The summary counts the claims that were shown.
    let held = shown.lines().filter(|line| line.contains(" ms  ok   ")).count();
    let summary = format!("{held} of {held} claims held, each checked against the API.");
    assert_eq!(shown.lines().last(), Some(&*summary), "{shown}");
    assert!(held >= 20, "{shown}");
}

/// Without `--plain`, since a pipe is not a terminal.
#[test]
fn claims_fail_after_the_timeout() {
    let _turn = serialize();
    let Output { status, stdout, .. } = windlass(&["demo", "--pace", "calm", "--timeout", "1"])
        .output()
        .expect("it runs");
    let shown = text(&stdout);
    assert_eq!(status.code(), Some(1), "{shown}");
    assert!(shown.contains("ok   ten nodes are ready"), "{shown}");
    assert!(shown.contains("claims did not hold:"), "{shown}");
    assert!(shown.contains("  NOT CHECKED  nothing is left"), "{shown}");
}

#[test]
fn kept_cluster_is_served_until_interrupted() {
    let _turn = serialize();
    let mut running = Running::start(windlass(&["demo", "--plain", "--keep", "--timeout", "300"]));
    let kubeconfig = running.kubeconfig();
    let nodes = async {
        let nodes = Api::<Node>::all(client(&kubeconfig).await);
        nodes.list(&ListParams::default()).await
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let nodes = runtime.block_on(nodes).expect("a list");
    assert_eq!(nodes.items.len(), 10);
    assert_eq!(running.interrupt().code(), Some(0));
    assert!(!kubeconfig.exists(), "{} still exists", kubeconfig.display());
}

#[test]
fn interrupted_demo_lists_unchecked_claims() {
    let _turn = serialize();
    let mut running = Running::start(windlass(&["demo", "--pace", "calm"]));
    let mut lines = BufReader::new(running.stdout())
        .lines()
        .map(|line| line.expect("text"));
    let begun = lines.find(|line| line.contains("create Foo"));
    assert!(begun.is_some(), "the demo starts");
    assert_eq!(running.interrupt().code(), Some(130));
    let rest: Vec<_> = lines.collect();
    assert!(
        rest.iter().any(|line| line == "Stopped before the end."),
        "{rest:?}"
    );
    assert!(
        rest.iter().any(|line| line.starts_with("  NOT CHECKED  ")),
        "{rest:?}"
    );
}
