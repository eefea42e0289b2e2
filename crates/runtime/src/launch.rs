//! The `main` function of a controller program.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Command, FromArgMatches};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

use crate::{
    error::Error,
    install::CrdInstaller,
    manager::Manager,
    options::{LoggingError, Options},
};

/// Runs a controller program: parses its flags, sets up logging, connects to the cluster, and runs the manager that `setup`
/// fills until SIGTERM or SIGINT. With `--install` the `crds` are applied first; otherwise the controllers of those that are
/// not installed wait for them, and the others run.
///
/// Logs go to standard error, unless the program has set a global `tracing` subscriber before, which is kept: see
/// [`Logging::layer`](crate::Logging::layer) for one that exports spans too. With the feature `opentelemetry` it exports
/// spans and metrics by itself, if `OTEL_EXPORTER_OTLP_ENDPOINT` is set; see `Telemetry`.
///
/// The flags are [`Options`]; `--help` lists them. An error is one line on standard error and exit code 1 (2 for invalid
/// flags).
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
/// For a program with flags of its own, see [`launch_with`].
pub fn launch(
    program: &'static str,
    crds: impl IntoIterator<Item = CustomResourceDefinition>,
    setup: impl FnOnce(Manager) -> Manager,
) -> ExitCode {
    let matches = Options::augment_args(Command::new(program)).get_matches();
    let options = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    launch_with(program, &options, crds, async |manager, _| Ok(setup(manager)))
}

/// Like [`launch`], for a program with flags of its own: it parses them with [`Options`] flattened in, and its `setup` may
/// query the cluster.
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
///         let controller = Controller::from_watch("settings", watch);
///         Ok(manager.controller(controller.reconcile(|_, _| async { Ok(Action::done()) })))
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

/// How long blocking work that cannot be cancelled may take at exit, such as a write to a pipe without a reader.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn run(
    program: &str,
    options: &Options,
    install: CrdInstaller,
    setup: impl AsyncFnOnce(Manager, Client) -> Result<Manager, Error>,
) -> Result<(), Error> {
    #[cfg(feature = "opentelemetry")]
    let telemetry = crate::Telemetry::from_env(program)?;
    #[cfg(feature = "opentelemetry")]
    let logging = telemetry.init(&options.logging);
    #[cfg(not(feature = "opentelemetry"))]
    let logging = options.init_logging();
    match logging {
        // The program has a subscriber of its own.
        Ok(()) | Err(LoggingError::AlreadySet) => {}
        Err(error) => return Err(error.into()),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let manager = options.manager(program).await?.install(install);
        #[cfg(feature = "opentelemetry")]
        let manager = manager.telemetry(telemetry);
        let client = manager.client().clone();
        setup(manager, client).await?.run().await?;
        Ok(())
    });
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    ended
}
