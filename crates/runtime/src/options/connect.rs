//! Connects to a cluster, from flags and environment.

use std::{
    ffi::OsString,
    fmt::Write as _,
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use http::Uri;
use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::layers::RateLimit;

/// The cluster to connect to, and the rate limit.
///
/// Uses the first that exists: the `kubeconfig` field; the files in `KUBECONFIG`; `~/.kube/config`; the service account of
/// the pod. One that exists but is invalid is an error; the next one is not tried.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(about = None, long_about = None))]
#[non_exhaustive]
pub struct Connection {
    /// Path of the kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", help_heading = "Cluster"))]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current context]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", help_heading = "Cluster"))]
    pub context: Option<String>,

    /// Maximum average requests per second [default: no limit]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NUMBER", help_heading = "Cluster"))]
    pub qps: Option<NonZeroU32>,

    /// Maximum burst of requests above --qps [default: twice --qps]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NUMBER", requires = "qps", help_heading = "Cluster")
    )]
    pub burst: Option<NonZeroU32>,
}

/// Why no client could be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No cluster is configured.
    #[error("no cluster to talk to: {tried}; set a kubeconfig with --kubeconfig or KUBECONFIG")]
    NoCluster {
        /// All sources that were tried, and why each was skipped.
        tried: String,
    },
    /// The kubeconfig cannot be used.
    #[error("cannot use kubeconfig {origin}: {source}")]
    Kubeconfig {
        /// The file or files.
        origin: String,
        /// The error.
        source: KubeconfigError,
    },
    /// The context does not exist.
    #[error("no context `{context}` in kubeconfig {origin}: it has {known}")]
    NoContext {
        /// The requested context.
        context: String,
        /// The file or files.
        origin: String,
        /// The existing contexts.
        known: String,
    },
    /// Neither the flag nor the kubeconfig selects a context.
    #[error("kubeconfig {origin} has no current context: choose one with --context; it has {known}")]
    NoCurrentContext {
        /// The file or files.
        origin: String,
        /// The existing contexts.
        known: String,
    },
    /// The process runs in a pod, but its service account cannot be used.
    #[error("cannot use the pod's service account: {0}; check automountServiceAccountToken")]
    InCluster(#[source] InClusterError),
    /// The configuration is invalid for a client.
    #[error("cannot create a client from {origin}: {source}")]
    Client {
        /// The source of the configuration.
        origin: String,
        /// The error.
        source: Box<kube::Error>,
    },
}

impl Connection {
    /// Returns a client for the chosen cluster, without sending a request.
    ///
    /// It has neither a rate limit nor retries: a manager adds these, see [`layers`](crate::layers). `kube`'s own retries are
    /// off, because they repeat writes that may have happened.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        Ok(self.connect().await?.0)
    }

    /// Returns a client, and the URL of the server that it talks to.
    pub(super) async fn connect(&self) -> Result<(Client, Uri), ConnectError> {
        let source = self.find_source(&Environment::from_process())?;
        let mut config = self.load(&source).await?;
        config.default_retry = false;
        let url = config.cluster_url.clone();
        let client = Client::try_from(config).map_err(|error| ConnectError::Client {
            origin: source.to_string(),
            source: Box::new(error),
        })?;
        Ok((client, url))
    }

    /// The rate limit of requests, if any.
    pub fn limit(&self) -> Option<RateLimit> {
        let qps = self.qps?;
        let burst = self
            .burst
            .unwrap_or(qps.saturating_mul(NonZeroU32::MIN.saturating_add(1)));
        Some(RateLimit::per_second(qps).burst(burst))
    }

    /// Returns the configuration of the chosen cluster, for a custom client.
    pub async fn config(&self) -> Result<Config, ConnectError> {
        self.load(&self.find_source(&Environment::from_process())?).await
    }

    fn find_source(&self, environment: &Environment) -> Result<ConfigSource, ConnectError> {
        if let Some(path) = &self.kubeconfig {
            return Ok(ConfigSource::Files(vec![path.clone()]));
        }
        let mut tried = "--kubeconfig is not set".to_owned();
        let named = environment.kubeconfig.as_deref().unwrap_or_default();
        let mut named: Vec<_> = std::env::split_paths(named)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        if !named.is_empty() {
            // As in kubectl, some may be missing; if all are, the error names one.
            if named.iter().any(|path| path.exists()) {
                named.retain(|path| path.exists());
            }
            return Ok(ConfigSource::Files(named));
        }
        tried.push_str(", KUBECONFIG is not set");
        match environment.home.as_ref().map(|home| home.join(".kube/config")) {
            Some(default) if default.exists() => return Ok(ConfigSource::Files(vec![default])),
            Some(default) => {
                write!(tried, ", {} does not exist", default.display())
                    .expect("writing to a String succeeds");
            }
            None => tried.push_str(", HOME is not set"),
        }
        if !environment.in_pod {
            tried.push_str(", and this is not a pod because KUBERNETES_SERVICE_HOST is not set");
        } else if self.context.is_some() {
            tried.push_str(", and --context does not apply to the pod's service account");
        } else {
            return Ok(ConfigSource::Pod);
        }
        Err(ConnectError::NoCluster { tried })
    }

    async fn load(&self, source: &ConfigSource) -> Result<Config, ConnectError> {
        let ConfigSource::Files(paths) = source else {
            return Config::incluster().map_err(ConnectError::InCluster);
        };
        let origin = || source.to_string();
        let unusable = |source| ConnectError::Kubeconfig {
            origin: origin(),
            source,
        };
        let mut kubeconfig = Kubeconfig::default();
        for (place, path) in paths.iter().enumerate() {
            let next = Kubeconfig::read_from(path).map_err(unusable)?;
            kubeconfig = if place == 0 {
                next
            } else {
                kubeconfig.merge(next).map_err(unusable)?
            };
        }
        let names: Vec<_> = kubeconfig
            .contexts
            .iter()
            .map(|context| format!("`{}`", context.name))
            .collect();
        let known = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        let current = kubeconfig.current_context.clone().filter(|name| !name.is_empty());
        let Some(context) = self.context.clone().or(current) else {
            return Err(ConnectError::NoCurrentContext {
                origin: origin(),
                known,
            });
        };
        if !kubeconfig.contexts.iter().any(|one| one.name == context) {
            return Err(ConnectError::NoContext {
                context,
                origin: origin(),
                known,
            });
        }
        let options = KubeConfigOptions {
            context: Some(context),
            ..KubeConfigOptions::default()
        };
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(unusable)
    }
}

/// The environment variables that choose a cluster.
struct Environment {
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    in_pod: bool,
}

impl Environment {
    fn from_process() -> Self {
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: std::env::home_dir().filter(|home| home != Path::new("")),
            in_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }
}

/// Source of the client configuration.
#[derive(Debug, PartialEq, Eq)]
enum ConfigSource {
    /// Kubeconfig files, merged; the first has precedence.
    Files(Vec<PathBuf>),
    /// The service account that the kubelet mounts.
    Pod,
}

impl std::fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Files(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                f.write_str(&paths.join(", "))
            }
            Self::Pod => f.write_str("the pod's service account"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "
current-context: a
contexts: [{name: a, context: {cluster: c, namespace: shop}}, {name: b, context: {cluster: d}}]
clusters: [{name: c, cluster: {server: 'http://one.example.com'}}, {name: d, cluster: {server: 'http://two.example.com'}}]";

    fn environment(home: &Path) -> Environment {
        Environment {
            kubeconfig: None,
            home: Some(home.to_owned()),
            in_pod: false,
        }
    }

    fn connection(kubeconfig: Option<&Path>, context: Option<&str>) -> Connection {
        Connection {
            kubeconfig: kubeconfig.map(Path::to_owned),
            context: context.map(str::to_owned),
            ..Connection::default()
        }
    }

    #[test]
    fn kubeconfig_comes_from_the_flag_then_the_variable_then_home_then_the_pod() {
        let home = tempfile::tempdir().expect("temporary directory");
        let (one, default) = (home.path().join("one"), home.path().join(".kube/config"));
        let mut environment = environment(home.path());
        let flagless = connection(None, None);

        let error = flagless
            .find_source(&environment)
            .expect_err("no cluster is configured")
            .to_string();
        let expected = format!(
            "no cluster to talk to: --kubeconfig is not set, KUBECONFIG is not set, {} does not exist, and this is not a \
             pod because KUBERNETES_SERVICE_HOST is not set; set a kubeconfig with --kubeconfig or KUBECONFIG",
            default.display()
        );
        assert_eq!(error, expected);
        environment.in_pod = true;
        assert_eq!(
            flagless.find_source(&environment).expect("valid Pod"),
            ConfigSource::Pod
        );
        let error = connection(None, Some("a"))
            .find_source(&environment)
            .expect_err("a pod has no contexts");
        assert!(
            error
                .to_string()
                .contains("--context does not apply to the pod's service account"),
            "{error}"
        );

        std::fs::create_dir(home.path().join(".kube")).expect("temporary directory");
        std::fs::write(&default, ONE).expect("temporary file");
        assert_eq!(
            flagless.find_source(&environment).expect("temporary file"),
            ConfigSource::Files(vec![default.clone()])
        );
        let gone = home.path().join("gone");
        environment.kubeconfig = Some(std::env::join_paths([&gone, &default]).expect("list"));
        assert_eq!(
            flagless.find_source(&environment).expect("temporary file"),
            ConfigSource::Files(vec![default])
        );
        environment.kubeconfig = Some(gone.clone().into());
        assert_eq!(
            flagless
                .find_source(&environment)
                .expect("chosen even if missing"),
            ConfigSource::Files(vec![gone])
        );
        let chosen = connection(Some(&one), None)
            .find_source(&environment)
            .expect("chosen by flag");
        assert_eq!(chosen, ConfigSource::Files(vec![one]));
    }

    #[tokio::test]
    async fn context_is_the_requested_or_the_current_one() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let path = folder.path().join("config");
        std::fs::write(&path, ONE).expect("temporary file");
        let config = connection(Some(&path), None).config().await.expect("usable");
        assert_eq!(
            (config.cluster_url.host(), &*config.default_namespace),
            (Some("one.example.com"), "shop")
        );
        let config = connection(Some(&path), Some("b")).config().await.expect("usable");
        assert_eq!(config.cluster_url.host(), Some("two.example.com"));

        let error = connection(Some(&path), Some("x"))
            .config()
            .await
            .expect_err("no such context")
            .to_string();
        assert_eq!(
            error,
            format!("no context `x` in kubeconfig {}: it has `a`, `b`", path.display())
        );
        std::fs::write(&path, ONE.replace("current-context: a", "")).expect("temporary file");
        let error = connection(Some(&path), None)
            .config()
            .await
            .expect_err("no current context")
            .to_string();
        assert!(
            error.ends_with("has no current context: choose one with --context; it has `a`, `b`"),
            "{error}"
        );
        let gone = folder.path().join("gone");
        let error = connection(Some(&gone), None)
            .config()
            .await
            .expect_err("no such file")
            .to_string();
        assert!(
            error.starts_with(&format!("cannot use kubeconfig {}: ", gone.display())),
            "{error}"
        );
    }

    #[tokio::test]
    async fn kubeconfig_files_are_merged_and_the_first_has_precedence() {
        let folder = tempfile::tempdir().expect("temporary directory");
        let (one, two) = (folder.path().join("1"), folder.path().join("2"));
        std::fs::write(&one, "current-context: b").expect("temporary file");
        std::fs::write(&two, ONE).expect("temporary file");
        let config = connection(None, None)
            .load(&ConfigSource::Files(vec![one, two]))
            .await
            .expect("usable");
        assert_eq!(config.cluster_url.host(), Some("two.example.com"));
    }
}
