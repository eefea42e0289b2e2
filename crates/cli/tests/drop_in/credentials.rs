//! Authentication and anonymous requests of `kube-apiserver`.

use std::{
    net::{Ipv4Addr, TcpStream, UdpSocket},
    path::Path,
    time::Instant,
};

use serde_json::{Value, json};
use windlass::kube::Client;

use super::{
    POLL_INTERVAL, Program, TIMEOUT,
    api_server::{Authority, client, params, send, wait_until_ok},
    free_port, temp, text, write,
};

/// A server with these flags and its own certificates.
struct Server {
    program: Program,
    port: u16,
    trusted: String,
}

impl Server {
    fn start(folder: &Path, flags: &[String]) -> Self {
        let port = free_port();
        let own = Authority::new();
        let trusted = write(folder, "own-ca.crt", &own.certificate);
        let (certificate, key) = own.sign(&params("apiserver", None));
        let mut all = vec![
            format!("--tls-cert-file={}", write(folder, "own.crt", &certificate)),
            format!("--tls-private-key-file={}", write(folder, "own.key", &key)),
            format!("--secure-port={port}"),
        ];
        all.extend_from_slice(flags);
        let program = Program::start(folder, "kube-apiserver", &all);
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(Instant::now() < deadline, "it does not listen");
            std::thread::sleep(POLL_INTERVAL);
        }
        Self {
            program,
            port,
            trusted,
        }
    }

    async fn client(&self, user: Value) -> Client {
        client(self.port, &self.trusted, user).await
    }

    fn stop(self) -> String {
        self.program.signal("TERM");
        text(&self.program.wait().stderr)
    }
}

/// The client's user name according to the server, or the status code of the error.
async fn whoami(client: &Client) -> Result<String, u16> {
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    match send(client, http::Request::post(path), &review.to_string()).await {
        (201, answer) => {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            Ok(answer["status"]["userInfo"]["username"]
                .as_str()
                .unwrap()
                .to_owned())
        }
        (code, _) => Err(code),
    }
}

/// The status code of an attempt to create a ClusterRole.
async fn create_cluster_role(client: &Client, name: &str) -> u16 {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"metadata": {"name": name}, "rules": []});
    send(client, http::Request::post(path), &role.to_string()).await.0
}

#[tokio::test]
async fn always_allow_authenticates_callers_and_requires_credentials() {
    let folder = temp();
    let at = folder.path();
    let (clients, others) = (Authority::new(), Authority::new());
    let user = |file: &str, authority: &Authority| {
        let (certificate, key) = authority.sign(&params(file, None));
        json!({
            "client-certificate": write(at, &format!("{file}.crt"), &certificate),
            "client-key": write(at, &format!("{file}.key"), &key),
        })
    };
    let server = Server::start(
        at,
        &[
            format!(
                "--client-ca-file={}",
                write(at, "clients.crt", &clients.certificate)
            ),
            format!(
                "--token-auth-file={}",
                write(at, "tokens.csv", "s3cret,carol,7\n")
            ),
            "--anonymous-auth=true".to_owned(),
        ],
    );
    for (who, user, expected) in [
        ("certificate", user("alice", &clients), Ok("alice")),
        ("token", json!({"token": "s3cret"}), Ok("carol")),
        ("nothing", json!({}), Err(401)),
        ("wrong token", json!({"token": "guess"}), Err(401)),
        ("wrong certificate", user("mallory", &others), Err(401)),
    ] {
        let client = server.client(user).await;
        assert_eq!(whoami(&client).await, expected.map(str::to_owned), "{who}");
        let expected = if expected.is_ok() { 201 } else { 401 };
        assert_eq!(
            create_cluster_role(&client, &who.replace(' ', "-")).await,
            expected,
            "{who}"
        );
    }
    let stderr = server.stop();
    assert!(stderr.contains("--anonymous-auth=true has no effect"), "{stderr}");
}

#[tokio::test]
async fn anonymous_requests_depend_on_flags() {
    let folder = temp();
    let at = folder.path();
    let tokens = format!(
        "--token-auth-file={}",
        write(at, "tokens.csv", "s3cret,carol,7,system:masters\n")
    );
    let rbac = "--authorization-mode=RBAC".to_owned();
    for (flags, whoami_code, health, write) in [
        // No client could authenticate, so anonymous requests get in.
        (vec![], Ok("system:anonymous"), 200, 201),
        (vec!["--anonymous-auth=false".to_owned()], Err(401), 401, 401),
        (vec![rbac.clone(), tokens.clone()], Err(403), 200, 403),
        (
            vec![rbac.clone(), tokens.clone(), "--anonymous-auth=false".to_owned()],
            Err(401),
            401,
            401,
        ),
    ] {
        let server = Server::start(at, &flags);
        let unauthenticated = server.client(json!({})).await;
        assert_eq!(
            whoami(&unauthenticated).await,
            whoami_code.map(str::to_owned),
            "{flags:?}"
        );
        let (code, _) = send(&unauthenticated, http::Request::get("/healthz"), "").await;
        assert_eq!(code, health, "{flags:?}");
        assert_eq!(
            create_cluster_role(&unauthenticated, "r").await,
            write,
            "{flags:?}"
        );
        if flags.contains(&tokens) {
            let carol = server.client(json!({"token": "s3cret"})).await;
            wait_until_ok(&carol, "/readyz").await;
            assert_eq!(whoami(&carol).await, Ok("carol".to_owned()), "{flags:?}");
        }
        server.stop();
    }
}

#[tokio::test]
async fn rbac_with_always_allow_has_the_bootstrap_roles_and_allows_everything() {
    let folder = temp();
    let at = folder.path();
    let tokens = format!(
        "--token-auth-file={}",
        write(at, "tokens.csv", "\"s3,cret\",\"carol, c.\",7,\"a,b\"\n")
    );
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin";
    for (modes, role_code, write_code) in [
        ("RBAC,AlwaysAllow", 200, 201),
        ("AlwaysAllow,RBAC", 200, 201),
        ("AlwaysAllow", 404, 201),
        ("RBAC", 403, 403),
    ] {
        let server = Server::start(at, &[tokens.clone(), format!("--authorization-mode={modes}")]);
        let carol = server.client(json!({"token": "s3,cret"})).await;
        wait_until_ok(&carol, "/readyz").await;
        let (code, _) = send(&carol, http::Request::get(role), "").await;
        assert_eq!(code, role_code, "{modes}");
        assert_eq!(create_cluster_role(&carol, "r").await, write_code, "{modes}");
        if write_code == 201 {
            assert_eq!(whoami(&carol).await, Ok("carol, c.".to_owned()), "{modes}");
            // A real server rejects anonymous requests with AlwaysAllow.
            let anonymous = server.client(json!({})).await;
            assert_eq!(whoami(&anonymous).await, Err(401), "{modes}");
        }
        server.stop();
    }
}

#[tokio::test]
async fn disabled_admission_plugins_have_no_effect() {
    let folder = temp();
    let server = Server::start(
        folder.path(),
        &[
            "--disable-admission-plugins=ServiceAccount,Priority,DefaultTolerationSeconds,NamespaceLifecycle"
                .to_owned(),
        ],
    );
    let anyone = server.client(json!({})).await;
    let map = json!({"metadata": {"name": "m"}}).to_string();
    let path = "/api/v1/namespaces/nowhere/configmaps";
    assert_eq!(send(&anyone, http::Request::post(path), &map).await.0, 201);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let path = "/api/v1/namespaces/default/pods";
    let (code, created) = send(&anyone, http::Request::post(path), &pod.to_string()).await;
    assert_eq!(code, 201, "{created}");
    let created: Value = serde_json::from_str(&created).unwrap();
    for field in [
        "priority",
        "preemptionPolicy",
        "tolerations",
        "serviceAccountName",
    ] {
        assert_eq!(created["spec"].get(field), None, "{field}");
    }
    let stderr = server.stop();
    assert!(!stderr.contains("has no effect"), "{stderr}");
}

#[test]
fn server_listens_on_loopback_by_default() {
    // An address of this machine that is not loopback; no packet is sent.
    let own = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    let folder = temp();
    let server = Server::start(folder.path(), &[]);
    if let Ok(own) = own.map(|address| address.ip())
        && !own.is_loopback()
    {
        assert!(TcpStream::connect((own, server.port)).is_err(), "{own}");
    }
    if cfg!(target_os = "linux") {
        // All of 127.0.0.0/8 is loopback, and one address of it does not take the port of another.
        let elsewhere = std::net::TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), server.port));
        assert!(elsewhere.is_ok(), "it listens on every address");
    }
    server.stop();
}
