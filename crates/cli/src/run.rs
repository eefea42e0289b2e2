//! `windlass run NAME…`: controllers that come with Windlass, several in one manager.
//!
//! ```text
//!   names ──► catalogue ──► controllers, CRDs ─┐
//!   flags ──► Options ─────────────────────────┼──► one Manager ──► until Ctrl-C
//!   --embedded ──► a cluster of its own ───────┘
//!   else ──► kubeconfig, or the pod's cluster ─┘
//! ```

use std::{process::ExitCode, time::Instant};

use clap::{ArgMatches, Args, error::ErrorKind, parser::ValueSource};
use windlass::{
    prelude::{Client, Manager, Options},
    runtime::ConnectError,
};
use windlass_cluster::Cluster;

use crate::{
    catalogue::{self, Entry, Setting},
    embedded::{self, Announced, Speed},
    signals::Signals,
};

/// What to run, and where.
#[derive(clap::Args)]
#[group(skip)]
#[command(mut_args = under_its_name)]
pub(crate) struct Arguments {
    /// The controllers to run, in one process
    #[arg(value_name = "NAME", value_parser = Entry::parser())]
    names: Vec<&'static Entry>,

    /// Runs on a cluster of its own, which ends with it; implies --install
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"], help_heading = EMBEDDED)]
    embedded: bool,

    /// How many simulated nodes it has
    #[arg(
        long,
        requires = "embedded",
        default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(0..=5000),
        help_heading = EMBEDDED
    )]
    nodes: u16,

    /// How much faster than real the nodes are: a number, or `instant`
    #[arg(long, requires = "embedded", value_name = "TIMES", default_value = "10", help_heading = EMBEDDED)]
    speed: Speed,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    podwatch: windlass_podwatch::Arguments,

    #[command(flatten)]
    reboot: windlass_reboot::Arguments,

    #[command(flatten)]
    agent: windlass_reboot::agent::Arguments,

    #[command(flatten)]
    secretsync: windlass_secretsync::Arguments,
}

const EMBEDDED: &str = "Embedded cluster";

/// Flags of some controllers' own.
struct Flags {
    /// Who knows them.
    whose: &'static [&'static str],
    /// What they stand under in their own program, and here.
    heading: &'static str,
    heading_here: &'static str,
}

const FLAGS: [Flags; 5] = [
    Flags {
        whose: &[catalogue::PODWATCH],
        heading: "What to tell",
        heading_here: "podwatch: what to tell",
    },
    Flags {
        // An agent has to know the prefix too.
        whose: &[catalogue::REBOOT, catalogue::REBOOT_AGENT],
        heading: "Reboots",
        heading_here: "reboot and reboot-agent",
    },
    Flags {
        whose: &[catalogue::REBOOT],
        heading: "Reboot controller",
        heading_here: "reboot",
    },
    Flags {
        whose: &[catalogue::REBOOT_AGENT],
        heading: "Agent",
        heading_here: "reboot-agent",
    },
    Flags {
        whose: &[catalogue::SECRETSYNC],
        heading: "What to copy",
        heading_here: "secretsync: what to copy",
    },
];

/// Among the flags of others, a controller's say whose they are.
fn under_its_name(arg: clap::Arg) -> clap::Arg {
    let of = |flags: &&Flags| arg.get_help_heading() == Some(flags.heading);
    match FLAGS.iter().find(of) {
        Some(flags) => arg.help_heading(flags.heading_here),
        None => arg,
    }
}

/// Ends the process if a flag was given that nobody who runs knows.
pub(crate) fn refuse_strays(given: &ArgMatches) {
    let names = given.get_many::<&Entry>("names").into_iter().flatten();
    let run: Vec<_> = names.map(|entry| entry.name).collect();
    let command = Arguments::augment_args(clap::Command::new("run"));
    let unknown = |flags: &&Flags| !flags.whose.iter().any(|name| run.contains(name));
    for Flags {
        whose, heading_here, ..
    } in FLAGS.iter().filter(unknown)
    {
        let stray = command.get_arguments().find(|arg| {
            arg.get_help_heading() == Some(heading_here)
                && given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        if let Some(flag) = stray.and_then(clap::Arg::get_long) {
            let whose = whose[0];
            let why = format!("--{flag} is for {whose}: name {whose} too, or leave the flag out");
            crate::refuse("run", ErrorKind::ArgumentConflict, &why);
        }
    }
}

/// Runs what was named until SIGINT or SIGTERM.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments {
        names, mut options, ..
    } = arguments;
    if let Some(mistake) = mistake(&names) {
        crate::refuse("run", ErrorKind::ValueValidation, &mistake);
    }
    options.install |= arguments.embedded || arguments.reboot.simulated_agents;
    // What is wrong with it is told before anything starts.
    options.logging.filter()?;
    let mut signals = Signals::new()?;
    let program = program(&names);
    let fill = async |manager: Manager, client: &Client| {
        let install = options.install(catalogue::crds(&names));
        let setting = Setting {
            client,
            namespaces: &options.namespaces,
            podwatch: &arguments.podwatch,
            reboot: &arguments.reboot,
            agent: &arguments.agent,
            secretsync: &arguments.secretsync,
        };
        catalogue::add(manager.install(install), &names, setting).await
    };
    if !arguments.embedded {
        options.init_logging()?;
        let manager = options.manager(&program).await.map_err(with_a_way_out)?;
        let client = options.client().await?;
        let filled = fill(manager, &client);
        let manager = signals.or(filled, "before it was ready").await??;
        signals.run(manager).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let (started, nodes) = (Instant::now(), usize::from(arguments.nodes));
    let cluster = Cluster::embedded().nodes(nodes).speed(arguments.speed.0);
    embedded::within(cluster, async |cluster| {
        let served = Announced::serve(cluster)?;
        let ready = embedded::ready(cluster.client(), nodes);
        signals.or(ready, "before the nodes were ready").await??;
        println!("{}", served.line(cluster, nodes, "Ctrl-C", started.elapsed()));
        // Only now: how the cluster's own controllers start is nobody's concern.
        options.init_logging()?;
        let manager = options.manager_on(cluster.client(), &program).host("embedded");
        let manager = fill(manager, &cluster.client()).await?;
        signals.run(manager).await?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// What is wrong with the names.
fn mistake(names: &[&Entry]) -> Option<String> {
    if names.is_empty() {
        return Some(format!(
            "name the controllers to run; there are:\n\n{}",
            catalogue::list()
        ));
    }
    let again = names
        .iter()
        .enumerate()
        .find(|(place, entry)| names[..*place].iter().any(|earlier| earlier.name == entry.name));
    again.map(|(_, entry)| format!("`{}` is named twice: once is enough", entry.name))
}

/// What the lease is called. One controller has the name of its own program, so that only one of the two acts.
fn program(names: &[&Entry]) -> String {
    let mut names: Vec<_> = names.iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    names.join("-")
}

/// A person without a cluster can have one.
fn with_a_way_out(error: ConnectError) -> anyhow::Error {
    match error {
        error @ ConnectError::NothingFound { .. } => {
            anyhow::anyhow!("{error}; or run on a cluster of its own with --embedded")
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries<const N: usize>(names: [&str; N]) -> [&'static Entry; N] {
        names.map(|name| Entry::named(name).expect("there is one"))
    }

    #[test]
    fn names_are_asked_for_and_none_counts_twice() {
        let none = mistake(&[]).expect("none were given");
        for Entry { name, about, .. } in catalogue::ALL {
            assert!(none.contains(name) && none.contains(about), "{none}");
        }
        assert_eq!(mistake(&entries(["foo"])), None);
        let twice = mistake(&entries(["foo", "foo"])).expect("it is there twice");
        assert!(twice.starts_with("`foo` is named twice"), "{twice}");
    }

    #[test]
    fn who_has_no_kubeconfig_is_told_of_the_embedded_cluster() {
        let error = with_a_way_out(ConnectError::NothingFound {
            tried: "KUBECONFIG is not set".to_owned(),
        });
        assert!(error.to_string().ends_with("with --embedded"), "{error}");
    }
}
