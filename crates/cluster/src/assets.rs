//! Finds the control-plane binaries.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::Error;

/// The Kubernetes version that `hack/control-plane/build` builds and the test suites expect.
pub const KUBERNETES_VERSION: &str = "1.36.4";
/// The etcd version that `hack/control-plane/build` builds.
pub const ETCD_VERSION: &str = "3.6.16";

/// Returns the path of one of the programs that `hack/control-plane/build` builds, such as `kube-scheduler`, for tests that
/// start it themselves. It is looked for where [`Cluster::real`](crate::Cluster::real) finds its programs.
pub fn control_plane_program(name: &'static str) -> Result<PathBuf, Error> {
    Assets::find(None)?.binary(name)
}

/// This machine's operating system, as Go and `uname` name it.
pub(crate) const OS: &str = if cfg!(target_os = "macos") {
    "darwin"
} else {
    std::env::consts::OS
};
/// This machine's architecture, as Go names it.
pub(crate) const ARCH: &str = go_arch(std::env::consts::ARCH);

/// A folder with binaries, and which setting named it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assets {
    folder: PathBuf,
    origin: &'static str,
}

impl Assets {
    /// Returns the first of: `explicit`, `KUBEBUILDER_ASSETS`, the cache folder of `hack/control-plane/build`.
    ///
    /// There is no fallback from a configured folder: a missing binary is an error, because a test that silently runs on
    /// other binaries proves nothing.
    pub(crate) fn find(explicit: Option<&Path>) -> Result<Self, Error> {
        Self::choose(explicit, std::env::var_os("KUBEBUILDER_ASSETS"), &cache_folder())
    }

    fn choose(explicit: Option<&Path>, variable: Option<OsString>, cache: &Path) -> Result<Self, Error> {
        if let Some(folder) = explicit {
            return Ok(Self {
                folder: folder.to_owned(),
                origin: "`assets`",
            });
        }
        if let Some(folder) = variable.filter(|value| !value.is_empty()) {
            return Ok(Self {
                folder: folder.into(),
                origin: "KUBEBUILDER_ASSETS",
            });
        }
        if cache.is_dir() {
            return Ok(Self {
                folder: cache.to_owned(),
                origin: "`hack/control-plane/build`",
            });
        }
        Err(Error::NoAssets {
            looked_in: cache.to_owned(),
        })
    }

    /// Returns the absolute path of a program.
    pub(crate) fn binary(&self, name: &'static str) -> Result<PathBuf, Error> {
        let path = self.folder.join(name);
        if path.is_file() {
            // The servers run in another working directory.
            return Ok(std::path::absolute(&path).unwrap_or(path));
        }
        Err(Error::MissingBinary {
            binary: name,
            folder: self.folder.clone(),
            origin: self.origin,
        })
    }
}

fn cache_folder() -> PathBuf {
    let root = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"),
    };
    root.join("windlass/control-plane").join(format!(
        "k8s-{KUBERNETES_VERSION}-etcd-{ETCD_VERSION}-{OS}-{ARCH}"
    ))
}

const fn go_arch(rust: &'static str) -> &'static str {
    match rust.as_bytes() {
        b"x86_64" => "amd64",
        b"aarch64" => "arm64",
        _ => rust,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_match_the_pinned_modules_of_the_build() {
        let manifest = include_str!("../../../hack/control-plane/go.mod");
        for (module, version) in [
            ("k8s.io/kubernetes", KUBERNETES_VERSION),
            ("go.etcd.io/etcd/server/v3", ETCD_VERSION),
        ] {
            let line = format!("\t{module} v{version}");
            assert!(
                manifest
                    .lines()
                    .any(|l| l == line || l.strip_suffix(" // indirect") == Some(&line)),
                "hack/control-plane/go.mod does not pin {module} at v{version}"
            );
        }
    }

    #[test]
    fn explicit_folder_wins_over_variable_and_variable_over_cache() {
        let cache = tempfile::tempdir().unwrap();
        let choose = |explicit: Option<&str>, variable: Option<&str>| {
            Assets::choose(
                explicit.map(Path::new),
                variable.map(OsString::from),
                cache.path(),
            )
            .unwrap()
            .folder
        };
        assert_eq!(choose(Some("/a"), Some("/b")), Path::new("/a"));
        assert_eq!(choose(None, Some("/b")), Path::new("/b"));
        assert_eq!(
            choose(None, Some("")),
            cache.path(),
            "an empty variable counts as unset"
        );
        assert_eq!(choose(None, None), cache.path());
    }

    #[test]
    fn error_without_assets_names_all_ways_to_get_them() {
        let error = Assets::choose(None, None, Path::new("/nowhere"))
            .unwrap_err()
            .to_string();
        for way in [
            "/nowhere",
            "hack/control-plane/build",
            "KUBEBUILDER_ASSETS",
            "setup-envtest",
        ] {
            assert!(error.contains(way), "`{way}` is not in: {error}");
        }
    }

    #[test]
    fn missing_binary_error_names_folder_and_origin() {
        let folder = tempfile::tempdir().unwrap();
        let assets = Assets::choose(None, Some(folder.path().into()), Path::new("/nowhere")).unwrap();
        let error = assets.binary("kube-scheduler").unwrap_err().to_string();
        for part in [
            "kube-scheduler",
            folder.path().to_str().unwrap(),
            "KUBEBUILDER_ASSETS",
        ] {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    }
}
