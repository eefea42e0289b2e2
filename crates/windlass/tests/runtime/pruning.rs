//! Pruning of declarative controllers: nothing is deleted by accident.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use windlass::{
    k8s_openapi::api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Event, Secret},
    },
    kube::api::ListParams,
    prelude::*,
    runtime::{ALLOW_PRUNE_ANNOTATION, PrunePolicy, STALLED_CONDITION},
};
use windlass_suite::{Context as Case, RunningManager, TestEnvironment};

use crate::runtime::{
    fixture::until,
    shop::{Shop, ShopSpec, Street, all_shown, config, message, replace, secret, shops},
};

/// A config map and a secret.
#[expect(clippy::unnecessary_wraps, reason = "as a controller requires")]
fn both(_: &Shop) -> Result<Desired, Error> {
    Ok(Desired::new().child(config("one")).child(secret("two")))
}

pub(crate) async fn kind_that_is_not_mentioned_is_kept_and_reported(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, both).await?;
    street.wait_for_ready("True Reconciled").await?;
    let partial = |_: &Shop| {
        let ready = ConditionUpdate::true_("Ready", "Wrong");
        Ok(Desired::new().child(config("one")).condition(ready))
    };
    let shop = street.want(partial, "False PruneBlocked").await?;
    assert_eq!(
        all_shown(&shop),
        ["Ready False PruneBlocked", "Stalled True PruneBlocked"]
    );
    let text = message(&shop, STALLED_CONDITION);
    let kept = format!(
        "kept 1 of 2 children that are not desired (Secret {}/two)",
        case.namespace()
    );
    for part in [
        kept.as_str(),
        "does not mention Secret",
        "windlass.dev/allow-prune=2-",
        "`Desired::without::<Secret>()`",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let is_about_it = |event: &Event| {
        event.reason.as_deref() == Some("PruneBlocked") && event.message.as_ref() == Some(&text)
    };
    let event = street.env.wait_for_event(&*shop, is_about_it).await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));

    // Neither a restart nor a change that changes nothing reports it again.
    street.stop().await?;
    street.writes();
    street.env.proxy().clear();
    let shops = shops(&street.plan);
    let outcomes = shops.outcomes();
    street.run(shops);
    until(|| outcomes.requeued() >= 1).await?;
    street
        .env
        .patch::<Shop>("corner", json!({ "metadata": { "labels": { "a": "b" } } }))
        .await?;
    until(|| outcomes.requeued() >= 2).await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(500))
        .await;
    let writes: Vec<_> = street
        .env
        .proxy()
        .writes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(writes, [""; 0]);
    assert!(street.has::<Secret>("two").await?);

    // A user allows it for this generation and desired state.
    let allow = |value: &str| json!({ "metadata": { "annotations": { ALLOW_PRUNE_ANNOTATION: value } } });
    let value = approval(&text);
    street
        .env
        .patch::<Shop>("corner", allow(&value.replacen('2', "1", 1)))
        .await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(500))
        .await;
    assert!(street.has::<Secret>("two").await?, "it is for another generation");
    street.env.patch::<Shop>("corner", allow(&value)).await?;
    let shop = street.wait_for_ready("True Wrong").await?;
    assert_eq!(all_shown(&shop), ["Ready True Wrong"]);
    assert!(!street.has::<Secret>("two").await?);

    // The next generation is guarded again.
    street.want(both, "True Reconciled").await?;
    street.want(partial, "False PruneBlocked").await?;
    assert!(street.has::<Secret>("two").await?);
    street.stop().await
}

/// An unwanted child still exists while a finalizer holds it. The author's `Ready` is about the children that are desired.
pub(crate) async fn pruned_child_that_still_exists_is_reported(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, both).await?;
    street.wait_for_ready("True Reconciled").await?;
    let finalizers = |names: &[&str]| json!({ "metadata": { "finalizers": names } });
    let hold = finalizers(&["suite.windlass.dev/hold"]);
    street.env.patch::<Secret>("two", hold).await?;
    let less = || Desired::new().child(config("one")).without::<Secret>();
    let shop = street
        .want(move |_: &Shop| Ok(less()), "False ChildTerminating")
        .await?;
    assert_eq!(
        all_shown(&shop),
        [
            "Ready False ChildTerminating",
            "Reconciling True ChildTerminating"
        ]
    );
    let expected = format!("Secret {}/two is being deleted", case.namespace());
    assert_eq!(message(&shop, "Ready"), expected);
    let fine = move |_: &Shop| Ok(less().condition(ConditionUpdate::true_("Ready", "Fine")));
    let shop = street.want(fine, "True Fine").await?;
    assert_eq!(
        all_shown(&shop),
        ["Ready True Fine", "Reconciling True ChildTerminating"]
    );
    street.env.patch::<Secret>("two", finalizers(&[])).await?;
    street.wait(|shop| all_shown(shop) == ["Ready True Fine"]).await?;
    street.stop().await
}

/// The value of the annotation in a message.
fn approval(message: &str) -> String {
    let value = message.split_once("allow-prune=");
    let value = value.and_then(|(_, rest)| rest.split_once(','));
    value.expect("the message has the value").0.to_owned()
}

/// Setting the annotation on a Deployment makes a new generation.
pub(crate) async fn approval_holds_for_the_generation_that_it_makes(case: Case) -> anyhow::Result<()> {
    let env = TestEnvironment::new(&case);
    let drawers = Controller::<Deployment>::new("drawers").owns::<ConfigMap>();
    let drawers = drawers.declare(|desk: Arc<Deployment>, _: Context| async move {
        let names = if desk.annotations().contains_key("empty") {
            &[][..]
        } else {
            &["one", "two"]
        };
        Ok(Desired::new().children(names.iter().copied().map(config)))
    });
    let desk: Deployment = from_value(json!({
        "metadata": { "name": "desk" },
        "spec": {
            "selector": { "matchLabels": { "app": "desk" } },
            "template": {
                "metadata": { "labels": { "app": "desk" } },
                "spec": { "containers": [{ "name": "desk", "image": "desk:1" }] },
            },
        },
    }))?;
    let desk = env.create(desk).await?;
    let running = RunningManager::start(env.manager().controller(drawers));
    env.wait_for::<ConfigMap>("two", |_| true).await?;
    let annotate = |name: &str, value: &str| json!({ "metadata": { "annotations": { name: value } } });
    env.patch::<Deployment>("desk", annotate("empty", "")).await?;
    let is_blocked = |event: &Event| event.reason.as_deref() == Some("PruneBlocked");
    let event = env.wait_for_event(&desk, is_blocked).await?;
    let value = approval(event.message.as_deref().unwrap_or_default());
    env.patch::<Deployment>("desk", annotate(ALLOW_PRUNE_ANNOTATION, &value))
        .await?;
    env.wait_until_deleted::<ConfigMap>("one").await?;
    env.wait_until_deleted::<ConfigMap>("two").await?;
    running.stop().await
}

pub(crate) async fn empty_desired_state_keeps_all_children(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, both).await?;
    street.wait_for_ready("True Reconciled").await?;
    let shop = street.want(|_| Ok(Desired::new()), "False PruneBlocked").await?;
    assert!(message(&shop, "Ready").contains("the desired state has no children"));
    // An empty list is no decision.
    let lists = |_: &Shop| Ok(Desired::new().children::<ConfigMap>([]).children::<Secret>([]));
    street.want(lists, "False PruneBlocked").await?;
    assert!(street.has::<ConfigMap>("one").await? && street.has::<Secret>("two").await?);

    let decided = |_: &Shop| Ok(Desired::new().optional_child(None::<Secret>).child(config("one")));
    street.want(decided, "True Reconciled").await?;
    assert!(street.has::<ConfigMap>("one").await? && !street.has::<Secret>("two").await?);
    street
        .want(|_| Ok(Desired::new().without::<ConfigMap>()), "True Reconciled")
        .await?;
    assert!(!street.has::<ConfigMap>("one").await?);
    street.stop().await
}

pub(crate) async fn many_children_are_not_deleted_at_once(case: Case) -> anyhow::Result<()> {
    let shards = |count: usize| {
        move |_: &Shop| Ok(Desired::new().children((0..count).map(|index| config(format!("shard-{index}")))))
    };
    let mut street = Street::new(&case, shards(7)).await?;
    street.wait_for_ready("True Reconciled").await?;
    // All of a kind, beside others.
    let emptied = |_: &Shop| Ok(Desired::new().child(secret("two")).children::<ConfigMap>([]));
    let shop = street.want(emptied, "False PruneBlocked").await?;
    assert!(message(&shop, "Ready").contains("has no ConfigMap any more"));
    street
        .want(
            |_| {
                Ok(Desired::new()
                    .without::<Secret>()
                    .children((0..7).map(|index| config(format!("shard-{index}")))))
            },
            "True Reconciled",
        )
        .await?;
    let shop = street.want(shards(3), "False PruneBlocked").await?;
    let text = message(&shop, "Ready");
    assert!(
        text.contains("kept 4 of 7 children") && text.contains("more than half"),
        "{text}"
    );
    assert!(street.has::<ConfigMap>("shard-6").await?);
    street.want(shards(4), "True Reconciled").await?;
    assert!(street.has::<ConfigMap>("shard-3").await? && !street.has::<ConfigMap>("shard-4").await?);

    // Renaming all of them is allowed: their replacements exist.
    let renamed =
        |_: &Shop| Ok(Desired::new().children((0..4).map(|index| config(format!("renamed-{index}")))));
    street.want(renamed, "True Reconciled").await?;
    assert!(street.has::<ConfigMap>("renamed-3").await? && !street.has::<ConfigMap>("shard-3").await?);

    // The author may allow it in the desired state, or for the controller.
    let all = |_: &Shop| Ok(Desired::new().prune(PrunePolicy::All));
    street.want(all, "True Reconciled").await?;
    assert!(!street.has::<ConfigMap>("renamed-0").await?);
    street.want(both, "True Reconciled").await?;
    street.stop().await?;
    street.run(shops(&street.plan).prune(PrunePolicy::All));
    street.want(|_| Ok(Desired::new()), "True Reconciled").await?;
    assert!(!street.has::<ConfigMap>("one").await? && !street.has::<Secret>("two").await?);
    street.stop().await
}

pub(crate) async fn undecided_keeps_children_and_status(case: Case) -> anyhow::Result<()> {
    let both = |_: &Shop| {
        let desired = Desired::new().child(config("one")).child(secret("two"));
        Ok(desired.status(json!({ "note": "ours" })))
    };
    let mut street = Street::new(&case, both).await?;
    street.wait_for_ready("True Reconciled").await?;
    let undecided = |_: &Shop| Ok(Desired::undecided("BankClosed", "the bank does not answer"));
    let shop = street.want(undecided, "Unknown BankClosed").await?;
    assert_eq!(
        all_shown(&shop),
        ["Ready Unknown BankClosed", "Reconciling True BankClosed"]
    );
    assert_eq!(message(&shop, "Ready"), "the bank does not answer");
    assert_eq!(
        shop.status.as_ref().and_then(|status| status.note.as_deref()),
        Some("ours")
    );
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(200))
        .await;
    street.writes();
    // A change that was not made by the controller stays: nothing is applied.
    let drift = json!({ "metadata": { "labels": { "windlass.dev/controller": "shops", "x": "y" } } });
    street.env.patch::<ConfigMap>("one", drift).await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(500))
        .await;
    assert_eq!(street.writes(), [""; 0], "no retry");
    assert!(street.has::<ConfigMap>("one").await? && street.has::<Secret>("two").await?);

    let requeued = |_: &Shop| {
        let desired = Desired::undecided("BankClosed", "the bank does not answer");
        let desired = desired.condition(ConditionUpdate::false_("Ready", "Poor"));
        Ok(desired.requeue_after(Duration::from_millis(50)))
    };
    let shop = street.want(requeued, "False Poor").await?;
    assert_eq!(
        all_shown(&shop),
        ["Ready False Poor", "Reconciling True BankClosed"]
    );
    replace(&street.plan, both);
    street.wait_for_ready("True Reconciled").await?;
    street.stop().await
}

/// While a child fails, nothing is deleted.
pub(crate) async fn nothing_is_pruned_while_a_child_fails(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, both).await?;
    street.wait_for_ready("True Reconciled").await?;
    let fails = |_: &Shop| Ok(Desired::new().child(config("Not_Valid!")).without::<Secret>());
    street.want(fails, "False Invalid").await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(200))
        .await;
    assert!(street.has::<ConfigMap>("one").await? && street.has::<Secret>("two").await?);
    street.stop().await
}

/// A replacement that needs the quota of its predecessor waits, unless exactly these children are wanted.
pub(crate) async fn quota_of_a_predecessor_is_freed_on_request(case: Case) -> anyhow::Result<()> {
    let old = |_: &Shop| Ok(Desired::new().child(config("old")));
    let mut street = Street::new(&case, old).await?;
    street.wait_for_ready("True Reconciled").await?;
    let refusal = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "configmaps \"new\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1",
    });
    street.env.proxy().respond(usize::MAX, refusal, |sent| {
        sent.is_write() && sent.is_about("configmaps", "new")
    });
    let new = |_: &Shop| Ok(Desired::new().child(config("new")));
    street.want(new, "False Forbidden").await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(200))
        .await;
    assert!(street.has::<ConfigMap>("old").await?);
    let exactly = |_: &Shop| Ok(Desired::new().child(config("new")).prune(PrunePolicy::All));
    street.want(exactly, "False Forbidden").await?;
    street.env.wait_until_deleted::<ConfigMap>("old").await?;
    street.stop().await
}

/// A second mistake for the same generation does not delete another half.
pub(crate) async fn deletions_of_a_generation_count_together(case: Case) -> anyhow::Result<()> {
    let shards = |count: usize| {
        move |_: &Shop| Ok(Desired::new().children((0..count).map(|index| config(format!("shard-{index}")))))
    };
    let mut street = Street::new(&case, shards(8)).await?;
    street.wait_for_ready("True Reconciled").await?;
    let again = async |street: &Street, label: &str| {
        let labels = json!({ "metadata": { "labels": { "again": label } } });
        street.env.patch::<Shop>("corner", labels).await.map(drop)
    };
    replace(&street.plan, shards(4));
    again(&street, "a").await?;
    street.env.wait_until_deleted::<ConfigMap>("shard-4").await?;
    street.env.wait_until_deleted::<ConfigMap>("shard-7").await?;
    replace(&street.plan, shards(1));
    again(&street, "b").await?;
    street.wait_for_ready("False PruneBlocked").await?;
    assert!(street.has::<ConfigMap>("shard-3").await?);
    street.want(shards(2), "True Reconciled").await?;
    assert!(!street.has::<ConfigMap>("shard-3").await?, "a new generation");
    street.stop().await
}

/// As a controller does with a time-to-live: the children go with the object.
pub(crate) async fn desired_can_delete_its_object(case: Case) -> anyhow::Result<()> {
    let mut street = Street::new(&case, both).await?;
    street.wait_for_ready("True Reconciled").await?;
    street.stop().await?;
    let finalizer = json!({ "metadata": { "finalizers": ["suite.windlass.dev/other"] } });
    street.env.patch::<Shop>("corner", finalizer).await?;
    let shops = Controller::<Shop>::new("shops")
        .owns::<ConfigMap>()
        .owns::<Secret>();
    street.writes();
    street.run(shops.declare(|shop: Arc<Shop>, ctx: Context| async move {
        ctx.writer().delete(&*shop).await?;
        Ok(Desired::new())
    }));
    let shop = street
        .wait(|shop| shop.metadata.deletion_timestamp.is_some())
        .await?;
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(300))
        .await;
    assert_eq!(street.writes(), ["delete shops/corner"]);
    let shop = street.env.get::<Shop>(&shop.name_any()).await?;
    assert_eq!(all_shown(&shop), ["Ready True Reconciled"]);
    street.stop().await?;
    let finalizer = json!({ "metadata": { "finalizers": null } });
    street.env.patch::<Shop>("corner", finalizer).await?;
    Ok(())
}

/// A `desired` that returns partial values at random, for many objects.
pub(crate) async fn storm_of_wrong_desired_values_loses_no_child(case: Case) -> anyhow::Result<()> {
    const SHOPS: usize = 12;
    /// From 2 to 8.
    fn configs(name: &str) -> usize {
        2 + name.bytes().map(usize::from).sum::<usize>() % 7
    }
    fn right(shop: &Shop) -> Desired {
        let name = shop.name_any();
        let configs = (0..configs(&name)).map(|index| config(format!("{name}-{index}")));
        Desired::new().children(configs).child(secret(name.as_str()))
    }
    let mut street = Street::closed(&case, |shop| Ok(right(shop))).await?;
    for index in 1..SHOPS {
        let shop = Shop::new(&format!("shop-{index}"), ShopSpec { size: 1 });
        street.env.create(shop).await?;
    }
    street.open();
    let names = || {
        (0..SHOPS).map(|index| {
            if index == 0 {
                "corner".to_owned()
            } else {
                format!("shop-{index}")
            }
        })
    };
    for name in names() {
        street
            .env
            .wait_for::<Shop>(&name, |shop| all_shown(shop) == ["Ready True Reconciled"])
            .await?;
    }
    let before = uids(&case).await?;
    let expected: usize = names().map(|name| configs(&name) + 1).sum();
    assert_eq!(before.len(), expected);

    let seed = AtomicU64::new(1);
    replace(&street.plan, move |shop| {
        // A linear congruential generator, so that the test is the same each time.
        let step = |seed: u64| {
            seed.wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407)
        };
        let random = seed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seed| Some(step(seed)));
        let name = shop.name_any();
        match random.unwrap_or(0) >> 33 & 7 {
            0 => Ok(Desired::new()),
            1 => Ok(Desired::new().children::<ConfigMap>([])),
            2 => Ok(Desired::new().child(secret(name))),
            3 => Ok(Desired::new().children([config(format!("{name}-0"))])),
            // Fewer children of a short list are no mistake that can be recognized.
            4 if configs(&name) > 4 => Ok(Desired::new()
                .children([config(format!("{name}-0"))])
                .child(secret(name))),
            4 => Ok(Desired::new().children::<ConfigMap>([]).child(secret(name))),
            5 => Ok(Desired::undecided("Lost", "no idea")),
            6 => Err("the API is down".into()),
            _ => Ok(right(shop)),
        }
    });
    for round in 0..4 {
        for name in names() {
            let change = json!({ "spec": { "size": 10 + round } });
            street.env.patch::<Shop>(&name, change).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    street
        .env
        .proxy()
        .wait_until_idle(Duration::from_millis(100))
        .await;
    replace(&street.plan, |shop| Ok(right(shop)));
    for name in names() {
        street
            .env
            .patch::<Shop>(&name, json!({ "spec": { "size": 20 } }))
            .await?;
    }
    for name in names() {
        street
            .env
            .wait_for::<Shop>(&name, |shop| {
                let observed = shop.status.as_ref().and_then(|status| status.observed_generation);
                observed == shop.metadata.generation && all_shown(shop) == ["Ready True Reconciled"]
            })
            .await?;
    }
    assert_eq!(uids(&case).await?, before, "the same objects");
    street.stop().await
}

/// The UIDs of all children by name.
async fn uids(case: &Case) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let ours = ListParams::default().labels("windlass.dev/controller=shops");
    let configs = case.api::<ConfigMap>().list(&ours).await?;
    let secrets = case.api::<Secret>().list(&ours).await?;
    let configs = configs.iter().map(|config| (config.name_any(), config.uid()));
    let secrets = secrets.iter().map(|secret| (secret.name_any(), secret.uid()));
    Ok(configs.chain(secrets).collect())
}
