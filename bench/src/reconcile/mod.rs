//! The controller against controller-runtime's and kube-rs': the cost of a no-op reconcile, and the latency from a
//! change to the start of its reconcile.
//!
//! ```text
//!   windlass, controller-runtime, kube-rs   ── each in its own process, in turns
//!        └── HTTPS ──► the embedded server in its own process: a namespace with 20,001 ConfigMaps and a Secret,
//!                      and one with a single ConfigMap
//! ```
//!
//! Cases with many objects start once all objects were reconciled for the first time and the controller's process is
//! idle.
//!
//! - **noop**: every change of the Secret is mapped to 20,000 ConfigMaps; each reconcile only reads its object from the
//!   cache. The time is from the first reconcile to the last, so that the server has no part in it. 20,000 objects are
//!   more than our cache keeps decoded by default (32 MB), so reads decode them; 2,000 objects (`noop-few`) fit.
//! - **write**, **write-few**: the same, but each reconcile writes a new annotation to its object. The server is part
//!   of the time, and is the same for all.
//! - **noop-alone**: a single object; each reconcile reads it and requeues it immediately. **write-alone**: each
//!   reconcile writes a new annotation to it, and that change triggers the next. An object is never reconciled
//!   concurrently, so a second worker would be idle.
//! - **wake**: a number of reconciles are in flight and do not end; one more object is changed. The time is from the
//!   call that writes it to the start of its reconcile: it always includes a round trip and a watch event.
//! - **latency**: server, writers and controller in one process, 5,000 writes per second to 5,000 objects in turn; from
//!   the call that writes to the start of the reconcile. A Go program cannot run in this process.

mod cluster;
mod in_flight;
mod kube_rs;
mod latency;
mod measurements;
mod ours;
mod rounds;
mod single_object;

use anyhow::Context;
use windlass_bench::{
    cases::{Case, Measurements, Plan, ReportedValue, compare},
    report::{OURS, Report, Unit},
};

use self::cluster::Server;
use windlass_bench::rivals::{GoRivals, own_command};

/// Namespace of nearly all objects.
const NAMESPACE: &str = "bench";

/// Namespace with a single object.
const ALONE: &str = "bench-alone";

/// Number of ConfigMaps. The last one is changed while all others are in flight.
const OBJECTS: usize = 20_001;

/// Number of objects reconciled in the cases with many.
const MANY: usize = 20_000;

/// Number of objects reconciled in the cases with few.
const FEW: usize = 2_000;

/// Name of the Secret that is mapped to all ConfigMaps.
const TRIGGER: &str = "trigger";

/// Number of changes for measuring the latency.
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
        values: &[
            ReportedValue {
                suffix: "",
                key: "per_second",
                unit: Unit::PerSecond,
            },
            ReportedValue {
                suffix: ": CPU each",
                key: "cpu",
                unit: Unit::Micros,
            },
            ReportedValue {
                suffix: ": memory at the peak",
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
        values: &[
            ReportedValue {
                suffix: ": p50",
                key: "p50",
                unit: Unit::Micros,
            },
            ReportedValue {
                suffix: ": p99",
                key: "p99",
                unit: Unit::Micros,
            },
        ],
    }
}

/// Measures all cases; without Go, only the Rust contenders.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let go = GoRivals::build_or_warn();
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
            let mut command = own_command()?;
            command.args(["reconcile", contender, case.name, &number]);
            command
        };
        command.arg(&server.kubeconfig);
        Ok(Some(command))
    })?;
    Ok(report)
}

/// Measures a Rust contender on one case.
pub(crate) fn measure_case(
    contender: &str,
    case: &str,
    number: &str,
    cluster: &str,
) -> anyhow::Result<Measurements> {
    let number = number.parse().context("invalid number")?;
    let is_kube_rs = contender == KUBE_RS;
    let (case, cluster) = (case.to_owned(), cluster.to_owned());
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    // Run in a task: this thread does not belong to the runtime, and its requests would first have to wake a worker
    // thread.
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
