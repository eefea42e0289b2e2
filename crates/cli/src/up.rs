//! A cluster in a person's hands: started, announced, and kept until Ctrl-C.

use std::{
    fs::OpenOptions,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass::{
    cache::{Cache, Selection},
    k8s_openapi::api::core::v1::Node,
    kube::{ResourceExt, config::Kubeconfig},
    prelude::{Client, Query},
};
use windlass_cluster::{Cluster, Error};

/// How the cluster is to be.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many simulated nodes it has
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(0..=5000))]
    nodes: u16,

    /// The address to serve on; port 0 is a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where to put the kubeconfig; a file that is somebody else's is not touched [default: a new file]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// How much faster than real the nodes are: a number, or `instant`
    #[arg(long, value_name = "TIMES", default_value = "10")]
    speed: Speed,
}

/// A factor on the pace of simulated nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed(f64);

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "instant" {
            return Ok(Self(f64::INFINITY));
        }
        let times = text
            .parse()
            .ok()
            .filter(|times: &f64| times.is_finite() && *times > 0.0);
        times
            .map(Self)
            .ok_or_else(|| "a speed is a number greater than 0, or `instant`".to_owned())
    }
}

/// How long the nodes may take to be ready.
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts the cluster, and keeps it until SIGINT or SIGTERM.
pub(crate) async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    // Before anything is there to be cleaned up: a signal must not find nobody listening.
    let mut signals = Signals::new()?;
    let cluster = Cluster::embedded()
        .listen(arguments.listen)
        .nodes(arguments.nodes.into())
        .speed(arguments.speed.0)
        .start()
        .await?;
    let kept = keep(arguments, &cluster, started, &mut signals).await;
    cluster.stop().await;
    kept.map(|()| ExitCode::SUCCESS)
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Says that the cluster is there, and waits to be told to end it.
async fn keep(
    arguments: &Arguments,
    cluster: &Cluster,
    started: Instant,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let serving = cluster.kubeconfig().map_err(|error| match error {
        Error::Listen { address, source } => {
            anyhow::anyhow!("cannot listen on {address}: {source}; choose another address with --listen")
        }
        error => error.into(),
    })?;
    let file = match &arguments.kubeconfig {
        None => Announced {
            path: serving,
            ours: false,
        },
        Some(path) => Announced::copy(&serving, path)?,
    };
    tokio::select! {
        ready = ready(cluster.client(), arguments.nodes.into()) => ready?,
        () = signals.next() => bail!("stopped before the nodes were ready"),
    }
    // One line to paste; what a shell does not need is a comment.
    println!(
        "export KUBECONFIG={}   # Kubernetes {} with {} nodes, up in {} ms; Ctrl-C ends it",
        quoted(&file.path),
        cluster.version(),
        arguments.nodes,
        started.elapsed().as_millis(),
    );
    signals.next().await;
    Ok(())
}

/// Waits until so many nodes are ready.
async fn ready(client: Client, nodes: usize) -> anyhow::Result<()> {
    let cache = Cache::<Node>::start(client, &Selection::all());
    let lister = cache.synced(PATIENCE).await?;
    let mut changes = lister.subscribe();
    let is_ready = |node: &Node| {
        let conditions = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let all = async {
        while lister
            .list(&Query::all())
            .iter()
            .filter(|node| is_ready(node))
            .count()
            < nodes
        {
            if changes.next().await.is_none() {
                break;
            }
        }
    };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        let unready: Vec<_> = lister
            .list(&Query::all())
            .iter()
            .filter(|node| !is_ready(node))
            .map(|node| node.name_any())
            .collect();
        bail!(
            "of {nodes} nodes not all are ready after {PATIENCE:?}: {}",
            unready.join(", ")
        );
    }
    Ok(())
}

/// The kubeconfig that a person is told of. One that we made goes with us.
struct Announced {
    path: PathBuf,
    ours: bool,
}

impl Announced {
    /// Puts a kubeconfig where the person wants it, unless something of theirs is there.
    fn copy(from: &Path, to: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        if to.exists() {
            let is_ours = Kubeconfig::read_from(to).is_ok_and(|known| {
                known.contexts.len() == 1 && known.current_context.as_deref() == Some("windlass")
            });
            if !is_ours {
                bail!(
                    "{} is there already and not one of ours: name another file with --kubeconfig, or leave it out",
                    to.display()
                );
            }
            std::fs::remove_file(to).with_context(|| format!("cannot replace {}", to.display()))?;
        }
        let cannot = || {
            format!(
                "cannot write {}: name another file with --kubeconfig",
                to.display()
            )
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(to)
            .with_context(cannot)?;
        file.write_all(&text).with_context(cannot)?;
        let path = std::path::absolute(to).with_context(cannot)?;
        Ok(Self { path, ours: true })
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if text.bytes().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_number_or_instant() {
        assert_eq!("2.5".parse(), Ok(Speed(2.5)));
        assert_eq!("instant".parse(), Ok(Speed(f64::INFINITY)));
        for nonsense in ["0", "-1", "NaN", "inf", "fast", ""] {
            assert!(nonsense.parse::<Speed>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_path_can_be_pasted_into_a_shell() {
        assert_eq!(quoted(Path::new("/tmp/a-b/c.d")), "/tmp/a-b/c.d");
        assert_eq!(quoted(Path::new("/tmp/it's here")), r"'/tmp/it'\''s here'");
    }
}
