//! How the webhooks of a program are served: one struct, and one group of flags.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use windlass_runtime::Manager;

use crate::{ManagerExt, ServerLimits, Webhooks, registration::WebhookAddress};

/// The port of webhooks, which is controller-runtime's.
const PORT: u16 = 9443;

/// How webhooks are served and registered.
///
/// The defaults fit a pod, and a program on a laptop: in a pod, the webhooks listen on port 9443 of all addresses, the API
/// server calls them through the Service of their [name](crate::Webhooks::new) in the pod's namespace, and the certificates are in
/// a Secret. Elsewhere they listen on a free port of 127.0.0.1, the API server calls them at that URL, the certificate is in memory, and
/// with `--install` they are registered while the program runs. An API server on another machine needs a `url`.
///
/// With clap, it is a group of flags beside the program's own and [`windlass_runtime::Options`]: `#[command(flatten)]`.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(about = None, long_about = None))]
#[non_exhaustive]
pub struct WebhookOptions {
    /// Address for webhooks [default: 0.0.0.0:9443 in a pod, otherwise a free port of 127.0.0.1]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_listen",
            long = "webhook-listen",
            value_name = "ADDRESS",
            help_heading = "Webhooks"
        )
    )]
    pub listen: Option<SocketAddr>,

    /// Service through which the API server calls the webhooks, as NAMESPACE/NAME [default in a pod: the program's name in the pod's namespace]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_service",
            long = "webhook-service",
            value_name = "NAMESPACE/NAME",
            help_heading = "Webhooks"
        )
    )]
    pub service: Option<String>,

    /// URL at which the API server calls the webhooks while this program runs, such as `https://192.0.2.7:9443` [default outside of a pod: the address of --webhook-listen]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_url",
            long = "webhook-url",
            value_name = "URL",
            conflicts_with = "webhook_service",
            help_heading = "Webhooks"
        )
    )]
    pub url: Option<String>,

    /// Folder with tls.crt and tls.key, such as a Secret of cert-manager [default: certificates are made and renewed]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_certificates",
            long = "webhook-certificates",
            value_name = "FOLDER",
            help_heading = "Webhooks"
        )
    )]
    pub certificates: Option<PathBuf>,

    /// Secret with the certificates, in the namespace of the Service [default: the program's name, and -webhook-certificates]
    #[cfg_attr(
        feature = "clap",
        arg(
            id = "webhook_secret",
            long = "webhook-secret",
            value_name = "NAME",
            help_heading = "Webhooks"
        )
    )]
    pub secret: Option<String>,

    /// Limits of the socket.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limits: ServerLimits,
}

/// Flags of a program that has webhooks only on request: `--webhooks`, and [`WebhookOptions`], which need it.
///
/// ```
/// use windlass_webhook::{OptionalWebhooks, Webhooks};
///
/// # fn setup(manager: windlass_runtime::Manager, flags: OptionalWebhooks) -> windlass_runtime::Manager {
/// flags.add_to(manager, Webhooks::new("cones"))
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "clap",
    derive(clap::Args),
    command(about = None, long_about = None, mut_args = requires_webhooks)
)]
#[non_exhaustive]
pub struct OptionalWebhooks {
    /// Serves admission and conversion webhooks, and registers them with --install
    #[cfg_attr(
        feature = "clap",
        arg(long = "webhooks", id = "webhooks", help_heading = "Webhooks")
    )]
    pub enabled: bool,

    /// How they are served.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub options: WebhookOptions,
}

impl OptionalWebhooks {
    /// Adds the webhooks to a manager, if they are enabled.
    pub fn add_to(self, manager: Manager, webhooks: Webhooks) -> Manager {
        if self.enabled {
            manager.webhooks(webhooks, self.options)
        } else {
            manager
        }
    }
}

/// A flag of webhooks without `--webhooks` would do nothing.
#[cfg(feature = "clap")]
fn requires_webhooks(arg: clap::Arg) -> clap::Arg {
    if arg.get_id().as_str().starts_with("webhook_") {
        arg.requires("webhooks")
    } else {
        arg
    }
}

/// Why the options make no sense.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WebhookOptionsError {
    /// The Service is not a namespace and a name.
    #[error("invalid Service {0:?} of the webhooks: it must be NAMESPACE/NAME")]
    InvalidService(String),
    /// An API server cannot call the URL.
    #[error(
        "invalid URL {0:?} of the webhooks: it must be https://HOST or https://HOST:PORT, and may have a path"
    )]
    InvalidUrl(String),
    /// The API server is on another machine than the address of the webhooks.
    #[error(
        "the API server {server} cannot call the webhooks at {address}, which is an address of this machine only: listen on \
         another one with `--webhook-listen=0.0.0.0:9443`, and say how the server reaches it with `--webhook-url` (or \
         `--webhook-service`)"
    )]
    Unreachable {
        /// The URL of the API server.
        server: String,
        /// The address of the webhooks.
        address: SocketAddr,
    },
    /// The name of the webhooks cannot be that of objects.
    #[error("invalid name {0:?} of the webhooks: it must be a DNS label, such as `my-app`")]
    InvalidName(String),
    /// The name of one webhook is invalid.
    #[error(
        "invalid name {0:?} of a webhook: it must be a domain name with at least three parts, such as `sizes.cones.example.com`"
    )]
    InvalidWebhookName(String),
}

/// The options with all defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) address: WebhookAddress,
    /// The names and addresses that the certificate is for.
    pub(crate) hosts: Vec<String>,
    /// The name of the Secret.
    pub(crate) secret: String,
}

impl WebhookOptions {
    /// The address to listen on.
    pub(crate) fn listen_address(&self, is_in_pod: bool) -> SocketAddr {
        let (ip, port) = if is_in_pod || self.service.is_some() {
            (Ipv4Addr::UNSPECIFIED, PORT)
        } else {
            (Ipv4Addr::LOCALHOST, 0)
        };
        self.listen.unwrap_or(SocketAddr::new(IpAddr::V4(ip), port))
    }

    /// The name of the Secret.
    pub(crate) fn secret_name(&self, name: &str) -> String {
        let secret = self.secret.clone();
        secret.unwrap_or_else(|| format!("{name}-webhook-certificates"))
    }

    /// The options for webhooks of this name, which listen on this address. `namespace` is the pod's, if the program runs in
    /// one, and `server` the URL of the API server that is to call them, if it is known.
    pub(crate) fn resolve(
        &self,
        name: &str,
        namespace: Option<&str>,
        listening: SocketAddr,
        server: Option<&str>,
    ) -> Result<Resolved, WebhookOptionsError> {
        let address = match (&self.service, &self.url, namespace) {
            (Some(service), ..) => {
                let parts = service.split_once('/');
                let valid = parts.filter(|(namespace, name)| {
                    windlass_api::naming::is_dns_label(namespace) && windlass_api::naming::is_dns_label(name)
                });
                let (namespace, name) =
                    valid.ok_or_else(|| WebhookOptionsError::InvalidService(service.clone()))?;
                WebhookAddress::service(namespace, name)
            }
            (None, Some(url), _) => WebhookAddress::Url(url.trim_end_matches('/').to_owned()),
            (None, None, Some(namespace)) => WebhookAddress::service(namespace, name),
            (None, None, None) => {
                let (mut called, ip) = (listening, listening.ip().to_canonical());
                if ip.is_unspecified() {
                    called.set_ip(if ip.is_ipv4() {
                        Ipv4Addr::LOCALHOST.into()
                    } else {
                        Ipv6Addr::LOCALHOST.into()
                    });
                }
                if let Some(server) = server.filter(|_| called.ip().to_canonical().is_loopback())
                    && !is_loopback(server)
                {
                    return Err(WebhookOptionsError::Unreachable {
                        server: server.to_owned(),
                        address: called,
                    });
                }
                WebhookAddress::Url(format!("https://{called}"))
            }
        };
        let hosts = match &address {
            WebhookAddress::Service { namespace, name, .. } => vec![format!("{name}.{namespace}.svc")],
            WebhookAddress::Url(url) => {
                vec![host(url).ok_or_else(|| WebhookOptionsError::InvalidUrl(url.clone()))?]
            }
        };
        Ok(Resolved {
            address,
            hosts,
            secret: self.secret_name(name),
        })
    }
}

/// Whether a URL is one of this machine.
fn is_loopback(url: &str) -> bool {
    let url = url.parse::<http::Uri>().ok();
    let host = url.as_ref().and_then(http::Uri::host).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The host of a URL that an API server calls.
fn host(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let is_valid = url.scheme_str() == Some("https") && url.query().is_none();
    let host = url.host().filter(|_| is_valid)?;
    // The address of IPv6 is in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTENING: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4567);

    #[test]
    fn defaults_fit_a_pod_and_a_laptop() {
        let options = WebhookOptions::default();
        assert_eq!(options.listen_address(true).to_string(), "0.0.0.0:9443");
        let pod = options
            .resolve("cones", Some("shop"), LISTENING, Some("https://10.0.0.1"))
            .expect("valid");
        assert_eq!(pod.address, WebhookAddress::service("shop", "cones"));
        assert_eq!(pod.hosts, ["cones.shop.svc"]);
        assert_eq!(pod.secret, "cones-webhook-certificates");
        assert_eq!(options.listen_address(false).to_string(), "127.0.0.1:0");
        let laptop = options.resolve("cones", None, LISTENING, None).expect("valid");
        assert_eq!(
            laptop.address,
            WebhookAddress::Url("https://127.0.0.1:4567".to_owned())
        );
        assert_eq!(laptop.hosts, ["127.0.0.1"]);
    }

    #[test]
    fn server_on_another_machine_needs_a_url() {
        let any = "0.0.0.0:9443".parse().expect("an address");
        let lan = "192.0.2.7:9443".parse().expect("an address");
        for (listening, server, wanted) in [
            (
                LISTENING,
                Some("https://127.0.0.1:6443"),
                Some("https://127.0.0.1:4567"),
            ),
            (
                LISTENING,
                Some("https://localhost:6443"),
                Some("https://127.0.0.1:4567"),
            ),
            (
                LISTENING,
                Some("https://[::1]:6443"),
                Some("https://127.0.0.1:4567"),
            ),
            (LISTENING, None, Some("https://127.0.0.1:4567")),
            (LISTENING, Some("https://10.0.0.1:6443"), None),
            (LISTENING, Some("https://api.example.com"), None),
            (
                any,
                Some("https://127.0.0.1:6443"),
                Some("https://127.0.0.1:9443"),
            ),
            (any, Some("https://10.0.0.1:6443"), None),
            (lan, Some("https://10.0.0.1:6443"), Some("https://192.0.2.7:9443")),
        ] {
            let resolved = WebhookOptions::default().resolve("a", None, listening, server);
            match (resolved, wanted) {
                (Ok(resolved), Some(wanted)) => {
                    assert_eq!(resolved.address, WebhookAddress::Url(wanted.to_owned()));
                }
                (Err(error), None) => assert!(error.to_string().contains("--webhook-url"), "{error}"),
                other => panic!("{listening} {server:?}: {other:?}"),
            }
        }
    }

    #[cfg(feature = "clap")]
    #[test]
    fn flags_of_webhooks_need_webhooks() {
        use clap::Parser;

        #[derive(Debug, Parser)]
        struct Program {
            #[command(flatten)]
            webhooks: OptionalWebhooks,
        }
        let parse = |arguments: &[&str]| Program::try_parse_from([&["program"], arguments].concat());
        let error = parse(&["--webhook-secret=a"]).expect_err("--webhooks is missing");
        assert!(error.to_string().contains("--webhooks"), "{error}");
        let program = parse(&["--webhooks", "--webhook-secret=a"]).expect("valid");
        assert!(program.webhooks.enabled);
        assert_eq!(program.webhooks.options.secret.as_deref(), Some("a"));
        assert_eq!(parse(&[]).expect("valid").webhooks, OptionalWebhooks::default());
    }

    #[test]
    fn urls_and_services_are_checked() {
        for (url, wanted) in [
            ("https://192.0.2.7:9443", Some("192.0.2.7")),
            ("https://[2001:db8::1]:9443/", Some("2001:db8::1")),
            ("https://host.docker.internal/hooks", Some("host.docker.internal")),
            ("http://192.0.2.7", None),
            ("https://", None),
            ("192.0.2.7", None),
            ("https://a/?b", None),
        ] {
            let options = WebhookOptions {
                url: Some(url.to_owned()),
                ..WebhookOptions::default()
            };
            let hosts = options
                .resolve("a", None, LISTENING, None)
                .map(|resolved| resolved.hosts);
            assert_eq!(hosts.ok(), wanted.map(|host| vec![host.to_owned()]), "{url}");
        }
        for service in ["a", "a/", "/a", "a/b/c", "A/b"] {
            let options = WebhookOptions {
                service: Some(service.to_owned()),
                ..WebhookOptions::default()
            };
            assert!(options.resolve("a", None, LISTENING, None).is_err(), "{service}");
        }
    }
}
