//! The embedded cluster of a command: its speed, its readiness and its kubeconfig.

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
    api::conditions,
    cache::{Cache, WatchScope},
    k8s_openapi::api::core::v1::Node,
    kube::{ResourceExt, config::Kubeconfig},
    prelude::{Client, Query},
};
use windlass_cluster::{Cluster, Embedded, Error};

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
            "not all of the {nodes} nodes are ready after {READY_TIMEOUT:?}: {}",
            unready.join(", ")
        );
    }
    Ok(())
}

/// Whether a node's condition `Ready` is true.
pub(crate) fn is_ready(node: &Node) -> bool {
    conditions::is_true(node, "Ready")
}

/// The kubeconfig announced to the user. Deleted on drop if it was [copied](Self::copy_to).
pub(crate) struct KubeconfigFile {
    path: PathBuf,
    is_copy: bool,
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
        Ok(Self { path, is_copy: false })
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
            "export KUBECONFIG={}   # Kubernetes {} with {nodes} nodes, ready in {} ms; {ended_by} stops it",
            shell_quoted(&self.path),
            cluster.version(),
            took.as_millis(),
        )
    }

    /// Copies the kubeconfig to this path, unless that has a file that windlass did not write.
    pub(crate) fn copy_to(self, to: &Path) -> anyhow::Result<Self> {
        let from = &self.path;
        let text = std::fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        if to.exists() {
            let is_ours = Kubeconfig::read_from(to).is_ok_and(|known| {
                known.contexts.len() == 1 && known.current_context.as_deref() == Some("windlass")
            });
            if !is_ours {
                bail!(
                    "{} exists and was not written by windlass: choose another file with --kubeconfig, or omit the flag",
                    to.display()
                );
            }
            std::fs::remove_file(to).with_context(|| format!("cannot replace {}", to.display()))?;
        }
        let cannot = || {
            format!(
                "cannot write {}: choose another file with --kubeconfig",
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
        Ok(Self { path, is_copy: true })
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        if self.is_copy {
            let _ = std::fs::remove_file(&self.path);
        }
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
    fn path_is_quoted_for_a_shell() {
        assert_eq!(shell_quoted(Path::new("/tmp/a-b/c.d")), "/tmp/a-b/c.d");
        assert_eq!(shell_quoted(Path::new("/tmp/it's here")), r"'/tmp/it'\''s here'");
    }
}
