//! Tags: what a key carries besides itself.

use std::sync::{Arc, Weak};

use tokio::time::advance;
use windlass_workqueue::{AddOptions, RetryDecision, Tag, WorkQueue};

use crate::behaviour::ms;

#[derive(Debug, PartialEq, Eq)]
struct Reasons(Vec<&'static str>);

impl Tag for Reasons {
    fn merge(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

fn queue() -> WorkQueue<&'static str, Reasons> {
    WorkQueue::builder().build_tagged()
}

fn add(queue: &WorkQueue<&'static str, Reasons>, key: &'static str, reason: &'static str) {
    queue.add_tagged(key, AddOptions::default(), Reasons(vec![reason]));
}

fn reasons(reasons: &[&'static str]) -> Reasons {
    Reasons(reasons.to_vec())
}

#[test]
fn tags_of_all_adds_before_a_run_are_merged() {
    let queue = queue();
    add(&queue, "a", "one");
    queue.add("a");
    add(&queue, "a", "two");
    queue.add("b");
    let mut a = queue.try_next().unwrap();
    assert_eq!(a.take_tag(), Some(reasons(&["one", "two"])));
    assert_eq!(a.take_tag(), None, "it was taken");
    a.done();
    let mut b = queue.try_next().unwrap();
    assert_eq!((*b.key(), b.take_tag()), ("b", None));
    b.done();
}

#[test]
fn add_during_a_run_tags_the_next_one() {
    let queue = queue();
    add(&queue, "a", "one");
    let mut item = queue.try_next().unwrap();
    add(&queue, "a", "two");
    assert_eq!(item.take_tag(), Some(reasons(&["one"])));
    item.done();
    let mut item = queue.try_next().unwrap();
    assert_eq!(item.take_tag(), Some(reasons(&["two"])));
    item.done();
}

#[tokio::test(start_paused = true)]
async fn retry_and_requeue_have_the_tag_that_was_set() {
    let queue = queue();
    add(&queue, "a", "one");
    let mut item = queue.try_next().unwrap();
    item.set_tag(Reasons(vec!["retry"]));
    item.fail();
    advance(ms(5)).await;
    let mut item = queue.try_next().unwrap();
    assert_eq!(item.take_tag(), Some(reasons(&["retry"])));
    item.set_tag(Reasons(vec!["requeue"]));
    item.requeue_after(ms(10));
    add(&queue, "a", "two");
    let mut item = queue.try_next().unwrap();
    assert_eq!(
        item.take_tag(),
        Some(reasons(&["requeue", "two"])),
        "an add ends the delay"
    );
    item.set_tag(Reasons(vec!["requeue"]));
    add(&queue, "a", "three");
    item.requeue_after(ms(10));
    let item = queue.try_next().unwrap();
    drop(item);
    advance(ms(5)).await;
    let mut item = queue.try_next().unwrap();
    assert_eq!(
        item.take_tag(),
        Some(reasons(&["three"])),
        "an add during the run wins, and a run that ends without an outcome keeps the tag"
    );
    item.done();
}

#[test]
fn dropped_key_has_no_tag() {
    let queue: WorkQueue<_, Reasons> = WorkQueue::builder().max_retries(0).build_tagged();
    add(&queue, "a", "one");
    let mut item = queue.try_next().unwrap();
    item.set_tag(Reasons(vec!["retry"]));
    queue.add("a");
    assert_eq!(item.fail(), RetryDecision::Dropped { failures: 1 });
    let mut item = queue.try_next().unwrap();
    assert_eq!(
        item.take_tag(),
        None,
        "it runs because of the add, not as a retry"
    );
    item.done();
}

struct Counted(#[expect(dead_code, reason = "counts references")] Arc<()>);

impl Tag for Counted {
    fn merge(&mut self, _: Self) {}
}

#[tokio::test(start_paused = true)]
async fn tags_are_dropped_with_their_keys() {
    let queue = WorkQueue::<&str>::builder().build_tagged();
    let tagged = |key, options: AddOptions| -> Weak<()> {
        let tag = Arc::new(());
        let weak = Arc::downgrade(&tag);
        queue.add_tagged(key, options, Counted(tag));
        weak
    };
    let later = AddOptions {
        after: ms(1000),
        ..AddOptions::default()
    };
    let done = tagged("done", AddOptions::default());
    queue.try_next().unwrap().done();
    let cancelled = tagged("cancelled", later);
    assert!(queue.cancel_delay(&"cancelled"));
    queue.add("running");
    let running = queue.try_next().unwrap();
    let cancelled_while_running = tagged("running", later);
    assert!(queue.cancel_delay(&"running"));
    let closed = tagged("closed", later);
    queue.close();
    let left = [done, cancelled, cancelled_while_running, closed].map(|tag| tag.upgrade().is_some());
    assert_eq!(left, [false; 4]);
    running.done();
}
