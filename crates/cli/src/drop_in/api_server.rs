//! `kube-apiserver`: the embedded API server behind a real one's flags.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use windlass_apiserver::{Server, Tls, User};

use super::{
    Part,
    certificate::{self, Own},
    flags::{Flag, Flags, Mistake},
    told_to_stop,
};

/// What envtest passes, and what its users are likely to add.
pub(super) const FLAGS: &[Flag] = &[
    Flag::value("secure-port", "the port for HTTPS (default 6443)"),
    Flag::value("bind-address", "the address to serve on (default 127.0.0.1)"),
    Flag::value(
        "cert-dir",
        "where apiserver.crt and apiserver.key are, or are made (default /var/run/kubernetes)",
    ),
    Flag::value(
        "tls-cert-file",
        "the certificate to show, instead of the one in --cert-dir",
    ),
    Flag::value("tls-private-key-file", "the key of --tls-cert-file"),
    Flag::value("client-ca-file", "whose client certificates prove who comes"),
    Flag::switch(
        "anonymous-auth",
        "requests without credentials are made by system:anonymous (default), except with AlwaysAllow and \
         --client-ca-file or --token-auth-file: then credentials are needed",
    ),
    Flag::value(
        "token-auth-file",
        "bearer tokens: lines of token,user,uid,\"group,group\"",
    ),
    Flag::value(
        "authorization-mode",
        "RBAC, or AlwaysAllow (default): everybody may do everything, as themselves; Node is RBAC without the node's \
         own rules",
    ),
    Flag::value("disable-admission-plugins", "ServiceAccount can be turned off"),
    Flag::value(
        "enable-admission-plugins",
        "taken, without effect: those that there are, are on",
    ),
    Flag::value(
        "service-account-issuer",
        "taken, without effect: tokens have an issuer of the server's own",
    ),
    Flag::value(
        "service-account-key-file",
        "taken, without effect: tokens are signed with a key of the server's own",
    ),
    Flag::value(
        "service-account-signing-key-file",
        "taken, without effect: tokens are signed with a key of the server's own",
    ),
    Flag::value(
        "service-cluster-ip-range",
        "10.0.0.0/24 is the only range that there is",
    ),
    Flag::value(
        "etcd-servers",
        "taken, without effect: objects live in this process",
    ),
    Flag::value("advertise-address", "taken, without effect"),
    Flag::value("endpoint-reconciler-type", "taken, without effect"),
    Flag::value("v", "taken, without effect: set RUST_LOG to see more"),
    Flag::switch("allow-privileged", "privileged containers are always allowed"),
    Flag::switch("version", "say which version this stands in for"),
    Flag::switch("help", "this text"),
    Flag::switch("h", "this text"),
];

/// What the services of the embedded server get their addresses from.
const SERVICE_RANGE: &str = "10.0.0.0/24";

/// What the flags ask for.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    address: SocketAddr,
    own: Own,
    client_authorities: Option<PathBuf>,
    tokens: Option<PathBuf>,
    access: Access,
    anonymous: Anonymous,
    accounts: Accounts,
}

/// What requests without credentials are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anonymous {
    Allowed,
    Refused,
}

/// Who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Everything,
    Rbac,
}

/// Whether pods need a service account that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accounts {
    Needed,
    Ignored,
}

impl Settings {
    fn of(flags: &Flags) -> anyhow::Result<Self> {
        let port = flags
            .parsed("secure-port", "a port from 1 to 65535")?
            .unwrap_or(6443);
        if port == 0 {
            return Err(Mistake::Value {
                name: "secure-port",
                value: "0".to_owned(),
                expected: "a port from 1 to 65535",
            }
            .into());
        }
        let address = flags
            .parsed("bind-address", "an IP address")?
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let file = |name| flags.last(name).map(PathBuf::from);
        let own = match (file("tls-cert-file"), file("tls-private-key-file")) {
            (Some(certificate), Some(key)) => Own::Files { certificate, key },
            (None, None) => Own::Folder(file("cert-dir").unwrap_or_else(|| "/var/run/kubernetes".into())),
            _ => bail!("--tls-cert-file and --tls-private-key-file belong together: give both or none"),
        };
        let (client_authorities, tokens) = (file("client-ca-file"), file("token-auth-file"));
        let access = access(flags)?;
        let has_credentials = client_authorities.is_some() || tokens.is_some();
        Ok(Self {
            address: SocketAddr::new(address, port),
            own,
            client_authorities,
            tokens,
            access,
            anonymous: anonymous(flags, access, has_credentials)?,
            accounts: if flags
                .list("disable-admission-plugins")
                .any(|plugin| plugin == "ServiceAccount")
            {
                Accounts::Ignored
            } else {
                Accounts::Needed
            },
        })
    }
}

fn access(flags: &Flags) -> anyhow::Result<Access> {
    let mut access = None;
    for mode in flags.list("authorization-mode") {
        match mode {
            "AlwaysAllow" => return Ok(Access::Everything),
            "RBAC" | "Node" => access = Some(Access::Rbac),
            other => bail!("--authorization-mode={other} is not there: take RBAC or AlwaysAllow"),
        }
    }
    Ok(access.unwrap_or(Access::Everything))
}

/// Whether requests without credentials are answered.
///
/// A real server refuses them wherever everybody may do everything. Without a file that could prove anybody's identity
/// nobody would get in, so that here they are refused only if there is one, or if the flag says so.
fn anonymous(flags: &Flags, access: Access, has_credentials: bool) -> Result<Anonymous, Mistake> {
    let needed = access == Access::Everything && has_credentials;
    Ok(match flags.switch("anonymous-auth")? {
        Some(false) => Anonymous::Refused,
        _ if needed => Anonymous::Refused,
        _ => Anonymous::Allowed,
    })
}

/// What is asked for and will not happen.
fn shortcomings(flags: &Flags, settings: &Settings) -> Result<Vec<String>, Mistake> {
    let mut found = Vec::new();
    if flags.switch("anonymous-auth")? == Some(true) && settings.anonymous == Anonymous::Refused {
        found.push(
            "--anonymous-auth=true has no effect: with AlwaysAllow, requests without credentials are refused; \
             take --authorization-mode=RBAC"
                .to_owned(),
        );
    }
    for range in flags.list("service-cluster-ip-range") {
        if range != SERVICE_RANGE {
            found.push(format!(
                "--service-cluster-ip-range={range} has no effect: services get addresses from {SERVICE_RANGE}"
            ));
        }
    }
    if flags.switch("allow-privileged")? == Some(false) {
        found.push("--allow-privileged=false has no effect: privileged containers are allowed".to_owned());
    }
    for plugin in flags.list("disable-admission-plugins") {
        if plugin != "ServiceAccount" {
            found.push(format!(
                "--disable-admission-plugins={plugin} has no effect: only ServiceAccount can be turned off"
            ));
        }
    }
    Ok(found)
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<()> {
    let settings = Settings::of(flags)?;
    for shortcoming in shortcomings(flags, &settings)? {
        Part::ApiServer.warn(&shortcoming);
    }
    let tls = tls(&settings)?;
    let server = server(&settings)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let stop = told_to_stop()?;
            let address = settings.address;
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot listen on {address} (--bind-address, --secure-port)"))?;
            server.serve(listener, tls, stop).await?;
            Ok(())
        })
}

fn tls(settings: &Settings) -> anyhow::Result<Tls> {
    let (chain, key) = settings.own.identity(&settings.address.ip().to_string())?;
    let authorities = match &settings.client_authorities {
        Some(file) => certificate::chain(file, "--client-ca-file")?,
        None => Vec::new(),
    };
    Tls::new(chain, key, authorities).context("the certificates cannot be used")
}

fn server(settings: &Settings) -> anyhow::Result<Server> {
    let mut builder = Server::builder().service(settings.address.port());
    if settings.access == Access::Rbac {
        builder = builder.rbac();
    }
    if settings.anonymous == Anonymous::Refused {
        builder = builder.without_anonymous();
    }
    if settings.accounts == Accounts::Ignored {
        builder = builder.without_service_accounts();
    }
    if let Some(file) = &settings.tokens {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {} (--token-auth-file)", file.display()))?;
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let (token, user) = token(line).with_context(|| {
                format!(
                    "{} (--token-auth-file), line {number}: not of the form token,user,uid,\"group,group\"",
                    file.display()
                )
            })?;
            builder = builder.token(token, user);
        }
    }
    Ok(builder.build())
}

/// `token,user,uid` and perhaps groups in quotes.
fn token(line: &str) -> Option<(&str, User)> {
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
