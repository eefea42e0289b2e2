//! Runs each example on an embedded cluster, and compares what it prints.

use windlass_suite::{output, program};

/// Runs the program to its end, and returns the lines it printed.
async fn play(path: &str, arguments: &[&str]) -> Vec<String> {
    let (code, printed, log) = output(program(path, arguments)).await;
    assert_eq!(code, Some(0), "it printed:\n{printed}\nand logged:\n{log}");
    printed.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn declarative_applies_children_and_status() {
    assert_eq!(
        play(env!("CARGO_BIN_EXE_declarative"), &["--embedded"]).await,
        [
            "home is ready with 2 replicas",
            "its page has changed, owned by Website",
            "its deleted Deployment is back",
        ]
    );
}

#[tokio::test]
async fn webhook_refuses_fills_in_and_converts() {
    assert_eq!(
        play(env!("CARGO_BIN_EXE_webhook"), &["--embedded"]).await,
        [
            "admission webhook \"validate.sites.example.com\" denied the request: Site.example.com \"home\" is invalid: \
             [spec.host: Invalid value: \"home.example.org\": must end with .example.com, \
             spec.replicas: Invalid value: 0: must be greater than 0]",
            "home has Some(2) replicas, owned by Some(\"admin\")",
            "as v1 it has size Some(2)",
        ]
    );
}

#[tokio::test]
async fn imperative_repairs_drift_and_cleans_up_before_the_object_is_deleted() {
    assert_eq!(
        play(env!("CARGO_BIN_EXE_imperative"), &["--embedded"]).await,
        [
            r#"photos has the finalizers ["example.com/bucket"]"#,
            r#"the store has ["https://eu.example.com/photos"]"#,
            "its ConfigMap was changed by hand, and is repaired",
            "photos is deleted, and the store has []",
        ]
    );
}

#[tokio::test]
async fn dynamic_kind_labels_objects_of_the_given_kind() {
    let program = env!("CARGO_BIN_EXE_dynamic_kind");
    assert_eq!(
        play(program, &["--embedded"]).await,
        [
            "ConfigMap ours belongs to platform",
            "ConfigMap theirs belongs to payments"
        ]
    );
    let arguments = ["--embedded", "--kind=ServiceAccount", "--team=identity"];
    assert_eq!(
        play(program, &arguments).await,
        [
            "ServiceAccount ours belongs to identity",
            "ServiceAccount theirs belongs to payments"
        ]
    );
}

#[tokio::test]
async fn dynamic_kind_reports_an_unknown_kind() {
    let unknown = program(
        env!("CARGO_BIN_EXE_dynamic_kind"),
        &["--embedded", "--kind=Unicorn"],
    );
    let (code, printed, log) = output(unknown).await;
    assert_eq!((code, printed.as_str()), (Some(1), ""));
    assert!(log.contains("Unicorn"), "{log}");
}

#[tokio::test]
async fn external_source_follows_the_file_and_corrects_drift() {
    assert_eq!(
        play(env!("CARGO_BIN_EXE_external_source"), &["--embedded"]).await,
        [
            r#"the ConfigMap has "hello""#,
            r#"the ConfigMap has "goodbye""#,
            "it was changed by hand",
            r#"the ConfigMap has "goodbye""#,
        ]
    );
}

#[tokio::test]
async fn leader_election_hands_over_when_the_leader_stops() {
    assert_eq!(
        play(env!("CARGO_BIN_EXE_leader_election"), &[]).await,
        [
            "task one was handled by replica-1",
            "task two was handled by replica-1",
            "replica-1 has stopped",
            "task three was handled by replica-2",
        ]
    );
}

/// The watches are printed by a task, at any time.
#[tokio::test]
async fn many_controllers_share_one_watch_per_kind() {
    let mut printed = play(env!("CARGO_BIN_EXE_many_controllers"), &["--embedded"]).await;
    printed.sort();
    assert_eq!(
        printed,
        [
            "one watch of Namespace",
            "one watch of NetworkPolicy",
            "one watch of ResourceQuota",
            "other has the annotations {}",
            "shop is ready",
        ]
    );
}

#[tokio::test]
async fn cache_only_lists_by_index_and_prints_changes() {
    assert_eq!(
        play(env!("CARGO_BIN_EXE_cache_only"), &["--embedded"]).await,
        [
            "node-1: a, c",
            "node-2: b",
            "2 of 3 pods have the label app=web",
            "added default/a",
            "added default/b",
            "added default/c",
            r#"changed default/b: {"app": "cache"}"#,
            "deleted default/c",
        ]
    );
}

#[tokio::test]
async fn autoservice_follows_the_annotation() {
    assert_eq!(
        play(env!("CARGO_BIN_EXE_autoservice"), &["--embedded"]).await,
        [
            "the Service web has the ports [80]",
            "without the annotation, it is deleted"
        ]
    );
}

/// The same program, on a cluster that it finds in a kubeconfig, or does not find.
#[tokio::test]
async fn without_embedded_flag_a_kubeconfig_is_required() {
    for path in [
        env!("CARGO_BIN_EXE_declarative"),
        env!("CARGO_BIN_EXE_cache_only"),
    ] {
        let (code, printed, log) = output(program(path, &[])).await;
        assert_eq!((code, printed.as_str()), (Some(1), ""));
        assert!(log.contains("kubeconfig"), "{log}");
    }
}
