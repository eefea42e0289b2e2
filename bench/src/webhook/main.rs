//! Admission webhooks against controller-runtime's: the same certificate, client, reviews and checks, in turns.
//!
//! ```text
//!   this process ── AdmissionReviews, HTTPS ──► this program again, with windlass_webhook   (windlass)
//!                └─ AdmissionReviews, HTTPS ──► bench/rivals/go                            (controller-runtime)
//! ```
//!
//! ```text
//! cargo run --release -p windlass-bench --bin windlass-bench-webhook
//! ```
//!
//! A separate program for the reason that `windlass-bench-server` has: the others count allocations.

mod load;
mod ours;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use anyhow::Context;
use clap::Parser;
use tokio::{net::TcpStream, time::timeout};
use windlass_bench::{
    cases::Plan,
    processes::cpu_micros,
    report::{OURS, Report, Unit},
    rivals::GoRivals,
};

use load::{Client, Load};

/// The allocator of the `windlass` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RIVAL: &str = "controller-runtime";

/// The argument with which this program serves webhooks: an address, and the folder with the certificate follow.
const SERVE: &str = "serve-webhooks";

/// How many connections an API server has, and how many reviews it sends at a time.
const CONNECTIONS: usize = 8;

/// Reviews of a measurement, and of the one before it that is not counted.
const REVIEWS: usize = 20_000;
const WARM_UP: usize = 5_000;

/// Reviews per second when latency is measured: both are far from their limit.
const RATE: f64 = 500.0;
const PACED_REVIEWS: usize = 5_000;

/// Benchmarks admission webhooks against controller-runtime's.
#[derive(Parser)]
#[command(name = "windlass-bench-webhook")]
struct Arguments {
    #[command(flatten)]
    plan: Plan,

    /// Write the results to this file instead of printing a table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [SERVE, address, folder] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return ours::serve(address.parse()?, Path::new(folder)).await;
    }
    let arguments = Arguments::parse();
    let report = bench(&arguments.plan).await?;
    match &arguments.json {
        Some(file) => fs::write(file, serde_json::to_string(&report)?)?,
        None => println!("{}", report.table()),
    }
    Ok(())
}

async fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("webhook", RIVAL);
    let folder = tempfile::tempdir()?;
    let signed = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])?;
    fs::write(folder.path().join("tls.crt"), signed.cert.pem())?;
    fs::write(folder.path().join("tls.key"), signed.signing_key.serialize_pem())?;
    let client = Client::new(signed.cert.der())?;
    let rivals = GoRivals::build_or_warn();
    for round in plan.rounds() {
        for contender in [OURS, RIVAL] {
            let command = match (contender, &rivals) {
                (OURS, _) => Command::new(std::env::current_exe()?),
                (_, Some(rivals)) => rivals.command(),
                (_, None) => continue,
            };
            let server = Server::start(contender, command, folder.path()).await?;
            for (path, title) in [
                ("/validate", "a validation of a pod"),
                ("/mutate", "a default of a pod"),
            ] {
                server
                    .measure(&client, contender, path, title, &mut report)
                    .await?;
            }
        }
        eprintln!("webhook: round {}", round + 1);
    }
    Ok(report)
}

/// The process of a contender, which ends when it is dropped.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Server {
    async fn start(contender: &str, mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        let address = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        if contender == OURS {
            command.arg(SERVE).arg(address.to_string()).arg(folder);
        } else {
            command.arg("--webhooks").arg(address.to_string());
            command.arg("--certificates").arg(folder);
        }
        let process = command.spawn().with_context(|| format!("{command:?}"))?;
        let server = Self { process, address };
        let started = async {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = timeout(Duration::from_secs(20), started).await;
        in_time.with_context(|| format!("{contender} does not listen on {address}"))?;
        Ok(server)
    }

    async fn measure(
        &self,
        client: &Client,
        contender: &str,
        path: &str,
        title: &str,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let load = Load::open(client, self.address, path, CONNECTIONS).await?;
        load.run(WARM_UP, None).await?;
        let before = cpu_micros(self.process.id())?;
        let fast = load.run(REVIEWS, None).await?;
        let spent = cpu_micros(self.process.id())? - before;
        let reviews = f64::from(u32::try_from(REVIEWS)?);
        report.add(
            &format!("{title}, {CONNECTIONS} at a time"),
            contender,
            Unit::PerSecond,
            fast.per_second,
        );
        report.add(&format!("{title}: CPU"), contender, Unit::Micros, spent / reviews);
        let paced = load.run(PACED_REVIEWS, Some(RATE)).await?;
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let case = format!("{title}, {RATE} a second: {name}");
            report.add(&case, contender, Unit::Micros, paced.latency_micros(quantile));
        }
        Ok(())
    }
}
