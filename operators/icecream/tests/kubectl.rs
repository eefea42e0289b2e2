//! The shipped files, used with kubectl.

use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*, runtime::CrdInstaller};
use windlass_icecream::{Icecream, controller};
use windlass_suite::{Context as Case, ManifestRoles, RunningManager, TestEnvironment, install_crds, suite};

suite!("icecream-kubectl", paused, requires(windlass_cluster::matching_kubectl());
    shipped_files_work_and_errors_are_shown,
);

const EXAMPLE: &str = include_str!("../example.yaml");
const RIGHTS: &str = include_str!("../rbac.yaml");

async fn shipped_files_work_and_errors_are_shown(case: Case) -> anyhow::Result<()> {
    install_crds(&case, [Icecream::crd()]).await?;
    let env = TestEnvironment::with_client(&case, &ManifestRoles::parse(RIGHTS)?.client(&case).await?);
    let manager = env.manager().install(CrdInstaller::new([Icecream::crd()]));
    let running = RunningManager::start(manager.controller(controller()));
    // A dry run, since a ClusterRole affects the whole cluster. The Role has a namespace.
    let try_out = ["apply", "--dry-run=server", "-f", "-"];
    let here = format!("namespace: {}", case.namespace());
    let output = case
        .kubectl(&try_out, &RIGHTS.replace("namespace: default", &here))
        .await?;
    assert_eq!(output.lines().count(), 2, "{output}");

    let output = case.kubectl(&["apply", "-f", "-"], EXAMPLE).await?;
    assert_eq!(
        output,
        "icecream.controller.nicoleh.io/example-icecream created\n"
    );
    let icecream = env
        .wait_for::<Icecream>("example-icecream", |icecream| icecream.status.is_some())
        .await?;
    env.get::<Deployment>("example-icecream").await?;
    let shown = case.kubectl(&["get", "icecream"], "").await?;
    let rows: Vec<Vec<_>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["NAME", "DEPLOYMENT", "FLAVOR", "CPU", "MEMORY", "AGE"]);
    assert_eq!(
        rows[1][..5],
        ["example-icecream", "example-icecream", "vanilla", "0", "0"]
    );

    let synced = |event: &_| is_about("Synced", event);
    env.wait_for_event(&*icecream, synced).await?;
    let event = described(&case, "Synced").await?;
    for expected in ["Normal", "nicole-controller", "Icecream synced successfully"] {
        assert!(event.contains(expected), "`{expected}` in {event}");
    }

    let wrong = EXAMPLE.replace("vanilla", "salted caramel");
    case.kubectl(&["apply", "-f", "-"], &wrong).await?;
    env.wait_for_event(&*icecream, |event| is_about("ErrInvalid", event))
        .await?;
    let event = described(&case, "ErrInvalid").await?;
    for expected in [
        "Warning",
        "spec.flavor",
        "salted caramel",
        "use at most 63 letters",
    ] {
        assert!(event.contains(expected), "`{expected}` in {event}");
    }
    running.stop().await
}

fn is_about(reason: &str, event: &windlass::k8s_openapi::api::core::v1::Event) -> bool {
    event.reason.as_deref() == Some(reason)
}

/// The event with this reason in the output of `kubectl describe`.
async fn described(case: &Case, reason: &str) -> anyhow::Result<String> {
    let shown = case
        .kubectl(&["describe", "icecream", "example-icecream"], "")
        .await?;
    let event = shown.lines().find(|line| line.contains(reason));
    event.map_or_else(
        || anyhow::bail!("no `{reason}` in\n{shown}"),
        |event| Ok(event.to_owned()),
    )
}
