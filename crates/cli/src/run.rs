//! `windlass run NAME…`: Windlass's own controllers, several in one manager.
//!
//! ```text
//!   names ──► catalogue ──► controllers, CRDs ─┐
//!   flags ──► Options ─────────────────────────┼──► one Manager ──► until Ctrl-C
//!   --embedded ──► its own cluster ────────────┘
//!   else ──► kubeconfig, or in-cluster ────────┘
//! ```

use std::{process::ExitCode, time::Instant};

use clap::{ArgMatches, Args, error::ErrorKind, parser::ValueSource};
use windlass::{
    prelude::{Client, Manager, Options},
    runtime::ConnectError,
    webhook::OptionalWebhooks,
};
use windlass_cluster::Cluster;

use crate::{
    catalogue::{self, Entry, SetupContext},
    embedded::{self, KubeconfigFile, Speed},
    signals::Signals,
};

/// Flags of `windlass run`.
#[derive(clap::Args)]
#[group(skip)]
#[command(mut_args = with_run_heading)]
pub(crate) struct Arguments {
    /// The controllers to run, in one process
    #[arg(value_name = "NAME", value_parser = Entry::parser())]
    names: Vec<&'static Entry>,

    /// Runs on an embedded cluster, which stops with the process; implies --install
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"], help_heading = EMBEDDED)]
    embedded: bool,

    /// Number of simulated nodes
    #[arg(
        long,
        requires = "embedded",
        default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(0..=5000),
        help_heading = EMBEDDED
    )]
    nodes: u16,

    /// Speed of the simulated nodes relative to real ones: a number, or `instant`
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

    #[command(flatten)]
    webhooks: OptionalWebhooks,
}

const EMBEDDED: &str = "Embedded cluster";

/// A group of flags that belong to certain controllers.
struct ControllerFlags {
    /// The controllers that have these flags.
    controllers: &'static [&'static str],
    /// The help heading in the controllers' own programs.
    heading: &'static str,
    /// The help heading in `windlass run`.
    run_heading: &'static str,
}

const CONTROLLER_FLAGS: [ControllerFlags; 6] = [
    ControllerFlags {
        controllers: &[catalogue::PODWATCH],
        heading: "What to report",
        run_heading: "podwatch: what to report",
    },
    ControllerFlags {
        // The agent needs the annotation prefix too.
        controllers: &[catalogue::REBOOT, catalogue::REBOOT_AGENT],
        heading: "Reboots",
        run_heading: "reboot and reboot-agent",
    },
    ControllerFlags {
        controllers: &[catalogue::REBOOT],
        heading: "Reboot controller",
        run_heading: "reboot",
    },
    ControllerFlags {
        controllers: &[catalogue::REBOOT_AGENT],
        heading: "Agent",
        run_heading: "reboot-agent",
    },
    ControllerFlags {
        controllers: &[catalogue::SECRETSYNC],
        heading: "What to copy",
        run_heading: "secretsync: what to copy",
    },
    ControllerFlags {
        controllers: &[catalogue::ICECREAM, catalogue::SECRETSYNC],
        heading: "Webhooks",
        run_heading: "icecream and secretsync: webhooks",
    },
];

/// Adds the controller's name to the help heading of its flags.
fn with_run_heading(arg: clap::Arg) -> clap::Arg {
    let of = |flags: &&ControllerFlags| arg.get_help_heading() == Some(flags.heading);
    match CONTROLLER_FLAGS.iter().find(of) {
        Some(flags) => arg.help_heading(flags.run_heading),
        None => arg,
    }
}

/// Exits with a usage error if a flag belongs to a controller that is not run.
pub(crate) fn reject_unrelated_flags(matches: &ArgMatches) {
    let names = matches.get_many::<&Entry>("names").into_iter().flatten();
    let run: Vec<_> = names.map(|entry| entry.name).collect();
    let command = Arguments::augment_args(clap::Command::new("run"));
    let unknown = |flags: &&ControllerFlags| !flags.controllers.iter().any(|name| run.contains(name));
    for ControllerFlags {
        controllers,
        run_heading,
        ..
    } in CONTROLLER_FLAGS.iter().filter(unknown)
    {
        let stray = command.get_arguments().find(|arg| {
            arg.get_help_heading() == Some(run_heading)
                && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        if let Some(flag) = stray.and_then(clap::Arg::get_long) {
            let whose = controllers.join(" or ");
            let message = format!("--{flag} is for {whose}: name {whose} too, or omit the flag");
            crate::exit_with_usage_error("run", ErrorKind::ArgumentConflict, &message);
        }
    }
}

/// Runs the named controllers until SIGINT or SIGTERM.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments {
        names, mut options, ..
    } = arguments;
    if let Some(mistake) = usage_error(&names) {
        crate::exit_with_usage_error("run", ErrorKind::ValueValidation, &mistake);
    }
    options.install |= arguments.embedded || arguments.reboot.simulated_agents;
    // Report an invalid log filter before anything starts.
    options.logging.filter()?;
    let mut signals = Signals::new()?;
    let program = lease_name(&names);
    let add_controllers = async |manager: Manager, client: &Client| {
        let install = options.install(catalogue::crds(&names, arguments.webhooks.enabled));
        let setting = SetupContext {
            client,
            namespaces: &options.namespaces,
            podwatch: &arguments.podwatch,
            reboot: &arguments.reboot,
            agent: &arguments.agent,
            secretsync: &arguments.secretsync,
        };
        let manager = catalogue::add(manager.install(install), &names, setting).await?;
        catalogue::add_webhooks(manager, &program, &names, &arguments.webhooks, setting).await
    };
    if !arguments.embedded {
        options.init_logging()?;
        let manager = options.manager(&program).await.map_err(suggest_embedded)?;
        let client = options.client().await?;
        let filled = add_controllers(manager, &client);
        let manager = signals.unless_stopped(filled, "before it was ready").await??;
        signals.run(manager).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let (started, nodes) = (Instant::now(), usize::from(arguments.nodes));
    let cluster = Cluster::embedded().nodes(nodes).speed(arguments.speed.0);
    embedded::with_cluster(cluster, async |cluster| {
        let served = KubeconfigFile::serve(cluster)?;
        let ready = embedded::wait_until_ready(cluster.client(), nodes);
        signals
            .unless_stopped(ready, "before the nodes were ready")
            .await??;
        println!(
            "{}",
            served.export_line(cluster, nodes, "Ctrl-C", started.elapsed())
        );
        // Only now, to leave out the log of the cluster's own controllers starting.
        options.init_logging()?;
        let manager = options
            .manager_with_client(cluster.client(), &program)
            .host("embedded");
        let manager = add_controllers(manager, &cluster.client()).await?;
        signals.run(manager).await?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// The usage error for these names, if there is one.
fn usage_error(names: &[&Entry]) -> Option<String> {
    if names.is_empty() {
        return Some(format!(
            "name the controllers to run:\n\n{}",
            catalogue::descriptions()
        ));
    }
    let again = names
        .iter()
        .enumerate()
        .find(|(index, entry)| names[..*index].iter().any(|earlier| earlier.name == entry.name));
    again.map(|(_, entry)| format!("`{}` is named twice: name it once", entry.name))
}

/// The name of the lease. For a single controller it is that of its own program, so that only one of the two is active.
fn lease_name(names: &[&Entry]) -> String {
    let mut names: Vec<_> = names.iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    names.join("-")
}

/// Suggests `--embedded` if no cluster was found.
fn suggest_embedded(error: ConnectError) -> anyhow::Error {
    match error {
        error @ ConnectError::NoCluster { .. } => {
            anyhow::anyhow!("{error}; or run on an embedded cluster with --embedded")
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
    fn missing_and_duplicate_names_are_rejected() {
        let none = usage_error(&[]).expect("none were given");
        for Entry { name, about, .. } in catalogue::ALL {
            assert!(none.contains(name) && none.contains(about), "{none}");
        }
        assert_eq!(usage_error(&entries(["foo"])), None);
        let twice = usage_error(&entries(["foo", "foo"])).expect("it is there twice");
        assert!(twice.starts_with("`foo` is named twice"), "{twice}");
    }

    #[test]
    fn missing_kubeconfig_error_suggests_embedded() {
        let error = suggest_embedded(ConnectError::NoCluster {
            tried: "KUBECONFIG is not set".to_owned(),
        });
        assert!(error.to_string().ends_with("with --embedded"), "{error}");
    }
}
