//! The first minute: a cluster with ten nodes in this process, the controllers of the catalogue, and a story on it.
//!
//! ```text
//!   story ── Happening ──► front (live or plain) ── owns ──► Model ──► screen, lines
//!     │ acts, claims                ▲
//!     ▼                             │ rows, events
//!   API ◄── controllers ───────► Sight
//! ```
//!
//! The story knows no screen, the screen knows no cluster, and claims are data between them: the exit code is a success
//! only if every claim that was promised was checked and held.

mod claims;
mod live;
mod model;
mod notes;
mod notices;
mod plain;
mod screen;
mod sight;
mod story;

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
    runtime::{Install, Writer},
};
use windlass_cluster::Cluster;
use windlass_foo::Foo;
use windlass_icecream::Icecream;
use windlass_podwatch::Scope;
use windlass_reboot::RebootPolicy;
use windlass_secretsync::SecretSync;

use self::{model::Model, notes::Notes, notices::Notices, sight::Sight, story::Story};
use crate::{
    catalogue::{self, Entry, Setting},
    drop_in::print,
    embedded::{self, Announced},
    signals::Signals,
};

/// How the demo is run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Prints lines instead of the live view, as it does when the output is no terminal
    #[arg(long)]
    plain: bool,

    /// How fast it goes: to be followed, or to be done [default: calm in the live view, quick in lines]
    #[arg(long, value_enum)]
    pace: Option<Pace>,

    /// Leaves everything running at the end, and prints a line to paste for kubectl; Ctrl-C ends it
    #[arg(long)]
    keep: bool,

    /// How long all of it may take, in seconds; what has not come true by then has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    patience: u64,
}

/// How fast the story goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Pace {
    /// A person can follow it: less than half a minute
    Calm,
    /// As fast as it comes
    Quick,
}

impl Pace {
    /// How long each step is shown.
    fn beat(self) -> Duration {
        match self {
            Self::Calm => Duration::from_millis(350),
            Self::Quick => Duration::ZERO,
        }
    }

    /// How much faster than real the nodes are. Calm, a reboot takes a second.
    fn speed(self) -> f64 {
        match self {
            Self::Calm => 30.0,
            Self::Quick => f64::INFINITY,
        }
    }
}

/// How the showing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The story was told.
    Told,
    /// Somebody had seen enough.
    Stopped,
}

const NODES: usize = 10;

/// From which level on the log is heard: the cluster's own controllers warn of conflicts that they are made to live with.
const LEVEL: &str = "error";

/// Happenings that may wait to be shown: a front that is slow holds the story up.
const WAITING: usize = 64;

/// What a shell calls a process that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the demo; the exit code is a success only if every claim held.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let live = !arguments.plain && live::is_possible();
    // With a screen on it, the terminal has no room for a log.
    let notes = (live && stderr().is_terminal()).then(Notes::default);
    match &notes {
        Some(notes) => notes.log(LEVEL),
        None => crate::log(LEVEL),
    }
    let pace = arguments
        .pace
        .unwrap_or(if live { Pace::Calm } else { Pace::Quick });
    let mut signals = Signals::new()?;
    let show = Show {
        arguments,
        live,
        pace,
        notes: notes.unwrap_or_default(),
        started: Instant::now(),
    };
    let cluster = Cluster::embedded().controllers().nodes(NODES).speed(pace.speed());
    embedded::within(cluster, async |cluster| show.run(cluster, &mut signals).await).await
}

/// One run of the demo.
struct Show<'a> {
    arguments: &'a Arguments,
    live: bool,
    pace: Pace,
    notes: Notes,
    started: Instant,
}

impl Show<'_> {
    async fn run(&self, cluster: &Cluster, signals: &mut Signals) -> anyhow::Result<ExitCode> {
        let client = cluster.client();
        // Podwatch prints to the screen here, and no machine is this one.
        let entries = catalogue::ALL
            .iter()
            .filter(|entry| ![catalogue::PODWATCH, catalogue::REBOOT_AGENT].contains(&entry.name));
        let entries: Vec<&Entry> = entries.collect();
        let writer = Writer::new(client.clone(), "windlass-demo");
        let install = Install::new(catalogue::crds(&entries)).apply().run(&writer);
        signals.or(install, "before the CRDs were there").await??;
        let pulse = watch::Sender::new(());
        let (lines, told) = mpsc::channel(WAITING);
        let notices = Notices::new(lines, pulse.clone());
        let podwatch = windlass_podwatch::sync::controller(&Scope::default(), notices.clone());
        let setting = Setting {
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
        let manager = manager.controller(podwatch);
        let mut sight = Sight::open(cluster.client(), manager.controllers(), told, pulse).await?;
        sight.feels::<Foo>();
        sight.feels::<Icecream>();
        sight.feels::<Deployment>();
        sight.feels::<ReplicaSet>();
        sight.feels::<Secret>();
        sight.feels::<SecretSync>();
        sight.feels::<RebootPolicy>();

        let (stop, stopped) = oneshot::channel::<()>();
        let running = manager.run_until(async move {
            // A dropped sender is a stop as well.
            let _ = stopped.await;
        });
        let mut running = pin!(running);
        let played = tokio::select! {
            played = self.play(cluster, &mut sight, notices, signals) => played,
            ended = &mut running => ended.context("the controllers ended before the demo").map(|()| ExitCode::FAILURE),
        };
        sight.close().await;
        // An error means that the controllers are gone already, and is their own result.
        let _ = stop.send(());
        if played.is_ok() {
            running.await.context("the controllers did not end well")?;
        }
        played
    }

    /// Tells the story and shows it, and says at last what became of it.
    async fn play(
        &self,
        cluster: &Cluster,
        sight: &mut Sight,
        notices: Notices,
        signals: &mut Signals,
    ) -> anyhow::Result<ExitCode> {
        let up = self.started.elapsed();
        let title = format!("Kubernetes {} in this process, {NODES} nodes", cluster.version());
        if !self.live {
            print(&format!("windlass demo: {title}\n"))?;
        }
        let mut model = Model::new(title, story::promises());
        let patience = Duration::from_secs(self.arguments.patience);
        let deadline = self.started + patience;
        let (stage, told) = mpsc::channel(WAITING);
        let story = Story {
            client: cluster.client(),
            machines: cluster
                .nodes()
                .context("an embedded cluster with nodes has machines")?,
            notices,
            pulse: sight.pulse(),
            stage,
            beat: self.pace.beat(),
            late: self.started + patience / 2,
            deadline,
        };
        let (ending, outcome) = {
            // Owned by it, so that the stage closes when it has been told.
            let mut telling = pin!(async move { timeout_at(deadline, story.tell()).await });
            let mut showing = pin!(self.show(&mut model, sight, told, signals));
            tokio::select! {
                ending = &mut showing => (ending?, Ok(())),
                outcome = &mut telling => (showing.await?, outcome.unwrap_or(Ok(()))),
            }
        };
        print(&self.last_words(&model, ending))?;
        outcome?;
        let code = match ending {
            Ending::Stopped => ExitCode::from(INTERRUPTED),
            Ending::Told if model.ledger.all_held() => ExitCode::SUCCESS,
            Ending::Told => ExitCode::FAILURE,
        };
        if self.arguments.keep && ending == Ending::Told {
            let file = Announced::serve(cluster)?;
            let line = file.line(cluster, NODES, "Ctrl-C", up);
            print(&format!("{line}\n"))?;
            // Somebody has to listen, or those who tell would wait.
            let listening = async {
                loop {
                    sight.next().await;
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
        sight: &mut Sight,
        told: mpsc::Receiver<model::Happening>,
        signals: &mut Signals,
    ) -> anyhow::Result<Ending> {
        if self.live {
            live::show(model, sight, told, signals, &self.notes, self.started).await
        } else {
            plain::show(model, sight, told, signals, self.started).await
        }
    }

    /// The summary; after a live view also each claim, since the screen is gone.
    fn last_words(&self, model: &Model, ending: Ending) -> String {
        let mut words = String::from("\n");
        if ending == Ending::Stopped {
            words.push_str("Stopped before the end.\n");
        }
        if self.live {
            let held = model.ledger.claims().iter();
            let held = held.filter(|claim| matches!(claim.verdict, claims::Verdict::Held { .. }));
            words.extend(held.map(|claim| format!("  ok  {}\n", claim.text)));
            words.push('\n');
        }
        words + &model.ledger.summary()
    }
}
