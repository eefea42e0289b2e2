//! Metrics, exact to the millisecond.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{advance, sleep};
use windlass_workqueue::{Metrics, Priority, WorkQueue};

use crate::behaviour::{ms, with_priority};

#[derive(Default)]
struct Recorder(Mutex<Recorded>);

#[derive(Default, Debug, Clone, PartialEq)]
struct Recorded {
    depth: BTreeMap<i32, usize>,
    adds: u32,
    queued: Vec<Duration>,
    worked: Vec<Duration>,
    retries: u32,
    dropped: u32,
    running: (Duration, Duration),
}

impl Metrics for Recorder {
    fn depth(&self, priority: Priority, depth: usize) {
        self.0.lock().depth.insert(priority.value(), depth);
    }
    fn added(&self) {
        self.0.lock().adds += 1;
    }
    fn started(&self, queued: Duration) {
        self.0.lock().queued.push(queued);
    }
    fn finished(&self, worked: Duration) {
        self.0.lock().worked.push(worked);
    }
    fn retried(&self) {
        self.0.lock().retries += 1;
    }
    fn dropped(&self) {
        self.0.lock().dropped += 1;
    }
    fn running(&self, unfinished: Duration, longest: Duration) {
        self.0.lock().running = (unfinished, longest);
    }
}

fn queue_with_metrics() -> (WorkQueue<&'static str>, Arc<Recorder>) {
    let sink = Arc::new(Recorder::default());
    let queue = WorkQueue::builder()
        .max_retries(1)
        .metrics(Arc::clone(&sink) as Arc<dyn Metrics>)
        .build();
    (queue, sink)
}

#[tokio::test(start_paused = true)]
async fn metrics_are_exact() {
    let (queue, sink) = queue_with_metrics();
    let figures = || sink.0.lock().clone();
    queue.add("a");
    sleep(ms(50)).await;
    queue.add("a");
    assert_eq!(
        (figures().adds, figures().depth[&0]),
        (1, 1),
        "a duplicate does not count"
    );

    let a = queue.next().await.unwrap();
    assert_eq!((figures().queued, figures().depth[&0]), (vec![ms(50)], 0));
    sleep(ms(25)).await;
    queue.add("a");
    queue.add("a");
    assert_eq!(
        (figures().adds, figures().depth[&0]),
        (2, 1),
        "an add during processing does"
    );
    queue.add("b");
    let b = queue.next().await.unwrap();
    sleep(ms(10)).await;
    queue.report_metrics();
    assert_eq!(figures().running, (ms(45), ms(35)));
    a.done();
    assert_eq!(figures().worked, [ms(35)]);
    sleep(ms(5)).await;
    b.done();
    queue.report_metrics();
    assert_eq!(
        (figures().worked, figures().running),
        (vec![ms(35), ms(15)], (ms(0), ms(0)))
    );
    let a = queue.next().await.unwrap();
    assert_eq!(
        figures().queued,
        [ms(50), ms(0), ms(15)],
        "from the add, although the key was being processed then"
    );

    assert_eq!(figures().retries, 0);
    let _ = a.fail();
    queue.add_after("c", ms(1));
    queue.add_rate_limited("d");
    assert_eq!(
        (figures().retries, figures().adds),
        (3, 3),
        "a delayed add counts when it is due"
    );
    sleep(ms(10)).await;
    assert_eq!((queue.len(), figures().adds, figures().depth[&0]), (3, 6, 3));
    assert_eq!(figures().dropped, 0);
    let a = queue.next().await.unwrap();
    assert_eq!(*a.key(), "c");
    a.done();
    let _ = queue.next().await.unwrap().fail();
    assert_eq!(figures().dropped, 1, "`max_retries` is one");
}

#[tokio::test(start_paused = true)]
async fn plain_add_of_a_delayed_key_counts_once() {
    let (queue, sink) = queue_with_metrics();
    queue.add_after("a", ms(10));
    queue.add("a");
    advance(ms(20)).await;
    assert_eq!(queue.len(), 1);
    let figures = sink.0.lock().clone();
    assert_eq!((figures.adds, figures.depth[&0]), (1, 1));
}

#[test]
fn depth_follows_priority_changes() {
    let (queue, sink) = queue_with_metrics();
    let depth = || sink.0.lock().depth.clone();
    queue.add_with("a", with_priority(-100));
    queue.add_with("b", with_priority(-100));
    queue.add_with("a", with_priority(7));
    assert_eq!(depth(), BTreeMap::from([(-100, 1), (7, 1)]));
    let b_then = queue.try_next().unwrap();
    queue.add_with("a", with_priority(-100));
    queue.add_with("a", with_priority(0));
    queue.add_with("a", with_priority(9));
    assert_eq!(
        depth(),
        BTreeMap::from([(-100, 1), (0, 0), (7, 0), (9, 1)]),
        "also while it is being processed"
    );
    b_then.done();
    queue.try_next().unwrap().done();
    queue.try_next().unwrap().done();
    assert_eq!(depth(), BTreeMap::from([(-100, 0), (0, 0), (7, 0), (9, 0)]));
}

#[test]
fn queue_works_without_metrics() {
    let queue = WorkQueue::new();
    queue.add(1);
    queue.report_metrics();
    queue.try_next().unwrap().done();
}
