//! `windlass assets DIR`: installs this binary under the names that envtest starts.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};

use crate::drop_in::{MARKER, Program};

/// Flags of `windlass assets`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder to install into; created if missing.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Replace an etcd or kube-apiserver even if it is not windlass.
    #[arg(long)]
    force: bool,
}

const KUBECTL: &str = "kubectl";

/// Installs the programs and prints the folder, for `KUBEBUILDER_ASSETS="$(windlass assets DIR)"`. Details go to stderr.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("cannot find this program's executable")?;
    let folder = &arguments.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let folder = fs::canonicalize(folder).with_context(|| format!("cannot open {}", folder.display()))?;

    let targets: Vec<_> = Program::ALL
        .iter()
        .map(|program| (program.name(), folder.join(program.name())))
        .collect();
    // Checked before any change, so that a failure leaves the folder unchanged.
    for (name, path) in &targets {
        if !arguments.force && !is_replaceable(path)? {
            bail!(
                "{} is not windlass but another {name}: choose another folder, or replace it with --force",
                path.display()
            );
        }
    }
    for (name, path) in &targets {
        let how = install(&own, path)?;
        eprintln!("{name:<15} windlass {} ({how})", env!("CARGO_PKG_VERSION"));
    }
    eprintln!("{KUBECTL:<15} {}", link_kubectl(&folder)?);
    eprintln!("\nexport KUBEBUILDER_ASSETS={}", folder.display());
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Whether the path can be replaced: it does not exist, or is a windlass binary.
fn is_replaceable(path: &Path) -> anyhow::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error).with_context(|| format!("cannot inspect {}", path.display())),
        Ok(found) => found,
    };
    if !found.is_file() {
        return Ok(false);
    }
    let ours = contains(path, MARKER.as_bytes());
    ours.with_context(|| format!("cannot read {}", path.display()))
}

/// Whether a file contains these bytes. Reads it in chunks, since programs are large.
fn contains(file: &Path, wanted: &[u8]) -> io::Result<bool> {
    let mut file = fs::File::open(file)?;
    let mut piece = vec![0; 1 << 20];
    let mut kept = 0;
    loop {
        let read = file.read(&mut piece[kept..])?;
        if read == 0 {
            return Ok(false);
        }
        let filled = kept + read;
        if memchr::memmem::find(&piece[..filled], wanted).is_some() {
            return Ok(true);
        }
        // A match may continue in the next chunk.
        kept = filled.min(wanted.len() - 1);
        piece.copy_within(filled - kept..filled, 0);
    }
}

/// Atomically installs a program: one started meanwhile is the old or the new one.
fn install(program: &Path, path: &Path) -> anyhow::Result<&'static str> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let done = fs::hard_link(program, &aside)
        .map(|()| "hard link")
        // Another file system, or one without hard links.
        .or_else(|_| fs::copy(program, &aside).map(|_| "copy"))
        // A rename onto a hard link of the same file does nothing and keeps both names, hence the removal below.
        .and_then(|how| fs::rename(&aside, path).map(|()| how));
    let _ = fs::remove_file(&aside);
    done.with_context(|| format!("cannot write {}", path.display()))
}

/// Links a kubectl, if one is found, and describes the result. Keeps an existing one.
fn link_kubectl(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join(KUBECTL);
    if path.is_file() {
        return Ok("exists already".to_owned());
    }
    let Ok(found) = windlass_cluster::kubectl() else {
        return Ok("not found in the PATH: envtest's KubeCtl will not work, everything else will".to_owned());
    };
    // Remove a dangling link.
    let _ = fs::remove_file(&path);
    std::os::unix::fs::symlink(&found, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(format!("→ {}", found.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_is_found_across_chunk_boundaries() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        let piece = 1 << 20;
        for before in [0, 1, piece - MARKER.len(), piece - 5, piece, 2 * piece - 3] {
            let mut text = vec![b'x'; before];
            text.extend(MARKER.as_bytes());
            text.extend(b"xyz");
            fs::write(&file, &text).unwrap();
            assert!(
                contains(&file, MARKER.as_bytes()).unwrap(),
                "after {before} bytes"
            );
            text[before] = b'!';
            fs::write(&file, &text).unwrap();
            assert!(
                !contains(&file, MARKER.as_bytes()).unwrap(),
                "after {before} bytes"
            );
        }
    }
}
