//! The `windlass` command.

mod assets;
mod catalogue;
mod demo;
mod drop_in;
mod embedded;
mod notices;
mod run;
mod signals;
mod up;

use std::{process::ExitCode, time::Duration};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use tokio::runtime::Runtime;
use windlass::runtime::Logging;

/// An API server allocates and frees thousands of small objects per request: with mimalloc, creating a pod takes a fifth less
/// work than with the system's allocator. Libraries leave this choice to programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Write and run Kubernetes controllers, with an embedded cluster.
#[derive(Parser)]
#[command(
    name = "windlass",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the controllers on a cluster in this process: ten nodes, less than half a minute.
    ///
    /// Shows a live view on a terminal, lines elsewhere or with `--plain`. Objects are created, changed, deleted and renamed, ten
    /// nodes reboot in turn, one reboots on its own and one is drained by a taint; after each step, claims about the result are
    /// checked against the API. The exit code is 0 only if every claim held. The demo changes nothing outside this process and
    /// leaves nothing behind. Set `RUST_LOG=info` to see the controllers' own log too.
    Demo(demo::Arguments),

    /// Run Windlass's own controllers until Ctrl-C.
    ///
    /// Runs one or several controllers in one process, against the current kubeconfig's cluster or in-cluster. With `--embedded`,
    /// they get their own cluster: paste the first line of the output into a shell to use kubectl with it.
    Run(Box<run::Arguments>),

    /// Run an embedded cluster until Ctrl-C, for kubectl and other programs.
    ///
    /// Runs an API server, its controllers, a scheduler and simulated nodes in this process: Deployments roll out, pods become
    /// ready, nodes can be drained. When the cluster is ready, it prints one line to paste into a shell. It changes no other
    /// kubeconfig and leaves nothing behind.
    Up(up::Arguments),

    /// Install this program into a folder as envtest's etcd and kube-apiserver.
    ///
    /// With `KUBEBUILDER_ASSETS` set to that folder, tests with controller-runtime's envtest run unchanged on the embedded API
    /// server. Links a kubectl too, if one is found. Prints the folder, for
    /// `KUBEBUILDER_ASSETS="$(windlass assets DIR)" go test ./...`.
    Assets(assets::Arguments),

    /// Print the licenses of the third-party crates in this binary.
    Notices,
}

/// How long remaining tasks may take after a command has ended. There should be none.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    if let Some(program) = drop_in::Program::from_name(&name) {
        init_logging("warn");
        return program.run(args.map(|arg| arg.to_string_lossy().into_owned()));
    }
    let matches = Arguments::command().get_matches();
    if let Some(run_matches) = matches.subcommand_matches("run") {
        run::reject_unrelated_flags(run_matches);
    }
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(command(arguments.command));
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        outcome
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("windlass: {}", describe(&error));
        ExitCode::FAILURE
    })
}

async fn command(command: Command) -> anyhow::Result<ExitCode> {
    // `run` has flags for logging, and the demo may capture the log for its live view.
    if !matches!(command, Command::Run(_) | Command::Demo(_)) {
        init_logging("warn");
    }
    match command {
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Run(arguments) => run::run(*arguments).await,
        Command::Up(arguments) => up::run(&arguments).await,
        Command::Assets(arguments) => assets::run(&arguments),
        Command::Notices => Ok(notices::run()),
    }
}

/// Prints a usage error and exits, as clap does.
fn exit_with_usage_error(subcommand: &str, kind: ErrorKind, message: &str) -> ! {
    let mut windlass = Arguments::command();
    windlass.build();
    let command = windlass
        .find_subcommand_mut(subcommand)
        .expect("a subcommand of windlass");
    command.error(kind, message).exit()
}

/// Logs to standard error, filtered by `RUST_LOG` or else by this level.
fn init_logging(level: &str) {
    let mut logging = Logging::default();
    let is_set = std::env::var_os("RUST_LOG").is_some_and(|level| !level.is_empty());
    if !is_set || logging.filter().is_err() {
        logging.level = Some(level.to_owned());
    }
    // The only error left is a subscriber that is set already.
    let _ = logging.init();
}

/// An error and its causes, without those that the text before has already: many errors include their cause.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let message = cause.to_string();
        if text.is_empty() {
            text = message;
        } else if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_that_is_in_the_message_is_not_repeated() {
        let inner = anyhow::anyhow!("no such file");
        let outer = inner
            .context("cannot read a: no such file")
            .context("cannot start");
        assert_eq!(describe(&outer), "cannot start: cannot read a: no such file");
    }

    #[test]
    fn command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
