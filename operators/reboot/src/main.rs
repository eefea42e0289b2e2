//! Runs the controller against the cluster of the current kubeconfig, or the one it runs in.

use std::process::ExitCode;

use clap::Parser;
use windlass::prelude::*;
use windlass_reboot::{Arguments, RebootPolicy, agent, setup};

/// Reboots nodes in turn, and proves that each of them did
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
    // A cluster without machines is there to be tried on.
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
