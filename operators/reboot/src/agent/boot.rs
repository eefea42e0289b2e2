//! Which boot of the machine this is.

use std::path::{Path, PathBuf};

/// Where Linux tells it; also inside of a container without any privilege.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// More than any kernel's.
const LONGEST: usize = 256;

/// The machine does not say which boot this is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// The file is not there, or not for us.
    #[error(
        "cannot read the boot ID from {} (--boot-id-file names the file that has it)",
        path.display()
    )]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file has something else.
    #[error(
        "{} has no boot ID, which is one short line: name the file that has it with --boot-id-file",
        path.display()
    )]
    NotOne {
        /// Which file.
        path: PathBuf,
    },
}

/// The boot ID that this file has.
///
/// It cannot change while a process lives: whoever reads it once knows it.
pub fn boot_id(path: &Path) -> Result<String, BootError> {
    let text = std::fs::read_to_string(path).map_err(|source| BootError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let id = text.trim();
    if id.is_empty() || id.len() > LONGEST || id.chars().any(char::is_control) {
        return Err(BootError::NotOne {
            path: path.to_owned(),
        });
    }
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_one_line_of_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("boot_id");
        let missing = boot_id(&file).expect_err("it is not there").to_string();
        assert!(
            missing.contains("boot_id") && missing.contains("--boot-id-file"),
            "{missing}"
        );
        std::fs::write(&file, "5c1e1e92-0f1d-4c57-a5b2-6c7a7d6f2a11\n").expect("written");
        assert_eq!(
            boot_id(&file).expect("one"),
            "5c1e1e92-0f1d-4c57-a5b2-6c7a7d6f2a11"
        );
        for nonsense in ["", " \n", "a\nb\n", &"a".repeat(300)] {
            std::fs::write(&file, nonsense).expect("written");
            assert!(
                matches!(boot_id(&file), Err(BootError::NotOne { .. })),
                "{nonsense:?}"
            );
        }
    }
}
