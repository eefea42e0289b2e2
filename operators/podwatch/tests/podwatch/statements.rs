//! The statements about `syncToStdout`, by their numbers.

use std::{num::NonZeroUsize, time::Duration};

use anyhow::Context as _;
use http::StatusCode;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    prelude::{ObjectKey, json},
};
use windlass_cluster::Backend;
use windlass_podwatch::Scope;
use windlass_suite::{Context as Case, Line, Log, World};

use crate::{
    paper::{Act, Gate, Paper},
    world::{pod, scope, shipped, start, start_on, world},
};

const SYNC_A: &str = "Sync/Add/Update for Pod a";

fn gone(case: &Case, pod: &str) -> String {
    format!("Pod {}/{pod} does not exist anymore", case.namespace())
}

/// On a paused clock it is over at once.
async fn a_long_time(case: &Case) {
    if case.cluster().backend() == Backend::Embedded {
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
}

async fn label(world: &World, pod: &str, value: &str) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "labels": { "n": value } } });
    world.patch::<Pod>(pod, patch).await?;
    Ok(())
}

/// 1: one watch, of the pods of one namespace; nothing is told again because time passes.
pub(crate) async fn it_watches_pods_of_one_namespace_and_does_not_repeat_itself(
    case: Case,
) -> anyhow::Result<()> {
    let (world, other, paper) = (world(&case).await?, case.anew().await?, Paper::default());
    World::new(&other).create(pod("elsewhere")).await?;
    world.create(pod("a")).await?;
    world.wait_for::<Pod>("a", |_| true).await?;
    let running = start(&world, &scope(&case), &paper);
    paper.reads(&[SYNC_A]).await?;
    a_long_time(&case).await;
    paper.reads(&[SYNC_A]).await?;
    let asked: Vec<_> = world
        .wire()
        .sent()
        .iter()
        .map(|sent| sent.access.to_string())
        .collect();
    let pods = |asked: &String| asked.contains(case.namespace()) && asked.contains("pods");
    assert!(asked.iter().all(pods), "{asked:#?}");
    running.stop().await
}

/// 2, 3.
pub(crate) async fn each_pod_that_comes_changes_or_goes_has_its_line(case: Case) -> anyhow::Result<()> {
    let (world, paper) = (world(&case).await?, Paper::default());
    let running = start(&world, &scope(&case), &paper);
    world.create(pod("a")).await?;
    paper.reads(&[SYNC_A]).await?;
    label(&world, "a", "1").await?;
    paper.reads(&[SYNC_A; 2]).await?;
    world.delete::<Pod>("a").await?;
    // A server may announce a deletion by a change, and what is said about that change is what is so when it is said.
    let gone = gone(&case, "a");
    paper.wait(|sheet| sheet.lines.contains(&gone)).await?;
    let lines = paper.lines();
    let told = lines
        .iter()
        .position(|line| *line == gone)
        .context("waited for")?;
    let (before, after) = lines.split_at(told);
    assert!(
        before.iter().all(|line| line == SYNC_A) && after.iter().all(|line| *line == gone),
        "{lines:#?}"
    );
    running.stop().await
}

/// 4: of two namespaces one is not listed yet, and so nothing is known.
pub(crate) async fn nothing_is_printed_before_all_is_known(case: Case) -> anyhow::Result<()> {
    let (world, other, paper) = (world(&case).await?, case.anew().await?, Paper::default());
    World::new(&other).create(pod("b")).await?;
    world.create(pod("a")).await?;
    world.wait_for::<Pod>("a", |_| true).await?;
    let late = other.namespace().to_owned();
    world
        .wire()
        .refuse(3, StatusCode::SERVICE_UNAVAILABLE, move |sent| {
            sent.access.to_string().contains(&late)
        });
    let both = Scope {
        namespaces: vec![case.namespace().to_owned(), other.namespace().to_owned()],
        ..Scope::default()
    };
    let running = start(&world, &both, &paper);
    paper.wait(|sheet| sheet.lines.len() == 2).await?;
    // Three were refused; what is there is known when the one after them is answered.
    let asked = world.wire().sent().into_iter();
    let mut late = asked.filter(|sent| sent.access.to_string().contains(other.namespace()));
    let listed = late.nth(3).context("it was listed")?.at;
    let first = paper.attempts()[0].0;
    assert!(first >= listed, "printed before the last list was asked for");
    running.stop().await
}

/// 5.
pub(crate) async fn many_changes_while_a_pod_is_busy_are_one_more_line(case: Case) -> anyhow::Result<()> {
    let (world, paper, gate) = (world(&case).await?, Paper::default(), Gate::new());
    paper.plan("a", [Act::Wait(gate.clone())]);
    let running = start(&world, &scope(&case), &paper);
    world.create(pod("a")).await?;
    paper.wait(|sheet| sheet.printing == ["a"]).await?;
    for change in 0..10 {
        label(&world, "a", &change.to_string()).await?;
    }
    world
        .wait_for::<Pod>("a", |pod| {
            let labels = pod.metadata.labels.as_ref();
            labels
                .and_then(|labels| labels.get("n"))
                .is_some_and(|n| n == "9")
        })
        .await?;
    gate.open();
    paper.wait(|sheet| sheet.lines.len() == 2).await?;
    // There is one worker, and it takes keys in their order: what else there was to print comes before this.
    world.create(pod("b")).await?;
    paper
        .wait(|sheet| sheet.lines.iter().any(|line| line.ends_with('b')))
        .await?;
    a_long_time(&case).await;
    let about_a = paper.lines().iter().filter(|line| **line == SYNC_A).count();
    // Of a server outside, the controller's watch may hear of the last change after the test's own.
    let most = if case.cluster().backend() == Backend::Embedded {
        2
    } else {
        3
    };
    assert!((2..=most).contains(&about_a), "{:#?}", paper.lines());
    running.stop().await
}

/// 6.
pub(crate) async fn one_pod_is_with_one_worker_and_two_pods_are_with_two(case: Case) -> anyhow::Result<()> {
    let (world, paper, gate) = (world(&case).await?, Paper::default(), Gate::new());
    for name in ["a", "b"] {
        paper.plan(name, [Act::Wait(gate.clone())]);
        world.create(pod(name)).await?;
        world.wait_for::<Pod>(name, |_| true).await?;
    }
    let four = Scope {
        workers: NonZeroUsize::new(4).context("not zero")?,
        ..scope(&case)
    };
    let running = start(&world, &four, &paper);
    paper.wait(|sheet| sheet.printing.len() == 2).await?;
    label(&world, "a", "again").await?;
    world.create(pod("c")).await?;
    // There are free workers, and they take another pod rather than the same.
    paper
        .wait(|sheet| sheet.lines.len() == 1 && sheet.printing.len() == 2)
        .await?;
    gate.open();
    gate.open();
    paper.wait(|sheet| sheet.lines.len() == 4).await?;
    assert!(!paper.clashed());
    running.stop().await
}

/// 7.
pub(crate) async fn a_change_while_a_pod_is_printed_prints_it_again(case: Case) -> anyhow::Result<()> {
    let (world, paper, gate) = (world(&case).await?, Paper::default(), Gate::new());
    paper.plan("a", [Act::Wait(gate.clone())]);
    let running = start(&world, &scope(&case), &paper);
    world.create(pod("a")).await?;
    paper.wait(|sheet| sheet.printing == ["a"]).await?;
    world.delete::<Pod>("a").await?;
    world.wait_gone::<Pod>("a").await?;
    gate.open();
    paper.reads(&[SYNC_A, &gone(&case, "a")]).await?;
    running.stop().await
}

/// 8.
pub(crate) async fn a_line_that_fails_is_tried_six_times_and_then_dropped(case: Case) -> anyhow::Result<()> {
    let (log, world, paper) = (Log::begin(), world(&case).await?, Paper::default());
    paper.plan("a", (0..7).map(|_| Act::Fail));
    let running = start(&world, &scope(&case), &paper);
    world.create(pod("a")).await?;
    paper.wait(|sheet| sheet.attempts.len() == 6).await?;
    a_long_time(&case).await;
    let attempts = paper.attempts();
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
    let told = async {
        while !log.text().lines().any(dropped) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(windlass_suite::DEADLINE, told)
        .await
        .context("nobody is told")?;
    // The next event starts afresh: another failure, and this time another attempt.
    label(&world, "a", "1").await?;
    paper.reads(&[SYNC_A]).await?;
    assert_eq!(paper.attempts().len(), 8);
    running.stop().await
}

/// 9.
pub(crate) async fn a_line_that_worked_is_forgotten_by_the_backoff(case: Case) -> anyhow::Result<()> {
    let (world, paper) = (world(&case).await?, Paper::default());
    let running = start(&world, &scope(&case), &paper);
    let nothing = Gate::new();
    nothing.open();
    paper.plan(
        "a",
        [
            Act::Fail,
            Act::Fail,
            Act::Fail,
            Act::Wait(nothing),
            Act::Fail,
            Act::Fail,
        ],
    );
    world.create(pod("a")).await?;
    paper.reads(&[SYNC_A]).await?;
    label(&world, "a", "1").await?;
    paper.reads(&[SYNC_A; 2]).await?;
    let attempts = paper.attempts();
    assert_eq!(attempts.len(), 7);
    if case.cluster().backend() == Backend::Embedded {
        let delay = |nth: usize| (attempts[nth].0 - attempts[nth - 1].0).as_millis();
        assert_eq!([delay(1), delay(2), delay(3)], [5, 10, 20]);
        assert_eq!([delay(5), delay(6)], [5, 10], "it begins anew");
    }
    running.stop().await
}

/// 10: what is printed last is what is there; a pod that is gone is never printed as one that is there.
pub(crate) async fn a_line_is_at_least_as_new_as_what_caused_it(case: Case) -> anyhow::Result<()> {
    let (world, paper) = (world(&case).await?, Paper::default());
    let running = start(&world, &scope(&case), &paper);
    for round in 0..20 {
        let name = format!("p{round}");
        world.create(pod(&name)).await?;
        let there = format!("Sync/Add/Update for Pod {name}");
        paper.wait(|sheet| sheet.lines.contains(&there)).await?;
        world.delete::<Pod>(&name).await?;
        let gone = gone(&case, &name);
        paper.wait(|sheet| sheet.lines.contains(&gone)).await?;
    }
    a_long_time(&case).await;
    for round in 0..20 {
        let name = format!("p{round}");
        let (there, gone) = (format!("Sync/Add/Update for Pod {name}"), gone(&case, &name));
        let last = paper
            .lines()
            .into_iter()
            .rfind(|line| [&there, &gone].contains(&line));
        assert_eq!(last, Some(gone));
    }
    running.stop().await
}

/// 11.
pub(crate) async fn a_pod_that_was_known_and_is_gone_is_told_of_after_the_sync(
    case: Case,
) -> anyhow::Result<()> {
    let (world, paper) = (world(&case).await?, Paper::default());
    world.create(pod("a")).await?;
    world.wait_for::<Pod>("a", |_| true).await?;
    let namespace = case.namespace().to_owned();
    let warm = Scope {
        known: ["mypod", "a"]
            .map(|name| ObjectKey::namespaced(namespace.as_str(), name))
            .to_vec(),
        ..scope(&case)
    };
    world.wire().refuse(2, StatusCode::SERVICE_UNAVAILABLE, |_| true);
    let running = start(&world, &warm, &paper);
    paper.wait(|sheet| sheet.lines.len() == 2).await?;
    a_long_time(&case).await;
    let mut lines = paper.lines();
    lines.sort();
    assert_eq!(
        lines,
        [gone(&case, "mypod"), SYNC_A.to_owned()],
        "one that is there is told once"
    );
    let synced = world.wire().sent()[2].at;
    assert!(paper.attempts().iter().all(|(at, _)| *at >= synced));
    running.stop().await
}

/// 12.
pub(crate) async fn a_stop_waits_for_the_line_that_is_being_printed(case: Case) -> anyhow::Result<()> {
    let (world, paper, gate) = (world(&case).await?, Paper::default(), Gate::new());
    paper.plan("a", [Act::Wait(gate.clone())]);
    let running = start(&world, &scope(&case), &paper);
    world.create(pod("a")).await?;
    paper.wait(|sheet| sheet.printing == ["a"]).await?;
    world.create(pod("b")).await?;
    let stopping = tokio::spawn(running.stop());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!stopping.is_finished(), "it waits");
    gate.open();
    stopping.await??;
    assert_eq!(
        paper.lines(),
        [SYNC_A],
        "the line is whole, and no other one was begun"
    );
    Ok(())
}

/// 13: the server's history does not reach back to it, so it follows from a list.
pub(crate) async fn a_pod_that_goes_while_the_connection_is_lost_is_told_of(
    case: Case,
) -> anyhow::Result<()> {
    let (world, paper) = (world(&case).await?, Paper::default());
    let line = Line::new(world.wire().client());
    let running = start_on(line.client(), &scope(&case), &paper);
    for name in ["a", "b"] {
        world.create(pod(name)).await?;
    }
    paper.wait(|sheet| sheet.lines.len() == 2).await?;
    line.cut();
    world.delete::<Pod>("b").await?;
    world.wait_gone::<Pod>("b").await?;
    world.wire().refuse(1, StatusCode::GONE, |_| true);
    line.mend();
    paper.wait(|sheet| sheet.lines.len() == 3).await?;
    a_long_time(&case).await;
    assert_eq!(paper.lines()[2..], [gone(&case, "b")]);
    running.stop().await
}

/// 14, and better: nobody waits a second for the worker.
pub(crate) async fn a_panic_costs_one_attempt_and_no_worker(case: Case) -> anyhow::Result<()> {
    let (world, paper) = (world(&case).await?, Paper::default());
    paper.plan("a", [Act::Panic, Act::Panic]);
    let running = start(&world, &scope(&case), &paper);
    world.create(pod("a")).await?;
    world.create(pod("b")).await?;
    paper.wait(|sheet| sheet.lines.len() == 2).await?;
    let about_a = paper.attempts().iter().filter(|(_, line)| line == SYNC_A).count();
    assert_eq!(about_a, 3);
    running.stop().await
}

/// 15: what the queue would take for one change is the end of one pod and the begin of another.
pub(crate) async fn a_pod_that_was_replaced_is_told_apart_by_its_uid(case: Case) -> anyhow::Result<()> {
    let (world, paper, gate) = (world(&case).await?, Paper::default(), Gate::new());
    let running = start(&world, &scope(&case), &paper);
    world.create(pod("a")).await?;
    paper.reads(&[SYNC_A]).await?;
    paper.plan("busy", [Act::Wait(gate.clone())]);
    world.create(pod("busy")).await?;
    paper.wait(|sheet| sheet.printing == ["busy"]).await?;
    world.delete::<Pod>("a").await?;
    let second = world.create(pod("a")).await?;
    world
        .wait_for::<Pod>("a", |pod| pod.metadata.uid == second.metadata.uid)
        .await?;
    gate.open();
    let busy = "Sync/Add/Update for Pod busy";
    paper.reads(&[SYNC_A, busy, &gone(&case, "a"), SYNC_A]).await?;
    running.stop().await
}

/// Selectors are the server's.
pub(crate) async fn only_pods_that_are_selected_have_lines(case: Case) -> anyhow::Result<()> {
    let (world, paper) = (world(&case).await?, Paper::default());
    for (name, app) in [("a", "web"), ("b", "db")] {
        let mut pod = pod(name);
        pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        world.create(pod).await?;
        world.wait_for::<Pod>(name, |_| true).await?;
    }
    let web = Scope {
        labels: Some("app=web".to_owned()),
        fields: Some("metadata.name!=c".to_owned()),
        ..scope(&case)
    };
    let running = start(&world, &web, &paper);
    paper.reads(&[SYNC_A]).await?;
    // One that leaves the selection is gone, as far as can be told.
    world
        .patch::<Pod>("a", json!({ "metadata": { "labels": { "app": "db" } } }))
        .await?;
    paper.reads(&[SYNC_A, &gone(&case, "a")]).await?;
    running.stop().await
}

/// Nothing was asked for that the shipped role does not grant, and nothing is granted that is not needed.
pub(crate) async fn the_shipped_rights_are_enough_and_not_too_many(case: Case) -> anyhow::Result<()> {
    let (world, paper) = (world(&case).await?, Paper::default());
    // A server that cannot stream the state at the start is asked for a list.
    world.wire().refuse(1, StatusCode::UNPROCESSABLE_ENTITY, |sent| {
        sent.access.verb == "watch"
    });
    world.create(pod("a")).await?;
    world.wait_for::<Pod>("a", |_| true).await?;
    let running = start(&world, &scope(&case), &paper);
    paper.reads(&[SYNC_A]).await?;
    running.stop().await?;
    assert_eq!(shipped().refused(), [""; 0]);
    assert_eq!(shipped().unused(), []);
    Ok(())
}
