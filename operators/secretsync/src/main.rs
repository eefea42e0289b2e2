//! Runs secretsync against the cluster of the current kubeconfig, or the cluster it runs in.

use std::process::ExitCode;

use clap::Parser;
use windlass::{
    prelude::*,
    webhook::{OptionalWebhooks, Webhooks},
};
use windlass_secretsync::{Arguments, SecretSync, add_webhooks, setup};

/// Copies Secrets and ConfigMaps into the namespaces that ask for them
#[derive(Parser)]
#[command(name = "secretsync", version)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    webhooks: OptionalWebhooks,
}

fn main() -> ExitCode {
    let Program {
        arguments,
        options,
        webhooks: flags,
    } = Program::parse();
    launch_with(
        "secretsync",
        &options,
        [SecretSync::crd()],
        async |manager, client| {
            let manager = setup(manager, &client, &options.namespaces, &arguments).await?;
            if !flags.enabled {
                return Ok(manager);
            }
            let webhooks = add_webhooks(Webhooks::new("secretsync"), &client, &arguments).await?;
            Ok(flags.add_to(manager, webhooks))
        },
    )
}
