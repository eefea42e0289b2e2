//! The drop-in `kube-apiserver`: its flags and its token file. An input is one flag per line, an empty line, and the
//! file.
//!
//! The program is a separate process, found beside this one. The last occurrence of a flag counts, and the port passed
//! last is in use, so the program never serves: the error about the port shows that everything else was accepted.

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use fastrand::Rng;
use tempfile::TempDir;

use super::digest;
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Violation},
    mutate::{bytes, dictionary},
};

/// Rust's exit code after a panic.
const EXIT_PANICKED: i32 = 101;

/// Returns the path of the program, if it was built: beside this one.
pub fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    // Test binaries are one folder deeper.
    let folders = [own.parent()?, own.parent()?.parent()?];
    folders
        .iter()
        .map(|folder| folder.join("windlass"))
        .find(|program| program.is_file())
}

pub(super) struct DropIn {
    folder: TempDir,
    /// Occupies the port that is passed to the program.
    occupied: TcpListener,
}

impl DropIn {
    pub(super) fn new() -> anyhow::Result<Self> {
        let program = program().context(
            "the program `windlass` does not exist beside this one: build it with `cargo build --workspace`",
        )?;
        let folder = tempfile::tempdir()?;
        symlink(program, folder.path().join("kube-apiserver"))?;
        let occupied = TcpListener::bind(("127.0.0.1", 0))?;
        let drop_in = Self { folder, occupied };
        let stderr = drop_in.start(&[], b"t,u,1\n")?.1;
        ensure!(
            stderr.contains("cannot listen"),
            "unexpected output of the program: {stderr}"
        );
        Ok(drop_in)
    }

    fn start(&self, flags: &[String], file: &[u8]) -> anyhow::Result<(std::process::ExitStatus, String)> {
        let path = |name: &str| self.folder.path().join(name);
        fs::write(path("tokens"), file)?;
        let port = self.occupied.local_addr()?.port();
        let output = Command::new(path("kube-apiserver"))
            .args(flags)
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", path("certs").display()))
            .arg(format!("--token-auth-file={}", path("tokens").display()))
            .env_clear()
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((
            output.status,
            stderr.replace(&*self.folder.path().to_string_lossy(), ""),
        ))
    }
}

impl Target for DropIn {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let files = [
            "\ntoken,user,uid,\"group,other\"\n\n#x,y\n",
            "--authorization-mode=RBAC,Node\n--disable-admission-plugins=ServiceAccount\n\nt,u,1\r\n t2 , u2 , 2 , \"g\"\n",
            "--allow-privileged=false\n--service-cluster-ip-range=10.0.0.0/24\n--v=4\n\n,,\n",
            "--etcd-servers\nhttp://127.0.0.1:1\n--advertise-address=::1\n\nt,u\n",
            "--authorization-mode=ABAC\n\n",
            "--client-ca-file=tokens\n--unknown=1\n\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ];
        files.iter().map(|file| file.as_bytes().to_vec()).collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        if rng.u8(..4) > 0 {
            return bytes::mutate(input, donor, rng);
        }
        let line = match rng.u8(..3) {
            0 => format!(
                "{},{},{},\"{}\"\n",
                dictionary::text(rng),
                dictionary::text(rng),
                dictionary::text(rng),
                dictionary::text(rng)
            ),
            1 => format!("--authorization-mode={}\n", dictionary::text(rng)),
            _ => format!("--{}={}\n", dictionary::key(rng), dictionary::text(rng)),
        };
        if line.starts_with("--") {
            [line.as_bytes(), input].concat()
        } else {
            [input, line.as_bytes()].concat()
        }
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let text = String::from_utf8_lossy(input).into_owned();
        let (flags, file) = text
            .split_once("\n\n")
            .unwrap_or((text.trim_start_matches('\n'), ""));
        let flags: Vec<String> = flags
            .lines()
            .filter(|flag| !flag.is_empty() && !flag.contains('\0'))
            .map(str::to_owned)
            .collect();
        let (status, stderr) = self.start(&flags, file.as_bytes()).map_err(|error| {
            Invariant::WellFormed.violated(format!("cannot start the program: {error:#}"))
        })?;
        if status.code() == Some(EXIT_PANICKED) || status.signal().is_some() {
            return Err(Invariant::NoPanic.violated(format!("{status}: {stderr}")));
        }
        if !status.success() && stderr.trim().is_empty() {
            return Err(Invariant::WellFormed.violated(format!("{status} without an error message")));
        }
        Ok(Outcome {
            accepted: stderr.contains("cannot listen"),
            fingerprint: digest(&stderr),
            allocated: 0,
        })
    }
}
