//! The work queue against client-go's and controller-runtime's. The cases are written again, line for line, in
//! `rivals/go/main.go`.

use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use windlass_workqueue::WorkQueue;

use crate::measure::{Measurement, measure};
use crate::rivals::{GoRivals, measure_ours};
use crate::rounds::{Contender, compare, print_head};

struct Case {
    /// What the rivals' program knows it by.
    name: &'static str,
    title: &'static str,
    ours: fn() -> Measurement,
}

const CASES: [Case; 4] = [
    Case {
        name: "cycle",
        title: "1,000 × (add, take, done), one thread",
        ours: cycle,
    },
    Case {
        name: "million",
        title: "add of 1,000,000 distinct keys",
        ours: million,
    },
    Case {
        name: "delayed",
        title: "1,000 delayed adds (the call alone)",
        ours: delayed,
    },
    Case {
        name: "crowd",
        title: "8 producers × 8 workers: add, take, done",
        ours: crowd,
    },
];

const RIVALS: [&str; 2] = ["client-go", "controller-runtime"];

/// Prints the table.
pub(crate) fn bench() -> anyhow::Result<()> {
    let go = GoRivals::build();
    if let Err(reason) = &go {
        println!("These are our figures alone: {reason:#}.\n");
    }
    print_head();
    for Case { name, title, .. } in CASES {
        let mut contenders: Vec<Contender<'_>> =
            vec![("windlass", Box::new(move || measure_ours("queue", name)))];
        if let Ok(go) = &go {
            for rival in RIVALS {
                contenders.push((rival, Box::new(move || go.measure(rival, name))));
            }
        }
        compare(title, &contenders)?;
    }
    Ok(())
}

/// Measures ours on one case and prints the result.
pub(crate) fn measure_case(name: &str) -> anyhow::Result<()> {
    let case = CASES
        .into_iter()
        .find(|case| case.name == name)
        .with_context(|| format!("no case `{name}`"))?;
    println!("{}", serde_json::to_string(&(case.ours)())?);
    Ok(())
}

fn cycle() -> Measurement {
    const KEYS: u32 = 1000;
    let runtime = one_thread();
    let queue = WorkQueue::<u64>::new();
    measure(
        KEYS,
        || (),
        |()| {
            runtime.block_on(async {
                for key in 0..u64::from(KEYS) {
                    queue.add(key);
                }
                for _ in 0..KEYS {
                    queue.take().await.expect("added above").done();
                }
            });
        },
    )
}

fn million() -> Measurement {
    const KEYS: u32 = 1_000_000;
    measure(KEYS, WorkQueue::<u64>::new, |queue| {
        for key in 0..u64::from(KEYS) {
            queue.add(key);
        }
    })
}

fn delayed() -> Measurement {
    const KEYS: u32 = 1000;
    // Between one and eleven minutes, in no order: multiples of a generator modulo a prime.
    let delays: Vec<_> = (1..=u64::from(KEYS))
        .map(|n| Duration::from_micros(60_000_000 + n * 7_919_003 % 600_000_007))
        .collect();
    measure(KEYS, WorkQueue::<usize>::new, |queue| {
        for (key, &delay) in delays.iter().enumerate() {
            queue.add_after(key, delay);
        }
    })
}

fn crowd() -> Measurement {
    const PRODUCERS: u32 = 8;
    const WORKERS: u32 = 8;
    const EACH: u32 = 25_000;
    let runtime = Builder::new_multi_thread().build().expect("a runtime");
    measure(PRODUCERS * EACH, WorkQueue::<u64>::new, |queue| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let queue = queue.clone();
                runtime.spawn(async move {
                    while let Some(taken) = queue.take().await {
                        taken.done();
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let queue = queue.clone();
                runtime.spawn(async move {
                    for n in 0..EACH {
                        queue.add(u64::from(producer * EACH + n));
                        // Goroutines are preempted; tasks have to give way.
                        tokio::task::consume_budget().await;
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for producer in producers {
                producer.await.expect("a producer does not panic");
            }
            queue.drain().await;
            for worker in workers {
                worker.await.expect("a worker does not panic");
            }
        });
    })
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}
