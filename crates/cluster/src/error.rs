//! What can go wrong between asking for a cluster and having one, each with its fix.

use std::{io, net::SocketAddr, path::PathBuf, process::ExitStatus, time::Duration};

use kube::config::KubeconfigError;

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No folder with control-plane binaries is known on this machine.
    #[error(
        "no control plane to start: {} does not exist; run `hack/control-plane/build`, or set KUBEBUILDER_ASSETS to a folder \
         with etcd and kube-apiserver (`setup-envtest use -p path` fetches one and prints it)",
        .looked_in.display()
    )]
    NoAssets {
        /// The cache folder of `hack/control-plane/build`, the last place that was tried.
        looked_in: PathBuf,
    },

    /// The folder is there, but not everything that was asked for is in it.
    #[error(
        "no {binary} in {}, which comes from {origin}: run `hack/control-plane/build {binary}` and use the folder it prints \
         (setup-envtest fetches only etcd, kube-apiserver and kubectl)",
        .folder.display()
    )]
    MissingBinary {
        /// The program that is missing.
        binary: &'static str,
        /// Where it was looked for.
        folder: PathBuf,
        /// Who named the folder.
        origin: &'static str,
    },

    /// No kubectl of the release that the suites and recordings are written against.
    #[error(
        "no kubectl {wanted} on this machine{found}: run `hack/control-plane/build kubectl`, or put one on the PATH"
    )]
    NoMatchingKubectl {
        /// The version that was looked for.
        wanted: &'static str,
        /// The other ones that were found, each with its version or what is wrong with it; empty if there is none.
        found: String,
    },

    /// The operating system does not accept the file as a program for this machine.
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

    /// A process could not be started for another reason.
    #[error("cannot start {}: {source}; check that it is executable and that the process limit is not reached", .program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// A server ended before the cluster was ready.
    #[error("{server} ended during start ({status}); its last log lines say why:\n{log}")]
    Exited {
        /// The program.
        server: &'static str,
        /// How it ended.
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

    /// The port that was asked for belongs to somebody else.
    #[error("port {port} on 127.0.0.1 is taken: choose another one, or leave `port` out to get a free one")]
    PortTaken {
        /// The port.
        port: u16,
    },

    /// The address that was asked for cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose another address, or leave `listen` out to get a free port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },

    /// A cluster whose keys follow from a seed was asked for a socket.
    #[error(
        "a seeded cluster does not listen on a socket, because its keys can be guessed: start it with `Cluster::embedded()`"
    )]
    SeededSocket,

    /// A file or folder of the cluster could not be made.
    #[error("cannot write {}: {source}; `temp_dir` chooses another place", .path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// A certificate could not be made.
    #[error(
        "cannot make a certificate: {0}; user and group names must not be empty and must be valid in a certificate"
    )]
    Certificate(#[from] rcgen::Error),

    /// A user without a name would be nobody.
    #[error("a user needs a name that is not empty")]
    NamelessUser,

    /// A role without a name cannot be bound.
    #[error("a role needs a `metadata.name` to be bound to a user")]
    NamelessRole,

    /// A user's role or binding could not be written.
    #[error(
        "role {role} was not given to user {user}: {source}; the cluster's own user needs the right to write roles and \
         bindings, and to `bind` and `escalate` what is beyond its own"
    )]
    RoleRefused {
        /// The role.
        role: String,
        /// The user.
        user: String,
        /// What the server said.
        source: Box<kube::Error>,
    },

    /// The server does not act on a binding.
    #[error(
        "user {user} does not have the rules of role {role}, though it is bound: does the cluster use RBAC?"
    )]
    RoleUnheard {
        /// The role.
        role: String,
        /// The user.
        user: String,
    },

    /// A user outlived its cluster.
    #[error("the embedded cluster of this user is gone: keep the `Cluster` while its users are needed")]
    ClusterGone,

    /// There is nothing to infer a cluster from.
    #[error(
        "no cluster to connect to: KUBECONFIG is not set, {} does not exist, and this is not a pod; set KUBECONFIG or name a \
         file with `kubeconfig`",
        .default.display()
    )]
    NoKubeconfig {
        /// Where kubectl keeps its configuration by default.
        default: PathBuf,
    },

    /// A kubeconfig that was named cannot be read.
    #[error("cannot read kubeconfig {}: {source}; check KUBECONFIG or the path given to `kubeconfig`", .path.display())]
    KubeconfigUnreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// A kubeconfig is there, but does not say how to reach a cluster.
    #[error("kubeconfig {origin} is not usable: {source}; `kubectl config view` shows what is in it")]
    KubeconfigInvalid {
        /// The file, or the variable that lists files.
        origin: String,
        /// What is wrong with it.
        source: KubeconfigError,
    },

    /// The context is not in the kubeconfig.
    #[error("no context `{context}` in kubeconfig {origin}: it has {known}; choose one with `context`")]
    NoContext {
        /// The context that was asked for.
        context: String,
        /// The file, or the variable that lists files.
        origin: String,
        /// The contexts that are there.
        known: String,
    },

    /// No context was asked for, and the kubeconfig has no current one.
    #[error("kubeconfig {origin} has no current-context: it has {known}; choose one with `context`")]
    NoCurrentContext {
        /// The file, or the variable that lists files.
        origin: String,
        /// The contexts that are there.
        known: String,
    },

    /// The context names a cluster or a user that the kubeconfig does not have.
    #[error(
        "context `{context}` of kubeconfig {origin} names {part} `{name}`, which is not there: correct the context or add the {part}"
    )]
    DanglingContext {
        /// The context.
        context: String,
        /// The file, or the variable that lists files.
        origin: String,
        /// `cluster` or `user`.
        part: &'static str,
        /// What the context calls it.
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
        /// What the operating system said.
        source: io::Error,
    },

    /// The cluster of the kubeconfig does not answer, or not to us.
    #[error(
        "no answer from the API server at {server}: {source}; check that it runs and that the kubeconfig's credentials are valid"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// What the client saw.
        source: Box<kube::Error>,
    },

    /// A node that is not there, or a cluster that has stopped.
    #[error("no machine runs node `{name}`: `Nodes::names` has those that there are, `Nodes::add` makes one")]
    NoNode {
        /// The node.
        name: String,
    },

    /// A node of that name is there already.
    #[error("node `{name}` is there already: choose another name, or remove it first")]
    NodeExists {
        /// The node.
        name: String,
    },

    /// The embedded API server did not do what was asked.
    #[error("cannot {what}: {source}")]
    Request {
        /// What was asked for.
        what: String,
        /// What it said.
        source: Box<kube::Error>,
    },
}
