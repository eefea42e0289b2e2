//! The `windlass` command.

mod assets;
mod demo;
mod drop_in;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
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
    /// Show the sample controller at work on an embedded cluster.
    ///
    /// Starts an API server inside this process, installs the Foo CRD, runs the controller, creates a Foo, and
    /// follows what becomes of it. Every claim is checked against the API; the exit code is 0 only if all of them hold.
    /// Nothing outside this process is touched. Set `RUST_LOG=info` to see the controller's own log.
    Demo(demo::Arguments),

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
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    log();
    match drop_in::Part::of(&program) {
        Some(part) => part.run(words.map(|word| word.to_string_lossy().into_owned())),
        None => command(),
    }
}

#[tokio::main]
async fn command() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Up(arguments) => up::run(&arguments).await,
        Command::Assets(arguments) => assets::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("windlass: {error:#}");
        ExitCode::FAILURE
    })
}

fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}
