//! The servers on which scenarios run, behind the same client type.

use anyhow::Result;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use windlass_apiserver::{Server, User};
use windlass_cluster::Cluster;

/// Static bearer tokens of every server: token, user and group.
const TOKENS: [(&str, &str, &str); 2] = [
    ("conformance-token", "token-user", "token-group"),
    ("other-token", "other-user", "other-group"),
];

/// The two clients of a server.
pub struct Clients {
    /// Authenticated as administrator.
    pub admin: Client,
    /// Without credentials, except those that a request contains.
    pub anonymous: Client,
}

/// Starts kube-apiserver and etcd with default admission. Without controllers, only the scenario writes.
pub async fn real(controllers: bool) -> Result<Cluster> {
    let real = TOKENS.into_iter().fold(
        Cluster::real().service_accounts(),
        |real, (token, user, group)| real.token(token, user, [group]),
    );
    let real = if controllers { real.controllers() } else { real };
    Ok(real.start().await?)
}

/// Creates the clients of a cluster.
pub async fn clients(cluster: &Cluster) -> Result<Clients> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()?)?;
    let mut bare = kubeconfig.clone();
    for user in &mut bare.auth_infos {
        user.auth_info = Some(AuthInfo::default());
    }
    Ok(Clients {
        admin: client(kubeconfig).await?,
        anonymous: client(bare).await?,
    })
}

/// Creates a client without retries, which would hide the first response.
async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// Creates an embedded server in this process, without a socket.
pub fn embedded() -> Clients {
    let with_tokens = TOKENS
        .into_iter()
        .fold(Server::builder().rbac(), |builder, (token, user, group)| {
            builder.token(token, User::new(user, [group]))
        });
    let server = with_tokens.build();
    Clients {
        admin: Client::new(server.clone(), "default"),
        anonymous: Client::new(server.authenticated(), "default"),
    }
}
