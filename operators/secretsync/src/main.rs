//! Runs secretsync against the cluster of the current kubeconfig, or the cluster it runs in.

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
    let Program { arguments, options } = Program::parse();
    launch_with(
        "secretsync",
        &options,
        [SecretSync::crd()],
        async |manager, client| Ok(setup(manager, &client, &options.namespaces, &arguments).await?),
    )
}
