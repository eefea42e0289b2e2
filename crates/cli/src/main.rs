//! The `windlass` command.

mod demo;

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
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let outcome = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("windlass: {error:#}");
        ExitCode::FAILURE
    })
}
