//! Notices that the process which started this program is gone.
//!
//! envtest stops its programs, unless its own process is killed: then nothing would ever stop them, and their ports would
//! stay taken. A program of envtest therefore ends with its parent. Others may be meant to outlive theirs.

use std::{os::unix::process::parent_id, path::Path, time::Duration};

/// How envtest's names of folders begin.
const ENVTEST_FOLDER: &str = "k8s_test_framework_";

/// How often the parent is looked for.
const INTERVAL: Duration = Duration::from_millis(500);

/// The process that started this program.
pub(super) struct Parent(u32);

impl Parent {
    /// The parent that this program ends with: none if `folder`, the one that it was given, is not of envtest.
    pub(super) fn of_envtest(folder: Option<&str>) -> Option<Self> {
        folder
            .filter(|folder| is_of_envtest(folder))
            .map(|_| Self(parent_id()))
    }

    /// Completes when the parent is gone.
    pub(super) async fn gone(self) {
        while parent_id() == self.0 {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

fn is_of_envtest(folder: &str) -> bool {
    let name = Path::new(folder).file_name();
    name.is_some_and(|name| name.to_string_lossy().starts_with(ENVTEST_FOLDER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envtest_is_recognised_by_its_folder() {
        assert!(is_of_envtest("/tmp/k8s_test_framework_123"));
        assert!(is_of_envtest("/tmp/k8s_test_framework_123/"));
        assert!(!is_of_envtest("/tmp/k8s_test_framework_123/certificates"));
        assert!(!is_of_envtest("/var/run/kubernetes"));
        assert!(!is_of_envtest(""));
    }
}
