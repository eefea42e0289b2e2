//! Priorities and ageing.

use std::collections::VecDeque;

use tokio::time::advance;
use windlass_workqueue::{AddOptions, Ageing, Priority, WorkQueue};

use crate::behaviour::{ms, process_all, with_priority};

#[test]
fn higher_priorities_go_first_and_equal_ones_in_order_of_arrival() {
    let queue = WorkQueue::new();
    for (key, priority) in [("a", -100), ("b", 0), ("c", 7), ("d", 0), ("e", 7), ("f", -100)] {
        queue.add_with(key, with_priority(priority));
    }
    assert_eq!(process_all(&queue), ["c", "e", "b", "d", "a", "f"]);
}

/// Whether the adds are immediate or delayed.
#[tokio::test(start_paused = true)]
async fn without_ageing_a_stream_of_urgent_keys_goes_first() {
    for delay in [0, 10] {
        let queue = WorkQueue::builder().ageing(Ageing::off()).build();
        for key in 0..20 {
            queue.add_with(
                key,
                AddOptions {
                    after: ms(delay),
                    ..with_priority(-100)
                },
            );
        }
        advance(ms(delay)).await;
        for key in 100..150 {
            queue.add_with(
                key,
                AddOptions {
                    after: ms(delay),
                    ..with_priority(0)
                },
            );
            advance(ms(delay)).await;
            let item = queue.try_next().unwrap();
            assert_eq!(*item.key(), key);
            item.done();
        }
        assert_eq!(process_all(&queue), (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn queued_key_keeps_its_highest_priority() {
    let queue = WorkQueue::new();
    for priority in [1, 5, 3] {
        queue.add_with("a", with_priority(priority));
    }
    let item = queue.try_next().unwrap();
    assert_eq!(item.priority(), Priority::new(5));
    item.done();
    assert!(queue.is_empty());
}

#[test]
fn raised_key_goes_to_the_end_of_its_new_priority() {
    let queue = WorkQueue::new();
    for (key, priority) in [("a", 0), ("b", 0), ("c", 0), ("d", 9), ("e", 9)] {
        queue.add_with(key, with_priority(priority));
    }
    queue.add_with("b", with_priority(9));
    assert_eq!(process_all(&queue), ["d", "e", "b", "a", "c"]);
}

#[test]
fn adds_during_processing_keep_their_highest_priority() {
    let queue = WorkQueue::new();
    queue.add_with("a", with_priority(50));
    let item = queue.try_next().unwrap();
    for priority in [-100, 3, 1] {
        queue.add_with("a", with_priority(priority));
    }
    item.done();
    let item = queue.try_next().unwrap();
    assert_eq!(
        item.priority(),
        Priority::new(3),
        "the priority of the ended run does not count"
    );
    item.done();
}

#[tokio::test(start_paused = true)]
async fn due_urgent_key_goes_before_queued_low_ones() {
    let queue = WorkQueue::new();
    queue.add_with(
        "urgent",
        AddOptions {
            after: ms(10),
            ..with_priority(5)
        },
    );
    for key in ["a", "b"] {
        queue.add_with(key, with_priority(-5));
    }
    advance(ms(10)).await;
    assert_eq!(process_all(&queue), ["urgent", "a", "b"]);
}

#[test]
fn low_key_is_skipped_at_most_max_skips_times() {
    for (ageing, limit) in [
        (Ageing::default(), 9),
        (Ageing::max_skips(3), 3),
        (Ageing::max_skips(0), 0),
    ] {
        let queue = WorkQueue::builder().ageing(ageing).build();
        for low in 0..5 {
            queue.add_with(low, with_priority(-100));
        }
        for urgent in 100..200 {
            queue.add_with(urgent, with_priority(urgent));
        }
        let order = process_all(&queue);
        let turns_of_low: Vec<_> = order.iter().enumerate().filter(|(_, key)| **key < 100).collect();
        for (low, (turn, key)) in turns_of_low.into_iter().enumerate() {
            assert_eq!(
                (turn, usize::try_from(*key)),
                (low * (limit + 1) + limit, Ok(low)),
                "{ageing:?}"
            );
        }
    }
}

#[test]
fn without_ageing_a_low_key_waits_for_all_higher_ones() {
    let queue = WorkQueue::builder().ageing(Ageing::off()).build();
    queue.add_with(0, with_priority(-100));
    for urgent in 1..100 {
        queue.add(urgent);
    }
    assert_eq!(process_all(&queue).last(), Some(&0));
}

/// Neither a stream of urgent keys nor a key that is raised again and again starves the oldest one.
#[test]
fn ageing_bounds_skips_under_a_stream_of_new_and_raised_keys() {
    let queue = WorkQueue::builder().ageing(Ageing::max_skips(4)).build();
    queue.add_with(0, with_priority(-100));
    for urgent in 1..100 {
        queue.add_with(urgent, with_priority(1));
        queue.add_with(-1, with_priority(urgent));
        let item = queue.try_next().unwrap();
        let key = *item.key();
        item.done();
        if key == 0 {
            assert_eq!(urgent, 5, "four skips, and then the oldest");
            return;
        }
    }
    panic!("the oldest key starves");
}

/// A queue that shrinks moves its keys together in memory.
#[tokio::test(start_paused = true)]
async fn compaction_keeps_order_ages_runs_and_delays() {
    const KEYS: usize = 20_000;
    let queue = WorkQueue::builder().ageing(Ageing::max_skips(1)).build();
    let mut classes = [const { VecDeque::new() }; 3];
    for key in 0..KEYS {
        let class = key * 7 % 5 % 3;
        queue.add_with(key, with_priority(i32::try_from(class).unwrap()));
        classes[class].push_back(key);
    }
    for key in KEYS..KEYS + 100 {
        queue.add_after(key, ms(u64::try_from(2 * KEYS - key).unwrap()));
    }
    let mut held_items = Vec::new();
    for turn in 0..KEYS {
        // The most urgent and the oldest key, alternately.
        let fronts = classes.iter_mut().filter(|class| !class.is_empty());
        let expected = if turn % 2 == 0 {
            fronts.last()
        } else {
            fronts.min_by_key(|class| class[0])
        };
        let item = queue.try_next().unwrap();
        assert_eq!(
            Some(*item.key()),
            expected.and_then(VecDeque::pop_front),
            "turn {turn}"
        );
        if turn % 400 == 399 {
            held_items.push(item);
        } else {
            item.done();
        }
    }
    assert_eq!((queue.len(), queue.running(), queue.delayed()), (0, 50, 100));
    let keys: Vec<_> = held_items.iter().map(|item| **item).collect();
    for (key, item) in keys.iter().zip(held_items) {
        queue.add(*key);
        assert!(item.is_queued_again());
        item.done();
    }
    assert_eq!(process_all(&queue), keys);
    advance(ms(u64::try_from(KEYS).unwrap())).await;
    assert_eq!(process_all(&queue), (KEYS..KEYS + 100).rev().collect::<Vec<_>>());
}
