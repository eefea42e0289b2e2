//! Kubeconfigs: what they look like for our own servers, and how a client comes out of one.

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{Error, authority::Identity};

/// The file that holds the administrator's, in the folder of every cluster.
pub(crate) const ADMINISTRATOR: &str = "admin.kubeconfig";

/// For a user with a client certificate. It refers to no other file, so that it can be copied.
pub(crate) fn with_certificate(server: &str, authority: &str, user: &str, identity: &Identity) -> Kubeconfig {
    let data = |pem: &str| STANDARD.encode(pem);
    single(
        &json!({ "server": server, "certificate-authority-data": data(authority) }),
        user,
        &json!({ "client-certificate-data": data(&identity.certificate), "client-key-data": data(&identity.key) }),
    )
}

/// One cluster, one user, and the context `windlass` that joins them.
pub(crate) fn single(cluster: &Value, user: &str, credentials: &Value) -> Kubeconfig {
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "windlass", "cluster": cluster }],
        "users": [{ "name": user, "user": credentials }],
        "contexts": [{ "name": "windlass", "context": { "cluster": "windlass", "user": user } }],
        "current-context": "windlass",
    }))
    .expect("the fields are those of a kubeconfig")
}

/// The file's text. Kubeconfigs are YAML, of which JSON is a part.
pub(crate) fn text(kubeconfig: &Kubeconfig) -> String {
    serde_json::to_string_pretty(kubeconfig).expect("a kubeconfig has string keys only")
}

/// The configuration of a client. `origin` is what an error calls the kubeconfig.
pub(crate) async fn config(kubeconfig: Kubeconfig, origin: &str) -> Result<Config, Error> {
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|source| Error::KubeconfigInvalid {
            origin: origin.to_owned(),
            source,
        })
}

/// A client that has not said anything yet.
pub(crate) fn client(config: Config) -> Result<Client, Error> {
    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| Error::Unreachable {
        server,
        source: Box::new(source),
    })
}
