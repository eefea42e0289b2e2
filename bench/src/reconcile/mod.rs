//! The controller against controller-runtime's and kube-rs': what a reconcile that has nothing to do costs, and how long
//! it takes from a change to the start of its reconcile.
//!
//! ```text
//!   windlass, controller-runtime, kube-rs   ── each in a process of its own, in turns
//!        └── HTTPS ──► the embedded server in a process of its own: a namespace with 20,001 ConfigMaps and a Secret,
//!                      and one with a single ConfigMap
//! ```
//!
//! Where there are many objects it is measured once all were reconciled for the first time and the controller's process is at
//! rest.
//!
//! - **noop**: every change of the Secret is mapped to 20,000 ConfigMaps; each reconcile reads its object from the cache and
//!   is done. From the first reconcile to the last, so that the server has no part in it. So many are more than our cache
//!   keeps decoded by default (32 MB), so that reads decode; 2,000 (`noop-few`) are not.
//! - **write**, **write-few**: the same, but each reconcile writes a new annotation to its object. The server is part of
//!   it, and is the same for all.
//! - **noop-alone**: the only object there is; each reconcile reads it and asks to come again at once. **write-alone**: each
//!   reconcile writes a new annotation to it, and that change leads to the next. An object is never reconciled twice at the
//!   same time, so that a second worker would have nothing to do.
//! - **wake**: so many reconciles are in flight and do not end; one more object is changed. From the call that writes it to
//!   the start of its reconcile: a round trip and a watch event are in every figure, also in that of nothing in flight.
//! - **latency**: server, writers and controller in one process, 5,000 writes per second to 5,000 objects in turn; from the
//!   call that writes to the start of the reconcile. A program in Go cannot be in this process.

mod again;
mod alone;
mod cluster;
mod figures;
mod flight;
mod kube_rs;
mod latency;
mod ours;

use anyhow::Context;
use windlass_bench::{
    cases::{Case, Figures, Line, Plan, compare},
    report::{OURS, Report, Unit},
};

use self::cluster::Server;
use crate::rivals::{GoRivals, own};

/// In which namespace nearly everything is.
const NAMESPACE: &str = "bench";

/// In which namespace one object is all there is.
const ALONE: &str = "bench-alone";

/// How many ConfigMaps there are. The last is the one that is changed while all others are in flight.
const OBJECTS: usize = 20_001;

/// How many of them are reconciled where many are.
const MANY: usize = 20_000;

/// How many of them are reconciled where few are.
const FEW: usize = 2_000;

/// The Secret that leads to them all.
const TRIGGER: &str = "trigger";

/// How often an object is changed to see when its reconcile starts.
const PROBES: usize = 200;

const RIVAL: &str = "controller-runtime";
const KUBE_RS: &str = "kube-rs";
const ALL: &[&str] = &[OURS, RIVAL, KUBE_RS];

const CASES: [Case; 18] = [
    per_second(
        "noop-alone",
        "no-op, 1 object that comes again at once, 1 worker",
        1,
    ),
    per_second("noop-few", "no-op, 2,000 objects, 1 worker", 1),
    per_second("noop-few", "no-op, 2,000 objects, 8 workers", 8),
    per_second("noop-few", "no-op, 2,000 objects, 64 workers", 64),
    per_second("noop", "no-op, 20,000 objects, 1 worker", 1),
    per_second("noop", "no-op, 20,000 objects, 8 workers", 8),
    per_second("noop", "no-op, 20,000 objects, 64 workers", 64),
    per_second(
        "write-alone",
        "one write, 1 object that each write wakes, 1 worker",
        1,
    ),
    per_second("write-few", "one write, 2,000 objects, 1 worker", 1),
    per_second("write-few", "one write, 2,000 objects, 8 workers", 8),
    per_second("write-few", "one write, 2,000 objects, 64 workers", 64),
    per_second("write", "one write, 20,000 objects, 1 worker", 1),
    per_second("write", "one write, 20,000 objects, 8 workers", 8),
    per_second("write", "one write, 20,000 objects, 64 workers", 64),
    latency(
        "wake",
        "change of 1 object to its reconcile, none in flight",
        0,
        ALL,
    ),
    latency(
        "wake",
        "change of 1 object to its reconcile, 1,000 in flight",
        1_000,
        ALL,
    ),
    latency(
        "wake",
        "change of 1 object to its reconcile, 20,000 in flight",
        20_000,
        ALL,
    ),
    latency("latency", "5,000 changes/s in-process", 5_000, &[OURS, KUBE_RS]),
];

const fn per_second(name: &'static str, title: &'static str, workers: usize) -> Case {
    Case {
        title,
        name,
        number: workers,
        contenders: ALL,
        lines: &[
            Line {
                what: "",
                key: "per_second",
                unit: Unit::PerSecond,
            },
            Line {
                what: ": CPU each",
                key: "cpu",
                unit: Unit::Micros,
            },
            Line {
                what: ": memory at the peak",
                key: "peak",
                unit: Unit::Megabytes,
            },
        ],
    }
}

const fn latency(
    name: &'static str,
    title: &'static str,
    number: usize,
    contenders: &'static [&'static str],
) -> Case {
    Case {
        title,
        name,
        number,
        contenders,
        lines: &[
            Line {
                what: ": p50",
                key: "p50",
                unit: Unit::Micros,
            },
            Line {
                what: ": p99",
                key: "p99",
                unit: Unit::Micros,
            },
        ],
    }
}

/// Measures them all; without Go, those in Rust alone.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let go = GoRivals::build_or_say();
    let server = Server::start()?;
    let mut report = Report::new("reconcile", RIVAL);
    compare(&mut report, plan, &CASES, |case, contender| {
        let number = case.number.to_string();
        let mut command = if contender == RIVAL {
            let Some(go) = &go else { return Ok(None) };
            let mut command = go.command();
            command.args(["-case", case.name, "-number", &number, "-cluster"]);
            command
        } else {
            let mut command = own()?;
            command.args(["reconcile", contender, case.name, &number]);
            command
        };
        command.arg(&server.kubeconfig);
        Ok(Some(command))
    })?;
    Ok(report)
}

/// Measures one of the two in Rust on one case.
pub(crate) fn measure_case(
    contender: &str,
    case: &str,
    number: &str,
    cluster: &str,
) -> anyhow::Result<Figures> {
    let number = number.parse().context("a number")?;
    let is_kube_rs = contender == KUBE_RS;
    let (case, cluster) = (case.to_owned(), cluster.to_owned());
    let runtime = tokio::runtime::Runtime::new().context("a runtime")?;
    // In a task: this thread is none of the runtime's, and what it asks them for would wake one of them first, and be counted.
    let measuring = runtime.spawn(async move {
        if is_kube_rs {
            kube_rs::measure(&case, number, &cluster).await
        } else {
            ours::measure(&case, number, &cluster).await
        }
    });
    runtime.block_on(measuring)?
}

fn object_name(number: usize) -> String {
    format!("config-{number:05}")
}
