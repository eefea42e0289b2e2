//! Runs podwatch against the current kubeconfig's cluster, or in-cluster.

use std::process::ExitCode;

use clap::Parser;
use windlass::prelude::*;
use windlass_podwatch::{Arguments, EXAMPLES, setup};

/// Watches pods or any other kind and reports changes to stdout, files, webhooks, chats, logs and Events
#[derive(Parser)]
#[command(name = "podwatch", version, after_help = EXAMPLES)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Program { arguments, options } = Program::parse();
    launch_with("podwatch", &options, [], async |manager, client| {
        Ok(setup(manager, &client, &options.namespaces, &arguments).await?)
    })
}
