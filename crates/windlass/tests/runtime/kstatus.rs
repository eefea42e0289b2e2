//! The status as tools read it: the rules of kstatus, and `kubectl wait`.
//!
//! kstatus is a Go library, which Flux, Argo CD and kpt use; its rules for kinds that it does not know are few.

use std::time::Duration;

use windlass::{
    k8s_openapi::api::core::v1::ConfigMap,
    prelude::*,
    serde_json::{self, Value},
};
use windlass_suite::{Context as Case, suite};

use crate::runtime::shop::{Shop, Street, Wants, condition, config, replace, shops, shown};

// kubectl waits in real time.
suite!("runtime-kubectl", requires(windlass_cluster::matching_kubectl());
    kubectl_wait_waits_for_ready_of_the_current_generation,
    kubectl_wait_finds_failures,
);

/// The result of kstatus' `GetStatusFn` for a custom resource (`checkGenericProperties`, then `checkReadyCondition`).
fn kstatus(object: &Value) -> &'static str {
    if object["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating";
    }
    let (generation, status) = (&object["metadata"]["generation"], &object["status"]);
    if status["observedGeneration"].is_number() && status["observedGeneration"] != *generation {
        return "InProgress";
    }
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    for condition in conditions {
        match (condition["type"].as_str(), condition["status"].as_str()) {
            (Some("Reconciling"), Some("True")) => return "InProgress",
            (Some("Stalled"), Some("True")) => return "Failed",
            _ => {}
        }
    }
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    match ready.map(|ready| ready["status"].as_str()) {
        // Without conditions, what exists is current.
        None | Some(Some("True")) => "Current",
        Some(_) => "InProgress",
    }
}

/// A row of the table of outcomes in docs/status.md.
struct Row {
    outcome: &'static str,
    /// `Ready`, `Reconciling` and `Stalled`: the status, and the reason unless it differs; empty for none.
    conditions: [String; 3],
    kstatus: &'static str,
}

fn documented() -> Vec<Row> {
    let lines = include_str!("../../../../docs/status.md").lines();
    let lines = lines.skip_while(|line| !line.starts_with("| outcome |")).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    let shown = |cell: &str| match cell.trim() {
        "–" => String::new(),
        // Only what is code has one value.
        cell => cell.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(" "),
    };
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let [outcome, ready, reconciling, stalled, kstatus] = cells[..] else {
            panic!("five cells: {row}")
        };
        Row {
            outcome: outcome.trim(),
            conditions: [ready, reconciling, stalled].map(shown),
            kstatus: kstatus.trim(),
        }
    })
    .collect()
}

#[expect(clippy::unnecessary_wraps, reason = "as a controller requires")]
fn one(_: &Shop) -> Result<Desired, Error> {
    Ok(Desired::new().child(config("one")))
}

/// The status as the server returns it, for each row of the table.
pub(crate) async fn every_documented_outcome_has_its_kstatus(case: Case) -> anyhow::Result<()> {
    let rows = documented();
    let mut rows = rows.iter();
    let mut street = Street::new(&case, one).await?;
    street.wait_for_ready("True Reconciled").await?;
    check(&street, rows.next(), "every child is applied").await?;

    street
        .want(
            |_: &Shop| Ok(Desired::new().child(config("Not_Valid!"))),
            "False Invalid",
        )
        .await?;
    check(&street, rows.next(), "a child failed").await?;

    street.want(one, "True Reconciled").await?;
    let hold = json!({ "metadata": { "finalizers": ["suite.windlass.dev/hold"] } });
    street.env.patch::<ConfigMap>("one", hold).await?;
    street.env.delete::<ConfigMap>("one").await?;
    street.wait_for_ready("False ChildTerminating").await?;
    check(&street, rows.next(), "a child is being deleted").await?;
    let release = json!({ "metadata": { "finalizers": null } });
    street.env.patch::<ConfigMap>("one", release).await?;
    street.wait_for_ready("True Reconciled").await?;

    let undecided = |_: &Shop| Ok(Desired::undecided("BankHoliday", "it opens tomorrow"));
    street.want(undecided, "Unknown BankHoliday").await?;
    check(&street, rows.next(), "undecided").await?;

    street.stop().await?;
    let hangs = |_: Arc<Shop>, _: Context| std::future::pending::<Result<Desired, Error>>();
    let hanging = Controller::<Shop>::new("shops").timeout(Duration::from_millis(50));
    street.run(hanging.declare(hangs));
    street.wait_for_ready("False TimedOut").await?;
    check(&street, rows.next(), "a reconcile that exceeds").await?;
    street.stop().await?;
    street.open();

    let terminal = |_: &Shop| Err(Error::terminal("spec.size is too big"));
    street.want(terminal, "False ReconcileFailed").await?;
    check(&street, rows.next(), "a terminal error").await?;

    street.stop().await?;
    street.run(shops(&street.plan).max_retries(1));
    let busy = |_: &Shop| Err("the bank is busy".into());
    street.want(busy, "False ReconcileFailed").await?;
    let stalled =
        |shop: &Shop| condition(shop, "Stalled").map(shown).as_deref() == Some("True RetriesExceeded");
    street.wait(stalled).await?;
    check(&street, rows.next(), "the last of `Controller::max_retries`").await?;
    street.stop().await?;
    street.open();

    street
        .want(|_: &Shop| Ok(Desired::new()), "False PruneBlocked")
        .await?;
    check(&street, rows.next(), "pruning is blocked").await?;
    assert!(rows.next().is_none(), "the table has further rows");

    street.stop().await?;

    // Whatever the conditions of an earlier generation say.
    for (wants, ready) in [
        (Arc::new(one) as Arc<dyn Wants>, "True Reconciled"),
        (Arc::new(terminal) as Arc<dyn Wants>, "False ReconcileFailed"),
    ] {
        street.open();
        street.want(move |shop: &Shop| wants(shop), ready).await?;
        street.stop().await?;
        let size = json!({ "spec": { "size": 99 } });
        street.env.patch::<Shop>("corner", size).await?;
        let shop = serde_json::to_value(street.env.get::<Shop>("corner").await?)?;
        assert_eq!(kstatus(&shop), "InProgress", "{ready} of an earlier generation");
        street
            .env
            .patch::<Shop>("corner", json!({ "spec": { "size": 1 } }))
            .await?;
    }
    Ok(())
}

/// Compares the shop with a row whose outcome starts with this.
async fn check(street: &Street, row: Option<&Row>, outcome: &str) -> anyhow::Result<()> {
    let row = row.unwrap_or_else(|| panic!("no row: {outcome}"));
    assert!(row.outcome.starts_with(outcome), "{outcome}: {}", row.outcome);
    let shop = street.env.get::<Shop>("corner").await?;
    for (kind, expected) in ["Ready", "Reconciling", "Stalled"].iter().zip(&row.conditions) {
        let found = condition(&shop, kind).map(shown).unwrap_or_default();
        // A reason that differs is not documented as one value.
        let is_expected =
            found == *expected || (!expected.is_empty() && found.starts_with(&format!("{expected} ")));
        assert!(
            is_expected,
            "{outcome}: {kind} is `{found}`, documented as `{expected}`"
        );
    }
    assert_eq!(kstatus(&serde_json::to_value(&shop)?), row.kstatus, "{outcome}");
    Ok(())
}

/// Runs `kubectl wait` on the shop.
async fn wait(case: &Case, condition: &str, timeout: &str) -> anyhow::Result<String> {
    let (condition, timeout) = (format!("--for={condition}"), format!("--timeout={timeout}"));
    case.kubectl(&["wait", &condition, &timeout, "shops/corner"], "")
        .await
}

async fn kubectl_wait_waits_for_ready_of_the_current_generation(case: Case) -> anyhow::Result<()> {
    let starting = |_: &Shop| {
        let ready = ConditionUpdate::false_("Ready", "Starting").message("0 of 2 run");
        Ok(Desired::new().child(config("one")).condition(ready))
    };
    let mut street = Street::new(&case, starting).await?;
    street.wait_for_ready("False Starting").await?;
    let early = wait(&case, "condition=Ready", "1s").await;
    let early = early.expect_err("it is not ready").to_string();
    assert!(early.contains("timed out waiting for the condition"), "{early}");
    // kubectl is still waiting when it becomes ready.
    let waiting = wait(&case, "condition=Ready", "60s");
    let (output, changed) = tokio::join!(waiting, street.want(one, "True Reconciled"));
    changed?;
    assert_eq!(output?, "shop.suite.windlass.dev/corner condition met\n");

    // The condition is true, but about an earlier spec.
    street.stop().await?;
    street
        .env
        .patch::<Shop>("corner", json!({ "spec": { "size": 9 } }))
        .await?;
    let stale = wait(&case, "condition=Ready", "1s").await;
    assert!(stale.is_err(), "the new generation is not reconciled: {stale:?}");
    street.open();
    wait(&case, "condition=Ready", "60s").await?;
    street.stop().await
}

async fn kubectl_wait_finds_failures(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, one).await?;
    wait(&case, "condition=Ready", "60s").await?;
    street
        .want(
            |_: &Shop| Ok(Desired::new().child(config("Not_Valid!"))),
            "False Invalid",
        )
        .await?;
    wait(&case, "condition=Ready=false", "60s").await?;
    wait(&case, "condition=Reconciling", "60s").await?;
    replace(&street.plan, |_: &Shop| {
        Err(Error::terminal("spec.size is too big"))
    });
    street
        .env
        .patch::<Shop>("corner", json!({ "spec": { "size": 9 } }))
        .await?;
    wait(&case, "condition=Stalled", "60s").await?;
    let reason = "jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}=ReconcileFailed";
    wait(&case, reason, "60s").await?;
    street.stop().await
}
