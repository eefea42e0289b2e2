//! A controller's whole `main`.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Command, FromArgMatches};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

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
/// A program with flags of its own: [`launch_with`].
pub fn launch(
    program: &'static str,
    crds: impl IntoIterator<Item = CustomResourceDefinition>,
    setup: impl FnOnce(Manager) -> Manager,
) -> ExitCode {
    let matches = Options::augment_args(Command::new(program)).get_matches();
    let options = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    launch_with(program, &options, crds, async |manager, _| Ok(setup(manager)))
}

/// The same for a program that has flags of its own: it has parsed them, with [`Options`] flattened in, and may ask the cluster
/// before it says what to run.
///
/// ```no_run
/// use std::process::ExitCode;
/// use clap::Parser;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::{Action, Controller, Options, Watch, launch_with};
///
/// #[derive(Parser)]
/// struct Program {
///     /// Only objects with these labels
///     #[arg(long, default_value = "")]
///     labels: String,
///     #[command(flatten)]
///     options: Options,
/// }
///
/// fn main() -> ExitCode {
///     let program = Program::parse();
///     launch_with("settings", &program.options, [], async |manager, _client| {
///         let watch = Watch::<ConfigMap>::new().labels(&program.labels);
///         Ok(manager.controller(Controller::of("settings", watch).reconcile(|_, _| async { Ok(Action::done()) })))
///     })
/// }
/// ```
pub fn launch_with(
    program: &str,
    options: &Options,
    crds: impl IntoIterator<Item = CustomResourceDefinition>,
    setup: impl AsyncFnOnce(Manager, Client) -> Result<Manager, Error>,
) -> ExitCode {
    match run(program, options, options.install(crds), setup) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How long what cannot be cancelled may go on after the end: a write to a pipe that nobody reads.
const LAST_WRITES: Duration = Duration::from_secs(1);

fn run(
    program: &str,
    options: &Options,
    install: Install,
    setup: impl AsyncFnOnce(Manager, Client) -> Result<Manager, Error>,
) -> Result<(), Error> {
    options.init_logging()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let manager = options.manager(program).await?.install(install);
        let client = options.client().await?;
        setup(manager, client).await?.run().await?;
        Ok(())
    });
    runtime.shutdown_timeout(LAST_WRITES);
    ended
}
