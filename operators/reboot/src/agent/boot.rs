//! Reads the boot ID of the machine.

use std::path::{Path, PathBuf};

/// Where Linux exposes the boot ID, also in unprivileged containers.
pub const DEFAULT_BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// Longer than any real boot ID.
const MAX_BOOT_ID_LEN: usize = 256;

/// The boot ID cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// The file is missing or not readable.
    #[error(
        "cannot read the boot ID from {}: set --boot-id-file to the file that contains it",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file does not contain a boot ID.
    #[error(
        "{} does not contain a boot ID (one short line): set --boot-id-file to the file that does",
        path.display()
    )]
    Invalid {
        /// The file.
        path: PathBuf,
    },
}

/// Reads the boot ID from this file.
///
/// It cannot change while a process lives, so reading it once is enough.
pub fn read_boot_id(path: &Path) -> Result<String, BootError> {
    let text = std::fs::read_to_string(path).map_err(|source| BootError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let id = text.trim();
    if id.is_empty() || id.len() > MAX_BOOT_ID_LEN || id.chars().any(char::is_control) {
        return Err(BootError::Invalid {
            path: path.to_owned(),
        });
    }
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_id_is_a_single_short_line() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("boot_id");
        let missing = read_boot_id(&file).expect_err("it is not there").to_string();
        assert!(
            missing.contains("boot_id") && missing.contains("--boot-id-file"),
            "{missing}"
        );
        std::fs::write(&file, "5c1e1e92-0f1d-4c57-a5b2-6c7a7d6f2a11\n").expect("the file is written");
        assert_eq!(
            read_boot_id(&file).expect("one"),
            "5c1e1e92-0f1d-4c57-a5b2-6c7a7d6f2a11"
        );
        for nonsense in ["", " \n", "a\nb\n", &"a".repeat(300)] {
            std::fs::write(&file, nonsense).expect("the file is written");
            assert!(
                matches!(read_boot_id(&file), Err(BootError::Invalid { .. })),
                "{nonsense:?}"
            );
        }
    }
}
