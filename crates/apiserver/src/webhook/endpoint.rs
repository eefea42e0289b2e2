//! Where a webhook listens.

use std::sync::{Arc, OnceLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{ca_bundle::ca_bundle_problem, tls, url::WebhookUrl};

/// The port of a service reference without one.
const DEFAULT_PORT: u16 = 443;

/// A parsed `clientConfig`: where a webhook listens, and how it proves that it is the right one.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// `https://host:port/path`, without a query.
    pub(super) url: WebhookUrl,
    /// The name that the certificate must have, and that services in the process are registered under.
    pub(super) host: Box<str>,
    pub(super) port: u16,
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
            let path = text(&reference["path"]);
            let slash = if path.starts_with('/') { "" } else { "/" };
            return Self {
                url: WebhookUrl::configured(&format!("https://{host}:{port}{slash}{path}")),
                host: host.into(),
                port,
                service: Some((namespace.into(), name.into())),
                ca_bundle,
                ca_bundle_problem: OnceLock::new(),
                tls_config: OnceLock::new(),
            };
        }
        let url = WebhookUrl::configured(text(&config["url"]));
        Self {
            host: url.host().into(),
            port: url.port().unwrap_or(DEFAULT_PORT),
            url,
            service: None,
            ca_bundle,
            ca_bundle_problem: OnceLock::new(),
            tls_config: OnceLock::new(),
        }
    }

    /// Where a redirect to this URL leads: it is trusted in the same way.
    pub(super) fn redirected(&self, url: &WebhookUrl) -> Self {
        let (host, port) = (url.host(), url.port().unwrap_or(DEFAULT_PORT));
        let is_same = (host, port) == (&self.host, self.port);
        Self {
            url: url.clone(),
            host: host.into(),
            port,
            service: self.service.clone().filter(|_| is_same),
            ca_bundle: self.ca_bundle.clone(),
            ca_bundle_problem: self.ca_bundle_problem.clone(),
            // That of the first request, so that connections are kept.
            tls_config: self.tls_config.clone(),
        }
    }

    /// Why the CA bundle cannot be used.
    pub(super) fn ca_bundle_problem(&self) -> Option<&str> {
        let problem = || ca_bundle_problem(&self.ca_bundle);
        self.ca_bundle_problem.get_or_init(problem).as_deref()
    }

    /// How to connect: made with the first connection.
    pub(super) fn tls_config(&self) -> Arc<rustls::ClientConfig> {
        let config = || tls::client_config(&self.ca_bundle);
        self.tls_config.get_or_init(config).clone()
    }
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
            assert_eq!(
                (&*endpoint.url.to_string(), &*endpoint.host, endpoint.port),
                (url, host, port)
            );
        }
    }

    #[test]
    fn redirect_keeps_the_trust_and_the_service_of_the_same_address() {
        let endpoint = Endpoint::parse(&json!({"service": {"namespace": "a", "name": "b", "path": "/x"}}));
        let config = endpoint.tls_config();
        let same = endpoint.redirected(&endpoint.url.join("/y").unwrap());
        assert_eq!(&*same.url.to_string(), "https://b.a.svc:443/y");
        assert_eq!(same.service, endpoint.service);
        assert!(Arc::ptr_eq(&same.tls_config(), &config));
        let other = endpoint.redirected(&endpoint.url.join("//c/y").unwrap());
        assert_eq!((&*other.host, other.port, other.service), ("c", 443, None));
    }
}
