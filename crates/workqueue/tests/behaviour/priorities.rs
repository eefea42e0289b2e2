//! Who goes first, and how long the others may have to wait.

use std::collections::VecDeque;

use tokio::time::advance;
use windlass_workqueue::{Add, Ageing, Priority, WorkQueue};

use crate::{at, ms, take_all};

/// 39.
#[test]
fn higher_priorities_go_first_and_equal_ones_in_order() {
    let queue = WorkQueue::new();
    for (key, priority) in [("a", -100), ("b", 0), ("c", 7), ("d", 0), ("e", 7), ("f", -100)] {
        queue.add_with(key, at(priority));
    }
    assert_eq!(take_all(&queue), ["c", "e", "b", "d", "a", "f"]);
}

/// 39: again and again, whether the adds are immediate or delayed.
#[tokio::test(start_paused = true)]
async fn urgent_keys_that_keep_coming_go_before_low_ones() {
    for delay in [0, 10] {
        let queue = WorkQueue::builder().ageing(Ageing::off()).build();
        for key in 0..20 {
            queue.add_with(
                key,
                Add {
                    after: ms(delay),
                    ..at(-100)
                },
            );
        }
        advance(ms(delay)).await;
        for key in 100..150 {
            queue.add_with(
                key,
                Add {
                    after: ms(delay),
                    ..at(0)
                },
            );
            advance(ms(delay)).await;
            let taken = queue.try_take().unwrap();
            assert_eq!(*taken.key(), key);
            taken.done();
        }
        assert_eq!(take_all(&queue), (0..20).collect::<Vec<_>>());
    }
}

/// 31, 32.
#[test]
fn a_queued_key_keeps_its_highest_priority() {
    let queue = WorkQueue::new();
    for priority in [1, 5, 3] {
        queue.add_with("a", at(priority));
    }
    let taken = queue.try_take().unwrap();
    assert_eq!(taken.priority(), Priority::new(5));
    taken.done();
    assert!(queue.is_empty());
}

/// 33.
#[test]
fn a_raised_key_goes_ahead_of_lower_ones_and_behind_its_new_equals() {
    let queue = WorkQueue::new();
    for (key, priority) in [("a", 0), ("b", 0), ("c", 0), ("d", 9), ("e", 9)] {
        queue.add_with(key, at(priority));
    }
    queue.add_with("b", at(9));
    assert_eq!(take_all(&queue), ["d", "e", "b", "a", "c"]);
}

#[test]
fn adds_during_work_are_queued_at_the_highest_priority_among_them() {
    let queue = WorkQueue::new();
    queue.add_with("a", at(50));
    let taken = queue.try_take().unwrap();
    for priority in [-100, 3, 1] {
        queue.add_with("a", at(priority));
    }
    taken.done();
    let taken = queue.try_take().unwrap();
    assert_eq!(
        taken.priority(),
        Priority::new(3),
        "the priority of the run that is over does not count"
    );
    taken.done();
}

/// 41.
#[tokio::test(start_paused = true)]
async fn an_urgent_key_that_becomes_due_goes_before_low_ones_that_are_queued() {
    let queue = WorkQueue::new();
    queue.add_with(
        "urgent",
        Add {
            after: ms(10),
            ..at(5)
        },
    );
    for key in ["a", "b"] {
        queue.add_with(key, at(-5));
    }
    advance(ms(10)).await;
    assert_eq!(take_all(&queue), ["urgent", "a", "b"]);
}

/// [178]: while urgent keys are always there, every low one is passed over as often as the option says, and no more.
#[test]
fn a_low_key_is_passed_over_as_often_as_the_option_says_and_no_more() {
    for (ageing, limit) in [
        (Ageing::default(), 9),
        (Ageing::passes(3), 3),
        (Ageing::passes(0), 0),
    ] {
        let queue = WorkQueue::builder().ageing(ageing).build();
        for low in 0..5 {
            queue.add_with(low, at(-100));
        }
        for urgent in 100..200 {
            queue.add_with(urgent, at(urgent));
        }
        let order = take_all(&queue);
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
fn without_ageing_a_low_key_waits_for_all_urgent_ones() {
    let queue = WorkQueue::builder().ageing(Ageing::off()).build();
    queue.add_with(0, at(-100));
    for urgent in 1..100 {
        queue.add(urgent);
    }
    assert_eq!(take_all(&queue).last(), Some(&0));
}

/// Urgent keys that are added all the time, and one that is raised all the time, do not keep the oldest waiting.
#[test]
fn ageing_holds_under_a_stream_of_new_and_raised_keys() {
    let queue = WorkQueue::builder().ageing(Ageing::passes(4)).build();
    queue.add_with(0, at(-100));
    for urgent in 1..100 {
        queue.add_with(urgent, at(1));
        queue.add_with(-1, at(urgent));
        let taken = queue.try_take().unwrap();
        let key = *taken.key();
        taken.done();
        if key == 0 {
            assert_eq!(urgent, 5, "four passes, and then the oldest");
            return;
        }
    }
    panic!("the oldest key starves");
}

/// A queue that shrinks moves its keys together in memory. Nobody notices: not the order, not the ages, not the hands, not
/// the delays.
#[tokio::test(start_paused = true)]
async fn nothing_changes_when_a_large_queue_has_become_small() {
    const KEYS: usize = 20_000;
    let queue = WorkQueue::builder().ageing(Ageing::passes(1)).build();
    let mut classes = [const { VecDeque::new() }; 3];
    for key in 0..KEYS {
        let class = key * 7 % 5 % 3;
        queue.add_with(key, at(i32::try_from(class).unwrap()));
        classes[class].push_back(key);
    }
    for key in KEYS..KEYS + 100 {
        queue.add_after(key, ms(u64::try_from(2 * KEYS - key).unwrap()));
    }
    let mut hands = Vec::new();
    for turn in 0..KEYS {
        // The most urgent and the oldest, in turns.
        let fronts = classes.iter_mut().filter(|class| !class.is_empty());
        let expected = if turn % 2 == 0 {
            fronts.last()
        } else {
            fronts.min_by_key(|class| class[0])
        };
        let taken = queue.try_take().unwrap();
        assert_eq!(
            Some(*taken.key()),
            expected.and_then(VecDeque::pop_front),
            "turn {turn}"
        );
        if turn % 400 == 399 {
            hands.push(taken);
        } else {
            taken.done();
        }
    }
    assert_eq!((queue.len(), queue.running(), queue.delayed()), (0, 50, 100));
    let held: Vec<_> = hands.iter().map(|hand| **hand).collect();
    for (key, hand) in held.iter().zip(hands) {
        queue.add(*key);
        assert!(hand.is_queued_again());
        hand.done();
    }
    assert_eq!(take_all(&queue), held);
    advance(ms(u64::try_from(KEYS).unwrap())).await;
    assert_eq!(take_all(&queue), (KEYS..KEYS + 100).rev().collect::<Vec<_>>());
}
