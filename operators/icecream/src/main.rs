//! Runs the Icecream controller against the current kubeconfig's cluster, or in-cluster.

use windlass::{
    clap::{self, Parser},
    prelude::*,
    webhook::{OptionalWebhooks, Webhooks},
};
use windlass_icecream::{add_webhooks, controller, crd};

/// Runs a Deployment for each Icecream, and reports its pods in the status
#[derive(Parser)]
#[command(name = "icecream", version)]
struct Program {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    webhooks: OptionalWebhooks,
}

fn main() -> std::process::ExitCode {
    let Program { options, webhooks } = Program::parse();
    let crds = [crd(webhooks.enabled)];
    launch_with("icecream", &options, crds, async |manager, _| {
        let manager = manager.controller(controller());
        Ok(webhooks.add_to(manager, add_webhooks(Webhooks::new("icecream"))))
    })
}
