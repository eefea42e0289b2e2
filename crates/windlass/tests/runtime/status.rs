//! The status of declarative controllers: it tells every outcome.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Event},
    kube::api::{DeleteParams, Patch, PatchParams},
    prelude::*,
    runtime::STALLED_CONDITION,
};
use windlass_suite::Context as Case;

use crate::runtime::{
    fixture::{lock, until},
    shop::{Shop, Street, all_shown, condition, config, message, shops, shown},
};

/// A name that the server rejects.
const INVALID: &str = "Not_Valid!";

/// A failed response.
fn failure(code: u16, reason: &str) -> windlass::serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "rejected by the test",
    })
}

#[expect(clippy::unnecessary_wraps, reason = "as a controller requires")]
fn one(_: &Shop) -> Result<Desired, Error> {
    Ok(Desired::new().child(config("one")))
}

pub(crate) async fn type_with_conditions_is_reported_without_status_code(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, one).await?;
    let shop = street.wait_for_ready("True Reconciled").await?;
    assert_eq!(all_shown(&shop), ["Ready True Reconciled"]);
    assert_eq!(
        shop.status.as_ref().and_then(|status| status.observed_generation),
        Some(1)
    );
    assert_eq!(
        street.writes(),
        ["patch configmaps/one", "patch shops/corner/status"]
    );

    let changed = street.want(one, "True Reconciled").await?;
    assert_eq!(
        changed
            .status
            .as_ref()
            .and_then(|status| status.observed_generation),
        Some(2)
    );
    let since = |shop| condition(shop, "Ready").map(|ready| ready.last_transition_time.clone());
    assert_eq!(since(&changed), since(&shop), "it was ready all the time");
    street.stop().await
}

/// The others are applied, and the author's status and conditions are written too.
pub(crate) async fn failed_child_is_reported_and_does_not_stop_the_others(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, one).await?;
    street.wait_for_ready("True Reconciled").await?;
    street.writes();
    let fails = |_: &Shop| {
        let desired = Desired::new()
            .child(config(INVALID))
            .child(config("one"))
            .child(config("two"));
        let desired = desired.status(json!({ "note": "written anyway" }));
        let ready = ConditionUpdate::true_("Ready", "Wrong");
        Ok(desired
            .condition(ready)
            .condition(ConditionUpdate::true_("Mine", "Yes")))
    };
    let shop = street.want(fails, "False Invalid").await?;
    assert_eq!(
        all_shown(&shop),
        [
            "Mine True Yes",
            "Ready False Invalid",
            "Reconciling True ProgressingWithRetry"
        ]
    );
    let text = message(&shop, "Ready");
    assert!(
        text.contains(&format!("ConfigMap {}/{INVALID}", case.namespace())),
        "{text}"
    );
    assert!(text.contains("lowercase RFC 1123 subdomain"), "{text}");
    assert!(!text.contains("two"), "{text}");
    let status = shop.status.as_ref().expect("a status");
    assert_eq!(
        (status.note.as_deref(), status.observed_generation),
        (Some("written anyway"), shop.metadata.generation)
    );
    assert!(street.has::<ConfigMap>("two").await?);

    // Retries write the status no more.
    street.writes();
    let is_child =
        |sent: &windlass_suite::RecordedRequest| sent.is_write() && sent.resource() == "configmaps";
    street.env.proxy().wait_until_sent(is_child).await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(100))
        .await;
    let writes = street.writes();
    let of_status = writes.iter().find(|write| *write == "patch shops/corner/status");
    assert_eq!(of_status, None);

    let shop = street.want(one, "True Reconciled").await?;
    assert_eq!(all_shown(&shop), ["Ready True Reconciled"]);
    assert!(
        shop.status.as_ref().is_some_and(|status| status.note.is_some()),
        "left alone"
    );
    street.stop().await
}

pub(crate) async fn rejected_child_has_the_servers_reason(case: Case) -> anyhow::Result<()> {
    let mut street = Street::closed(&case, one).await?;
    let is_child =
        |sent: &windlass_suite::RecordedRequest| sent.is_write() && sent.is_about("configmaps", "one");
    street
        .env
        .proxy()
        .respond(usize::MAX, failure(403, "Forbidden"), is_child);
    street.open();
    let shop = street.wait_for_ready("False Forbidden").await?;
    let text = message(&shop, "Ready");
    assert!(text.ends_with("rejected by the test"), "{text}");
    street.stop().await
}

/// Other fields and conditions stay, of all owners.
pub(crate) async fn error_of_desired_is_reported_and_keeps_the_rest(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, |_| {
        let desired = Desired::new()
            .child(config("one"))
            .status(json!({ "note": "ours" }));
        Ok(desired.condition(ConditionUpdate::true_("Mine", "Yes")))
    })
    .await?;
    street.wait_for_ready("True Reconciled").await?;
    let time = "2026-01-02T03:04:05Z";
    let theirs = json!({
        "apiVersion": "suite.windlass.dev/v1", "kind": "Shop",
        "status": {
            "theirs": "theirs",
            "conditions": [{ "type": "Theirs", "status": "True", "reason": "So", "message": "", "lastTransitionTime": time }],
        },
    });
    let params = PatchParams::apply("others");
    case.api::<Shop>()
        .patch_status("corner", &params, &Patch::Apply(theirs))
        .await?;
    let fails = |_: &Shop| {
        let invalid = ConditionUpdate::false_("SizeAllowed", "TooBig").message("spec.size is too big");
        Err(Error::terminal("spec.size is too big").condition(invalid))
    };
    let shop = street.want(fails, "False ReconcileFailed").await?;
    let expected = [
        "Mine True Yes",
        "Ready False ReconcileFailed",
        "SizeAllowed False TooBig",
        "Stalled True ReconcileFailed",
        "Theirs True So",
    ];
    assert_eq!(all_shown(&shop), expected);
    assert_eq!(message(&shop, STALLED_CONDITION), "spec.size is too big");
    let status = shop.status.as_ref().expect("a status");
    assert_eq!(
        (status.note.as_deref(), status.theirs.as_deref()),
        (Some("ours"), Some("theirs"))
    );
    let invalid = |event: &Event| event.reason.as_deref() == Some("ErrInvalid");
    street.env.wait_for_event(&*shop, invalid).await?;
    assert!(street.has::<ConfigMap>("one").await?, "children stay");

    // What is theirs is theirs alone: they can remove it.
    let gone = json!({ "apiVersion": "suite.windlass.dev/v1", "kind": "Shop", "status": {} });
    let shop = case
        .api::<Shop>()
        .patch_status("corner", &params, &Patch::Apply(gone))
        .await?;
    assert_eq!(
        shop.status.as_ref().and_then(|status| status.theirs.clone()),
        None
    );
    assert_eq!(condition(&shop, "Theirs"), None);

    // The conditions of an error end with it.
    let shop = street.want(one, "True Reconciled").await?;
    assert_eq!(all_shown(&shop), ["Ready True Reconciled"]);
    street.stop().await
}

/// A status write that fails does not hide the first error, and is retried even after a terminal one.
pub(crate) async fn failed_status_write_is_reported_with_the_first_error(case: Case) -> anyhow::Result<()> {
    let mut street = Street::closed(&case, |_| Err(Error::terminal("spec.size is too big"))).await?;
    let is_status =
        |sent: &windlass_suite::RecordedRequest| sent.is_write() && sent.subresource() == "status";
    let proxy = street.env.proxy();
    proxy.respond(2, failure(500, "InternalError"), is_status);
    let shops = shops(&street.plan);
    let outcomes = shops.outcomes();
    street.run(shops);
    street.wait_for_ready("False ReconcileFailed").await?;
    until(|| outcomes.terminal() >= 1).await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(200))
        .await;
    assert!(outcomes.failed() == 2 && outcomes.terminal() >= 1, "{outcomes:?}");
    street.stop().await
}

pub(crate) async fn panic_of_desired_is_reported(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, |_| panic!("the roof fell in")).await?;
    let shop = street.wait_for_ready("False ReconcileFailed").await?;
    assert_eq!(message(&shop, "Ready"), "panicked: the roof fell in");
    street.stop().await
}

pub(crate) async fn failed_cleanup_is_reported(case: Case) -> anyhow::Result<()> {
    let mut street = Street::closed(&case, one).await?;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let shops = Controller::<Shop>::new("shops").owns::<ConfigMap>();
    let shops = shops.declare(|shop: Arc<Shop>, _: Context| async move { one(&shop) });
    street.run(shops.cleanup("suite.windlass.dev/tidy", move |_, _| {
        let is_first = counted.load(Ordering::Relaxed) == 0;
        async move {
            if is_first {
                Err("the bank is closed".into())
            } else {
                Ok(())
            }
        }
    }));
    street.wait_for_ready("True Reconciled").await?;
    let finalizers =
        json!({ "metadata": { "finalizers": ["suite.windlass.dev/tidy", "suite.windlass.dev/other"] } });
    street.env.patch::<Shop>("corner", finalizers).await?;
    case.api::<Shop>()
        .delete("corner", &DeleteParams::default())
        .await?;
    let shop = street.wait_for_ready("False ReconcileFailed").await?;
    assert_eq!(message(&shop, "Ready"), "the bank is closed");
    tries.store(1, Ordering::Relaxed);
    // The failure is over, and another finalizer holds the object.
    let shop = street.wait_for_ready("False Terminating").await?;
    assert_eq!(
        all_shown(&shop),
        ["Ready False Terminating", "Reconciling True Terminating"]
    );
    assert_eq!(
        shop.metadata.finalizers.as_deref(),
        Some(&["suite.windlass.dev/other".to_owned()][..])
    );
    let release = json!({ "metadata": { "finalizers": null } });
    street.env.patch::<Shop>("corner", release).await?;
    street.env.wait_until_deleted::<Shop>("corner").await?;
    street.stop().await
}

pub(crate) async fn timeout_is_reported(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, one).await?;
    street.wait_for_ready("True Reconciled").await?;
    street.stop().await?;
    let shop = street
        .env
        .patch::<Shop>("corner", json!({ "spec": { "size": 2 } }))
        .await?;
    let shops = Controller::<Shop>::new("shops").owns::<ConfigMap>();
    let hangs = |_: Arc<Shop>, _: Context| std::future::pending::<Result<Desired, Error>>();
    street.run(shops.timeout(Duration::from_millis(100)).declare(hangs));
    let found = street.wait_for_ready("False TimedOut").await?;
    assert_eq!(
        all_shown(&found),
        ["Ready False TimedOut", "Reconciling True ProgressingWithRetry"]
    );
    assert_eq!(message(&found, "Ready"), "timed out after 100ms");
    assert_eq!(
        found
            .status
            .as_ref()
            .and_then(|status| status.observed_generation),
        shop.metadata.generation
    );
    street.stop().await
}

/// Nothing retries it any more, so it is not in progress.
pub(crate) async fn last_retry_is_reported_as_stalled(case: Case) -> anyhow::Result<()> {
    let mut street = Street::closed(&case, |_| Err("the bank is closed".into())).await?;
    let shops = shops(&street.plan).max_retries(2);
    let outcomes = shops.outcomes();
    street.run(shops);
    let stalled = ["Ready False ReconcileFailed", "Stalled True RetriesExceeded"];
    let shop = street.wait(|shop| all_shown(shop) == stalled).await?;
    assert_eq!(message(&shop, STALLED_CONDITION), "the bank is closed");
    until(|| outcomes.failed() >= 3).await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(200))
        .await;
    assert_eq!(outcomes.failed(), 3, "one run and two retries");
    let shop = street.want(one, "True Reconciled").await?;
    assert_eq!(all_shown(&shop), ["Ready True Reconciled"]);
    street.stop().await
}

/// The messages differ, so that every attempt writes a report. The report is a change of the object.
pub(crate) async fn report_does_not_end_the_backoff(case: Case) -> anyhow::Result<()> {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let attempted = Arc::clone(&attempts);
    let mut street = Street::closed(&case, move |_| {
        let mut attempts = lock(&attempted);
        attempts.push(Instant::now());
        Err(format!("the bank is closed, attempt {}", attempts.len()).into())
    })
    .await?;
    let pause = Duration::from_millis(400);
    let shops = shops(&street.plan).rate_limiter(windlass::workqueue::Exponential::new(pause, pause));
    street.run(shops.max_retries(3));
    let exhausted = ["Ready False ReconcileFailed", "Stalled True RetriesExceeded"];
    street.wait(|shop| all_shown(shop) == exhausted).await?;
    street.stop().await?;
    let attempts = lock(&attempts);
    assert_eq!(attempts.len(), 4, "one run and three retries");
    let pauses: Vec<_> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|found| *found >= pause), "{pauses:?}");
    Ok(())
}

/// The runtime's reports are limited, except for the last one: nothing would correct it.
pub(crate) async fn last_report_is_not_limited(case: Case) -> anyhow::Result<()> {
    let mut street = Street::closed(&case, |shop| {
        let round = shop
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get("round"));
        Err(format!("closed in round {}", round.map_or("0", String::as_str)).into())
    })
    .await?;
    street.run(shops(&street.plan).max_retries(1));
    // Two reports per round.
    for round in 0..8 {
        let expected = format!("closed in round {round}");
        street
            .wait(|shop| message(shop, STALLED_CONDITION) == expected)
            .await?;
        let label = json!({ "metadata": { "labels": { "round": (round + 1).to_string() } } });
        street.env.patch::<Shop>("corner", label).await?;
    }
    street.stop().await
}

/// The change may be one with the report of the attempt, which starts no retries.
pub(crate) async fn change_during_the_last_attempt_is_reconciled(case: Case) -> anyhow::Result<()> {
    let mut street = Street::closed(&case, one).await?;
    let env = street.env.clone();
    let shops = Controller::<Shop>::new("shops")
        .owns::<ConfigMap>()
        .max_retries(0);
    street.run(shops.declare(move |shop: Arc<Shop>, _: Context| {
        let env = env.clone();
        async move {
            if shop.spec.size % 2 == 0 {
                return one(&shop);
            }
            let size = json!({ "spec": { "size": shop.spec.size + 1 } });
            env.patch::<Shop>("corner", size).await?;
            Err("the bank is closed".into())
        }
    }));
    for round in 1..=10 {
        let is_open = |shop: &Shop| {
            shop.spec.size == 2 * round
                && condition(shop, "Ready").map(shown).as_deref() == Some("True Reconciled")
        };
        street.wait(is_open).await?;
        let size = json!({ "spec": { "size": 2 * round + 1 } });
        street.env.patch::<Shop>("corner", size).await?;
    }
    street.stop().await
}

/// The runtime's conditions are written without what the server rejects.
pub(crate) async fn status_that_the_server_rejects_is_reported(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, |_| {
        let status = json!({ "note": "too long ".repeat(20) });
        Ok(Desired::new().child(config("one")).status(status))
    })
    .await?;
    let shop = street.wait_for_ready("False Invalid").await?;
    assert!(
        message(&shop, "Ready").contains("status.note"),
        "{}",
        message(&shop, "Ready")
    );
    // A condition with a type that the schema rejects.
    let named = |_: &Shop| {
        Ok(Desired::new()
            .child(config("one"))
            .condition(ConditionUpdate::true_("not a type", "Yes")))
    };
    let shop = street.want(named, "False Invalid").await?;
    assert!(
        message(&shop, "Ready").contains("conditions"),
        "{}",
        message(&shop, "Ready")
    );
    let error = |_: &Shop| Err(Error::from("broken").condition(ConditionUpdate::true_("not a type", "Yes")));
    street.want(error, "False ReconcileFailed").await?;
    let undecided = |_: &Shop| {
        let desired = Desired::undecided("bank closed", "x".repeat(40_000));
        Ok(desired.status(json!({ "note": "too long ".repeat(20) })))
    };
    street.want(undecided, "False Invalid").await?;

    // Reasons and messages are corrected.
    let undecided = |_: &Shop| Ok(Desired::undecided("bank closed", "x".repeat(40_000)));
    let shop = street.want(undecided, "Unknown BankClosed").await?;
    assert_eq!(message(&shop, "Ready").chars().count(), 32_768);
    street.stop().await
}

/// Each write triggers the next reconcile, so outcomes that differ each time must not be written each time.
pub(crate) async fn outcomes_that_alternate_are_not_written_at_full_speed(case: Case) -> anyhow::Result<()> {
    let calls = AtomicUsize::new(0);
    let mut street = Street::new(&case, move |_| match calls.fetch_add(1, Ordering::Relaxed) {
        odd if odd % 2 == 1 => Err(format!("failure {odd}").into()),
        _ => Ok(Desired::new().child(config("one"))),
    })
    .await?;
    street.wait_for_ready("False ReconcileFailed").await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes = street.writes();
    let of_status = writes
        .iter()
        .filter(|write| *write == "patch shops/corner/status")
        .count();
    assert!((2..=12).contains(&of_status), "{of_status} writes");
    street.stop().await
}

/// It waits for more than the children.
pub(crate) async fn authors_ready_has_precedence(case: Case) -> anyhow::Result<()> {
    let starting = |_: &Shop| {
        let ready = ConditionUpdate::false_("Ready", "Starting").message("0 of 2 run");
        let progress = ConditionUpdate::true_("Reconciling", "Starting");
        Ok(Desired::new()
            .child(config("one"))
            .condition(ready)
            .condition(progress))
    };
    let mut street = Street::new(&case, starting).await?;
    let shop = street.wait_for_ready("False Starting").await?;
    assert_eq!(
        all_shown(&shop),
        ["Ready False Starting", "Reconciling True Starting"]
    );
    assert_eq!(
        condition(&shop, "Ready").map(shown).as_deref(),
        Some("False Starting")
    );
    let shop = street.want(one, "True Reconciled").await?;
    assert_eq!(all_shown(&shop), ["Ready True Reconciled"]);
    street.stop().await
}

/// The author's own ones are written.
pub(crate) async fn controller_can_do_without_standard_conditions(case: Case) -> anyhow::Result<()> {
    let mut street = Street::closed(&case, |shop| match shop.spec.size {
        1 => Ok(Desired::new()
            .child(config("one"))
            .condition(ConditionUpdate::true_("Mine", "Yes"))),
        _ => Err(Error::terminal("spec.size is too big")),
    })
    .await?;
    let shops = shops(&street.plan).without_conditions();
    let outcomes = shops.outcomes();
    street.run(shops);
    street.wait(|shop| all_shown(shop) == ["Mine True Yes"]).await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(200))
        .await;
    let shop = street
        .env
        .patch::<Shop>("corner", json!({ "spec": { "size": 2 } }))
        .await?;
    let invalid = |event: &Event| event.reason.as_deref() == Some("ErrInvalid");
    street.env.wait_for_event(&shop, invalid).await?;
    until(|| outcomes.terminal() >= 1).await?;
    assert_eq!((outcomes.terminal(), outcomes.failed()), (1, 0));
    let shop = street.env.get::<Shop>("corner").await?;
    assert_eq!(all_shown(&shop), ["Mine True Yes"]);
    street.stop().await
}
