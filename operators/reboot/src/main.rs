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
    let mut program = Program::parse();
    // A cluster without machines is there to be tried on.
    program.options.install |= program.arguments.simulated_agents;
    match run(&program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reboot: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(Program { arguments, options }: &Program) -> Result<(), Error> {
    options.init_logging()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let manager = options.manager("reboot").await?;
        let manager = manager.install(options.install([RebootPolicy::crd()]));
        let mut manager = setup(manager, arguments)?;
        if arguments.simulated_agents {
            manager = agent::simulated(manager, &options.client().await?, &arguments.prefix).await?;
        }
        manager.run().await?;
        Ok(())
    })
}
