//! Runs podwatch against the cluster of the current kubeconfig, or the one it runs in.

use std::process::ExitCode;

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
    let Program { arguments, options } = Program::parse();
    launch_with("podwatch", &options, [], async |manager, client| {
        Ok(setup(manager, &client, &options.namespaces, &arguments).await?)
    })
}
