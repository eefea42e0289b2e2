//! Starts the program as a process, reads its output and stops it.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
};

use windlass::kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// The program with these arguments and captured output.
pub(crate) fn windlass(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A running process; killed on drop.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        // A full pipe that is not read would block the process.
        Self(command.stderr(Stdio::null()).spawn().expect("it starts"))
    }

    /// Takes its standard output. Call once.
    pub(crate) fn stdout(&mut self) -> ChildStdout {
        self.0.stdout.take().expect("piped, and taken once")
    }

    /// Reads the line that announces its cluster, and returns the kubeconfig.
    pub(crate) fn kubeconfig(&mut self) -> PathBuf {
        let mut lines = BufReader::new(self.stdout())
            .lines()
            .map(|line| line.expect("text"));
        let line = lines.find(|line| line.starts_with("export KUBECONFIG="));
        let line = line.expect("a line to paste before the output ends");
        let path = line.strip_prefix("export KUBECONFIG=");
        let path = path.and_then(|rest| rest.split("   #").next());
        PathBuf::from(path.expect("a path and a comment"))
    }

    /// Its process number.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Stops it as Ctrl-C does.
    pub(crate) fn interrupt(self) -> ExitStatus {
        self.end_with("INT")
    }

    /// Sends it a signal such as `HUP`, and waits for its end.
    pub(crate) fn end_with(mut self, signal: &str) -> ExitStatus {
        self.send(signal);
        self.0.wait().expect("it ends")
    }

    /// Sends it a signal.
    pub(crate) fn send(&self, signal: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status();
        assert!(sent.expect("there is a `kill`").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client for the cluster of a kubeconfig.
pub(crate) async fn client(kubeconfig: &std::path::Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}
