//! The behavior of `syncToStdout`.

use std::{num::NonZeroUsize, time::Duration};

use anyhow::Context as _;
use http::StatusCode;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    prelude::{ObjectKey, json},
};
use windlass_cluster::Backend;
use windlass_podwatch::Scope;
use windlass_suite::{CapturedLog, Context as Case, NetworkLink, TestEnvironment};

use crate::podwatch::{
    fixture::{new_env, pod, scope, shipped, start, start_on},
    scripted_printer::{Attempt, Gate, ScriptedPrinter},
};

const SYNC_A: &str = "Sync/Add/Update for Pod a";

fn gone(case: &Case, pod: &str) -> String {
    format!("Pod {}/{pod} does not exist anymore", case.namespace())
}

/// Passes ten minutes on the embedded server's paused clock; nothing elsewhere.
async fn pass_ten_minutes(case: &Case) {
    if case.cluster().backend() == Backend::Embedded {
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
}

async fn label(env: &TestEnvironment, pod: &str, value: &str) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "labels": { "n": value } } });
    env.patch::<Pod>(pod, patch).await?;
    Ok(())
}

/// One watch, of the pods of one namespace; nothing is printed again as time passes.
pub(crate) async fn pods_of_one_namespace_are_printed_once(case: Case) -> anyhow::Result<()> {
    let (env, other, printer) = (
        new_env(&case).await?,
        case.fresh().await?,
        ScriptedPrinter::default(),
    );
    TestEnvironment::new(&other).create(pod("elsewhere")).await?;
    env.create(pod("a")).await?;
    env.wait_for::<Pod>("a", |_| true).await?;
    let running = start(&env, &scope(&case), &printer);
    printer.wait_for_lines(&[SYNC_A]).await?;
    pass_ten_minutes(&case).await;
    printer.wait_for_lines(&[SYNC_A]).await?;
    let asked: Vec<_> = env
        .proxy()
        .requests()
        .iter()
        .map(|sent| sent.access.to_string())
        .collect();
    let pods = |asked: &String| asked.contains(case.namespace()) && asked.contains("pods");
    assert!(asked.iter().all(pods), "{asked:#?}");
    running.stop().await
}

pub(crate) async fn added_changed_and_deleted_pods_are_printed(case: Case) -> anyhow::Result<()> {
    let (env, printer) = (new_env(&case).await?, ScriptedPrinter::default());
    let running = start(&env, &scope(&case), &printer);
    env.create(pod("a")).await?;
    printer.wait_for_lines(&[SYNC_A]).await?;
    label(&env, "a", "1").await?;
    printer.wait_for_lines(&[SYNC_A; 2]).await?;
    env.delete::<Pod>("a").await?;
    // A server may update the pod before its deletion, and the line for the update shows the state when it is printed.
    let gone = gone(&case, "a");
    printer.wait(|log| log.lines.contains(&gone)).await?;
    let lines = printer.lines();
    let first_gone = lines
        .iter()
        .position(|line| *line == gone)
        .context("waited for")?;
    let (before, after) = lines.split_at(first_gone);
    assert!(
        before.iter().all(|line| line == SYNC_A) && after.iter().all(|line| *line == gone),
        "{lines:#?}"
    );
    running.stop().await
}

/// One of two namespaces is not listed yet, so nothing is printed.
pub(crate) async fn nothing_is_printed_before_the_caches_are_synced(case: Case) -> anyhow::Result<()> {
    let (env, other, printer) = (
        new_env(&case).await?,
        case.fresh().await?,
        ScriptedPrinter::default(),
    );
    TestEnvironment::new(&other).create(pod("b")).await?;
    env.create(pod("a")).await?;
    env.wait_for::<Pod>("a", |_| true).await?;
    let late = other.namespace().to_owned();
    env.proxy()
        .reject(3, StatusCode::SERVICE_UNAVAILABLE, move |sent| {
            sent.access.to_string().contains(&late)
        });
    let both = Scope {
        namespaces: vec![case.namespace().to_owned(), other.namespace().to_owned()],
        ..Scope::default()
    };
    let running = start(&env, &both, &printer);
    printer.wait(|log| log.lines.len() == 2).await?;
    // Three requests were rejected; the fourth one lists the namespace.
    let asked = env.proxy().requests().into_iter();
    let mut late = asked.filter(|sent| sent.access.to_string().contains(other.namespace()));
    let listed = late.nth(3).context("it was listed")?.at;
    let first = printer.attempts()[0].0;
    assert!(first >= listed, "printed before the last list request");
    running.stop().await
}

pub(crate) async fn changes_while_a_pod_is_processed_print_one_more_line(case: Case) -> anyhow::Result<()> {
    let (env, printer, gate) = (new_env(&case).await?, ScriptedPrinter::default(), Gate::new());
    printer.script("a", [Attempt::Wait(gate.clone())]);
    let running = start(&env, &scope(&case), &printer);
    env.create(pod("a")).await?;
    printer.wait(|log| log.printing == ["a"]).await?;
    for change in 0..10 {
        label(&env, "a", &change.to_string()).await?;
    }
    env.wait_for::<Pod>("a", |pod| {
        let labels = pod.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get("n"))
            .is_some_and(|n| n == "9")
    })
    .await?;
    gate.open();
    printer.wait(|log| log.lines.len() == 2).await?;
    // There is one worker, and it processes keys in order: other lines about `a` come before this one.
    env.create(pod("b")).await?;
    printer
        .wait(|log| log.lines.iter().any(|line| line.ends_with('b')))
        .await?;
    pass_ten_minutes(&case).await;
    let about_a = printer.lines().iter().filter(|line| **line == SYNC_A).count();
    // On an external server, the controller's watch may receive the last change after the test's watch.
    let most = if case.cluster().backend() == Backend::Embedded {
        2
    } else {
        3
    };
    assert!((2..=most).contains(&about_a), "{:#?}", printer.lines());
    running.stop().await
}

pub(crate) async fn a_pod_is_processed_by_one_worker_at_a_time(case: Case) -> anyhow::Result<()> {
    let (env, printer, gate) = (new_env(&case).await?, ScriptedPrinter::default(), Gate::new());
    for name in ["a", "b"] {
        printer.script(name, [Attempt::Wait(gate.clone())]);
        env.create(pod(name)).await?;
        env.wait_for::<Pod>(name, |_| true).await?;
    }
    let four = Scope {
        workers: NonZeroUsize::new(4).context("not zero")?,
        ..scope(&case)
    };
    let running = start(&env, &four, &printer);
    printer.wait(|log| log.printing.len() == 2).await?;
    label(&env, "a", "again").await?;
    env.create(pod("c")).await?;
    // Free workers take another pod, not one in progress.
    printer
        .wait(|log| log.lines.len() == 1 && log.printing.len() == 2)
        .await?;
    gate.open();
    gate.open();
    printer.wait(|log| log.lines.len() == 4).await?;
    assert!(!printer.overlapped());
    running.stop().await
}

pub(crate) async fn change_during_processing_prints_again(case: Case) -> anyhow::Result<()> {
    let (env, printer, gate) = (new_env(&case).await?, ScriptedPrinter::default(), Gate::new());
    printer.script("a", [Attempt::Wait(gate.clone())]);
    let running = start(&env, &scope(&case), &printer);
    env.create(pod("a")).await?;
    printer.wait(|log| log.printing == ["a"]).await?;
    env.delete::<Pod>("a").await?;
    env.wait_until_deleted::<Pod>("a").await?;
    gate.open();
    printer.wait_for_lines(&[SYNC_A, &gone(&case, "a")]).await?;
    running.stop().await
}

pub(crate) async fn failing_line_is_tried_six_times_then_dropped(case: Case) -> anyhow::Result<()> {
    let (log, env, printer) = (
        CapturedLog::start(),
        new_env(&case).await?,
        ScriptedPrinter::default(),
    );
    printer.script("a", (0..7).map(|_| Attempt::Fail));
    let running = start(&env, &scope(&case), &printer);
    env.create(pod("a")).await?;
    printer.wait(|log| log.attempts.len() == 6).await?;
    pass_ten_minutes(&case).await;
    let attempts = printer.attempts();
    assert_eq!(attempts.len(), 6, "the sixth is the last");
    if case.cluster().backend() == Backend::Embedded {
        let delays: Vec<_> = attempts
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0).as_millis())
            .collect();
        assert_eq!(delays, [5, 10, 20, 40, 80]);
    }
    let key = format!("{}/a", case.namespace());
    let dropped = |line: &str| line.contains("Dropping pod out of the queue") && line.contains(&key);
    let logged = async {
        while !log.text().lines().any(dropped) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(windlass_suite::STEP_TIMEOUT, logged)
        .await
        .context("the drop is not logged")?;
    // The next event resets the retries: the last scripted failure, then a success.
    label(&env, "a", "1").await?;
    printer.wait_for_lines(&[SYNC_A]).await?;
    assert_eq!(printer.attempts().len(), 8);
    running.stop().await
}

pub(crate) async fn success_resets_the_backoff(case: Case) -> anyhow::Result<()> {
    let (env, printer) = (new_env(&case).await?, ScriptedPrinter::default());
    let running = start(&env, &scope(&case), &printer);
    let nothing = Gate::new();
    nothing.open();
    printer.script(
        "a",
        [
            Attempt::Fail,
            Attempt::Fail,
            Attempt::Fail,
            Attempt::Wait(nothing),
            Attempt::Fail,
            Attempt::Fail,
        ],
    );
    env.create(pod("a")).await?;
    printer.wait_for_lines(&[SYNC_A]).await?;
    label(&env, "a", "1").await?;
    printer.wait_for_lines(&[SYNC_A; 2]).await?;
    let attempts = printer.attempts();
    assert_eq!(attempts.len(), 7);
    if case.cluster().backend() == Backend::Embedded {
        let delay = |nth: usize| (attempts[nth].0 - attempts[nth - 1].0).as_millis();
        assert_eq!([delay(1), delay(2), delay(3)], [5, 10, 20]);
        assert_eq!([delay(5), delay(6)], [5, 10], "the backoff was reset");
    }
    running.stop().await
}

/// A deleted pod is never printed as existing afterwards.
pub(crate) async fn printed_state_is_never_stale(case: Case) -> anyhow::Result<()> {
    let (env, printer) = (new_env(&case).await?, ScriptedPrinter::default());
    let running = start(&env, &scope(&case), &printer);
    for round in 0..20 {
        let name = format!("p{round}");
        env.create(pod(&name)).await?;
        let there = format!("Sync/Add/Update for Pod {name}");
        printer.wait(|log| log.lines.contains(&there)).await?;
        env.delete::<Pod>(&name).await?;
        let gone = gone(&case, &name);
        printer.wait(|log| log.lines.contains(&gone)).await?;
    }
    pass_ten_minutes(&case).await;
    for round in 0..20 {
        let name = format!("p{round}");
        let (there, gone) = (format!("Sync/Add/Update for Pod {name}"), gone(&case, &name));
        let last = printer
            .lines()
            .into_iter()
            .rfind(|line| [&there, &gone].contains(&line));
        assert_eq!(last, Some(gone));
    }
    running.stop().await
}

pub(crate) async fn known_pod_that_is_gone_is_printed_after_the_sync(case: Case) -> anyhow::Result<()> {
    let (env, printer) = (new_env(&case).await?, ScriptedPrinter::default());
    env.create(pod("a")).await?;
    env.wait_for::<Pod>("a", |_| true).await?;
    let namespace = case.namespace().to_owned();
    let warm = Scope {
        known: ["mypod", "a"]
            .map(|name| ObjectKey::namespaced(namespace.as_str(), name))
            .to_vec(),
        ..scope(&case)
    };
    env.proxy().reject(2, StatusCode::SERVICE_UNAVAILABLE, |_| true);
    let running = start(&env, &warm, &printer);
    printer.wait(|log| log.lines.len() == 2).await?;
    pass_ten_minutes(&case).await;
    let mut lines = printer.lines();
    lines.sort();
    assert_eq!(
        lines,
        [gone(&case, "mypod"), SYNC_A.to_owned()],
        "an existing pod is printed once"
    );
    let synced = env.proxy().requests()[2].at;
    assert!(printer.attempts().iter().all(|(at, _)| *at >= synced));
    running.stop().await
}

pub(crate) async fn stop_waits_for_the_line_in_progress(case: Case) -> anyhow::Result<()> {
    let (env, printer, gate) = (new_env(&case).await?, ScriptedPrinter::default(), Gate::new());
    printer.script("a", [Attempt::Wait(gate.clone())]);
    let running = start(&env, &scope(&case), &printer);
    env.create(pod("a")).await?;
    printer.wait(|log| log.printing == ["a"]).await?;
    env.create(pod("b")).await?;
    let stopping = tokio::spawn(running.stop());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!stopping.is_finished(), "it waits");
    gate.open();
    stopping.await??;
    assert_eq!(
        printer.lines(),
        [SYNC_A],
        "the line is complete, and no other one was started"
    );
    Ok(())
}

/// The watch cannot resume, so the deletion follows from a relist.
pub(crate) async fn deletion_during_disconnect_is_printed(case: Case) -> anyhow::Result<()> {
    let (env, printer) = (new_env(&case).await?, ScriptedPrinter::default());
    let line = NetworkLink::new(env.proxy().client());
    let running = start_on(line.client(), &scope(&case), &printer);
    for name in ["a", "b"] {
        env.create(pod(name)).await?;
    }
    printer.wait(|log| log.lines.len() == 2).await?;
    line.disconnect();
    env.delete::<Pod>("b").await?;
    env.wait_until_deleted::<Pod>("b").await?;
    env.proxy().reject(1, StatusCode::GONE, |_| true);
    line.reconnect();
    printer.wait(|log| log.lines.len() == 3).await?;
    pass_ten_minutes(&case).await;
    assert_eq!(printer.lines()[2..], [gone(&case, "b")]);
    running.stop().await
}

/// Better than client-go, which restarts a panicked worker after a second.
pub(crate) async fn panic_costs_one_attempt_and_no_worker(case: Case) -> anyhow::Result<()> {
    let (env, printer) = (new_env(&case).await?, ScriptedPrinter::default());
    printer.script("a", [Attempt::Panic, Attempt::Panic]);
    let running = start(&env, &scope(&case), &printer);
    env.create(pod("a")).await?;
    env.create(pod("b")).await?;
    printer.wait(|log| log.lines.len() == 2).await?;
    let about_a = printer
        .attempts()
        .iter()
        .filter(|(_, line)| line == SYNC_A)
        .count();
    assert_eq!(about_a, 3);
    running.stop().await
}

/// The queue coalesces the deletion and the new pod into one key; the UID differs.
pub(crate) async fn recreated_pod_is_printed_as_deleted_and_added(case: Case) -> anyhow::Result<()> {
    let (env, printer, gate) = (new_env(&case).await?, ScriptedPrinter::default(), Gate::new());
    let running = start(&env, &scope(&case), &printer);
    env.create(pod("a")).await?;
    printer.wait_for_lines(&[SYNC_A]).await?;
    printer.script("busy", [Attempt::Wait(gate.clone())]);
    env.create(pod("busy")).await?;
    printer.wait(|log| log.printing == ["busy"]).await?;
    env.delete::<Pod>("a").await?;
    let second = env.create(pod("a")).await?;
    env.wait_for::<Pod>("a", |pod| pod.metadata.uid == second.metadata.uid)
        .await?;
    gate.open();
    let busy = "Sync/Add/Update for Pod busy";
    printer
        .wait_for_lines(&[SYNC_A, busy, &gone(&case, "a"), SYNC_A])
        .await?;
    running.stop().await
}

pub(crate) async fn selectors_limit_the_printed_pods(case: Case) -> anyhow::Result<()> {
    let (env, printer) = (new_env(&case).await?, ScriptedPrinter::default());
    for (name, app) in [("a", "web"), ("b", "db")] {
        let mut pod = pod(name);
        pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        env.create(pod).await?;
        env.wait_for::<Pod>(name, |_| true).await?;
    }
    let web = Scope {
        labels: Some("app=web".to_owned()),
        fields: Some("metadata.name!=c".to_owned()),
        ..scope(&case)
    };
    let running = start(&env, &web, &printer);
    printer.wait_for_lines(&[SYNC_A]).await?;
    // A pod that no longer matches counts as deleted.
    env.patch::<Pod>("a", json!({ "metadata": { "labels": { "app": "db" } } }))
        .await?;
    printer.wait_for_lines(&[SYNC_A, &gone(&case, "a")]).await?;
    running.stop().await
}

/// No request is forbidden, and no right is unused.
pub(crate) async fn shipped_rights_are_sufficient_and_minimal(case: Case) -> anyhow::Result<()> {
    let (env, printer) = (new_env(&case).await?, ScriptedPrinter::default());
    // A server without streaming lists makes the cache list.
    env.proxy().reject(1, StatusCode::UNPROCESSABLE_ENTITY, |sent| {
        sent.access.verb == "watch"
    });
    env.create(pod("a")).await?;
    env.wait_for::<Pod>("a", |_| true).await?;
    let running = start(&env, &scope(&case), &printer);
    printer.wait_for_lines(&[SYNC_A]).await?;
    running.stop().await?;
    assert_eq!(shipped().forbidden(), [""; 0]);
    assert_eq!(shipped().unused(), []);
    Ok(())
}
