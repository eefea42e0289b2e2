//! Drop-in etcd and kube-apiserver: this binary under their names, as envtest starts them.
//!
//! ```text
//!   go test ─► envtest ─► etcd            waits for GET /health, stops it with SIGTERM
//!                    └──► kube-apiserver  waits for GET /healthz, stops it with SIGTERM
//!                              └── the embedded API server on the given port, with the given certificates
//! ```
//!
//! The two do not communicate: objects live in the memory of `kube-apiserver` and end with it, and `etcd` only answers health
//! checks. Unsupported flags of the real programs cause a warning on stderr and have no effect.

mod admission_flags;
mod api_server;
mod certificate;
mod etcd;
mod flags;
mod parent;
mod token_file;

use std::{
    ffi::OsStr,
    future::{Future, pending},
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    flags::{Flag, FlagKind, Flags},
    parent::Parent,
};

/// Appears in the help of both programs; a file that contains it is this binary, in any version.
pub(crate) const MARKER: &str = "is windlass, standing in for envtest's control plane";

/// A program that this binary stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Etcd,
    ApiServer,
}

impl Program {
    pub(crate) const ALL: [Self; 2] = [Self::Etcd, Self::ApiServer];

    /// The program that this name, as it was started, stands for.
    pub(crate) fn from_name(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_stem()?;
        Self::ALL.into_iter().find(|part| part.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
        }
    }

    fn flags(self) -> &'static [Flag] {
        match self {
            Self::Etcd => etcd::FLAGS,
            Self::ApiServer => api_server::FLAGS,
        }
    }

    /// The output of `--version`, as the real program prints it.
    fn version(self) -> String {
        match self {
            Self::Etcd => format!("etcd Version: {}", windlass_cluster::ETCD_VERSION),
            Self::ApiServer => format!("Kubernetes v{}", windlass_cluster::KUBERNETES_VERSION),
        }
    }

    /// Runs this program until SIGTERM or SIGINT.
    pub(crate) fn run(self, arguments: impl IntoIterator<Item = String>) -> ExitCode {
        let name = self.name();
        let outcome = Flags::parse(self.flags(), arguments)
            .map_err(anyhow::Error::from)
            .and_then(|flags| self.execute(&flags));
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn execute(self, flags: &Flags) -> anyhow::Result<()> {
        if flags.switch("help")? == Some(true) || flags.switch("h")? == Some(true) {
            return print(&self.help());
        }
        if flags.switch("version")? == Some(true) {
            return print(&format!("{}\n", self.version()));
        }
        for unknown in &flags.unknown {
            self.warn(&format!("{unknown} is not supported and has no effect"));
        }
        match self {
            Self::Etcd => etcd::run(flags),
            Self::ApiServer => api_server::run(flags),
        }
    }

    /// Prints a warning to stderr, which envtest can show.
    fn warn(self, what: &str) {
        eprintln!("{}: warning: {what}", self.name());
    }

    /// The output of `--help`. envtest looks for flag names at the start of its lines.
    fn help(self) -> String {
        let flags = self.flags().iter().map(|Flag { name, kind, about }| {
            let usage = match kind {
                FlagKind::Value => format!("--{name} VALUE"),
                FlagKind::Switch => format!("--{name}"),
            };
            format!("  {usage:<42} {about}\n")
        });
        format!(
            "{} {MARKER}: the embedded API server of windlass {}.\n\nFlags:\n{}\n\
             Other flags cause a warning and have no effect.\n",
            self.name(),
            env!("CARGO_PKG_VERSION"),
            flags.collect::<String>(),
        )
    }
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

/// Completes on SIGTERM or SIGINT, or when the [`Parent`] is gone, if this program was given a `folder` of envtest. Signals
/// count from this call on, not from the first poll.
fn stop_signal(folder: Option<&str>) -> io::Result<impl Future<Output = ()> + use<>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let parent = Parent::of_envtest(folder);
    let orphaned = async {
        match parent {
            Some(parent) => parent.gone().await,
            None => pending().await,
        }
    };
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = orphaned => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_selects_the_program() {
        for (program, part) in [
            ("etcd", Some(Program::Etcd)),
            ("/some/bin/etcd", Some(Program::Etcd)),
            ("./kube-apiserver", Some(Program::ApiServer)),
            ("kube-apiserver.exe", Some(Program::ApiServer)),
            ("/usr/bin/windlass", None),
            ("etcdctl", None),
            ("", None),
        ] {
            assert_eq!(Program::from_name(OsStr::new(program)), part, "{program}");
        }
    }

    #[test]
    fn help_lists_each_supported_flag_at_the_start_of_a_line() {
        for part in Program::ALL {
            let help = part.help();
            assert!(help.contains(MARKER));
            for flag in part.flags() {
                let start = format!("--{} ", flag.name);
                assert!(
                    help.lines().any(|line| line.trim_start().starts_with(&start)),
                    "{}: {start}\n{help}",
                    part.name()
                );
            }
        }
        // envtest passes `--insecure-port=0` if the help lists it.
        assert!(!Program::ApiServer.help().contains("--insecure-port"));
        // envtest passes it if the help lists it, as that of a real etcd does.
        assert!(Program::Etcd.help().contains("--unsafe-no-fsync"));
    }
}
