//! A cluster of a command's own: how fast it is, when it is ready, and how a person gets at it.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, bail};
use windlass::{
    cache::{Cache, Selection},
    k8s_openapi::api::core::v1::Node,
    kube::{ResourceExt, config::Kubeconfig},
    prelude::{Client, Query},
};
use windlass_cluster::{Cluster, Embedded, Error};

/// How long the nodes may take to be ready.
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts a cluster, does something on it, and ends it whatever came of that.
pub(crate) async fn within<T>(
    cluster: Embedded,
    work: impl AsyncFnOnce(&Cluster) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let cluster = cluster
        .start()
        .await
        .context("the embedded cluster did not start")?;
    let outcome = work(&cluster).await;
    cluster.stop().await;
    outcome
}

/// A factor on the pace of simulated nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed(pub(crate) f64);

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

/// Waits until so many nodes are ready.
pub(crate) async fn ready(client: Client, nodes: usize) -> anyhow::Result<()> {
    let cache = Cache::<Node>::start(client, &Selection::all());
    let lister = cache.synced(PATIENCE).await?;
    let mut changes = lister.subscribe();
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

/// Whether a node says that it is ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The kubeconfig that a person is told of. One that we made goes with us.
pub(crate) struct Announced {
    path: PathBuf,
    ours: bool,
}

impl Announced {
    /// Serves the cluster on its address, with a kubeconfig in a file of its own.
    pub(crate) fn serve(cluster: &Cluster) -> anyhow::Result<Self> {
        let path = cluster.kubeconfig().map_err(|error| match error {
            Error::Listen { address, source } => {
                anyhow::anyhow!("cannot listen on {address}: {source}; choose another address with --listen")
            }
            error => error.into(),
        })?;
        Ok(Self { path, ours: false })
    }

    /// The line to paste into a shell; what a shell does not need is a comment.
    pub(crate) fn line(&self, cluster: &Cluster, nodes: usize, ended_by: &str, took: Duration) -> String {
        format!(
            "export KUBECONFIG={}   # Kubernetes {} with {nodes} nodes, up in {} ms; {ended_by} ends it",
            quoted(&self.path),
            cluster.version(),
            took.as_millis(),
        )
    }

    /// Puts a kubeconfig where the person wants it, unless something of theirs is there.
    pub(crate) fn put(self, to: &Path) -> anyhow::Result<Self> {
        let from = &self.path;
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
