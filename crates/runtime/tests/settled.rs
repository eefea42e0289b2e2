//! What an outcome means for the attempts after it, and what is reconciled although nobody told of it.

mod harness;
#[path = "../../cache/tests/model/mod.rs"]
mod model;

use std::{sync::Arc, time::Duration};

use harness::{Log, Running, controller, done, noting, run, server, settle};
use model::{CONFIG_MAPS, Server, config_map, key};
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_runtime::{
    Action, Context, Error, Manager, Outcome, Reconciler, Request, serving::ControllerState,
};

#[derive(Clone, Copy)]
enum Step {
    Fail,
    GiveUp,
    Later,
}

use Step::{Fail, GiveUp, Later};

/// A reconciler that ends as it is told, attempt by attempt, and then well; and when the attempts were.
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

/// 133, 135: what worked is forgotten by the backoff, also if it asked to run again; its own delay is not the backoff's.
#[tokio::test(start_paused = true)]
async fn the_backoff_starts_anew_after_what_worked_and_only_then() {
    let server = with_one_object();
    let (reconciler, times) = scripted(&[Fail, Fail, Later, Fail, Fail]);
    let (running, _) = run(&server, controller().reconcile(reconciler));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(gaps(&times), [5, 10, 1_000, 5, 10]);
    running.stop().await.expect("it stops when asked");
}

/// 133: a change in between makes it run earlier, and does not make its failures forgotten.
#[tokio::test(start_paused = true)]
async fn a_change_does_not_reset_the_backoff() {
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
    running.stop().await.expect("it stops when asked");
}

/// 194: after a terminal error the next change starts with a clean slate.
#[tokio::test(start_paused = true)]
async fn a_terminal_error_clears_the_count_of_failures() {
    let server = with_one_object();
    let (reconciler, times) = scripted(&[Fail, Fail, GiveUp, Fail, Fail]);
    let (running, _) = run(&server, controller().reconcile(reconciler));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(gaps(&times), [5, 10]);
    server.put(CONFIG_MAPS, config_map("a", "2"));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(gaps(&times)[3..], [5, 10]);
    running.stop().await.expect("it stops when asked");
}

/// 151: a deletion that only a new list shows is one.
#[tokio::test(start_paused = true)]
async fn what_went_while_nobody_watched_is_reconciled() {
    let (server, log) = (with_one_object(), Log::default());
    let (running, _) = run(&server, controller().reconcile(noting(&log, done)));
    settle().await;
    log.lock().clear();
    server.fail(model::On::Watch, 500);
    server.break_watches();
    server.delete(CONFIG_MAPS, &key("a"));
    // What the watch would have told is not to be had any more.
    server.compact();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(*log.lock(), ["a"]);
    running.stop().await.expect("it stops when asked");
}

/// 141: what is built and not run asks for nothing and starts nothing.
#[tokio::test(start_paused = true)]
async fn a_manager_that_does_not_run_does_nothing() {
    let (server, log) = (with_one_object(), Log::default());
    // It has a task of its own.
    let client = server.client();
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let manager = Manager::new(client)
        .controller(controller().reconcile(noting(&log, done)))
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

/// 155: without an end, what runs is waited for however long it takes.
#[tokio::test(start_paused = true)]
async fn a_grace_period_may_be_without_an_end() {
    let (server, log) = (with_one_object(), Log::default());
    let slow = noting(&log, |_, ctx: Context| async move {
        ctx.stopping().await;
        tokio::time::sleep(Duration::from_hours(48)).await;
        Ok(Action::done())
    });
    let controller = controller().reconcile(slow);
    let outcomes = controller.outcomes();
    let manager = Manager::new(server.client())
        .controller(controller)
        .grace(Duration::MAX);
    let running = Running::start(manager);
    settle().await;
    running.stop().await.expect("it ended by itself");
    assert_eq!(outcomes.done(), 1);
}

/// Reconciles that never wait do not keep a thread to themselves.
#[tokio::test(start_paused = true)]
async fn reconciles_that_have_nothing_to_wait_for_leave_room_for_others() {
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
    assert!(turn < OBJECTS, "it had to wait for all of them");
    running.stop().await.expect("it stops when asked");
}

/// What a program that shows its controllers asks for.
#[tokio::test(start_paused = true)]
async fn the_controllers_of_a_manager_say_how_the_last_reconcile_ended() {
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
    let last = after.last.as_ref().expect("it ran");
    assert_eq!((&*last.key, last.outcome), ("n/a", Outcome::Terminal));
    assert!((last.seconds - 0.5).abs() < 0.01, "{last:?}");
    assert!((last.seconds_ago - 1.5).abs() < 0.1, "{last:?}");
    running.stop().await.expect("it stops when asked");
}
