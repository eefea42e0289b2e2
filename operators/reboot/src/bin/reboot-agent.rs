//! Runs the agent of the node that it is on, against the cluster of the current kubeconfig or the one it runs in.

use std::process::ExitCode;

use clap::Parser;
use windlass::prelude::*;
use windlass_reboot::{
    agent::{Arguments, setup},
    state::PREFIX,
};

/// Reboots the node that it runs on when the controller lets it, and proves that it did
#[derive(Parser)]
#[command(name = "reboot-agent", version)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,

    /// The prefix of the annotations on nodes
    #[arg(long, value_name = "DOMAIN", default_value = PREFIX, help_heading = "Agent")]
    annotation_prefix: String,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let program = Program::parse();
    launch_with("reboot-agent", &program.options, [], async |manager, client| {
        Ok(setup(manager, &client, &program.annotation_prefix, &program.arguments).await?)
    })
}
