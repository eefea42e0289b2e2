//! From flags and environment to a client.

use std::{
    ffi::OsString,
    fmt::Write as _,
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::layers::RateLimit;

/// Which cluster to talk to, and how fast.
///
/// The first of these that is there: the kubeconfig that was named; the files in `KUBECONFIG`; `~/.kube/config`; the
/// service account of the pod that this process runs in. What is there and cannot be used is an error, not a reason to
/// try the next one.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(about = None, long_about = None))]
#[non_exhaustive]
pub struct Connection {
    /// The kubeconfig to use [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", help_heading = "Cluster"))]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use [default: its current one]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", help_heading = "Cluster"))]
    pub context: Option<String>,

    /// The most requests per second, on average [default: no limit]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NUMBER", help_heading = "Cluster"))]
    pub qps: Option<NonZeroU32>,

    /// The most requests at once, within --qps [default: twice as many as --qps]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NUMBER", requires = "qps", help_heading = "Cluster")
    )]
    pub burst: Option<NonZeroU32>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// None of the places where a cluster could be named has one.
    #[error("no cluster to talk to: {tried}; name a kubeconfig with --kubeconfig or KUBECONFIG")]
    NothingFound {
        /// All places that were tried, and why each was left.
        tried: String,
    },
    /// The kubeconfig cannot be used.
    #[error("cannot use kubeconfig {origin}: {source}")]
    Kubeconfig {
        /// The file or files.
        origin: String,
        /// What is wrong.
        source: KubeconfigError,
    },
    /// No such context.
    #[error("no context `{context}` in kubeconfig {origin}: it has {known}")]
    NoContext {
        /// What was asked for.
        context: String,
        /// The file or files.
        origin: String,
        /// The contexts that there are.
        known: String,
    },
    /// Neither the flag nor the file says which context.
    #[error("kubeconfig {origin} has no current context: choose one with --context; it has {known}")]
    NoCurrentContext {
        /// The file or files.
        origin: String,
        /// The contexts that there are.
        known: String,
    },
    /// This is a pod, but its service account cannot be used.
    #[error("cannot use the pod's service account: {0}; is automountServiceAccountToken off?")]
    InCluster(#[source] InClusterError),
    /// The client cannot be made from the configuration.
    #[error("cannot make a client from {origin}: {source}")]
    Client {
        /// Where the configuration comes from.
        origin: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
}

impl Connection {
    /// A client for the chosen cluster. Nothing is sent yet.
    ///
    /// It neither limits nor repeats requests: a manager's client does, see [`layers`](crate::layers). `kube`'s own
    /// retries are off, since they repeat writes that may have happened.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        let source = self.choose(&Environment::of_the_process())?;
        let mut config = self.load(&source).await?;
        config.default_retry = false;
        let made = Client::try_from(config);
        made.map_err(|error| ConnectError::Client {
            origin: source.to_string(),
            source: Box::new(error),
        })
    }

    /// How many requests a client may make, if that is limited.
    pub fn limit(&self) -> Option<RateLimit> {
        let qps = self.qps?;
        let burst = self
            .burst
            .unwrap_or(qps.saturating_mul(NonZeroU32::MIN.saturating_add(1)));
        Some(RateLimit::per_second(qps).burst(burst))
    }

    /// The configuration of the chosen cluster, for a client with other layers.
    pub async fn config(&self) -> Result<Config, ConnectError> {
        self.load(&self.choose(&Environment::of_the_process())?).await
    }

    fn choose(&self, environment: &Environment) -> Result<Source, ConnectError> {
        if let Some(path) = &self.kubeconfig {
            return Ok(Source::Files(vec![path.clone()]));
        }
        let mut tried = "--kubeconfig is not given".to_owned();
        let named = environment.kubeconfig.as_deref().unwrap_or_default();
        let mut named: Vec<_> = std::env::split_paths(named)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        if !named.is_empty() {
            // As for kubectl, some may be missing; if all are, the error should name one.
            if named.iter().any(|path| path.exists()) {
                named.retain(|path| path.exists());
            }
            return Ok(Source::Files(named));
        }
        tried.push_str(", KUBECONFIG is not set");
        match environment.home.as_ref().map(|home| home.join(".kube/config")) {
            Some(default) if default.exists() => return Ok(Source::Files(vec![default])),
            Some(default) => write!(tried, ", {} does not exist", default.display()).expect("text"),
            None => tried.push_str(", HOME is not set"),
        }
        if !environment.in_pod {
            tried.push_str(", and without KUBERNETES_SERVICE_HOST this is no pod");
        } else if self.context.is_some() {
            tried.push_str(", and the pod's service account has no --context");
        } else {
            return Ok(Source::Pod);
        }
        Err(ConnectError::NothingFound { tried })
    }

    async fn load(&self, source: &Source) -> Result<Config, ConnectError> {
        let Source::Files(paths) = source else {
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

/// What the process is told by its surroundings.
struct Environment {
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    in_pod: bool,
}

impl Environment {
    fn of_the_process() -> Self {
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: std::env::home_dir().filter(|home| home != Path::new("")),
            in_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }
}

/// Where the configuration is.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// One, or several that are merged; the first one wins.
    Files(Vec<PathBuf>),
    /// The service account that the kubelet mounts.
    Pod,
}

impl std::fmt::Display for Source {
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
    fn a_flag_goes_before_the_variable_the_variable_before_home_and_home_before_the_pod() {
        let home = tempfile::tempdir().expect("a folder");
        let (one, default) = (home.path().join("one"), home.path().join(".kube/config"));
        let mut environment = environment(home.path());
        let flagless = connection(None, None);

        let error = flagless
            .choose(&environment)
            .expect_err("there is nothing")
            .to_string();
        let expected = format!(
            "no cluster to talk to: --kubeconfig is not given, KUBECONFIG is not set, {} does not exist, and without \
             KUBERNETES_SERVICE_HOST this is no pod; name a kubeconfig with --kubeconfig or KUBECONFIG",
            default.display()
        );
        assert_eq!(error, expected);
        environment.in_pod = true;
        assert_eq!(flagless.choose(&environment).expect("a pod"), Source::Pod);
        let error = connection(None, Some("a"))
            .choose(&environment)
            .expect_err("a pod has no contexts");
        assert!(
            error
                .to_string()
                .contains("the pod's service account has no --context"),
            "{error}"
        );

        std::fs::create_dir(home.path().join(".kube")).expect("a folder");
        std::fs::write(&default, ONE).expect("a file");
        assert_eq!(
            flagless.choose(&environment).expect("a file"),
            Source::Files(vec![default.clone()])
        );
        let gone = home.path().join("gone");
        environment.kubeconfig = Some(std::env::join_paths([&gone, &default]).expect("a list"));
        assert_eq!(
            flagless.choose(&environment).expect("a file"),
            Source::Files(vec![default])
        );
        environment.kubeconfig = Some(gone.clone().into());
        assert_eq!(
            flagless.choose(&environment).expect("named, if missing"),
            Source::Files(vec![gone])
        );
        let chosen = connection(Some(&one), None).choose(&environment).expect("named");
        assert_eq!(chosen, Source::Files(vec![one]));
    }

    #[tokio::test]
    async fn a_context_is_the_one_that_was_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        std::fs::write(&path, ONE).expect("a file");
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
        std::fs::write(&path, ONE.replace("current-context: a", "")).expect("a file");
        let error = connection(Some(&path), None)
            .config()
            .await
            .expect_err("which one?")
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
    async fn files_of_the_variable_are_merged_and_the_first_one_wins() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("1"), folder.path().join("2"));
        std::fs::write(&one, "current-context: b").expect("a file");
        std::fs::write(&two, ONE).expect("a file");
        let config = connection(None, None)
            .load(&Source::Files(vec![one, two]))
            .await
            .expect("usable");
        assert_eq!(config.cluster_url.host(), Some("two.example.com"));
    }
}
