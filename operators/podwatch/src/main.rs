//! Runs podwatch against the cluster of the current kubeconfig, or the one it runs in.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use windlass::prelude::*;
use windlass_podwatch::{Arguments, EXAMPLES, setup};

/// Tells what happens to pods, or to any other kind, to whoever should know
#[derive(Parser)]
#[command(name = "podwatch", version, after_help = EXAMPLES)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let program = Program::parse();
    match run(&program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("podwatch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(Program { arguments, options }: &Program) -> Result<(), Error> {
    options.init_logging()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let manager = options.manager("podwatch").await?;
        let client = options.client().await?;
        let manager = setup(manager, &client, &options.namespaces, arguments).await?;
        manager.run().await?;
        Ok(())
    });
    // A write to a pipe that nobody reads cannot be cancelled.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}
