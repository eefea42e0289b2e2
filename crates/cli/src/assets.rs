//! `windlass assets DIR`: this binary under the names that envtest starts.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};

use crate::drop_in::{MARK, Part};

/// Where the programs are put.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder to fill; made if it is not there.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Also replace an etcd or a kube-apiserver that is not windlass.
    #[arg(long)]
    force: bool,
}

const KUBECTL: &str = "kubectl";

/// Fills the folder and prints its name, for `KUBEBUILDER_ASSETS="$(windlass assets DIR)"`. What was done is told on stderr.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let folder = &arguments.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let folder = fs::canonicalize(folder).with_context(|| format!("cannot open {}", folder.display()))?;

    let places: Vec<_> = Part::ALL
        .iter()
        .map(|part| (part.name(), folder.join(part.name())))
        .collect();
    // Before anything is changed, so that a refusal leaves the folder as it was.
    for (name, place) in &places {
        if !arguments.force && !is_free(place)? {
            bail!(
                "{} is another {name}, not windlass: choose another folder, or replace it with --force",
                place.display()
            );
        }
    }
    for (name, place) in &places {
        let how = put(&own, place)?;
        eprintln!("{name:<15} windlass {} ({how})", env!("CARGO_PKG_VERSION"));
    }
    eprintln!("{KUBECTL:<15} {}", bring_kubectl(&folder)?);
    eprintln!("\nexport KUBEBUILDER_ASSETS={}", folder.display());
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Whether nobody misses what is at this place: nothing is, or a windlass.
fn is_free(place: &Path) -> anyhow::Result<bool> {
    let found = match fs::symlink_metadata(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", place.display())),
        Ok(found) => found,
    };
    if !found.is_file() {
        return Ok(false);
    }
    let ours = contains(place, MARK.as_bytes());
    ours.with_context(|| format!("cannot read {}", place.display()))
}

/// Whether a file has these bytes in it, read in pieces: a program is too large to hold.
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
        // The bytes may begin here and go on in the next piece.
        kept = filled.min(wanted.len() - 1);
        piece.copy_within(filled - kept..filled, 0);
    }
}

/// Puts a program at a place, in one step: whoever starts it meanwhile gets the old one or the new one.
fn put(program: &Path, place: &Path) -> anyhow::Result<&'static str> {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let aside = place.with_file_name(format!(".{name}.{}", std::process::id()));
    let done = fs::hard_link(program, &aside)
        .map(|()| "hard link")
        // Another file system, or one without links.
        .or_else(|_| fs::copy(program, &aside).map(|_| "copy"))
        // A rename onto another link of the same file does nothing and leaves both.
        .and_then(|how| fs::rename(&aside, place).map(|()| how));
    let _ = fs::remove_file(&aside);
    done.with_context(|| format!("cannot write {}", place.display()))
}

/// Adds a kubectl, if there is one, and tells which. One that is in the folder stays.
fn bring_kubectl(folder: &Path) -> anyhow::Result<String> {
    let place = folder.join(KUBECTL);
    if place.is_file() {
        return Ok("was there already".to_owned());
    }
    let Ok(found) = windlass_cluster::kubectl() else {
        return Ok(
            "none found in the PATH: envtest's KubeCtl will not work, everything else does".to_owned(),
        );
    };
    // A link that leads nowhere is in the way.
    let _ = fs::remove_file(&place);
    std::os::unix::fs::symlink(&found, &place)
        .with_context(|| format!("cannot write {}", place.display()))?;
    Ok(format!("→ {}", found.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_wherever_they_lie_across_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("program");
        let piece = 1 << 20;
        for before in [0, 1, piece - MARK.len(), piece - 5, piece, 2 * piece - 3] {
            let mut text = vec![b'x'; before];
            text.extend(MARK.as_bytes());
            text.extend(b"xyz");
            fs::write(&file, &text).unwrap();
            assert!(contains(&file, MARK.as_bytes()).unwrap(), "after {before} bytes");
            text[before] = b'!';
            fs::write(&file, &text).unwrap();
            assert!(!contains(&file, MARK.as_bytes()).unwrap(), "after {before} bytes");
        }
    }
}
