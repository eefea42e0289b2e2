//! `kube-apiserver`: the embedded API server with the real program's flags.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use windlass_apiserver::{Server, Tls, User};

use super::{
    Program,
    certificate::{self, ServingCertificate},
    flags::{Flag, FlagError, Flags},
    stop_signal,
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
        "RBAC, or AlwaysAllow (default): every authenticated user may do everything; Node counts as RBAC, without the \
         node authorizer's rules",
    ),
    Flag::value("disable-admission-plugins", "only ServiceAccount can be disabled"),
    Flag::value(
        "enable-admission-plugins",
        "no effect: all supported plugins are enabled",
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
    token_file: Option<PathBuf>,
    authorization: Authorization,
    anonymous: Anonymous,
    service_accounts: ServiceAccounts,
}

/// Whether requests without credentials are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anonymous {
    Allowed,
    Rejected,
}

/// The authorization mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Authorization {
    AlwaysAllow,
    Rbac,
}

/// Whether a pod's service account must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceAccounts {
    Required,
    Ignored,
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
            token_file,
            authorization,
            anonymous: anonymous(flags, authorization, has_credentials)?,
            service_accounts: if flags
                .list("disable-admission-plugins")
                .any(|plugin| plugin == "ServiceAccount")
            {
                ServiceAccounts::Ignored
            } else {
                ServiceAccounts::Required
            },
        })
    }
}

fn authorization(flags: &Flags) -> anyhow::Result<Authorization> {
    let mut access = None;
    for mode in flags.list("authorization-mode") {
        match mode {
            "AlwaysAllow" => return Ok(Authorization::AlwaysAllow),
            "RBAC" | "Node" => access = Some(Authorization::Rbac),
            other => bail!("--authorization-mode={other} is not supported: use RBAC or AlwaysAllow"),
        }
    }
    Ok(access.unwrap_or(Authorization::AlwaysAllow))
}

/// Whether requests without credentials are allowed.
///
/// A real server rejects them with `AlwaysAllow`. Here they are rejected only if clients can authenticate with a certificate or
/// token, since no client would get in otherwise, or if the flag says so.
fn anonymous(flags: &Flags, access: Authorization, has_credentials: bool) -> Result<Anonymous, FlagError> {
    let needed = access == Authorization::AlwaysAllow && has_credentials;
    Ok(match flags.switch("anonymous-auth")? {
        Some(false) => Anonymous::Rejected,
        _ if needed => Anonymous::Rejected,
        _ => Anonymous::Allowed,
    })
}

/// Warnings about flag values that have no effect.
fn warnings(flags: &Flags, settings: &Settings) -> Result<Vec<String>, FlagError> {
    let mut found = Vec::new();
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
    for plugin in flags.list("disable-admission-plugins") {
        if plugin != "ServiceAccount" {
            found.push(format!(
                "--disable-admission-plugins={plugin} has no effect: only ServiceAccount can be disabled"
            ));
        }
    }
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
            let stop = stop_signal()?;
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
    let mut builder = Server::builder().kubernetes_service(settings.address.port());
    if settings.authorization == Authorization::Rbac {
        builder = builder.rbac();
    }
    if settings.anonymous == Anonymous::Rejected {
        builder = builder.without_anonymous();
    }
    if settings.service_accounts == ServiceAccounts::Ignored {
        builder = builder.without_service_accounts();
    }
    if let Some(file) = &settings.token_file {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {} (--token-auth-file)", file.display()))?;
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let (token, user) = parse_token(line).with_context(|| {
                format!(
                    "{} (--token-auth-file), line {number}: expected token,user,uid,\"group,group\"",
                    file.display()
                )
            })?;
            builder = builder.token(token, user);
        }
    }
    Ok(builder.build())
}

/// Parses `token,user,uid`, optionally followed by quoted groups.
fn parse_token(line: &str) -> Option<(&str, User)> {
    let mut parts = line.splitn(4, ',').map(str::trim);
    let (token, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    if token.is_empty() || name.is_empty() {
        return None;
    }
    let groups = parts.next().unwrap_or_default().trim_matches('"').split(',');
    let groups = groups.map(str::trim).filter(|group| !group.is_empty());
    let mut user = User::new(name, groups);
    uid.clone_into(&mut user.uid);
    Some((token, user))
}
