//! The program from the outside: its help, its output and its errors.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret},
    kube::{
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_cluster::Cluster;
use windlass_suite::{STEP_TIMEOUT, output, program};

fn podwatch(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_podwatch"), arguments)
}

struct Fixture {
    cluster: Cluster,
    kubeconfig: String,
}

impl Fixture {
    async fn new() -> Self {
        let cluster = Cluster::embedded().start().await.expect("a cluster");
        let kubeconfig = cluster
            .kubeconfig()
            .expect("a file")
            .to_str()
            .expect("text")
            .to_owned();
        Self { cluster, kubeconfig }
    }

    /// Starts the program, and returns its output.
    fn start(&self, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = self
            .command(arguments)
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("it is piped");
        (child, BufReader::new(stdout).lines())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = podwatch(&["--kubeconfig", &self.kubeconfig, "--no-listen"]);
        command.args(arguments);
        command
    }

    async fn create<K>(&self, namespace: &str, object: serde_json::Value)
    where
        K: Resource<DynamicType = (), Scope = windlass::k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + windlass::serde::Serialize
            + windlass::serde::de::DeserializeOwned,
    {
        let api = Api::<K>::namespaced(self.cluster.client(), namespace);
        let object = from_value(object).expect("an object");
        api.create(&PostParams::default(), &object)
            .await
            .expect("created");
    }
}

fn pod(name: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "main", "image": "main" }] } })
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = timeout(STEP_TIMEOUT, lines.next_line()).await.expect("a line");
    line.expect("text").expect("it still prints")
}

async fn stop(mut child: Child) {
    let id = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &id]).status().await;
    assert!(sent.expect("there is a `kill`").success());
    let ended = timeout(STEP_TIMEOUT, child.wait()).await.expect("it ends");
    assert_eq!(ended.expect("it was ours").code(), Some(0));
}

/// In the words of client-go's example.
#[tokio::test(flavor = "multi_thread")]
async fn without_flags_podwatch_prints_pods_of_default() {
    let fixture = Fixture::new().await;
    let namespace: Namespace = from_value(json!({ "metadata": { "name": "other" } })).expect("a namespace");
    let namespaces = Api::<Namespace>::all(fixture.cluster.client());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .expect("created");
    fixture.create::<Pod>("other", pod("elsewhere")).await;
    let (child, mut lines) = fixture.start(&["--known", "default/mypod"]);
    assert_eq!(next(&mut lines).await, "Pod default/mypod does not exist anymore");
    fixture.create::<Pod>("default", pod("web")).await;
    assert_eq!(next(&mut lines).await, "Sync/Add/Update for Pod web");
    let pods = Api::<Pod>::default_namespaced(fixture.cluster.client());
    pods.delete("web", &DeleteParams::background())
        .await
        .expect("deleted");
    let mut line = next(&mut lines).await;
    while line == "Sync/Add/Update for Pod web" {
        line = next(&mut lines).await;
    }
    assert_eq!(line, "Pod default/web does not exist anymore");
    stop(child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_flag_selects_the_watched_namespace() {
    let fixture = Fixture::new().await;
    fixture.create::<Pod>("default", pod("elsewhere")).await;
    fixture.create::<Pod>("kube-system", pod("web")).await;
    let (child, mut lines) = fixture.start(&["--namespace", "kube-system"]);
    assert_eq!(next(&mut lines).await, "Sync/Add/Update for Pod web");
    stop(child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_flag_shows_changed_fields() {
    let fixture = Fixture::new().await;
    let config = json!({ "metadata": { "name": "a", "labels": { "shown": "" } }, "data": { "text": "1" } });
    fixture.create::<ConfigMap>("default", config).await;
    let (child, mut lines) = fixture.start(&["--kind", "cm", "--selector", "shown", "--diff"]);
    let synced = next(&mut lines).await;
    assert!(
        synced.contains(" synced ") && synced.ends_with(" ConfigMap default/a"),
        "{synced}"
    );
    let configs = Api::<ConfigMap>::default_namespaced(fixture.cluster.client());
    let patch = Patch::Merge(json!({ "data": { "text": "2" } }));
    configs
        .patch("a", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    let updated = next(&mut lines).await;
    assert!(updated.ends_with(" data.text: \"1\" → \"2\""), "{updated}");
    stop(child).await;
}

/// Neither on standard output nor on standard error at trace level.
#[tokio::test(flavor = "multi_thread")]
async fn secret_values_are_not_printed_or_logged() {
    const CANARY: &str = "YzRuNHJ5";
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lines");
    let sink = format!("file:{}", file.display());
    let all = [
        "--kind",
        "secrets",
        "--sink",
        "stdout:json",
        "--sink",
        &sink,
        "--diff",
        "--log-level",
        "trace",
    ];
    let mut child = fixture.command(&all).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let secret = |value: &str| json!({ "metadata": { "name": "s" }, "data": { "password": value } });
    fixture.create::<Secret>("default", secret(CANARY)).await;
    let secrets = Api::<Secret>::default_namespaced(fixture.cluster.client());
    let mut printed = next(&mut lines).await;
    let patch = Patch::Merge(secret(&format!("{CANARY}{CANARY}")));
    secrets
        .patch("s", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    printed.push_str(&next(&mut lines).await);
    secrets
        .delete("s", &DeleteParams::background())
        .await
        .expect("deleted");
    printed.push_str(&next(&mut lines).await);
    let id = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &id]).status().await;
    assert!(sent.expect("there is a `kill`").success());
    let ended = timeout(STEP_TIMEOUT, child.wait_with_output())
        .await
        .expect("it ends");
    let logged = String::from_utf8_lossy(&ended.expect("it was ours").stderr).into_owned();
    let filed = std::fs::read_to_string(&file).expect("it was written");
    for (text, must) in [
        (&printed, "data.password"),
        (&filed, "(redacted)"),
        (&logged, "TRACE"),
    ] {
        assert!(text.contains(must), "no `{must}`: {text}");
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[tokio::test]
async fn help_lists_every_flag_and_examples() {
    let (code, help, _) = output(podwatch(&["--help"])).await;
    assert_eq!(code, Some(0));
    for expected in [
        "Watches pods or any other kind",
        "Usage: podwatch [OPTIONS]",
        "--kind <KIND>",
        "--namespace <NAME>",
        "--selector <LABELS>",
        "--field-selector <FIELDS>",
        "--filter <CEL>",
        "--events <EVENT>",
        "--diff",
        "--sink <SINK>",
        "webhook:URL",
        "--state <FILE>",
        "--workers <N>",
        "[default: 1]",
        "--known <KEY>",
        "Examples:",
        "podwatch --kind",
        "--leader-elect",
    ] {
        assert!(help.contains(expected), "`{expected}` in:\n{help}");
    }
    assert!(!help.contains("windlass_"), "no Rust paths:\n{help}");
}

#[tokio::test]
async fn invalid_flags_are_rejected_at_startup() {
    for (arguments, expected) in [
        (
            &["--filter", "object.spec.replicas >"][..],
            "object.spec.replicas >\n",
        ),
        (&["--filter", "objekt == 1"], "unknown variable `objekt`"),
        (&["--kind", "pods/status"], "write it as in `pods`"),
        (
            &["--events", "gone"],
            "possible values: synced, added, updated, deleted",
        ),
        (&["--sink", "webhook"], "webhook"),
        (
            &["--sink", "webhook:http://h/,token-file=/t"],
            "use an https:// URL, or add `insecure-token=allow`",
        ),
    ] {
        let (code, _, error) = output(podwatch(arguments)).await;
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_kind_or_rejected_selector_is_reported_in_one_line() {
    let fixture = Fixture::new().await;
    for (flags, expected) in [
        (
            ["--kind", "podz"],
            "podwatch: the server has no kind `podz` that can be watched: did you mean `pods.v1`?",
        ),
        (
            ["--selector", "a=b=c"],
            "podwatch: the server rejects the selector for pods: ",
        ),
        (
            ["--field-selector", "spec.nonsense=1"],
            "podwatch: the server rejects the selector for pods: ",
        ),
    ] {
        let mut all = vec!["--kubeconfig", &fixture.kubeconfig, "--no-listen"];
        all.extend(flags);
        let (code, _, error) = output(podwatch(&all)).await;
        assert_eq!(code, Some(1), "{error}");
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with(expected), "{error}");
    }
}
