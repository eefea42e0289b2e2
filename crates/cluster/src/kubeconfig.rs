//! Builds kubeconfigs, and clients from them.

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{Error, authority::CertifiedKey};

/// File name of the administrator's kubeconfig in the cluster's folder.
pub(crate) const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";

/// Builds a kubeconfig with a client certificate. It refers to no other file, so it can be copied.
pub(crate) fn with_certificate(
    server: &str,
    authority: &str,
    user: &str,
    identity: &CertifiedKey,
) -> Kubeconfig {
    let data = |pem: &str| STANDARD.encode(pem);
    with_single_context(
        &json!({ "server": server, "certificate-authority-data": data(authority) }),
        user,
        &json!({ "client-certificate-data": data(&identity.certificate), "client-key-data": data(&identity.key) }),
    )
}

/// The extension by which our kubeconfigs are recognised. Other programs keep it, and do not look at it.
const WRITTEN_BY_US: &str = "windlass.dev/written-by-windlass";

/// Builds a kubeconfig with one cluster, one user, and the context `windlass`.
pub(crate) fn with_single_context(cluster: &Value, user: &str, credentials: &Value) -> Kubeconfig {
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "windlass", "cluster": cluster }],
        "users": [{ "name": user, "user": credentials }],
        "contexts": [{ "name": "windlass", "context": { "cluster": "windlass", "user": user } }],
        "current-context": "windlass",
        "extensions": [{ "name": WRITTEN_BY_US, "extension": {} }],
    }))
    .expect("the fields are those of a kubeconfig")
}

/// Returns whether we wrote this kubeconfig, and nothing was added to it since.
pub(crate) fn is_ours(kubeconfig: &Kubeconfig) -> bool {
    let mut extensions = kubeconfig.extensions.iter().flatten();
    let is_marked = extensions.any(|one| one.name == WRITTEN_BY_US);
    let is_single =
        kubeconfig.contexts.len() == 1 && kubeconfig.current_context.as_deref() == Some("windlass");
    is_marked && is_single
}

/// Serializes a kubeconfig as JSON, which is valid YAML.
pub(crate) fn to_json(kubeconfig: &Kubeconfig) -> String {
    serde_json::to_string_pretty(kubeconfig).expect("a kubeconfig has string keys only")
}

/// Builds the client configuration. `origin` names the kubeconfig in errors.
pub(crate) async fn config(kubeconfig: Kubeconfig, origin: &str) -> Result<Config, Error> {
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|source| Error::KubeconfigInvalid {
            origin: origin.to_owned(),
            source,
        })
}

/// Creates a client, without sending a request.
pub(crate) fn client(config: Config) -> Result<Client, Error> {
    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| Error::Unreachable {
        server,
        source: Box::new(source),
    })
}
