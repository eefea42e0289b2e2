//! The servers that a scenario can run on, each behind the same client.

use anyhow::Result;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use windlass_apiserver::{Server, User};
use windlass_cluster::Cluster;

/// The bearer tokens that every server takes, and whose they are: user and group.
const TOKENS: [(&str, &str, &str); 2] = [
    ("conformance-token", "token-user", "token-group"),
    ("other-token", "other-user", "other-group"),
];

/// The two ways to talk to a server.
pub struct Clients {
    /// As its administrator.
    pub admin: Client,
    /// Without credentials, but for those that a request carries itself.
    pub stranger: Client,
}

/// kube-apiserver and etcd. Without controllers, nobody but the scenario writes. Its admission is that of every cluster.
pub async fn real(controllers: bool) -> Result<Cluster> {
    let real = TOKENS.into_iter().fold(
        Cluster::real().service_accounts(),
        |real, (token, user, group)| real.token(token, user, [group]),
    );
    let real = if controllers { real.controllers() } else { real };
    Ok(real.start().await?)
}

/// Clients of a cluster.
pub async fn clients(cluster: &Cluster) -> Result<Clients> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()?)?;
    let mut bare = kubeconfig.clone();
    for user in &mut bare.auth_infos {
        user.auth_info = Some(AuthInfo::default());
    }
    Ok(Clients {
        admin: client(kubeconfig).await?,
        stranger: client(bare).await?,
    })
}

/// A client that hands on every answer as it comes: one that tries again would hide the first.
async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// A new embedded server, in this process and without a socket.
pub fn embedded() -> Clients {
    let with_tokens = TOKENS
        .into_iter()
        .fold(Server::builder().rbac(), |builder, (token, user, group)| {
            builder.token(token, User::new(user, [group]))
        });
    let server = with_tokens.build();
    Clients {
        admin: Client::new(server.clone(), "default"),
        stranger: Client::new(server.guarded(), "default"),
    }
}
