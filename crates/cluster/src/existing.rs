//! The existing backend: a cluster that somebody else runs.

use std::{
    ffi::OsStr,
    fs::File,
    path::{Path, PathBuf},
};

use kube::config::{AuthInfo, Kubeconfig, KubeconfigError};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    Cluster, Error,
    cluster::Running,
    kubeconfig,
    sandbox::{private_folder, write_private},
};

/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How to connect to an existing cluster; made by [`Cluster::existing`].
///
/// Without options: the files in `KUBECONFIG`, else `~/.kube/config`, else the service account of the pod we run in; and
/// the current context.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is connected before `connect`"]
pub struct Existing {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
}

impl Existing {
    /// Takes this kubeconfig. Default: inferred.
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(path.into());
        self
    }

    /// Takes this context of the kubeconfig. Default: its current one.
    pub fn context(mut self, name: impl Into<String>) -> Self {
        self.context = Some(name.into());
        self
    }

    /// Connects, and asks the API server for its version, so that a cluster that does not answer is found here.
    ///
    /// The kubeconfig of the result is a copy with only the chosen context in it.
    pub async fn connect(self) -> Result<Cluster, Error> {
        let (all, origin) = self.read()?;
        let chosen = narrow(all, self.context.as_deref(), &origin)?;
        check_files(&chosen, &origin)?;

        let folder = private_folder(&std::env::temp_dir())?;
        let path = folder.path().join(kubeconfig::ADMINISTRATOR);
        write_private(&path, &kubeconfig::text(&chosen))?;

        let config = kubeconfig::config(chosen.clone(), &origin).await?;
        let server = config.cluster_url.to_string();
        let client = kubeconfig::client(config)?;
        let version = client
            .apiserver_version()
            .await
            .map_err(|source| Error::Unreachable {
                server,
                source: Box::new(source),
            })?;
        let connection = Connection {
            kubeconfig: chosen,
            folder,
        };
        Ok(Cluster::new(
            client,
            version.git_version,
            Running::Existing(Box::new(connection)),
        ))
    }

    fn read(&self) -> Result<(Kubeconfig, String), Error> {
        if let Some(path) = &self.kubeconfig {
            return Ok((read_file(path)?, path.display().to_string()));
        }
        let variable = std::env::var_os("KUBECONFIG").unwrap_or_default();
        if let Some(merged) = read_list(&variable)? {
            return Ok((merged, "of KUBECONFIG".to_owned()));
        }
        let default = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".kube/config");
        if default.exists() {
            return Ok((read_file(&default)?, default.display().to_string()));
        }
        match in_cluster() {
            Some(kubeconfig) => Ok((kubeconfig, "of the pod".to_owned())),
            None => Err(Error::NoKubeconfig { default }),
        }
    }
}

/// What is kept of an existing cluster.
pub(crate) struct Connection {
    /// One context, one cluster, one user.
    kubeconfig: Kubeconfig,
    /// Holds our copies of the kubeconfig.
    folder: TempDir,
}

impl Connection {
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The kubeconfig with which our user acts as another one.
    pub(crate) fn user(&self, name: &str, groups: &[String]) -> Kubeconfig {
        let mut kubeconfig = self.kubeconfig.clone();
        for user in &mut kubeconfig.auth_infos {
            let access = user.auth_info.get_or_insert_with(AuthInfo::default);
            access.impersonate = Some(name.to_owned());
            access.impersonate_groups = Some(groups.to_owned());
        }
        kubeconfig
    }
}

/// Merges the files of `KUBECONFIG`. As for kubectl, some of them may be missing; all of them may not.
fn read_list(variable: &OsStr) -> Result<Option<Kubeconfig>, Error> {
    let mut paths: Vec<_> = std::env::split_paths(variable)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if paths.iter().any(|path| path.exists()) {
        paths.retain(|path| path.exists());
    }
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let next = read_file(&path)?;
        merged = Some(match merged {
            None => next,
            Some(first) => first
                .merge(next)
                .map_err(|source| unusable("of KUBECONFIG", source))?,
        });
    }
    Ok(merged)
}

fn read_file(path: &Path) -> Result<Kubeconfig, Error> {
    // Relative paths in the file are meant relative to it, and our copy lies elsewhere.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Kubeconfig::read_from(&path).map_err(|source| unusable(&path.display().to_string(), source))
}

fn unusable(origin: &str, source: KubeconfigError) -> Error {
    match source {
        KubeconfigError::ReadConfig(source, path) => Error::KubeconfigUnreadable { path, source },
        source => Error::KubeconfigInvalid {
            origin: origin.to_owned(),
            source,
        },
    }
}

fn in_cluster() -> Option<Kubeconfig> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
    let port = std::env::var("KUBERNETES_SERVICE_PORT").ok()?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    Some(kubeconfig::single(
        &json!({ "server": format!("https://{host}:{port}"), "certificate-authority": format!("{SERVICE_ACCOUNT}/ca.crt") }),
        "service-account",
        &json!({ "tokenFile": format!("{SERVICE_ACCOUNT}/token") }),
    ))
}

/// Keeps one context with its cluster and user.
fn narrow(mut all: Kubeconfig, context: Option<&str>, origin: &str) -> Result<Kubeconfig, Error> {
    let origin = || origin.to_owned();
    let known = || match all
        .contexts
        .iter()
        .map(|context| format!("`{}`", context.name))
        .collect::<Vec<_>>()
    {
        none if none.is_empty() => "no context at all".to_owned(),
        names => names.join(", "),
    };
    let current = all.current_context.as_deref().filter(|name| !name.is_empty());
    let Some(wanted) = context.or(current).map(ToOwned::to_owned) else {
        return Err(Error::NoCurrentContext {
            origin: origin(),
            known: known(),
        });
    };
    let found = all.contexts.iter().find(|context| context.name == wanted);
    let Some(inner) = found.and_then(|context| context.context.clone()) else {
        return Err(Error::NoContext {
            context: wanted,
            origin: origin(),
            known: known(),
        });
    };
    let dangling = |part, name| Error::DanglingContext {
        context: wanted.clone(),
        origin: origin(),
        part,
        name,
    };

    all.contexts.retain(|context| context.name == wanted);
    all.clusters.retain(|cluster| cluster.name == inner.cluster);
    if all.clusters.is_empty() {
        return Err(dangling("cluster", inner.cluster));
    }
    let user = inner.user.unwrap_or_default();
    all.auth_infos.retain(|auth| auth.name == user);
    if all.auth_infos.is_empty() && !user.is_empty() {
        return Err(dangling("user", user));
    }
    all.current_context = Some(wanted);
    Ok(all)
}

/// Every file that the kubeconfig refers to must be readable. The client would find out as well, but not say which
/// kubeconfig is to be corrected.
fn check_files(kubeconfig: &Kubeconfig, origin: &str) -> Result<(), Error> {
    let clusters = kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref());
    let named = clusters
        .map(|cluster| ("certificate-authority", &cluster.certificate_authority))
        .chain(users.flat_map(|user| {
            [
                ("client-certificate", &user.client_certificate),
                ("client-key", &user.client_key),
                ("tokenFile", &user.token_file),
            ]
        }));
    for (field, path) in named {
        if let Some(path) = path {
            File::open(path).map_err(|source| Error::CredentialUnreadable {
                origin: origin.to_owned(),
                field,
                path: path.into(),
                source,
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_variable_are_merged_and_the_first_wins() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two, gone) = (
            folder.path().join("1"),
            folder.path().join("2"),
            folder.path().join("gone"),
        );
        std::fs::write(&one, "current-context: a").unwrap();
        std::fs::write(&two, "{current-context: b, contexts: [{name: c}]}").unwrap();
        let read = |paths: &[&PathBuf]| read_list(&std::env::join_paths(paths).unwrap());

        let merged = read(&[&one, &gone, &two]).unwrap().unwrap();
        assert_eq!(merged.current_context.as_deref(), Some("a"));
        assert_eq!(merged.contexts[0].name, "c");
        assert!(read_list(OsStr::new("")).unwrap().is_none());
        assert!(matches!(read(&[&gone]), Err(Error::KubeconfigUnreadable { path, .. }) if path == gone));
    }
}
