//! Runs the controller against the cluster of the current kubeconfig, or the cluster it runs in.

use std::process::ExitCode;

use clap::Parser;
use windlass::prelude::*;
use windlass_reboot::{Arguments, RebootPolicy, agent, setup};

/// Reboots nodes one after another, and verifies each reboot by the node's boot ID
#[derive(Parser)]
#[command(name = "reboot", version)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Program {
        arguments,
        mut options,
    } = Program::parse();
    // A simulated cluster is there for trying things out: install the CRD without being asked.
    options.install |= arguments.simulated_agents;
    launch_with(
        "reboot",
        &options,
        [RebootPolicy::crd()],
        async |manager, client| {
            let manager = setup(manager, &arguments)?;
            if !arguments.simulated_agents {
                return Ok(manager);
            }
            Ok(agent::simulated(manager, &client, &arguments.prefix).await?)
        },
    )
}
