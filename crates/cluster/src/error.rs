//! Errors of starting and using a cluster, each with its fix.

use std::{io, net::SocketAddr, path::PathBuf, process::ExitStatus, time::Duration};

use kube::config::KubeconfigError;

/// An error while starting, connecting to or using a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No folder with control-plane binaries was found.
    #[error(
        "no control plane to start: {} does not exist; run `hack/control-plane/build`, or set KUBEBUILDER_ASSETS to a folder \
         with etcd and kube-apiserver (`setup-envtest use -p path` fetches one and prints it)",
        .looked_in.display()
    )]
    NoAssets {
        /// The cache folder of `hack/control-plane/build`, the last one that was tried.
        looked_in: PathBuf,
    },

    /// A binary is missing in the folder.
    #[error(
        "no {binary} in {}, which comes from {origin}: run `hack/control-plane/build {binary}` and use the folder it prints \
         (setup-envtest fetches only etcd, kube-apiserver and kubectl)",
        .folder.display()
    )]
    MissingBinary {
        /// The missing program.
        binary: &'static str,
        /// The folder.
        folder: PathBuf,
        /// The setting that named the folder.
        origin: &'static str,
    },

    /// No kubectl of the release that the test suites need.
    #[error(
        "no kubectl {wanted} on this machine{found}: run `hack/control-plane/build kubectl`, or put one on the PATH"
    )]
    NoMatchingKubectl {
        /// The version that is needed.
        wanted: &'static str,
        /// The other candidates, each with its version or error; empty if there are none.
        found: String,
    },

    /// The program was built for another operating system or architecture.
    #[error(
        "{} is not a program for {os}/{arch}: build one with `hack/control-plane/build`, or fetch one with \
         `setup-envtest use --os {os} --arch {arch}`",
        .program.display()
    )]
    WrongArchitecture {
        /// The file.
        program: PathBuf,
        /// This machine's operating system, as Go names it.
        os: &'static str,
        /// This machine's architecture, as Go names it.
        arch: &'static str,
    },

    /// A process could not be started.
    #[error("cannot start {}: {source}; check that it is executable and that the process limit is not reached", .program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// A server ended before the cluster was ready.
    #[error("{server} ended during start ({status}); its last log lines say why:\n{log}")]
    Exited {
        /// The program.
        server: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },

    /// A server did not become ready in time.
    #[error(
        "{server} was not ready after {waited:?}; allow it more with `ready_within` if the machine is busy; its last log \
         lines:\n{log}"
    )]
    NotReady {
        /// The program.
        server: &'static str,
        /// The time it had.
        waited: Duration,
        /// The end of its log.
        log: String,
    },

    /// The requested port is in use.
    #[error("port {port} on 127.0.0.1 is in use: choose another one, or omit `port` to get a free one")]
    PortTaken {
        /// The port.
        port: u16,
    },

    /// The server cannot listen on the requested address.
    #[error(
        "cannot listen on {address}: {source}; choose another address, or omit `listen` to get a free port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },

    /// A seeded cluster cannot open a socket.
    #[error(
        "a seeded cluster does not listen on a socket, because its keys can be guessed: start it with `Cluster::embedded()`"
    )]
    SeededSocket,

    /// A file or folder of the cluster could not be created.
    #[error("cannot write {}: {source}; `temp_dir` chooses another place", .path.display())]
    WriteFile {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// A copy of the kubeconfig could not be written.
    #[error("cannot write the kubeconfig {}: {source}; choose another file", .path.display())]
    WriteKubeconfig {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// Another running process has written its kubeconfig to the file.
    #[error(
        "{} is the kubeconfig of a running cluster{}: choose another file, or stop that process first",
        .path.display(), .owner.map(|owner| format!(", of process {owner}")).unwrap_or_default()
    )]
    KubeconfigInUse {
        /// The file.
        path: PathBuf,
        /// The number of the process, if it is known.
        owner: Option<u32>,
    },

    /// The file exists and is not a kubeconfig of ours.
    #[error("{} exists and was not written by windlass: choose another file", .path.display())]
    ForeignKubeconfig {
        /// The file.
        path: PathBuf,
    },

    /// The kubeconfig of an existing cluster is not copied.
    #[error("the kubeconfig of an existing cluster is not copied: use the one that it was connected with")]
    CopyOfExisting,

    /// A certificate could not be created.
    #[error(
        "cannot create a certificate: {0}; user and group names must not be empty and must be valid in a certificate"
    )]
    Certificate(#[from] rcgen::Error),

    /// The user name is empty.
    #[error("the user name is empty: pass a name to `Cluster::user`")]
    EmptyUserName,

    /// The role has no name.
    #[error("the role has no `metadata.name`: set one, so that it can be bound to a user")]
    EmptyRoleName,

    /// A role or its binding could not be written.
    #[error(
        "cannot bind role {role} to user {user}: {source}; the administrator needs the rights to write roles and \
         bindings, and to `bind` and `escalate` rights it does not have itself"
    )]
    BindRole {
        /// The role.
        role: String,
        /// The user.
        user: String,
        /// The error of the server.
        source: Box<kube::Error>,
    },

    /// The server does not enforce a binding.
    #[error(
        "user {user} does not have the rules of role {role}, though the role is bound: check that the cluster uses RBAC"
    )]
    RoleNotEffective {
        /// The role.
        role: String,
        /// The user.
        user: String,
    },

    /// The user's cluster was dropped.
    #[error("the embedded cluster of this user was dropped: keep the `Cluster` as long as its users")]
    ClusterDropped,

    /// No kubeconfig was found, and this is not a pod.
    #[error(
        "no cluster to connect to: KUBECONFIG is not set, {} does not exist, and this is not a pod; set KUBECONFIG or name a \
         file with `kubeconfig`",
        .default.display()
    )]
    NoKubeconfig {
        /// kubectl's default kubeconfig.
        default: PathBuf,
    },

    /// A kubeconfig cannot be read.
    #[error("cannot read kubeconfig {}: {source}; check KUBECONFIG or the path given to `kubeconfig`", .path.display())]
    KubeconfigUnreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// A kubeconfig is invalid.
    #[error("invalid kubeconfig {origin}: {source}; inspect it with `kubectl config view`")]
    KubeconfigInvalid {
        /// The file, or the variable that lists files.
        origin: String,
        /// What is wrong with it.
        source: KubeconfigError,
    },

    /// The context is not in the kubeconfig.
    #[error("no context `{context}` in kubeconfig {origin}: it has {known}; choose one with `context`")]
    NoContext {
        /// The requested context.
        context: String,
        /// The file, or the variable that lists files.
        origin: String,
        /// The contexts it has.
        known: String,
    },

    /// No context was requested, and the kubeconfig has no current one.
    #[error("kubeconfig {origin} has no current-context: it has {known}; choose one with `context`")]
    NoCurrentContext {
        /// The file, or the variable that lists files.
        origin: String,
        /// The contexts it has.
        known: String,
    },

    /// The context names a cluster or a user that the kubeconfig does not have.
    #[error(
        "context `{context}` of kubeconfig {origin} names {part} `{name}`, which does not exist: correct the context or add the {part}"
    )]
    DanglingContext {
        /// The context.
        context: String,
        /// The file, or the variable that lists files.
        origin: String,
        /// `cluster` or `user`.
        part: &'static str,
        /// Its name in the context.
        name: String,
    },

    /// A file that the kubeconfig refers to cannot be read.
    #[error(
        "kubeconfig {origin} names {} as its {field}, which cannot be read: {source}; correct the path, or log in again \
         with your provider's tool",
        .path.display()
    )]
    CredentialUnreadable {
        /// The kubeconfig.
        origin: String,
        /// The field of the kubeconfig.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },

    /// The API server does not answer, or rejects the credentials.
    #[error(
        "no answer from the API server at {server}: {source}; check that it runs and that the kubeconfig's credentials are valid"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// The error of the client.
        source: Box<kube::Error>,
    },

    /// There is no such node, or the cluster has stopped.
    #[error("no machine runs node `{name}`: `Nodes::names` lists the machines, `Nodes::add` adds one")]
    NodeNotFound {
        /// The node.
        name: String,
    },

    /// A node of that name exists.
    #[error("node `{name}` already exists: choose another name, or remove it first")]
    NodeExists {
        /// The node.
        name: String,
    },

    /// The embedded API server rejected a request.
    #[error("cannot {what}: {source}")]
    Request {
        /// The operation that failed.
        what: String,
        /// The error of the server.
        source: Box<kube::Error>,
    },
}
