//! `kube-apiserver`: the embedded API server with the real program's flags.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use windlass_apiserver::{AdmissionPlugin, AuthorizationMode, Server, Tls};

use super::{
    Program, admission_flags,
    certificate::{self, ServingCertificate},
    flags::{Flag, FlagError, Flags},
    stop_signal,
    token_file::TokenFile,
};

/// The flags that envtest passes, and those that its users are likely to add.
pub(super) const FLAGS: &[Flag] = &[
    Flag::value("secure-port", "the port for HTTPS (default 6443)"),
    Flag::value("bind-address", "the address to serve on (default 127.0.0.1)"),
    Flag::value(
        "cert-dir",
        "folder with apiserver.crt and apiserver.key, created if missing (default /var/run/kubernetes)",
    ),
    Flag::value(
        "tls-cert-file",
        "the serving certificate, instead of the one in --cert-dir",
    ),
    Flag::value("tls-private-key-file", "the key of --tls-cert-file"),
    Flag::value(
        "client-ca-file",
        "CA certificates that client certificates are verified against",
    ),
    Flag::value(
        "requestheader-client-ca-file",
        "published for other components, with the five lists: this server has no proxy in front of it",
    ),
    Flag::value("requestheader-allowed-names", "published for other components"),
    Flag::value(
        "requestheader-extra-headers-prefix",
        "published for other components",
    ),
    Flag::value("requestheader-group-headers", "published for other components"),
    Flag::value("requestheader-uid-headers", "published for other components"),
    Flag::value("requestheader-username-headers", "published for other components"),
    Flag::switch(
        "anonymous-auth",
        "requests without credentials are from system:anonymous (default), except with AlwaysAllow and --client-ca-file \
         or --token-auth-file: then credentials are required",
    ),
    Flag::value(
        "token-auth-file",
        "bearer tokens: lines of token,user,uid,\"group,group\"",
    ),
    Flag::value(
        "authorization-mode",
        "RBAC, AlwaysAllow (default: every authenticated user may do everything), or both: one must allow a request; Node \
         counts as RBAC, without the node authorizer's rules",
    ),
    Flag::value("disable-admission-plugins", "admission plugins to disable"),
    Flag::value(
        "enable-admission-plugins",
        "no effect: all supported plugins are enabled by default",
    ),
    Flag::value(
        "service-account-issuer",
        "no effect: the server uses its own issuer for tokens",
    ),
    Flag::value(
        "service-account-key-file",
        "no effect: the server signs tokens with its own key",
    ),
    Flag::value(
        "service-account-signing-key-file",
        "no effect: the server signs tokens with its own key",
    ),
    Flag::value(
        "service-cluster-ip-range",
        "10.0.0.0/24 is the only supported range",
    ),
    Flag::value("etcd-servers", "no effect: objects live in this process"),
    Flag::value("advertise-address", "no effect"),
    Flag::value("endpoint-reconciler-type", "no effect"),
    Flag::value("v", "no effect: set RUST_LOG for more logs"),
    Flag::switch("allow-privileged", "privileged containers are always allowed"),
    Flag::switch("version", "print the version that this program stands in for"),
    Flag::switch("help", "print this text"),
    Flag::switch("h", "print this text"),
];

/// The only Service IP range of the embedded server.
const SERVICE_RANGE: &str = "10.0.0.0/24";

/// The settings from the flags.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    address: SocketAddr,
    serving_certificate: ServingCertificate,
    client_ca_file: Option<PathBuf>,
    request_headers: Option<RequestHeaders>,
    token_file: Option<PathBuf>,
    authorization: Vec<AuthorizationMode>,
    anonymous: Anonymous,
    disabled_plugins: Vec<AdmissionPlugin>,
}

/// How a proxy in front of other components passes users on. This server publishes it for them, and has no such proxy itself.
#[derive(Debug, PartialEq, Eq)]
struct RequestHeaders {
    client_ca_file: PathBuf,
    /// The lists, by their keys in the ConfigMap, which are the names of the flags.
    lists: Vec<(&'static str, Vec<String>)>,
}

/// The flags with the lists of [`RequestHeaders`].
const REQUEST_HEADER_LISTS: [&str; 5] = [
    "requestheader-allowed-names",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
];

/// Whether requests without credentials are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anonymous {
    Allowed,
    Rejected,
}

impl Settings {
    fn from_flags(flags: &Flags) -> anyhow::Result<Self> {
        let port = flags
            .parsed("secure-port", "a port from 1 to 65535")?
            .unwrap_or(6443);
        if port == 0 {
            return Err(FlagError::InvalidValue {
                name: "secure-port",
                value: "0".to_owned(),
                expected: "a port from 1 to 65535",
            }
            .into());
        }
        let address = flags
            .parsed("bind-address", "an IP address")?
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let file = |name| flags.value(name).map(PathBuf::from);
        let serving_certificate = match (file("tls-cert-file"), file("tls-private-key-file")) {
            (Some(certificate), Some(key)) => ServingCertificate::Files { certificate, key },
            (None, None) => {
                ServingCertificate::Folder(file("cert-dir").unwrap_or_else(|| "/var/run/kubernetes".into()))
            }
            _ => bail!("--tls-cert-file and --tls-private-key-file require each other: give both or none"),
        };
        let (client_ca_file, token_file) = (file("client-ca-file"), file("token-auth-file"));
        let authorization = authorization(flags)?;
        let has_credentials = client_ca_file.is_some() || token_file.is_some();
        Ok(Self {
            address: SocketAddr::new(address, port),
            serving_certificate,
            client_ca_file,
            request_headers: file("requestheader-client-ca-file").map(|client_ca_file| RequestHeaders {
                client_ca_file,
                lists: REQUEST_HEADER_LISTS
                    .map(|name| (name, flags.list(name).map(str::to_owned).collect()))
                    .into(),
            }),
            token_file,
            anonymous: anonymous(flags, &authorization, has_credentials)?,
            authorization,
            disabled_plugins: admission_flags::disabled(flags)?,
        })
    }

    /// The data of the ConfigMap `kube-system/extension-apiserver-authentication`.
    fn published_authentication(&self) -> anyhow::Result<Vec<(String, String)>> {
        let read = |file: &PathBuf, flag: &str| {
            let text = std::fs::read_to_string(file);
            text.with_context(|| format!("cannot read {} (--{flag})", file.display()))
        };
        let mut data = Vec::new();
        if let Some(file) = &self.client_ca_file {
            let flag = "client-ca-file";
            data.push((flag.to_owned(), read(file, flag)?));
        }
        if let Some(headers) = &self.request_headers {
            let flag = "requestheader-client-ca-file";
            data.push((flag.to_owned(), read(&headers.client_ca_file, flag)?));
            for (name, list) in &headers.lists {
                // Like the real server, without headers for UIDs if none are given.
                if !list.is_empty() || *name != "requestheader-uid-headers" {
                    data.push(((*name).to_owned(), serde_json::to_string(list)?));
                }
            }
        }
        Ok(data)
    }
}

fn authorization(flags: &Flags) -> anyhow::Result<Vec<AuthorizationMode>> {
    let given: Vec<_> = flags.list("authorization-mode").collect();
    let mut modes = Vec::new();
    for (index, mode) in given.iter().enumerate() {
        if given[..index].contains(mode) {
            bail!("--authorization-mode {given:?} has mode specified more than once");
        }
        let mode = match *mode {
            "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
            // Without the node authorizer's rules.
            "RBAC" | "Node" => AuthorizationMode::Rbac,
            "AlwaysDeny" | "ABAC" | "Webhook" => {
                bail!("--authorization-mode={mode} is not supported: use RBAC or AlwaysAllow")
            }
            other => bail!("--authorization-mode {other:?} is not a valid mode: use RBAC or AlwaysAllow"),
        };
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    if modes.is_empty() {
        modes.push(AuthorizationMode::AlwaysAllow);
    }
    Ok(modes)
}

/// Whether requests without credentials are allowed.
///
/// A real server rejects them with `AlwaysAllow`. Here they are rejected only if clients can authenticate with a certificate or
/// token, since no client would get in otherwise, or if the flag says so.
fn anonymous(
    flags: &Flags,
    modes: &[AuthorizationMode],
    has_credentials: bool,
) -> Result<Anonymous, FlagError> {
    let needed = modes.contains(&AuthorizationMode::AlwaysAllow) && has_credentials;
    Ok(match flags.switch("anonymous-auth")? {
        Some(false) => Anonymous::Rejected,
        _ if needed => Anonymous::Rejected,
        _ => Anonymous::Allowed,
    })
}

/// Warnings about flag values that have no effect, or that open the server to others.
fn warnings(flags: &Flags, settings: &Settings) -> Result<Vec<String>, FlagError> {
    let mut found = Vec::new();
    let address = settings.address.ip();
    if !address.is_loopback()
        && settings.anonymous == Anonymous::Allowed
        && settings.authorization.contains(&AuthorizationMode::AlwaysAllow)
    {
        found.push(format!(
            "everyone who reaches {address} is an administrator: with AlwaysAllow and neither --client-ca-file nor \
             --token-auth-file, no credentials are needed; use --bind-address=127.0.0.1 or --authorization-mode=RBAC"
        ));
    }
    if flags.switch("anonymous-auth")? == Some(true) && settings.anonymous == Anonymous::Rejected {
        found.push(
            "--anonymous-auth=true has no effect: with AlwaysAllow, requests without credentials are rejected; \
             use --authorization-mode=RBAC"
                .to_owned(),
        );
    }
    for range in flags.list("service-cluster-ip-range") {
        if range != SERVICE_RANGE {
            found.push(format!(
                "--service-cluster-ip-range={range} has no effect: Services get addresses from {SERVICE_RANGE}"
            ));
        }
    }
    if flags.switch("allow-privileged")? == Some(false) {
        found.push("--allow-privileged=false has no effect: privileged containers are allowed".to_owned());
    }
    found.extend(admission_flags::warnings(flags));
    Ok(found)
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<()> {
    let settings = Settings::from_flags(flags)?;
    for shortcoming in warnings(flags, &settings)? {
        Program::ApiServer.warn(&shortcoming);
    }
    let tls = tls(&settings)?;
    let server = server(&settings)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let stop = stop_signal(flags.value("cert-dir"))?;
            let address = settings.address;
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot listen on {address} (--bind-address, --secure-port)"))?;
            server.serve(listener, tls, stop).await?;
            Ok(())
        })
}

fn tls(settings: &Settings) -> anyhow::Result<Tls> {
    let (chain, key) = settings
        .serving_certificate
        .load(&settings.address.ip().to_string())?;
    let authorities = match &settings.client_ca_file {
        Some(file) => certificate::chain(file, "--client-ca-file")?,
        None => Vec::new(),
    };
    Tls::new(chain, key, authorities).context("cannot use the certificates")
}

fn server(settings: &Settings) -> anyhow::Result<Server> {
    // Which controllers run is up to others; what the server itself does not enforce is not.
    let mut builder = Server::builder()
        .announce_limitations()
        .kubernetes_service(settings.address.port())
        .authorization(settings.authorization.iter().copied());
    if settings.anonymous == Anonymous::Rejected {
        builder = builder.without_anonymous();
    }
    for plugin in &settings.disabled_plugins {
        builder = builder.without_admission_plugin(*plugin);
    }
    builder = builder
        .publish_authentication(settings.published_authentication()?)
        .track_legacy_tokens();
    if let Some(file) = &settings.token_file {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {} (--token-auth-file)", file.display()))?;
        let place = || format!("{} (--token-auth-file)", file.display());
        let TokenFile { tokens, warnings } = TokenFile::parse(&text).with_context(place)?;
        for warning in warnings {
            Program::ApiServer.warn(&format!("{}: {warning}", place()));
        }
        for (token, user) in tokens {
            builder = builder.token(&token, user);
        }
    }
    Ok(builder.build())
}
