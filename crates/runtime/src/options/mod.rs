//! What every controller's binary can be told, as one struct and one group of flags.
//!
//! ```text
//!   flags ──clap──┐
//!                 ├──► Options ──► Connection ──► kube::Client      connect.rs
//!   plain fields ─┘       │   └──► Logging ──► standard error       logging.rs, json.rs
//!                         └──► the rest is data for whoever wires the manager
//! ```
//!
//! Everything is a public field with a default, so that a program without flags sets what it needs.

mod connect;
#[cfg(feature = "logging")]
mod json;
mod logging;
mod node;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

pub use connect::{ConnectError, Connection};
#[cfg(feature = "logging")]
pub use json::JsonLines;
#[cfg(feature = "logging")]
pub use logging::LoggingError;
pub use logging::{LogFormat, Logging};
pub use node::{NodeNameError, node_name};

use crate::{election::ElectionConfig, install::Install, layers::ClientOptions, manager::Manager};

/// What every controller's binary can be told.
///
/// With clap it is one group of flags among the program's own:
///
/// ```
/// # #[cfg(feature = "clap")] {
/// use clap::Parser;
///
/// #[derive(Parser)]
/// struct Arguments {
///     /// How many nodes may be away at once.
///     #[arg(long, default_value_t = 1)]
///     max_unavailable: u32,
///     #[command(flatten)]
///     options: windlass_runtime::Options,
/// }
/// let arguments = Arguments::parse_from(["reboot", "--namespace=a", "--namespace=b", "--leader-elect"]);
/// assert_eq!(arguments.options.namespaces, ["a", "b"]);
/// # }
/// ```
///
/// Without it, the same by hand:
///
/// ```
/// let mut options = windlass_runtime::Options::default();
/// options.connection.context = Some("staging".to_owned());
/// assert!(options.listen().is_some());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(about = None, long_about = None))]
#[non_exhaustive]
pub struct Options {
    /// Which cluster, and how fast.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub connection: Connection,

    /// Looks at this namespace only; may be given more than once [default: all namespaces]
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "namespace",
            value_name = "NAME",
            value_delimiter = ',',
            help_heading = "Cluster"
        )
    )]
    pub namespaces: Vec<String>,

    /// Installs and updates the CRDs at start; without it, waits for them
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Cluster"))]
    pub install: bool,

    /// How it logs.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub logging: Logging,

    /// Serves health, readiness and metrics on this address; in a pod, use 0.0.0.0:8080
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "listen",
            long = "listen",
            value_name = "ADDRESS",
            default_value_t = LISTEN,
            help_heading = "Serving"
        )
    )]
    pub address: SocketAddr,

    /// Serves the debug pages on this loopback address [default: with the rest if --listen is one, else not at all]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "debug_listen",
            long = "debug-listen",
            value_name = "ADDRESS",
            value_parser = loopback,
            help_heading = "Serving"
        )
    )]
    pub debug_address: Option<SocketAddr>,

    /// Serves neither health nor metrics
    #[cfg_attr(
        feature = "clap",
        arg(long, conflicts_with = "listen", help_heading = "Serving")
    )]
    pub no_listen: bool,

    /// Whether one of many is to act.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub election: ElectionOptions,
}

/// Metrics name what a cluster has, without authentication: other machines see them only on request.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

impl Default for Options {
    fn default() -> Self {
        Self {
            connection: Connection::default(),
            namespaces: Vec::new(),
            install: false,
            logging: Logging::default(),
            address: LISTEN,
            debug_address: None,
            no_listen: false,
            election: ElectionOptions::default(),
        }
    }
}

impl Options {
    /// A client for the cluster that was chosen; see [`Connection::client`].
    pub async fn client(&self) -> Result<Client, ConnectError> {
        self.connection.client().await
    }

    /// A manager as these options say, without controllers yet. `program` is the name of the lease, unless the options
    /// have one, and belongs to this program alone in the lease's namespace.
    pub async fn manager(&self, program: &str) -> Result<Manager, ConnectError> {
        let config = self.connection.config().await?;
        let host = config.cluster_url.authority().map(ToString::to_string);
        let manager = self.manager_on(self.client().await?, program);
        Ok(match host {
            Some(host) => manager.host(host),
            None => manager,
        })
    }

    /// The same for a cluster that the program has a client of already: whatever these options say of which cluster has no
    /// effect, and all else has.
    pub fn manager_on(&self, client: Client, program: &str) -> Manager {
        let mut manager = Manager::new(client).client_options(ClientOptions {
            limit: self.connection.limit(),
            ..ClientOptions::default()
        });
        if !self.namespaces.is_empty() {
            manager = manager.namespaces(self.namespaces.iter().map(String::as_str));
        }
        if let Some(address) = self.listen() {
            manager = manager.listen_as(address.to_string(), "--listen");
        }
        if let Some(address) = self.debug_address {
            manager = manager.debug_listen_as(address.to_string(), "--debug-listen");
        }
        if self.election.enabled {
            manager = manager.elect(self.election.config(program));
        }
        manager
    }

    /// The CRDs that a program needs: applied at the start if the options say so, and waited for otherwise.
    pub fn install(&self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Install {
        let install = Install::new(crds);
        if self.install { install.apply() } else { install }
    }

    /// Sends the log to standard error, for the whole process; see [`Logging::init`].
    #[cfg(feature = "logging")]
    pub fn init_logging(&self) -> Result<(), LoggingError> {
        self.logging.init()
    }

    /// Where to serve health and metrics, if at all. Default: `127.0.0.1:8080`, which other machines do not reach.
    pub fn listen(&self) -> Option<SocketAddr> {
        (!self.no_listen).then_some(self.address)
    }
}

/// Whether one of many processes is to act, and how soon another one takes over.
///
/// Plain data; the times are client-go's defaults. The duration must be longer than the deadline, and the deadline longer
/// than 1.2 times the period.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(about = None, long_about = None))]
#[non_exhaustive]
pub struct ElectionOptions {
    /// Acts only while it holds the lease, so that of many processes one does
    #[cfg_attr(
        feature = "clap",
        arg(id = "leader_elect", long = "leader-elect", help_heading = "Leader election")
    )]
    pub enabled: bool,

    /// The name of the lease [default: the program's]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "lease_name",
            long = "lease-name",
            value_name = "NAME",
            help_heading = "Leader election"
        )
    )]
    pub name: Option<String>,

    /// The namespace of the lease [default: that of the pod, or of the context]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "lease_namespace",
            long = "lease-namespace",
            value_name = "NAME",
            help_heading = "Leader election"
        )
    )]
    pub namespace: Option<String>,

    /// How long the others wait for a leader that does not renew
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", default_value = "15s", value_parser = time, help_heading = "Leader election")
    )]
    pub lease_duration: Duration,

    /// How long the leader tries to renew before it stops acting
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "lease_renew_deadline",
            long = "lease-renew-deadline",
            value_name = "TIME",
            default_value = "10s",
            value_parser = time,
            help_heading = "Leader election"
        )
    )]
    pub renew_deadline: Duration,

    /// How long between two attempts
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "lease_retry_period",
            long = "lease-retry-period",
            value_name = "TIME",
            default_value = "2s",
            value_parser = time,
            help_heading = "Leader election"
        )
    )]
    pub retry_period: Duration,
}

impl Default for ElectionOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            name: None,
            namespace: None,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl ElectionOptions {
    /// The election for a program of this name.
    pub fn config(&self, program: &str) -> ElectionConfig {
        let mut config = ElectionConfig::new(self.name.as_deref().unwrap_or(program))
            .lease_duration(self.lease_duration)
            .renew_deadline(self.renew_deadline)
            .retry_period(self.retry_period);
        if let Some(namespace) = &self.namespace {
            config = config.namespace(namespace.as_str());
        }
        config
    }
}

/// Reads an address that other machines cannot reach.
#[cfg(feature = "clap")]
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "an address has an IP and a port, as in `127.0.0.1:8081`".to_owned())?;
    if !address.ip().to_canonical().is_loopback() {
        return Err(
            "debug pages are served on loopback addresses only, such as `127.0.0.1:8081`; in a pod, use `kubectl port-forward` \
             to reach it"
                .to_owned(),
        );
    }
    Ok(address)
}

/// Reads a time as Kubernetes' tools write it: `15s`, `500ms`, `1m30s`.
#[cfg(feature = "clap")]
fn time(text: &str) -> Result<Duration, String> {
    text.parse::<k8s_openapi::jiff::SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "a time has a number and a unit, as in `15s`, `500ms` or `1m30s`".to_owned())
}

#[cfg(all(test, feature = "clap"))]
mod tests {
    use std::num::NonZeroU32;

    use clap::Parser;

    use super::*;

    /// Reboots nodes.
    #[derive(Parser)]
    #[command(name = "demo")]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(flags: &[&str]) -> Result<Options, String> {
        let all = ["demo"].iter().chain(flags);
        Program::try_parse_from(all)
            .map(|program| program.options)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn no_flags_are_the_defaults() {
        assert_eq!(parsed(&[]), Ok(Options::default()));
    }

    #[test]
    fn every_flag_is_a_field() {
        let flags = "--kubeconfig=k --context=c --qps=5 --burst=10 --namespace=a --namespace=b,c --install \
                     --log-format=json --log-level=debug --no-listen --debug-listen=127.0.0.1:8081 --leader-elect --lease-name=l \
                     --lease-namespace=n --lease-duration=1m30s --lease-renew-deadline=500ms --lease-retry-period=100ms";
        let expected = Options {
            connection: Connection {
                kubeconfig: Some("k".into()),
                context: Some("c".to_owned()),
                qps: NonZeroU32::new(5),
                burst: NonZeroU32::new(10),
            },
            namespaces: ["a", "b", "c"].map(str::to_owned).to_vec(),
            install: true,
            logging: Logging {
                format: LogFormat::Json,
                level: Some("debug".to_owned()),
            },
            no_listen: true,
            address: LISTEN,
            debug_address: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 8081))),
            election: ElectionOptions {
                enabled: true,
                name: Some("l".to_owned()),
                namespace: Some("n".to_owned()),
                lease_duration: Duration::from_secs(90),
                renew_deadline: Duration::from_millis(500),
                retry_period: Duration::from_millis(100),
            },
        };
        assert_eq!(expected.listen(), None);
        assert_eq!(
            parsed(&flags.split_whitespace().collect::<Vec<_>>()),
            Ok(expected)
        );
        let listen = parsed(&["--listen=127.0.0.1:9000"]).expect("an address").listen();
        assert_eq!(
            listen.map(|address| address.to_string()).as_deref(),
            Some("127.0.0.1:9000")
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_hint() {
        for (flags, hint) in [
            (&["--lease-duration=15"][..], "as in `15s`"),
            (&["--lease-duration=-1s"], "as in `15s`"),
            (&["--lease-duration=0s"], "as in `15s`"),
            (&["--qps=0"], "number would be zero"),
            (&["--burst=5"], "--qps"),
            (&["--burst=0", "--qps=1"], "number would be zero"),
            (&["--log-format=xml"], "[possible values: text, json]"),
            (&["--no-listen", "--listen=127.0.0.1:1"], "cannot be used with"),
            (&["--debug-listen=0.0.0.0:8081"], "loopback addresses only"),
            (&["--debug-listen=[::]:8081"], "loopback addresses only"),
            (&["--debug-listen=10.0.0.1:8081"], "kubectl port-forward"),
            (&["--debug-listen=8081"], "as in `127.0.0.1:8081`"),
        ] {
            let error = parsed(flags).expect_err("it is refused");
            assert!(error.contains(hint), "{flags:?}: {error}");
        }
    }

    #[test]
    fn the_help_is_what_a_stranger_reads() {
        let help = <Program as clap::CommandFactory>::command()
            .render_help()
            .to_string();
        assert_eq!(
            help,
            include_str!("help.txt"),
            "if it is better, put it into help.txt:\n{help}"
        );
    }

    /// clap takes the comment of a group for the program's.
    #[test]
    fn a_program_is_described_by_its_own_comment_alone() {
        #[derive(Parser)]
        #[command(name = "bare")]
        struct Bare {
            #[command(flatten)]
            _options: Options,
        }
        let help = <Bare as clap::CommandFactory>::command()
            .render_long_help()
            .to_string();
        assert!(help.starts_with("Usage: bare [OPTIONS]\n"), "{help}");
        let help = <Program as clap::CommandFactory>::command()
            .render_long_help()
            .to_string();
        assert!(
            help.starts_with("Reboots nodes\n\nUsage: demo [OPTIONS]\n"),
            "{help}"
        );
    }
}
