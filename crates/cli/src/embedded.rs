//! The embedded cluster of a command: its speed, its readiness and its kubeconfig.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, bail};
use windlass::{
    api::conditions,
    cache::{Cache, WatchScope},
    k8s_openapi::api::core::v1::Node,
    kube::ResourceExt,
    prelude::{Client, Query},
};
use windlass_cluster::{Cluster, Embedded, Error, KubeconfigCopy};

/// How long the nodes may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs `work` on a new cluster, and stops the cluster afterwards, also on an error.
pub(crate) async fn with_cluster<T>(
    cluster: Embedded,
    work: impl AsyncFnOnce(&Cluster) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let cluster = cluster
        .start()
        .await
        .context("cannot start the embedded cluster")?;
    let outcome = work(&cluster).await;
    cluster.stop().await;
    outcome
}

/// The speed of simulated nodes, relative to real ones.
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
            .ok_or_else(|| "expected a number greater than 0, or `instant`".to_owned())
    }
}

/// Waits until this many nodes are ready.
pub(crate) async fn wait_until_ready(client: Client, nodes: usize) -> anyhow::Result<()> {
    let cache = Cache::<Node>::start(client, &WatchScope::all());
    let lister = cache.synced(READY_TIMEOUT).await?;
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
    if tokio::time::timeout(READY_TIMEOUT, all).await.is_err() {
        let unready: Vec<_> = lister
            .list(&Query::all())
            .iter()
            .filter(|node| !is_ready(node))
            .map(|node| node.name_any())
            .collect();
        bail!(
            "{} not ready after {READY_TIMEOUT:?}: {}",
            node_count(unready.len()),
            unready.join(", ")
        );
    }
    Ok(())
}

/// Whether a node's condition `Ready` is true.
pub(crate) fn is_ready(node: &Node) -> bool {
    conditions::is_true(node, "Ready")
}

/// The kubeconfig announced to the user.
pub(crate) struct KubeconfigFile {
    path: PathBuf,
    /// Deletes the file on drop, if the user chose its path.
    _copy: Option<KubeconfigCopy>,
}

impl KubeconfigFile {
    /// Serves the cluster on its address, with a new kubeconfig.
    pub(crate) fn serve(cluster: &Cluster) -> anyhow::Result<Self> {
        let path = cluster.kubeconfig().map_err(|error| match error {
            Error::Listen { address, source } => {
                anyhow::anyhow!("cannot listen on {address}: {source}; choose another address with --listen")
            }
            error => error.into(),
        })?;
        Ok(Self { path, _copy: None })
    }

    /// Like [`serve`](Self::serve), with the kubeconfig at the path of the flag `--kubeconfig`.
    pub(crate) fn serve_at(cluster: &Cluster, path: &Path) -> anyhow::Result<Self> {
        Self::serve(cluster)?;
        let copy = cluster.copy_kubeconfig(path).context("--kubeconfig")?;
        Ok(Self {
            path: copy.path().to_owned(),
            _copy: Some(copy),
        })
    }

    /// The line to paste into a shell, with details in a comment.
    pub(crate) fn export_line(
        &self,
        cluster: &Cluster,
        nodes: usize,
        ended_by: &str,
        took: Duration,
    ) -> String {
        format!(
            "export KUBECONFIG={}   # Kubernetes {} with {}, ready in {} ms; {ended_by} stops it",
            shell_quoted(&self.path),
            cluster.version(),
            node_count(nodes),
            took.as_millis(),
        )
    }
}

/// A number of nodes in words.
pub(crate) fn node_count(nodes: usize) -> String {
    match nodes {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    }
}

fn shell_quoted(path: &Path) -> String {
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
    fn speed_is_a_positive_number_or_instant() {
        assert_eq!("2.5".parse(), Ok(Speed(2.5)));
        assert_eq!("instant".parse(), Ok(Speed(f64::INFINITY)));
        for nonsense in ["0", "-1", "NaN", "inf", "fast", ""] {
            assert!(nonsense.parse::<Speed>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn one_node_is_singular() {
        let counts = [0, 1, 2].map(node_count);
        assert_eq!(counts, ["0 nodes", "1 node", "2 nodes"]);
    }

    #[test]
    fn path_is_quoted_for_a_shell() {
        assert_eq!(shell_quoted(Path::new("/tmp/a-b/c.d")), "/tmp/a-b/c.d");
        assert_eq!(shell_quoted(Path::new("/tmp/it's here")), r"'/tmp/it'\''s here'");
    }
}
