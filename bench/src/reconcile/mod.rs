//! The controller against controller-runtime's and kube-rs': what a reconcile that has nothing to do costs, and how long
//! it takes from a change to the start of its reconcile.
//!
//! ```text
//!   windlass, controller-runtime, kube-rs   ── each in a process of its own, in turns
//!        └── HTTPS ──► the embedded server in a process of its own, with 20,001 ConfigMaps and a Secret
//! ```
//!
//! - **noop**: every change of the Secret is mapped to all ConfigMaps; each reconcile reads its object from the cache and is
//!   done. From the first reconcile to the last, so that the server has no part in it. All 20,001 are more than our cache
//!   keeps decoded by default (32 MB), so that each read decodes; 2,000 (`noop-few`) are not.
//! - **wake**: so many reconciles are in flight and do not end; one more object is changed. From the call that writes it to
//!   the start of its reconcile: a round trip and a watch event are in every figure, also in that of nothing in flight.
//! - **latency**: server, writers and controller in one process, 5,000 writes per second to 5,000 objects in turn; from the
//!   call that writes to the start of the reconcile. A program in Go cannot be in this process.

mod again;
mod cluster;
mod figures;
mod flight;
mod kube_rs;
mod latency;
mod ours;

use std::process::Command;

use anyhow::Context;

use self::{cluster::Server, figures::Figures};
use crate::{
    lines::{Line, print_head},
    rivals::GoRivals,
};

/// In which namespace everything is.
const NAMESPACE: &str = "bench";

/// How many ConfigMaps there are. The last is the one that is changed while all others are in flight.
const OBJECTS: usize = 20_001;

/// How many of them are reconciled where few are.
const FEW: usize = 2_000;

/// The Secret that leads to them all.
const TRIGGER: &str = "trigger";

/// How often an object is changed to see when its reconcile starts.
const PROBES: usize = 200;

const ROUNDS: usize = 3;

struct Case {
    name: &'static str,
    /// Workers, reconciles in flight, or writes per second.
    number: usize,
    lines: &'static [Line<Figures>],
    contenders: &'static [&'static str],
}

const ALL: &[&str] = &["windlass", "controller-runtime", "kube-rs"];

const CASES: [Case; 8] = [
    Case {
        name: "noop-few",
        number: 1,
        lines: &[per_second("no-op, 2,000 objects, 1 worker")],
        contenders: ALL,
    },
    Case {
        name: "noop-few",
        number: 16,
        lines: &[per_second("no-op, 2,000 objects, 16 workers")],
        contenders: ALL,
    },
    Case {
        name: "noop",
        number: 1,
        lines: &[per_second("no-op, 20,001 objects, 1 worker")],
        contenders: ALL,
    },
    Case {
        name: "noop",
        number: 16,
        lines: &[per_second("no-op, 20,001 objects, 16 workers")],
        contenders: ALL,
    },
    Case {
        name: "wake",
        number: 0,
        lines: &[median("change to reconcile, none in flight")],
        contenders: ALL,
    },
    Case {
        name: "wake",
        number: 1_000,
        lines: &[median("change to reconcile, 1,000 in flight")],
        contenders: ALL,
    },
    Case {
        name: "wake",
        number: 20_000,
        lines: &[median("change to reconcile, 20,000 in flight")],
        contenders: ALL,
    },
    Case {
        name: "latency",
        number: 5_000,
        lines: &[
            median("5,000 changes/s in-process, p50"),
            Line {
                title: "5,000 changes/s in-process, p99",
                unit: "us",
                of: |figures| figures.p99,
            },
        ],
        contenders: &["windlass", "kube-rs"],
    },
];

const fn per_second(title: &'static str) -> Line<Figures> {
    Line {
        title,
        unit: "per second",
        of: |figures| figures.per_second,
    }
}

const fn median(title: &'static str) -> Line<Figures> {
    Line {
        title,
        unit: "us",
        of: |figures| figures.p50,
    }
}

/// Prints the table, or of it only the lines of one case.
pub(crate) fn bench(only: Option<&str>) -> anyhow::Result<()> {
    let go = GoRivals::build();
    if let Err(reason) = &go {
        println!("Without controller-runtime: {reason:#}.\n");
    }
    let server = Server::start()?;
    print_head("controller");
    let wanted = |case: &Case| only.is_none_or(|only| case.name == only);
    for case in CASES.into_iter().filter(wanted) {
        let contenders: Vec<_> = case
            .contenders
            .iter()
            .filter(|contender| go.is_ok() || **contender != "controller-runtime")
            .collect();
        let mut measured = vec![Vec::new(); contenders.len()];
        for _ in 0..ROUNDS {
            for (contender, measured) in contenders.iter().zip(&mut measured) {
                measured.push(measure(go.as_ref().ok(), contender, &case, &server)?);
            }
        }
        for line in case.lines {
            let ours = line.median(&measured[0]);
            for (contender, measured) in contenders.iter().zip(&measured) {
                line.print(contender, measured, ours);
            }
        }
    }
    Ok(())
}

/// Measures one of the two in Rust on one case and prints the result.
pub(crate) fn measure_case(contender: &str, case: &str, number: &str, cluster: &str) -> anyhow::Result<()> {
    let number = number.parse().context("a number")?;
    let runtime = tokio::runtime::Runtime::new().context("a runtime")?;
    let figures = runtime.block_on(async {
        match contender {
            "windlass" => ours::measure(case, number, cluster).await,
            _ => kube_rs::measure(case, number, cluster).await,
        }
    })?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn measure(go: Option<&GoRivals>, contender: &str, case: &Case, server: &Server) -> anyhow::Result<Figures> {
    let number = case.number.to_string();
    let mut command = match go {
        Some(go) if contender == "controller-runtime" => {
            let mut command = go.command();
            command.args(["-case", case.name, "-number", &number, "-cluster"]);
            command
        }
        _ => {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["measure", "reconcile", contender, case.name, &number]);
            command
        }
    };
    let output = command.arg(&server.kubeconfig).output()?;
    anyhow::ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {command:?} says"))
}

fn object_name(number: usize) -> String {
    format!("config-{number:05}")
}
