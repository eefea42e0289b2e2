//! Compares the queue with a simple model: random histories, and all short ones.
//!
//! Every operation of the queue holds its one lock from start to end, so histories of operations, polls and drops on
//! one thread cover every history that threads can produce. `threads.rs` tests the lock itself.

mod harness;
mod reference;

use harness::{Ending, Harness, Step};
use proptest::prelude::*;

const KEYS: u8 = 5;

fn any_step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    let priority = prop::sample::select(vec![-100, 0, 0, 7]);
    let millis = 1u64..40;
    prop_oneof![
        4 => (key.clone(), priority.clone()).prop_map(|(key, priority)| Step::Add { key, priority }),
        3 => (key.clone(), priority, millis.clone(), any::<bool>())
            .prop_map(|(key, priority, millis, replace)| Step::AddAfter { key, priority, millis, replace }),
        1 => key.clone().prop_map(|key| Step::AddRateLimited { key }),
        1 => key.clone().prop_map(|key| Step::CancelDelay { key }),
        1 => key.prop_map(|key| Step::Forget { key }),
        6 => (0usize..4).prop_map(|take| Step::Poll { take }),
        2 => (0usize..4).prop_map(|take| Step::DropCall { take }),
        2 => Just(Step::TryNext),
        5 => (0usize..4, any_end()).prop_map(|(item, end)| Step::End { item, end }),
        4 => (1u64..20).prop_map(|millis| Step::Advance { millis }),
    ]
}

fn any_end() -> impl Strategy<Value = Ending> {
    prop_oneof![
        3 => Just(Ending::Done),
        3 => Just(Ending::Fail),
        1 => Just(Ending::Drop),
        1 => Just(Ending::GiveUp),
        1 => Just(Ending::BackOff),
        2 => (0u64..30).prop_map(|millis| Ending::RequeueAfter { millis }),
    ]
}

fn block_on_paused_clock(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(work);
}

fn run(passes: Option<u32>, steps: &[Step]) {
    block_on_paused_clock(async {
        let mut harness = Harness::new(passes);
        for step in steps {
            harness.step(step).await;
        }
        harness.finish().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn queue_matches_the_model(
        passes in prop_oneof![Just(None), (0u32..5).prop_map(Some)],
        before in prop::collection::vec(any_step(), 0..120),
        after in prop::collection::vec(any_step(), 0..40),
    ) {
        let mut steps = before;
        steps.push(Step::Close);
        steps.extend(after);
        run(passes, &steps);
    }
}

/// All histories of six steps with two keys and two takes: no wake-up is ever lost.
#[test]
fn short_histories_lose_no_wake_up() {
    let alphabet = [
        Step::Add { key: 0, priority: 0 },
        Step::Add { key: 1, priority: 0 },
        Step::AddAfter {
            key: 1,
            priority: 0,
            millis: 10,
            replace: false,
        },
        Step::Poll { take: 0 },
        Step::Poll { take: 1 },
        Step::DropCall { take: 0 },
        Step::DropCall { take: 1 },
        Step::End {
            item: 0,
            end: Ending::Done,
        },
        Step::Advance { millis: 10 },
        Step::Close,
    ];
    block_on_paused_clock(async {
        let mut history = [0; 6];
        // The length of the prefix shared with the last history, which was compared already.
        let mut same = 0;
        loop {
            let mut harness = Harness::new(Some(9));
            for &step in &history[..same] {
                harness.step_without_compare(&alphabet[step]).await;
            }
            while same < history.len() && harness.step(&alphabet[history[same]]).await {
                same += 1;
            }
            // A history with a step that changes nothing equals a shorter one: skip all with this prefix.
            same = same.min(history.len() - 1);
            history[same + 1..].fill(0);
            while history[same] + 1 == alphabet.len() {
                history[same] = 0;
                if same == 0 {
                    return;
                }
                same -= 1;
            }
            history[same] += 1;
        }
    });
}
