//! The work queue against client-go's and controller-runtime's. `rivals/go/main.go` has the same cases, line by line.

use std::time::Duration;

use anyhow::bail;
use tokio::runtime::{Builder, Runtime};
use windlass_bench::{
    cases::{Case, Measurements, Plan, compare},
    report::{OURS, Report},
    rivals::{GoRivals, own_command},
};
use windlass_workqueue::WorkQueue;

use crate::measure::{VALUES, measure};

const ALL: &[&str] = &[OURS, RIVAL, "controller-runtime"];

const RIVAL: &str = "client-go";

const CASES: [Case; 4] = [
    case("cycle", "1,000 × (add, take, done), one thread"),
    case("million", "add of 1,000,000 distinct keys"),
    case("delayed", "1,000 delayed adds (the call alone)"),
    case("crowd", "8 producers × 8 workers: add, take, done"),
];

const fn case(name: &'static str, title: &'static str) -> Case {
    Case {
        title,
        name,
        number: 0,
        contenders: ALL,
        values: VALUES,
    }
}

/// Measures all cases; without Go, only ours.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let go = GoRivals::build_or_warn();
    let mut report = Report::new("queue", RIVAL);
    compare(&mut report, plan, &CASES, |case, contender| {
        if contender == OURS {
            let mut command = own_command()?;
            command.args(["queue", case.name]);
            return Ok(Some(command));
        }
        Ok(go.as_ref().map(|go| {
            let mut command = go.command();
            command.args(["-rival", contender, "-case", case.name]);
            command
        }))
    })?;
    Ok(report)
}

/// Measures our queue on one case.
pub(crate) fn measure_case(name: &str) -> anyhow::Result<Measurements> {
    Ok(match name {
        "cycle" => cycle(),
        "million" => million(),
        "delayed" => delayed(),
        "crowd" => crowd(),
        _ => bail!("unknown case `{name}`"),
    })
}

fn cycle() -> Measurements {
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
                    queue.next().await.expect("added above").done();
                }
            });
        },
    )
}

fn million() -> Measurements {
    const KEYS: u32 = 1_000_000;
    measure(KEYS, WorkQueue::<u64>::new, |queue| {
        for key in 0..u64::from(KEYS) {
            queue.add(key);
        }
    })
}

fn delayed() -> Measurements {
    const KEYS: u32 = 1000;
    // Delays between one and eleven minutes in no order: multiples of a generator modulo a prime.
    let delays: Vec<_> = (1..=u64::from(KEYS))
        .map(|n| Duration::from_micros(60_000_000 + n * 7_919_003 % 600_000_007))
        .collect();
    measure(KEYS, WorkQueue::<usize>::new, |queue| {
        for (key, &delay) in delays.iter().enumerate() {
            queue.add_after(key, delay);
        }
    })
}

fn crowd() -> Measurements {
    const PRODUCERS: u32 = 8;
    const WORKERS: u32 = 8;
    const EACH: u32 = 25_000;
    let runtime = Builder::new_multi_thread().build().expect("a runtime");
    measure(PRODUCERS * EACH, WorkQueue::<u64>::new, |queue| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let queue = queue.clone();
                runtime.spawn(async move {
                    while let Some(taken) = queue.next().await {
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
                        // Goroutines are preempted; tasks have to yield.
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
