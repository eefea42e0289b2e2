//! Signing keys and ids cannot be predicted from anything that a client can guess.

use std::io;

use http::Request;
use http_body_util::Empty;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tower::ServiceExt;
use windlass_apiserver::{Server, Tls};

use crate::client::{read, send};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// Simulates an attacker who knows the seed of `fastrand`. Creates a server and returns it with a ServiceAccount's UID
/// and token.
async fn server_with_seed(seed: u64) -> (Server, String, String) {
    fastrand::seed(seed);
    let server = Server::builder().rbac().build();
    let (code, account) = read(
        send(
            &server,
            "POST",
            ACCOUNTS,
            None,
            json!({"metadata": {"name": "robot"}}).to_string(),
        )
        .await,
    )
    .await;
    assert_eq!(code, 201, "{account}");
    let (_, issued) = read(send(&server, "POST", &format!("{ACCOUNTS}/robot/token"), None, "{}").await).await;
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let (uid, token) = (
        text(&account["metadata"]["uid"]),
        text(&issued["status"]["token"]),
    );
    (server, uid, token)
}

async fn authenticate(server: &Server, token: &str) -> (u16, String) {
    let request = Request::get("/api")
        .header("authorization", format!("Bearer {token}"))
        .body(Empty::<bytes::Bytes>::new())
        .expect("a request");
    let response = server.authenticated().oneshot(request).await.expect("infallible");
    let audit_id = response.headers()["audit-id"].to_str().expect("text").to_owned();
    (response.status().as_u16(), audit_id)
}

#[tokio::test]
async fn keys_and_ids_do_not_depend_on_the_predictable_generator() {
    let (one, uid, token) = server_with_seed(7).await;
    let (other, other_uid, other_token) = server_with_seed(7).await;
    assert_ne!(uid, other_uid);
    let ((own, audit_id), (foreign, other_audit_id)) = (
        authenticate(&one, &token).await,
        authenticate(&other, &token).await,
    );
    assert_eq!(
        (own, foreign),
        (200, 401),
        "a token is valid only on the server that issued it"
    );
    assert_ne!(audit_id, other_audit_id);
    // The claims differ already by the accounts' UIDs; the signatures show that the keys differ too.
    assert_ne!(token.rsplit('.').next(), other_token.rsplit('.').next());
}

#[tokio::test]
async fn seeded_server_refuses_to_listen_on_a_socket() {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let tls = Tls::new(vec![certificate.der().clone()], key, Vec::new()).expect("they belong together");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");

    let served = Server::seeded(7)
        .rbac()
        .build()
        .serve(listener, tls, std::future::pending());
    let error = served.await.expect_err("its keys can be guessed");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("Server::builder"), "{error}");
}
