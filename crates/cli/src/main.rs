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
use tracing_subscriber::EnvFilter;

/// An API server makes and drops thousands of small objects with every request, for which this is made: a pod is created
/// with a fifth less work than with the system's allocator. Libraries leave the choice to their programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Write and run Kubernetes controllers, with the cluster in the box.
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
    /// Show the controllers at work on a cluster in this process: ten nodes, less than half a minute.
    ///
    /// A live view on a terminal, lines elsewhere or with `--plain`. Objects are created, changed, deleted and renamed, ten
    /// nodes reboot in turn, one reboots on its own and one is given up, and after each step what should be true is checked
    /// against the API. At the end a summary says what held; the exit code is 0 only if all of it did. Nothing outside this
    /// process is touched, and nothing is left. Set `RUST_LOG=info` to see the controllers' own log too.
    Demo(demo::Arguments),

    /// Run controllers that come with Windlass, until Ctrl-C.
    ///
    /// One or several of them in one process, against the cluster of the current kubeconfig or the one that the process runs in.
    /// With `--embedded`, on a cluster of their own: the first line of the output can be pasted into a shell, for kubectl.
    Run(Box<run::Arguments>),

    /// Run a cluster of its own until Ctrl-C, for kubectl and other programs.
    ///
    /// An API server, its controllers, a scheduler and simulated nodes, all inside this process: Deployments roll out, pods
    /// become ready, nodes can be drained. When it is ready it prints one line to paste into a shell. No other kubeconfig is
    /// touched, and nothing is left when it ends.
    Up(up::Arguments),

    /// Put this program into a folder as the etcd and the kube-apiserver that envtest starts.
    ///
    /// With `KUBEBUILDER_ASSETS` set to that folder, tests that use controller-runtime's envtest run on the embedded API
    /// server, unchanged. A kubectl comes along if one is found. Prints the folder, so that
    /// `KUBEBUILDER_ASSETS="$(windlass assets DIR)" go test ./...` does it all.
    Assets(assets::Arguments),

    /// Print the licences of the third-party crates in this binary.
    Notices,
}

/// How long what still runs may take after a command has ended: all of it should have ended before.
const LINGER: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    if let Some(part) = drop_in::Part::of(&program) {
        log("warn");
        return part.run(words.map(|word| word.to_string_lossy().into_owned()));
    }
    let given = Arguments::command().get_matches();
    if let Some(given) = given.subcommand_matches("run") {
        run::refuse_strays(given);
    }
    let arguments = Arguments::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let outcome = Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(command(arguments.command));
        runtime.shutdown_timeout(LINGER);
        outcome
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("windlass: {error:#}");
        ExitCode::FAILURE
    })
}

async fn command(command: Command) -> anyhow::Result<ExitCode> {
    // `run` has flags for its log, and the demo has a screen in its way.
    if !matches!(command, Command::Run(_) | Command::Demo(_)) {
        log("warn");
    }
    match command {
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Run(arguments) => run::run(*arguments).await,
        Command::Up(arguments) => up::run(&arguments).await,
        Command::Assets(arguments) => assets::run(&arguments),
        Command::Notices => Ok(notices::run()),
    }
}

/// Ends the process as clap does when a command line cannot be meant.
fn refuse(subcommand: &str, kind: ErrorKind, why: &str) -> ! {
    let mut windlass = Arguments::command();
    windlass.build();
    let command = windlass
        .find_subcommand_mut(subcommand)
        .expect("it is one of ours");
    command.error(kind, why).exit()
}

/// Logs to standard error what `RUST_LOG` lets through, or what is from this level on.
fn log(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_contradicts_nothing() {
        Arguments::command().debug_assert();
    }
}
