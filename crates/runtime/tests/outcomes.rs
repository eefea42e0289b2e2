//! Backoff after each outcome, missed deletions, and fairness.

use crate::harness;
use crate::model;

use std::{sync::Arc, time::Duration};

use harness::{Log, Running, controller, done, recording, run, server, settle};
use model::{CONFIG_MAPS, Server, config_map, key};
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_runtime::{
    Action, Context, Error, Manager, ReconcileOutcome, Reconciler, Request, serving::ControllerState,
};

#[derive(Clone, Copy)]
enum Step {
    Fail,
    GiveUp,
    Later,
}

use Step::{Fail, GiveUp, Later};

/// A reconciler with a scripted result per attempt that then succeeds; and the times of the attempts.
fn scripted(steps: &'static [Step]) -> (impl Reconciler, Arc<Mutex<Vec<Instant>>>) {
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&times);
    let reconciler = move |_: Request, _: Context| {
        let mut noted = noted.lock();
        let step = steps.get(noted.len()).copied();
        noted.push(Instant::now());
        std::future::ready(match step {
            Some(Fail) => Err("not yet".into()),
            Some(GiveUp) => Err(Error::terminal("never")),
            Some(Later) => Ok(Action::requeue_after(Duration::from_secs(1))),
            None => Ok(Action::done()),
        })
    };
    (reconciler, times)
}

fn gaps(times: &Mutex<Vec<Instant>>) -> Vec<u128> {
    let times = times.lock();
    let gaps = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis());
    gaps.collect()
}

fn with_one_object() -> Server {
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    server
}

/// Success resets the backoff, also with a requeue, whose delay does not count as backoff.
#[tokio::test(start_paused = true)]
async fn only_success_resets_the_backoff() {
    let server = with_one_object();
    let (reconciler, times) = scripted(&[Fail, Fail, Later, Fail, Fail]);
    let (running, _) = run(&server, controller().reconcile(reconciler));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(gaps(&times), [5, 10, 1_000, 5, 10]);
    running.stop().await.expect("stops cleanly");
}

/// A change in between runs the object earlier, but keeps its failures.
#[tokio::test(start_paused = true)]
async fn change_does_not_reset_the_backoff() {
    let server = with_one_object();
    let (reconciler, times) = scripted(&[Fail; 6]);
    let (running, _) = run(&server, controller().reconcile(reconciler));
    // In the 80 ms after the fifth attempt.
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.put(CONFIG_MAPS, config_map("a", "2"));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let gaps = gaps(&times);
    assert_eq!(gaps[..4], [5, 10, 20, 40]);
    assert!(gaps[4] < 80, "the change did not wait: {gaps:?}");
    assert_eq!(gaps[5], 160, "{gaps:?}");
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn terminal_error_resets_the_failures() {
    let server = with_one_object();
    let (reconciler, times) = scripted(&[Fail, Fail, GiveUp, Fail, Fail]);
    let (running, _) = run(&server, controller().reconcile(reconciler));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(gaps(&times), [5, 10]);
    server.put(CONFIG_MAPS, config_map("a", "2"));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(gaps(&times)[3..], [5, 10]);
    running.stop().await.expect("stops cleanly");
}

/// A deletion that only a relist shows.
#[tokio::test(start_paused = true)]
async fn deletion_missed_by_the_watch_is_reconciled() {
    let (server, log) = (with_one_object(), Log::default());
    let (running, _) = run(&server, controller().reconcile(recording(&log, done)));
    settle().await;
    log.lock().clear();
    server.fail_next(model::RequestType::Watch, 500);
    server.break_watches();
    server.delete(CONFIG_MAPS, &key("a"));
    // The watch history is compacted.
    server.compact();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(*log.lock(), ["a"]);
    running.stop().await.expect("stops cleanly");
}

/// It sends no request and starts no task.
#[tokio::test(start_paused = true)]
async fn manager_does_nothing_before_it_runs() {
    let (server, log) = (with_one_object(), Log::default());
    // The server has a task of its own.
    let client = server.client();
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let manager = Manager::new(client)
        .controller(controller().reconcile(recording(&log, done)))
        .task("task", |_| async { Ok(()) })
        .elect(windlass_runtime::ElectionConfig::new("test"))
        .listen("127.0.0.1:0");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        before
    );
    assert!(server.requests().is_empty() && log.lock().is_empty());
    drop(manager);
}

/// Running reconciles are awaited however long they take.
#[tokio::test(start_paused = true)]
async fn grace_period_can_be_unlimited() {
    let (server, log) = (with_one_object(), Log::default());
    let slow = recording(&log, |_, ctx: Context| async move {
        ctx.stopping().await;
        tokio::time::sleep(Duration::from_hours(48)).await;
        Ok(Action::done())
    });
    let controller = controller().reconcile(slow);
    let outcomes = controller.outcomes();
    let manager = Manager::new(server.client())
        .controller(controller)
        .grace_period(Duration::MAX);
    let running = Running::start(manager);
    settle().await;
    running.stop().await.expect("the reconcile finished");
    assert_eq!(outcomes.done(), 1);
}

/// Reconciles that never wait do not block a thread.
#[tokio::test(start_paused = true)]
async fn reconciles_that_never_wait_yield_to_other_tasks() {
    const OBJECTS: usize = 2_000;
    let server = server();
    for number in 0..OBJECTS {
        server.put(CONFIG_MAPS, config_map(&number.to_string(), ""));
    }
    let (count, others) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(None)));
    let (counted, turn) = (Arc::clone(&count), Arc::clone(&others));
    let reconciler = move |_: Request, _: Context| {
        *counted.lock() += 1;
        if *counted.lock() == 1 {
            let (counted, turn) = (Arc::clone(&counted), Arc::clone(&turn));
            tokio::spawn(async move { *turn.lock() = Some(*counted.lock()) });
        }
        std::future::ready(Ok(Action::done()))
    };
    let (running, _) = run(&server, controller().reconcile(reconciler));
    settle().await;
    assert_eq!(*count.lock(), OBJECTS);
    let turn = others.lock().expect("another task ran");
    assert!(turn < OBJECTS, "another task waited for all reconciles");
    running.stop().await.expect("stops cleanly");
}

#[tokio::test(start_paused = true)]
async fn controller_status_has_the_last_reconcile() {
    let server = with_one_object();
    let steps = |_: Request, _: Context| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Err(Error::terminal("never"))
    };
    let manager = Manager::new(server.client()).controller(controller().reconcile(steps));
    let controllers = manager.controllers();
    let [before] = &controllers.status()[..] else {
        panic!("one controller: {controllers:?}")
    };
    assert_eq!((&before.state, &before.last), (&ControllerState::Starting, &None));
    let running = Running::start(manager);
    controllers.ready().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let [after] = &controllers.status()[..] else {
        panic!("one controller: {controllers:?}")
    };
    assert_eq!(after.state, ControllerState::Running);
    let last = after.last.as_ref().expect("a reconcile ran");
    assert_eq!((&*last.key, last.outcome), ("n/a", ReconcileOutcome::Terminal));
    assert!((last.seconds - 0.5).abs() < 0.01, "{last:?}");
    assert!((last.seconds_ago - 1.5).abs() < 0.1, "{last:?}");
    running.stop().await.expect("stops cleanly");
}
