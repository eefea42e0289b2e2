//! Options of a controller program, as one struct and one group of flags.
//!
//! ```text
//!   flags ──clap──┐
//!                 ├──► Options ──► Connection ──► kube::Client      connect.rs
//!   plain fields ─┘       │   └──► Logging ──► standard error       logging.rs, json.rs
//!                         └──► Manager
//! ```
//!
//! Every option is a public field with a default, so a program without flags can set what it needs.

mod colour;
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

pub use colour::shows_colour;
pub use connect::{ConnectError, Connection};
#[cfg(feature = "logging")]
pub use json::JsonLines;
#[cfg(feature = "logging")]
pub use logging::LoggingError;
pub use logging::{LogFormat, Logging};
pub use node::{NodeNameError, node_name};

use crate::{
    election::ElectionConfig,
    install::CrdInstaller,
    layers::ClientOptions,
    manager::{DEFAULT_MAX_STALENESS, Manager},
};

/// Options of a controller program.
///
/// With clap they are one group of flags beside the program's own:
///
/// ```
/// # #[cfg(feature = "clap")] {
/// use clap::Parser;
///
/// #[derive(Parser)]
/// struct Arguments {
///     /// Maximum number of unavailable nodes.
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
/// Without clap, set the fields:
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
    /// The cluster and the rate limit.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub connection: Connection,

    /// Watch only this namespace; can be repeated [default: all namespaces]
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

    /// Install and update the CRDs at start; otherwise wait for them
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Cluster"))]
    pub install: bool,

    /// Log format and level.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub logging: Logging,

    /// Address for health, readiness and metrics; in a pod, use 0.0.0.0:8080
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

    /// Loopback address for the debug pages [default: same as --listen if that is a loopback address, otherwise none]
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

    /// Do not serve health, readiness and metrics
    #[cfg_attr(
        feature = "clap",
        arg(long, conflicts_with = "listen", help_heading = "Serving")
    )]
    pub no_listen: bool,

    /// How long a cache may be unable to follow the server before the process is not ready
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", default_value = "2m", value_parser = time, help_heading = "Serving")
    )]
    pub max_staleness: Duration,

    /// Leader election.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub election: ElectionOptions,
}

/// Loopback by default, because metrics reveal what a cluster contains and have no authentication.
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
            max_staleness: DEFAULT_MAX_STALENESS,
            election: ElectionOptions::default(),
        }
    }
}

impl Options {
    /// Returns a client for the chosen cluster; see [`Connection::client`].
    pub async fn client(&self) -> Result<Client, ConnectError> {
        self.connection.client().await
    }

    /// Returns a manager with these options and without controllers. `program` is the default name of the Lease and must be
    /// unique in its namespace.
    pub async fn manager(&self, program: &str) -> Result<Manager, ConnectError> {
        let (client, url) = self.connection.connect().await?;
        let manager = self
            .manager_with_client(client, program)
            .server_url(url.to_string().trim_end_matches('/'));
        Ok(match url.authority() {
            Some(host) => manager.host(host.as_str()),
            None => manager,
        })
    }

    /// Like [`manager`](Self::manager), but with an existing client: the options that choose the cluster have no effect.
    pub fn manager_with_client(&self, client: Client, program: &str) -> Manager {
        let mut manager = Manager::new(client).client_options(ClientOptions {
            rate_limit: self.connection.limit(),
            ..ClientOptions::default()
        });
        manager = manager.max_staleness(self.max_staleness);
        if !self.namespaces.is_empty() {
            manager = manager.namespaces(self.namespaces.iter().map(String::as_str));
        }
        if let Some(address) = self.listen() {
            manager = manager.listen_with_option(address.to_string(), "--listen");
        }
        if let Some(address) = self.debug_address {
            manager = manager.debug_listen_with_option(address.to_string(), "--debug-listen");
        }
        if self.election.enabled {
            manager = manager.elect(self.election.config(program));
        }
        manager
    }

    /// Returns an installer that applies the CRDs at the start with `--install`, and otherwise leaves the wait to their
    /// controllers; see [`Manager::install`].
    pub fn install(&self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> CrdInstaller {
        let install = CrdInstaller::new(crds);
        if self.install { install.apply() } else { install }
    }

    /// Sends the logs of the process to standard error; see [`Logging::init`].
    #[cfg(feature = "logging")]
    pub fn init_logging(&self) -> Result<(), LoggingError> {
        self.logging.init()
    }

    /// The address for health, readiness and metrics, if enabled. Default: `127.0.0.1:8080`, which other machines cannot
    /// reach.
    pub fn listen(&self) -> Option<SocketAddr> {
        (!self.no_listen).then_some(self.address)
    }
}

/// Leader election options.
///
/// The default times are client-go's. The lease duration must be longer than the renew deadline, and the renew deadline
/// longer than 1.2 times the retry period.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(about = None, long_about = None))]
#[non_exhaustive]
pub struct ElectionOptions {
    /// Enable leader election: only the replica that holds the lease reconciles
    #[cfg_attr(
        feature = "clap",
        arg(id = "leader_elect", long = "leader-elect", help_heading = "Leader election")
    )]
    pub enabled: bool,

    /// Name of the Lease [default: the program's name]
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

    /// Namespace of the Lease [default: that of the pod, or of the context]
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

    /// How long other candidates wait for a leader that does not renew
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", default_value = "15s", value_parser = time, help_heading = "Leader election")
    )]
    pub lease_duration: Duration,

    /// How long a leader tries to renew before it steps down
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

    /// Delay between two attempts to acquire or renew
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
    /// Returns the election configuration for a program of this name.
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

/// Parses a loopback address.
#[cfg(feature = "clap")]
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "expected an IP address and a port, as in `127.0.0.1:8081`".to_owned())?;
    if !address.ip().to_canonical().is_loopback() {
        return Err(
            "debug pages are served on loopback addresses only, such as `127.0.0.1:8081`; in a pod, use `kubectl port-forward` \
             to reach them"
                .to_owned(),
        );
    }
    Ok(address)
}

/// Parses a duration in Go's notation: `15s`, `500ms`, `1m30s`.
#[cfg(feature = "clap")]
fn time(text: &str) -> Result<Duration, String> {
    text.parse::<k8s_openapi::jiff::SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "expected a number and a unit, as in `15s`, `500ms` or `1m30s`".to_owned())
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
    fn no_flags_give_the_defaults() {
        assert_eq!(parsed(&[]), Ok(Options::default()));
    }

    #[test]
    fn every_flag_sets_its_field() {
        let flags = "--kubeconfig=k --context=c --qps=5 --burst=10 --namespace=a --namespace=b,c --install \
                     --log-format=json --log-level=debug --no-listen --max-staleness=30s --debug-listen=127.0.0.1:8081 --leader-elect --lease-name=l \
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
            max_staleness: Duration::from_secs(30),
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
        let listen = parsed(&["--listen=127.0.0.1:9000"])
            .expect("valid address")
            .listen();
        assert_eq!(
            listen.map(|address| address.to_string()).as_deref(),
            Some("127.0.0.1:9000")
        );
    }

    #[test]
    fn invalid_flags_are_rejected_with_a_hint() {
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
            let error = parsed(flags).expect_err("invalid flags");
            assert!(error.contains(hint), "{flags:?}: {error}");
        }
    }

    #[test]
    fn help_matches_help_txt() {
        let help = <Program as clap::CommandFactory>::command()
            .render_help()
            .to_string();
        assert_eq!(
            help,
            include_str!("help.txt"),
            "if the change is intended, update help.txt:\n{help}"
        );
    }

    /// By default clap uses the doc comment of a flattened group as the program's description.
    #[test]
    fn program_description_comes_only_from_its_own_doc_comment() {
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
