//! What people do with kubectl, and with the files that are shipped.

use windlass::{k8s_openapi::api::apps::v1::Deployment, prelude::*, runtime::Install};
use windlass_icecream::{Icecream, controller};
use windlass_suite::{Context as Case, Running, Shipped, World, install, suite};

suite!("icecream-kubectl", paused, needs(windlass_cluster::matching_kubectl());
    the_files_work_as_they_are_and_what_is_wrong_is_shown,
);

const EXAMPLE: &str = include_str!("../example.yaml");
const RIGHTS: &str = include_str!("../rbac.yaml");

async fn the_files_work_as_they_are_and_what_is_wrong_is_shown(case: Case) -> anyhow::Result<()> {
    install(&case, [Icecream::crd()]).await?;
    let world = World::of(&case, &Shipped::read(RIGHTS)?.client(&case).await?);
    let manager = world.manager().install(Install::new([Icecream::crd()]));
    let running = Running::start(manager.controller(controller()));
    // The roles are the whole cluster's: they are tried and not left there. One of them says where it belongs.
    let try_out = ["apply", "--dry-run=server", "-f", "-"];
    let here = format!("namespace: {}", case.namespace());
    let said = case
        .kubectl(&try_out, &RIGHTS.replace("namespace: default", &here))
        .await?;
    assert_eq!(said.lines().count(), 2, "{said}");

    let said = case.kubectl(&["apply", "-f", "-"], EXAMPLE).await?;
    assert_eq!(said, "icecream.controller.nicoleh.io/example-icecream created\n");
    let icecream = world
        .wait_for::<Icecream>("example-icecream", |icecream| icecream.status.is_some())
        .await?;
    world.get::<Deployment>("example-icecream").await?;
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
    world.told(&*icecream, synced).await?;
    let event = described(&case, "Synced").await?;
    for said in ["Normal", "nicole-controller", "Icecream synced successfully"] {
        assert!(event.contains(said), "`{said}` in {event}");
    }

    let wrong = EXAMPLE.replace("vanilla", "salted caramel");
    case.kubectl(&["apply", "-f", "-"], &wrong).await?;
    world
        .told(&*icecream, |event| is_about("ErrInvalid", event))
        .await?;
    let event = described(&case, "ErrInvalid").await?;
    for said in [
        "Warning",
        "spec.flavor",
        "salted caramel",
        "use at most 63 letters",
    ] {
        assert!(event.contains(said), "`{said}` in {event}");
    }
    running.stop().await
}

fn is_about(reason: &str, event: &windlass::k8s_openapi::api::core::v1::Event) -> bool {
    event.reason.as_deref() == Some(reason)
}

/// The line with this reason among what `kubectl describe` shows of the example.
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
