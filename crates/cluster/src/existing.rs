//! The existing backend: a cluster that is already running.

use std::{
    ffi::OsStr,
    fs::File,
    path::{Path, PathBuf},
};

use kube::config::{AuthInfo, Kubeconfig, KubeconfigError};
use serde_json::json;

use crate::{
    Cluster, Error, access_folder::AccessFolder, cluster::BackendState, kubeconfig, sandbox::write_private,
};

/// The folder of a pod's service account token and CA certificate.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Builder of a connection to an existing cluster, from [`Cluster::existing`].
///
/// Default: the current context of the files in `KUBECONFIG`, else of `~/.kube/config`, else the service account of the
/// pod that this process runs in.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is connected before `connect`"]
pub struct Existing {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
}

impl Existing {
    /// Uses this kubeconfig. Default: inferred.
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(path.into());
        self
    }

    /// Uses this context of the kubeconfig. Default: its current one.
    pub fn context(mut self, name: impl Into<String>) -> Self {
        self.context = Some(name.into());
        self
    }

    /// Connects, and requests the API server's version, so that an unreachable cluster is an error here.
    ///
    /// The cluster's kubeconfig is a copy with only the chosen context.
    pub async fn connect(self) -> Result<Cluster, Error> {
        let (all, origin) = self.read()?;
        let chosen = select_context(all, self.context.as_deref(), &origin)?;
        check_files(&chosen, &origin)?;

        let folder = AccessFolder::new()?;
        let path = folder.path().join(kubeconfig::ADMIN_KUBECONFIG);
        write_private(&path, &kubeconfig::to_json(&chosen))?;

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
            BackendState::Existing(Box::new(connection)),
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

/// The connection to an existing cluster.
pub(crate) struct Connection {
    /// One context, one cluster, one user.
    kubeconfig: Kubeconfig,
    /// Holds the copies of the kubeconfig.
    folder: AccessFolder,
}

impl Connection {
    pub(crate) fn folder(&self) -> &AccessFolder {
        &self.folder
    }

    /// Returns a kubeconfig that impersonates another user.
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

/// Merges the files of `KUBECONFIG`. Like kubectl, it ignores missing files unless all are missing.
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
                .map_err(|source| kubeconfig_error("of KUBECONFIG", source))?,
        });
    }
    Ok(merged)
}

fn read_file(path: &Path) -> Result<Kubeconfig, Error> {
    // Paths in the file are relative to it, and the copy is in another folder.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Kubeconfig::read_from(&path).map_err(|source| kubeconfig_error(&path.display().to_string(), source))
}

fn kubeconfig_error(origin: &str, source: KubeconfigError) -> Error {
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
    Some(kubeconfig::with_single_context(
        &json!({ "server": format!("https://{host}:{port}"), "certificate-authority": format!("{SERVICE_ACCOUNT}/ca.crt") }),
        "service-account",
        &json!({ "tokenFile": format!("{SERVICE_ACCOUNT}/token") }),
    ))
}

/// Removes everything but one context with its cluster and user.
fn select_context(mut all: Kubeconfig, context: Option<&str>, origin: &str) -> Result<Kubeconfig, Error> {
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

/// Checks that every file that the kubeconfig refers to is readable. The client would fail too, but its error does not
/// name the kubeconfig.
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
    fn files_in_kubeconfig_variable_are_merged_and_first_wins() {
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
