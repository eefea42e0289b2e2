//! A controller's whole `main`.

use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::{error::Error, install::Install, manager::Manager, options::Options};

/// Runs a program that is nothing but controllers: reads its flags, sets up logs, finds the cluster, and runs the manager
/// that `setup` fills until SIGTERM or SIGINT. The `crds` are applied first with `--install`, and waited for otherwise.
///
/// The flags are [`Options`]; `--help` tells them. What goes wrong is told in one line on standard error, and the exit code is
/// 1 (2 for flags that cannot be understood).
///
/// ```no_run
/// use std::process::ExitCode;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::{Action, Controller, launch};
///
/// fn main() -> ExitCode {
///     launch("settings", [], |manager| {
///         manager.controller(Controller::<ConfigMap>::new("settings").reconcile(|_, _| async { Ok(Action::done()) }))
///     })
/// }
/// ```
///
/// A program with flags of its own parses them with [`Options`] flattened in, and calls
/// [`Options::manager`](crate::Options::manager).
pub fn launch(
    program: &'static str,
    crds: impl IntoIterator<Item = CustomResourceDefinition>,
    setup: impl FnOnce(Manager) -> Manager,
) -> ExitCode {
    let matches = Options::augment_args(Command::new(program)).get_matches();
    let options = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(program, &options, options.install(crds), setup) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    program: &str,
    options: &Options,
    install: Install,
    setup: impl FnOnce(Manager) -> Manager,
) -> Result<(), Error> {
    options.init_logging()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let manager = options.manager(program).await?.install(install);
        setup(manager).run().await?;
        Ok(())
    })
}
