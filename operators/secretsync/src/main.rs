//! Runs secretsync against the cluster of the current kubeconfig, or the one it runs in.

use std::process::ExitCode;

use clap::Parser;
use windlass::prelude::*;
use windlass_secretsync::{Arguments, SecretSync, setup};

/// Copies Secrets and ConfigMaps into the namespaces that ask for them
#[derive(Parser)]
#[command(name = "secretsync", version)]
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
            eprintln!("secretsync: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(Program { arguments, options }: &Program) -> Result<(), Error> {
    options.init_logging()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let manager = options.manager("secretsync").await?;
        let manager = manager.install(options.install([SecretSync::crd()]));
        let client = options.client().await?;
        setup(manager, &client, &options.namespaces, arguments)
            .await?
            .run()
            .await?;
        Ok(())
    })
}
