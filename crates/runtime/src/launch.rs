//! A controller's whole `main`.

use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};

use crate::{error::Error, manager::Manager, options::Options};

/// Runs a program that is nothing but controllers: reads its flags, sets up logs, finds the cluster, and runs the manager
/// that `setup` fills until SIGTERM or SIGINT.
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
///     launch("settings", |manager, _options| {
///         manager.controller(Controller::<ConfigMap>::new("settings").reconcile(|_, _| async { Ok(Action::done()) }))
///     })
/// }
/// ```
///
/// A program with flags of its own parses them with [`Options`] flattened in, and calls
/// [`Options::manager`](crate::Options::manager).
pub fn launch(program: &'static str, setup: impl FnOnce(Manager, &Options) -> Manager) -> ExitCode {
    let matches = Options::augment_args(Command::new(program)).get_matches();
    let options = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(program, &options, setup) {
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
    setup: impl FnOnce(Manager, &Options) -> Manager,
) -> Result<(), Error> {
    options.init_logging()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let manager = options.manager(program).await?;
        setup(manager, options).run().await?;
        Ok(())
    })
}
