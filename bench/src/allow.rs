//! A webhook that allows everything, as cheaply as it can: what a server pays for asking is measured, not what a webhook does.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// The host of the webhook in the process of an embedded server.
pub const HOST: &str = "allow.bench.svc";

/// The path at which it adds a label. At any other it changes nothing.
pub const LABEL_PATH: &str = "/label";

/// `[{"op":"add","path":"/metadata/annotations/seen","value":"yes"}]`
const PATCH: &str =
    "W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2Fubm90YXRpb25zL3NlZW4iLCJ2YWx1ZSI6InllcyJ9XQ==";

/// As much of a review as the answer needs.
#[derive(Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: Question<'a>,
}

#[derive(Deserialize)]
struct Question<'a> {
    uid: &'a str,
}

/// Answers a review in the process.
pub async fn answer(request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
    respond(request.uri().path() == LABEL_PATH, request.body())
}

fn respond(label: bool, review: &[u8]) -> anyhow::Result<Response<Bytes>> {
    let review: Review<'_> = serde_json::from_slice(review)?;
    let patch = if label {
        format!(r#","patchType":"JSONPatch","patch":"{PATCH}""#)
    } else {
        String::new()
    };
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{}","allowed":true{patch}}}}}"#,
        review.request.uid
    );
    Ok(Response::builder()
        .header("content-type", "application/json")
        .body(body.into())?)
}

/// The same webhook over HTTPS, on a thread of its own until the process ends.
pub struct HttpsWebhook {
    /// Where it listens.
    pub address: SocketAddr,
    /// The certificate in PEM, which is its own CA.
    pub certificate: String,
}

impl HttpsWebhook {
    /// Starts it on a free port of loopback.
    pub fn start() -> anyhow::Result<Self> {
        let signed = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("webhook".to_owned())
            .spawn(move || runtime.block_on(serve(listener, TlsAcceptor::from(Arc::new(config)))))
            .context("cannot start a thread")?;
        Ok(Self {
            address,
            certificate: signed.cert.pem(),
        })
    }
}

async fn serve(listener: std::net::TcpListener, tls: TlsAcceptor) -> anyhow::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let tls = tls.clone();
        tokio::spawn(async move {
            let socket = tls.accept(socket).await?;
            http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service_fn(exchange))
                .await?;
            anyhow::Ok(())
        });
    }
}

async fn exchange(request: Request<Incoming>) -> anyhow::Result<Response<Full<Bytes>>> {
    let label = request.uri().path() == LABEL_PATH;
    let review = request.into_body().collect().await?.to_bytes();
    Ok(respond(label, &review)?.map(Full::new))
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn label_is_a_patch() {
        let review = json!({"kind": "AdmissionReview", "request": {"uid": "7", "object": {}}}).to_string();
        let response = respond(true, review.as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(answer["response"]["uid"], "7");
        let patch = STANDARD
            .decode(answer["response"]["patch"].as_str().unwrap())
            .unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch[0]["path"], "/metadata/annotations/seen");
    }
}
