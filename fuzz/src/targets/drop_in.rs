//! The drop-in `kube-apiserver`: its flags and its file of tokens. An input is a flag on each line, an empty line, and the file.
//!
//! The program is a process of its own, found beside this one. Flags that come last count, so that it never serves: the port is taken.
//! What it says then tells that everything before was accepted.

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
    laws::{Law, Violation},
    mutate::{bytes, words},
};

/// Rust's exit code after a panic.
const PANICKED: i32 = 101;

/// Where the program is if it was built: beside this one.
pub fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    // Tests are one folder deeper.
    let folders = [own.parent()?, own.parent()?.parent()?];
    folders
        .iter()
        .map(|folder| folder.join("windlass"))
        .find(|program| program.is_file())
}

pub(super) struct DropIn {
    folder: TempDir,
    /// Holds the port that the program may not have.
    taken: TcpListener,
}

impl DropIn {
    pub(super) fn new() -> anyhow::Result<Self> {
        let program = program().context("the program `windlass` was not built beside this one")?;
        let folder = tempfile::tempdir()?;
        symlink(program, folder.path().join("kube-apiserver"))?;
        let taken = TcpListener::bind(("127.0.0.1", 0))?;
        let drop_in = Self { folder, taken };
        let said = drop_in.start(&[], b"t,u,1\n")?.1;
        ensure!(said.contains("cannot listen"), "the program says: {said}");
        Ok(drop_in)
    }

    fn start(&self, flags: &[String], file: &[u8]) -> anyhow::Result<(std::process::ExitStatus, String)> {
        let path = |name: &str| self.folder.path().join(name);
        fs::write(path("tokens"), file)?;
        let port = self.taken.local_addr()?.port();
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
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((
            output.status,
            said.replace(&*self.folder.path().to_string_lossy(), ""),
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
                words::text(rng),
                words::text(rng),
                words::text(rng),
                words::text(rng)
            ),
            1 => format!("--authorization-mode={}\n", words::text(rng)),
            _ => format!("--{}={}\n", words::key(rng), words::text(rng)),
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
        let (status, said) = self
            .start(&flags, file.as_bytes())
            .map_err(|error| Law::WellFormed.broken(format!("the program does not start: {error:#}")))?;
        if status.code() == Some(PANICKED) || status.signal().is_some() {
            return Err(Law::NoPanic.broken(format!("{status}: {said}")));
        }
        if !status.success() && said.trim().is_empty() {
            return Err(Law::WellFormed.broken(format!("{status} without a word")));
        }
        Ok(Outcome {
            accepted: said.contains("cannot listen"),
            answer: digest(&said),
            allocated: 0,
        })
    }
}
