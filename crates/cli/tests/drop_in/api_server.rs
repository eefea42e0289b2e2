//! `kube-apiserver`.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    time::Instant,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use windlass::kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::{POLL_INTERVAL, Program, TIMEOUT, free_port, temp, text, write};

/// A certificate authority, like envtest's.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) certificate: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = params("authority", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, certificate }
    }

    /// Signs a certificate, and returns it with its key.
    pub(super) fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (
            params.signed_by(&key, &self.issuer).unwrap().pem(),
            key.serialize_pem(),
        )
    }
}

pub(super) fn params(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params
}

/// The flags that envtest passes.
fn flags(folder: &Path, port: u16) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", folder.display()),
        format!("--client-ca-file={}", file("client-cert-auth-ca.crt")),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--etcd-servers=http://127.0.0.1:1".to_owned(),
        format!("--secure-port={port}"),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        format!("--service-account-key-file={}", file("sa-signer.crt")),
        format!("--service-account-signing-key-file={}", file("sa-signer.key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
    ]
}

/// A client that trusts `authority`; `user` is the user entry of a kubeconfig.
pub(super) async fn client(port: u16, authority: &str, user: Value) -> Client {
    let kubeconfig: Kubeconfig = serde_json::from_value(json!({
        "clusters": [{"name": "c", "cluster": {"server": format!("https://127.0.0.1:{port}"), "certificate-authority": authority}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }))
    .unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}

/// Sends a request, and returns the status code and body of the response.
pub(super) async fn send(client: &Client, request: http::request::Builder, body: &str) -> (u16, String) {
    let request = request
        .header("Content-Type", "application/json")
        .body(body.as_bytes().to_vec().into())
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap();
    (code, text(&body.to_bytes()))
}

pub(super) async fn wait_until_ok(client: &Client, path: &str) {
    let deadline = Instant::now() + TIMEOUT;
    let request = || http::Request::get(path).body(Vec::new()).unwrap();
    while client.request_text(request()).await.is_err() {
        assert!(Instant::now() < deadline, "{path} did not succeed in time");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test]
async fn server_uses_given_certificates_and_client_ca() {
    let (folder, port) = (temp(), free_port());
    let at = folder.path();
    let (serving, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let trusted = write(at, "ca.crt", &serving.certificate);
    let (certificate, key) = serving.sign(&params("apiserver", None));
    write(at, "apiserver.crt", &certificate);
    write(at, "apiserver.key", &key);
    write(at, "client-cert-auth-ca.crt", &clients.certificate);
    let mut flags = flags(at, port);
    flags.push("--feature-gates=Something=true".to_owned());
    flags.push("--runtime-config".to_owned());
    flags.push("api/all=true".to_owned());
    let server = Program::start(at, "kube-apiserver", &flags);

    let user = |file: &str, authority: &Authority, group: Option<&str>| {
        let (certificate, key) = authority.sign(&params(file, group));
        json!({
            "client-certificate": write(at, &format!("{file}.crt"), &certificate),
            "client-key": write(at, &format!("{file}.key"), &key),
        })
    };
    let anonymous = client(port, &trusted, json!({})).await;
    wait_until_ok(&anonymous, "/healthz").await;
    wait_until_ok(&anonymous, "/readyz").await;

    let admin = client(port, &trusted, user("admin", &clients, Some("system:masters"))).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]},
    });
    let (code, answer) = send(&admin, http::Request::post(pods), &pod.to_string()).await;
    assert_eq!(code, 201, "no service account is required: {answer}");
    let own = "/api/v1/namespaces/default/services/kubernetes";
    let (code, answer) = send(&admin, http::Request::get(own), "").await;
    assert_eq!(code, 200, "{answer}");
    let own: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(own["spec"]["clusterIP"], "10.0.0.1");
    assert_eq!(own["spec"]["ports"][0]["targetPort"], port);

    let alice = client(port, &trusted, user("alice", &clients, None)).await;
    let mallory = client(port, &trusted, user("mallory", &others, Some("system:masters"))).await;
    for (who, client, code) in [
        ("nobody", &anonymous, 403),
        ("alice", &alice, 403),
        ("mallory", &mallory, 401),
    ] {
        let (answered, answer) = send(client, http::Request::get(pods), "").await;
        assert_eq!(answered, code, "{who}: {answer}");
    }

    server.signal("TERM");
    let output = server.wait();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stderr),
        "kube-apiserver: warning: --feature-gates is not supported and has no effect\n\
         kube-apiserver: warning: --runtime-config is not supported and has no effect\n",
    );
    assert!(
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok(),
        "the port is free again"
    );
}

#[tokio::test]
async fn server_creates_missing_certificate_and_accepts_tokens() {
    let (folder, port) = (temp(), free_port());
    let at = folder.path();
    let tokens = write(
        at,
        "tokens.csv",
        "s3cret,carol,7,\"system:masters,crew\"\n\nplain,dave,8\n",
    );
    let made = at.join("made");
    let server = Program::start(
        at,
        "kube-apiserver",
        &[
            "--bind-address".to_owned(),
            "127.0.0.1".to_owned(),
            format!("--cert-dir={}", made.display()),
            format!("--secure-port={port}"),
            format!("--token-auth-file={tokens}"),
            "--authorization-mode=Node,RBAC".to_owned(),
        ],
    );
    let certificate = made.join("apiserver.crt");
    let deadline = Instant::now() + TIMEOUT;
    while !std::fs::read_to_string(&certificate).is_ok_and(|pem| pem.contains("END CERTIFICATE")) {
        assert!(Instant::now() < deadline, "no certificate was made");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let trusted = certificate.to_str().unwrap();
    let carol = client(port, trusted, json!({"token": "s3cret"})).await;
    wait_until_ok(&carol, "/readyz").await;
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, answer) = send(&carol, http::Request::post(path), &review.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        answer["status"]["userInfo"],
        json!({"username": "carol", "uid": "7", "groups": ["system:masters", "crew", "system:authenticated"]})
    );
    // A pod's service account must exist, unless the plugin is disabled.
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    let (code, answer) = send(&carol, http::Request::post(pods), &pod.to_string()).await;
    assert_eq!(code, 403, "{answer}");
    for (token, code) in [("plain", 403), ("wrong", 401)] {
        let client = client(port, trusted, json!({"token": token})).await;
        let (answered, answer) = send(&client, http::Request::get(pods), "").await;
        assert_eq!(answered, code, "{token}: {answer}");
    }
    server.signal("INT");
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn api_server_errors_name_the_flag() {
    let folder = temp();
    let at = folder.path();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let empty = write(at, "empty", "");
    let made = format!("--cert-dir={}", at.join("made").display());
    let cases: [(&[&str], &[&str]); 11] = [
        // An address of no machine: the server warns, and then cannot listen.
        (
            &["--bind-address=192.0.2.1", &made],
            &[
                "everyone who reaches 192.0.2.1 is an administrator",
                "cannot listen on 192.0.2.1:",
            ],
        ),
        (
            &[
                "--bind-address=127.0.0.1",
                &format!("--secure-port={port}"),
                &made,
            ],
            &["cannot listen on 127.0.0.1:", "--secure-port"],
        ),
        (&["--secure-port=0"], &["--secure-port", "a port from 1 to 65535"]),
        (&["--secure-port"], &["flag needs an argument: --secure-port"]),
        (&["--bind-address=here"], &["--bind-address", "an IP address"]),
        (
            &["--tls-cert-file=x"],
            &["--tls-private-key-file", "give both or none"],
        ),
        (
            &["--client-ca-file=/nowhere", &made],
            &["/nowhere", "--client-ca-file"],
        ),
        (
            &[&format!("--client-ca-file={empty}"), &made],
            &["has no certificate", "--client-ca-file"],
        ),
        (
            &["--authorization-mode=Webhook"],
            &["Webhook", "RBAC or AlwaysAllow"],
        ),
        (
            &["--authorization-mode=RBAC,RBAC"],
            &["RBAC", "specified more than once"],
        ),
        (
            &["--disable-admission-plugins=Nothing"],
            &["--disable-admission-plugins", "\"Nothing\" is unknown"],
        ),
    ];
    for (flags, parts) in cases {
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let output = Program::start(at, "kube-apiserver", &flags).wait();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{flags:?}: {stderr}");
        }
    }
}

#[test]
fn help_and_version_work_for_envtest() {
    let folder = temp();
    for (name, listed, version) in [
        ("etcd", "--unsafe-no-fsync", "etcd Version: "),
        ("kube-apiserver", "--secure-port", "Kubernetes v"),
    ] {
        let help = Program::start(folder.path(), name, &["--help".to_owned()]).wait();
        assert!(help.status.success());
        let help = text(&help.stdout);
        assert!(
            help.lines().any(|line| line.trim_start().starts_with(listed)),
            "{help}"
        );
        let output = Program::start(folder.path(), name, &["--version".to_owned()]).wait();
        assert!(text(&output.stdout).starts_with(version));
    }
}
