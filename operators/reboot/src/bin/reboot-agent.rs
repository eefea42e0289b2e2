//! Runs the agent of one node, against the cluster of the current kubeconfig or the cluster it runs in.

use std::process::ExitCode;

use clap::Parser;
use windlass::prelude::*;
use windlass_reboot::{
    agent::{Arguments, setup},
    state::DEFAULT_ANNOTATION_PREFIX,
};

/// Reboots the node it runs on when the controller allows it, and verifies the reboot
#[derive(Parser)]
#[command(name = "reboot-agent", version)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,

    /// Prefix of the annotations on nodes
    #[arg(long, value_name = "DOMAIN", default_value = DEFAULT_ANNOTATION_PREFIX, help_heading = "Agent")]
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
