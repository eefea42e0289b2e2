//! This binary under the names of a control plane, as envtest starts it.
//!
//! ```text
//!   go test ─► envtest ─► etcd            waits for GET /health, stops it with SIGTERM
//!                    └──► kube-apiserver  waits for GET /healthz, stops it with SIGTERM
//!                              └── the embedded API server on the given port, with the given certificates
//! ```
//!
//! The two know nothing of each other: objects live in the memory of `kube-apiserver` and are gone with it, and `etcd` is
//! there to be waited for. Flags that a real one has and this one does not are named on stderr and have no effect.

mod api_server;
mod certificate;
mod etcd;
mod flags;

use std::{
    ffi::OsStr,
    future::Future,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use self::flags::{Flag, Flags, Form};

/// Stands in the help of both programs; a file with it in it is this binary, of whatever version.
pub(crate) const MARK: &str = "is windlass, standing in for envtest's control plane";

/// A program that this binary can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Etcd,
    ApiServer,
}

impl Part {
    pub(crate) const ALL: [Self; 2] = [Self::Etcd, Self::ApiServer];

    /// What the program's name, as it was started, asks for.
    pub(crate) fn of(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_stem()?;
        Self::ALL.into_iter().find(|part| part.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
        }
    }

    fn known(self) -> &'static [Flag] {
        match self {
            Self::Etcd => etcd::FLAGS,
            Self::ApiServer => api_server::FLAGS,
        }
    }

    /// As the real one answers `--version`.
    fn version(self) -> String {
        match self {
            Self::Etcd => format!("etcd Version: {}", windlass_cluster::ETCD_VERSION),
            Self::ApiServer => format!("Kubernetes v{}", windlass_cluster::KUBERNETES_VERSION),
        }
    }

    /// Is this program until it is told to stop.
    pub(crate) fn run(self, words: impl IntoIterator<Item = String>) -> ExitCode {
        let name = self.name();
        let outcome = Flags::read(self.known(), words)
            .map_err(anyhow::Error::from)
            .and_then(|flags| self.follow(&flags));
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn follow(self, flags: &Flags) -> anyhow::Result<()> {
        if flags.switch("help")? == Some(true) || flags.switch("h")? == Some(true) {
            return print(&self.help());
        }
        if flags.switch("version")? == Some(true) {
            return print(&format!("{}\n", self.version()));
        }
        for unknown in &flags.unknown {
            self.warn(&format!("{unknown} is not known here and has no effect"));
        }
        match self {
            Self::Etcd => etcd::run(flags),
            Self::ApiServer => api_server::run(flags),
        }
    }

    /// One line for whoever reads the logs of a test.
    fn warn(self, what: &str) {
        eprintln!("{}: warning: {what}", self.name());
    }

    /// envtest looks for the names of flags at the beginnings of these lines.
    fn help(self) -> String {
        let flags = self.known().iter().map(|Flag { name, form, about }| {
            let stated = match form {
                Form::Value => format!("--{name} VALUE"),
                Form::Switch => format!("--{name}"),
            };
            format!("  {stated:<42} {about}\n")
        });
        format!(
            "{} {MARK}: the embedded API server of windlass {}.\n\nFlags:\n{}\n\
             Other flags are named on stderr and have no effect.\n",
            self.name(),
            env!("CARGO_PKG_VERSION"),
            flags.collect::<String>(),
        )
    }
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

/// Done when somebody wants the process to end. Signals count from this call on, not from the first poll.
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_it_is_started_under_decides_what_it_is() {
        for (program, part) in [
            ("etcd", Some(Part::Etcd)),
            ("/some/bin/etcd", Some(Part::Etcd)),
            ("./kube-apiserver", Some(Part::ApiServer)),
            ("kube-apiserver.exe", Some(Part::ApiServer)),
            ("/usr/bin/windlass", None),
            ("etcdctl", None),
            ("", None),
        ] {
            assert_eq!(Part::of(OsStr::new(program)), part, "{program}");
        }
    }

    #[test]
    fn help_has_every_flag_at_the_beginning_of_a_line_and_none_that_was_removed() {
        for part in Part::ALL {
            let help = part.help();
            assert!(help.contains(MARK));
            for flag in part.known() {
                let start = format!("--{} ", flag.name);
                assert!(
                    help.lines().any(|line| line.trim_start().starts_with(&start)),
                    "{}: {start}\n{help}",
                    part.name()
                );
            }
        }
        // envtest passes `--insecure-port=0` to whatever server lists it.
        assert!(!Part::ApiServer.help().contains("--insecure-port"));
        // With it listed, envtest passes it, as it does to a real etcd.
        assert!(Part::Etcd.help().contains("--unsafe-no-fsync"));
    }
}
