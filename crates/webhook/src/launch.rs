//! The `main` function of a program with webhooks.

use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use windlass_runtime::{Manager, Options, launch_with};

use crate::{ManagerExt, OptionalWebhooks, WebhookOptions, Webhooks};

/// Runs a program with controllers and webhooks, like [`windlass_runtime::launch`]. Its flags are those of every controller
/// program, and [`WebhookOptions`].
///
/// ```no_run
/// use std::process::ExitCode;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_webhook::{Verdict, Webhooks, launch_with_webhooks, validate};
///
/// fn main() -> ExitCode {
///     let webhooks = Webhooks::new("quota").with(validate::<ConfigMap, _>(|_, _| Verdict::deny("no more")));
///     launch_with_webhooks("quota", [], webhooks, |manager| manager)
/// }
/// ```
pub fn launch_with_webhooks(
    program: &'static str,
    crds: impl IntoIterator<Item = CustomResourceDefinition>,
    webhooks: Webhooks,
    setup: impl FnOnce(Manager) -> Manager,
) -> ExitCode {
    let (options, flags) = parse::<WebhookOptions>(program);
    launch_with(program, &options, crds, async |manager, _| {
        Ok(setup(manager).webhooks(webhooks, flags))
    })
}

/// Like [`launch_with_webhooks`], for a program that has webhooks only with the flag `--webhooks`: see
/// [`OptionalWebhooks`]. `crds` are those to install with or without webhooks: the versions of a kind that is converted by a webhook
/// are served only with it.
pub fn launch_with_optional_webhooks<C: IntoIterator<Item = CustomResourceDefinition>>(
    program: &'static str,
    crds: impl FnOnce(bool) -> C,
    webhooks: Webhooks,
    setup: impl FnOnce(Manager) -> Manager,
) -> ExitCode {
    let (options, flags) = parse::<OptionalWebhooks>(program);
    launch_with(program, &options, crds(flags.enabled), async |manager, _| {
        Ok(flags.add_to(setup(manager), webhooks))
    })
}

fn parse<F: Args>(program: &'static str) -> (Options, F) {
    let command = F::augment_args(Options::augment_args(Command::new(program)));
    let matches = command.get_matches();
    let parsed =
        Options::from_arg_matches(&matches).and_then(|options| Ok((options, F::from_arg_matches(&matches)?)));
    parsed.unwrap_or_else(|error| error.exit())
}
