//! `windlass demo`: a cluster with ten nodes in this process, the controllers of the catalogue, and a scenario.
//!
//! ```text
//!   scenario ── DemoEvent ──► front end (live or plain) ── owns ──► Model ──► screen, lines
//!     │ actions, claims                ▲
//!     ▼                                │ rows, events
//!   API ◄── controllers ──────► ClusterView
//! ```
//!
//! The scenario does not depend on the screen, nor the screen on the cluster; claims are data between them. The exit code is 0
//! only if every expected claim was checked and held.

mod claims;
mod cluster_view;
mod live;
mod log_buffer;
mod model;
mod plain;
mod podwatch_printer;
mod scenario;
mod screen;

use std::{
    io::{IsTerminal, stderr},
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};
use windlass::{
    k8s_openapi::api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Secret,
    },
    prelude::Manager,
    runtime::{CrdInstaller, Writer},
    webhook::OptionalWebhooks,
};
use windlass_cluster::Cluster;
use windlass_foo::Foo;
use windlass_icecream::Icecream;
use windlass_podwatch::Scope;
use windlass_reboot::RebootPolicy;
use windlass_secretsync::SecretSync;

use self::{
    cluster_view::ClusterView, log_buffer::LogBuffer, model::Model, podwatch_printer::PodwatchPrinter,
    scenario::Scenario,
};
use crate::{
    catalogue::{self, Entry, SetupContext},
    drop_in::print,
    embedded::{self, KubeconfigFile},
    signals::Signals,
};

/// Flags of `windlass demo`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Prints lines instead of the live view, as it does when the output is not a terminal
    #[arg(long)]
    plain: bool,

    /// Speed of the demo [default: calm in the live view, quick in lines]
    #[arg(long, value_enum)]
    pace: Option<Pace>,

    /// Keeps the cluster running at the end, and prints a line to paste for kubectl; Ctrl-C stops it
    #[arg(long)]
    keep: bool,

    /// Time limit in seconds; claims that do not hold by then have failed
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// The speed of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pace {
    /// Slow enough to follow: less than half a minute
    Calm,
    /// As fast as possible
    Quick,
}

impl Pace {
    /// How long each step is shown.
    fn step_time(self) -> Duration {
        match self {
            Self::Calm => Duration::from_millis(350),
            Self::Quick => Duration::ZERO,
        }
    }

    /// The speed of the simulated nodes. With `Calm`, a reboot takes a second.
    fn speed(self) -> f64 {
        match self {
            Self::Calm => 30.0,
            Self::Quick => f64::INFINITY,
        }
    }
}

/// How the demo ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The scenario is complete.
    Finished,
    /// The user stopped it.
    Stopped,
}

const NODES: usize = 10;

/// The log level. Not `warn`: the cluster's own controllers warn of conflicts, which they expect.
const LOG_LEVEL: &str = "error";

/// The capacity of the event channel: a slow front end delays the scenario.
const EVENT_CAPACITY: usize = 64;

/// The exit code of a process stopped by Ctrl-C, as shells report it.
const INTERRUPTED_EXIT_CODE: u8 = 130;

/// Runs the demo; the exit code is 0 only if every claim held.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let live = !arguments.plain && live::is_supported();
    // The live view shows the log itself.
    let log_buffer = (live && stderr().is_terminal()).then(LogBuffer::default);
    match &log_buffer {
        Some(log_buffer) => log_buffer.capture(LOG_LEVEL),
        None => crate::init_logging(LOG_LEVEL),
    }
    let pace = arguments
        .pace
        .unwrap_or(if live { Pace::Calm } else { Pace::Quick });
    let mut signals = Signals::new()?;
    let show = Demo {
        arguments,
        live,
        pace,
        log_buffer: log_buffer.unwrap_or_default(),
        started: Instant::now(),
    };
    let cluster = Cluster::embedded().controllers().nodes(NODES).speed(pace.speed());
    let run = async |cluster: &Cluster| Box::pin(show.run(cluster, &mut signals)).await;
    embedded::with_cluster(cluster, run).await
}

/// One run of the demo.
struct Demo<'a> {
    arguments: &'a Arguments,
    live: bool,
    pace: Pace,
    log_buffer: LogBuffer,
    started: Instant,
}

impl Demo<'_> {
    async fn run(&self, cluster: &Cluster, signals: &mut Signals) -> anyhow::Result<ExitCode> {
        let client = cluster.client();
        // Podwatch is added below with its own printer, and the reboot agent needs a real machine.
        let entries = catalogue::ALL
            .iter()
            .filter(|entry| ![catalogue::PODWATCH, catalogue::REBOOT_AGENT].contains(&entry.name));
        let entries: Vec<&Entry> = entries.collect();
        let writer = Writer::new(client.clone(), "windlass-demo");
        let install = CrdInstaller::new(catalogue::crds(&entries, true))
            .apply()
            .run(&writer);
        signals
            .unless_stopped(install, "before the CRDs were installed")
            .await??;
        let wake = watch::Sender::new(());
        let (lines, messages) = mpsc::channel(EVENT_CAPACITY);
        let printer = PodwatchPrinter::new(lines, wake.clone());
        let podwatch = windlass_podwatch::sync::controller(&Scope::default(), printer.clone());
        let setting = SetupContext {
            client: &client,
            namespaces: &[],
            podwatch: &windlass_podwatch::Arguments::default(),
            reboot: &windlass_reboot::Arguments {
                simulated_agents: true,
                ..windlass_reboot::Arguments::default()
            },
            agent: &windlass_reboot::agent::Arguments::default(),
            secretsync: &windlass_secretsync::Arguments::default(),
        };
        let manager = catalogue::add(Manager::new(client.clone()), &entries, setting).await?;
        // The CRDs are installed; the webhooks are registered too.
        let manager = manager.install(CrdInstaller::new([]).apply());
        let mut webhooks = OptionalWebhooks::default();
        webhooks.enabled = true;
        let manager = catalogue::add_webhooks(manager, "demo", &entries, &webhooks, setting).await?;
        let manager = manager.controller(podwatch);
        let mut view = ClusterView::open(cluster.client(), manager.controllers(), messages, wake).await?;
        view.watch_kind::<Foo>();
        view.watch_kind::<Icecream>();
        view.watch_kind::<Deployment>();
        view.watch_kind::<ReplicaSet>();
        view.watch_kind::<Secret>();
        view.watch_kind::<SecretSync>();
        view.watch_kind::<RebootPolicy>();

        let (stop, stopped) = oneshot::channel::<()>();
        let running = manager.run_until(async move {
            // A dropped sender counts as a stop too.
            let _ = stopped.await;
        });
        let mut running = pin!(running);
        let played = tokio::select! {
            played = self.run_scenario(cluster, &mut view, printer, signals) => played,
            ended = &mut running => ended.context("the controllers stopped before the demo").map(|()| ExitCode::FAILURE),
        };
        view.close().await;
        // An error means that the controllers have stopped already; their result says why.
        let _ = stop.send(());
        if played.is_ok() {
            running.await.context("the controllers failed to stop")?;
        }
        played
    }

    /// Runs and shows the scenario, and prints the summary.
    async fn run_scenario(
        &self,
        cluster: &Cluster,
        view: &mut ClusterView,
        printer: PodwatchPrinter,
        signals: &mut Signals,
    ) -> anyhow::Result<ExitCode> {
        let up = self.started.elapsed();
        let title = format!("Kubernetes {} in this process, {NODES} nodes", cluster.version());
        if !self.live {
            print(&format!("windlass demo: {title}\n"))?;
        }
        let mut model = Model::new(title, scenario::expected_claims());
        let timeout = Duration::from_secs(self.arguments.timeout);
        let deadline = self.started + timeout;
        let (sender, events) = mpsc::channel(EVENT_CAPACITY);
        let scenario = Scenario {
            client: cluster.client(),
            nodes: cluster
                .nodes()
                .context("the embedded cluster has no simulated nodes")?,
            printer,
            wake: view.wake(),
            events: sender,
            step_time: self.pace.step_time(),
            no_delays_after: self.started + timeout / 2,
            deadline,
        };
        let (ending, outcome) = {
            // Owns the scenario, so that its event channel closes when it is complete.
            let mut running = pin!(async move { timeout_at(deadline, scenario.run()).await });
            let mut showing = pin!(self.show(&mut model, view, events, signals));
            tokio::select! {
                ending = &mut showing => (ending?, Ok(())),
                outcome = &mut running => (showing.await?, outcome.unwrap_or(Ok(()))),
            }
        };
        print(&self.summary(&model, ending))?;
        outcome?;
        let code = match ending {
            Ending::Stopped => ExitCode::from(INTERRUPTED_EXIT_CODE),
            Ending::Finished if model.ledger.all_held() => ExitCode::SUCCESS,
            Ending::Finished => ExitCode::FAILURE,
        };
        if self.arguments.keep && ending == Ending::Finished {
            let file = KubeconfigFile::serve(cluster)?;
            let line = file.export_line(cluster, NODES, "Ctrl-C", up);
            print(&format!("{line}\n"))?;
            // Drain the events, or their senders would block.
            let listening = async {
                loop {
                    view.next().await;
                }
            };
            tokio::select! {
                () = signals.next() => {}
                () = listening => {}
            }
        }
        Ok(code)
    }

    async fn show(
        &self,
        model: &mut Model,
        view: &mut ClusterView,
        events: mpsc::Receiver<model::DemoEvent>,
        signals: &mut Signals,
    ) -> anyhow::Result<Ending> {
        if self.live {
            live::show(model, view, events, signals, &self.log_buffer, self.started).await
        } else {
            plain::show(model, view, events, signals, self.started).await
        }
    }

    /// The summary; after a live view it also lists each claim, since the screen is cleared.
    fn summary(&self, model: &Model, ending: Ending) -> String {
        let mut text = String::from("\n");
        if ending == Ending::Stopped {
            text.push_str("Stopped before the end.\n");
        }
        if self.live {
            let held = model.ledger.claims().iter();
            let held = held.filter(|claim| matches!(claim.verdict, claims::Verdict::Held { .. }));
            text.extend(held.map(|claim| format!("  ok  {}\n", claim.text)));
            text.push('\n');
        }
        text + &model.ledger.summary()
    }
}
