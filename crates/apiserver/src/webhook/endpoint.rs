//! Where a webhook listens.

use std::sync::{Arc, OnceLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use windlass_clock::Clock;

use super::{ca_bundle::ca_bundle_problem, tls, url::Url};

/// The port of a service reference without one.
const DEFAULT_PORT: u16 = 443;

/// A parsed `clientConfig`: where a webhook listens, and how it proves that it is the right one.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// `https://host:port/path`
    pub(super) url: Url,
    /// The name that the certificate must have, and that services in the process are registered under.
    pub(super) host: Box<str>,
    /// The namespace and the name of a service.
    pub(super) service: Option<(Box<str>, Box<str>)>,
    /// PEM; empty means the system's certificates.
    ca_bundle: Box<[u8]>,
    ca_bundle_problem: OnceLock<Option<String>>,
    tls_config: OnceLock<Arc<rustls::ClientConfig>>,
}

impl Endpoint {
    /// Reads a valid `clientConfig`.
    pub(crate) fn parse(config: &Value) -> Self {
        let ca_bundle = STANDARD.decode(text(&config["caBundle"])).unwrap_or_default();
        let ca_bundle = ca_bundle.into();
        let reference = &config["service"];
        if reference.is_object() {
            let (namespace, name) = (text(&reference["namespace"]), text(&reference["name"]));
            let port = reference["port"]
                .as_u64()
                .and_then(|port| u16::try_from(port).ok());
            let port = port.unwrap_or(DEFAULT_PORT);
            let host = format!("{name}.{namespace}.svc");
            // Both parts of the host are names, and the path has been validated.
            let url = format!("https://{host}:{port}/{}", text(&reference["path"]));
            return Self {
                url: parsed(&url),
                host: host.into(),
                service: Some((namespace.into(), name.into())),
                ca_bundle,
                ca_bundle_problem: OnceLock::new(),
                tls_config: OnceLock::new(),
            };
        }
        let url = parsed(text(&config["url"]));
        Self {
            host: url.hostname().into(),
            url,
            service: None,
            ca_bundle,
            ca_bundle_problem: OnceLock::new(),
            tls_config: OnceLock::new(),
        }
    }

    /// Why the CA bundle cannot be used.
    pub(super) fn ca_bundle_problem(&self) -> Option<&str> {
        let problem = || ca_bundle_problem(&self.ca_bundle);
        self.ca_bundle_problem.get_or_init(problem).as_deref()
    }

    /// How to connect: made with the first connection.
    pub(super) fn tls_config(&self, clock: Clock) -> Arc<rustls::ClientConfig> {
        let config = || tls::client_config(&self.ca_bundle, clock);
        self.tls_config.get_or_init(config).clone()
    }
}

/// The URL of a webhook: only its scheme, its host and its path, without needless steps, as client-go makes it.
fn parsed(url: &str) -> Url {
    let mut url = Url::parse(url).unwrap_or_default();
    url.clean_path();
    url.query.clear();
    url.fragment.clear();
    url
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoint_has_the_url_that_messages_show_and_the_name_of_the_certificate() {
        for (config, url, host, port) in [
            (
                json!({"url": "https://127.0.0.1:1/x"}),
                "https://127.0.0.1:1/x",
                "127.0.0.1",
                1,
            ),
            (
                json!({"url": "https://hooks.io"}),
                "https://hooks.io/",
                "hooks.io",
                443,
            ),
            (
                json!({"url": "https://[::1]:9/a/b"}),
                "https://[::1]:9/a/b",
                "::1",
                9,
            ),
            (
                json!({"service": {"namespace": "default", "name": "nope", "path": "/x", "port": 443}}),
                "https://nope.default.svc:443/x",
                "nope.default.svc",
                443,
            ),
            (
                json!({"service": {"namespace": "a", "name": "b", "port": 8443}}),
                "https://b.a.svc:8443/",
                "b.a.svc",
                8443,
            ),
        ] {
            let endpoint = Endpoint::parse(&config);
            assert_eq!((&*endpoint.url.to_string(), &*endpoint.host), (url, host));
            let of_url = endpoint.url.port().parse().unwrap_or(DEFAULT_PORT);
            assert_eq!(of_url, port, "{url}");
        }
    }
}
