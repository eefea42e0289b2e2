//! Broken assets, servers and kubeconfigs: each causes one clear error and leaves nothing behind.
//! The servers are shell scripts, so no control plane is needed.

use crate::leftovers;

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use leftovers::ClusterFolder;
use windlass_cluster::{Cluster, Error, Real};

/// Creates the socket that shows that etcd is ready, and keeps running.
const GOOD_ETCD: &str = "#!/bin/sh\n: > etcd.sock\nexec sleep 1000\n";
const NEVER_READY: &str = "#!/bin/sh\nexec sleep 1000\n";
const PORT_IN_USE_API_SERVER: &str =
    "#!/bin/sh\necho start >> \"$0.starts\"\necho 'listen tcp: bind: address already in use'\nexit 1\n";

/// A folder with programs, and a temporary folder for the clusters that use them.
struct TestAssets {
    assets: tempfile::TempDir,
    temp_dir: ClusterFolder,
}

impl TestAssets {
    fn with(programs: &[(&str, &[u8])]) -> Self {
        let assets = tempfile::tempdir().unwrap();
        for (name, content) in programs {
            write_program(&assets.path().join(name), content);
        }
        Self {
            assets,
            temp_dir: ClusterFolder::new(),
        }
    }

    fn cluster(&self) -> Real {
        Cluster::real()
            .assets(self.assets.path())
            .temp_dir(self.temp_dir.path())
    }

    /// Returns the error of a start, and checks that it left nothing behind.
    async fn error(&self, cluster: Real) -> Error {
        let error = cluster.start().await.expect_err("the start must fail");
        assert_eq!(self.temp_dir.leftovers(), Vec::<String>::new(), "after: {error}");
        error
    }
}

/// Writes an executable file with another process. If this process wrote it, a child that another test forks at that
/// moment would inherit the open file, and running it would fail with "text file busy".
fn write_program(path: &Path, content: &[u8]) {
    let mut writer = Command::new("/bin/sh")
        .args(["-c", r#"cat > "$1" && chmod 755 "$1""#, "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(content).unwrap();
    assert!(writer.wait().unwrap().success());
}

#[track_caller]
fn assert_contains(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[tokio::test]
async fn empty_assets_folder_error_names_folder_and_build() {
    let trial = TestAssets::with(&[]);
    let error = trial.error(trial.cluster()).await;
    assert!(
        matches!(error, Error::MissingBinary { binary: "etcd", .. }),
        "{error}"
    );
    assert_contains(
        &error,
        &[
            trial.assets.path().to_str().unwrap(),
            "hack/control-plane/build etcd",
        ],
    );
}

#[tokio::test]
async fn envtest_assets_error_names_missing_controllers() {
    let envtest: [(&str, &[u8]); 3] = [
        ("etcd", GOOD_ETCD.as_bytes()),
        ("kube-apiserver", b""),
        ("kubectl", b""),
    ];
    let trial = TestAssets::with(&envtest);
    for (cluster, binary) in [
        (trial.cluster().controllers(), "kube-controller-manager"),
        (trial.cluster().scheduler(), "kube-scheduler"),
    ] {
        let error = trial.error(cluster).await;
        assert_contains(
            &error,
            &[
                binary,
                "setup-envtest fetches only",
                &format!("hack/control-plane/build {binary}"),
            ],
        );
    }
}

#[tokio::test]
async fn programs_for_another_architecture_are_detected() {
    // An ELF header for a nonexistent machine type, and a file that is not a program.
    let mut elf = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xfe\xfe\x01\0\0\0\0\0\0\0\0\0\0\0";
    elf[24] = 1;
    let contents: [&[u8]; 2] = [&elf, b"\x00\x01\x02\x03 not a program"];
    for content in contents {
        let trial = TestAssets::with(&[("etcd", content), ("kube-apiserver", content)]);
        let error = trial.error(trial.cluster()).await;
        assert!(matches!(error, Error::WrongArchitecture { .. }), "{error}");
        assert_contains(
            &error,
            &["etcd", "hack/control-plane/build", "setup-envtest use --os"],
        );
    }
}

#[tokio::test]
async fn non_executable_file_error_names_the_file() {
    let trial = TestAssets::with(&[("kube-apiserver", b"")]);
    fs::write(trial.assets.path().join("etcd"), GOOD_ETCD).unwrap();
    let error = trial.error(trial.cluster()).await;
    assert!(matches!(error, Error::Spawn { .. }), "{error}");
    assert_contains(
        &error,
        &["etcd", "Permission denied", "check that it is executable"],
    );
}

#[tokio::test]
async fn etcd_exit_error_shows_end_of_log() {
    let dying = "#!/bin/sh\nseq 1 100\necho 'the disk is on fire' >&2\nexit 7\n";
    let trial = TestAssets::with(&[("etcd", dying.as_bytes()), ("kube-apiserver", b"")]);
    let error = trial.error(trial.cluster()).await;
    assert!(matches!(error, Error::Exited { server: "etcd", .. }), "{error}");
    assert_contains(
        &error,
        &[
            "etcd ended during start",
            "exit status: 7",
            "\n100\nthe disk is on fire",
        ],
    );
    assert!(
        !error.to_string().contains("\n50\n"),
        "only the end of the log: {error}"
    );
}

#[tokio::test]
async fn api_server_exit_stops_etcd() {
    let dying = "#!/bin/sh\necho 'unknown flag: --nonsense' >&2\nexit 1\n";
    let trial = TestAssets::with(&[
        ("etcd", GOOD_ETCD.as_bytes()),
        ("kube-apiserver", dying.as_bytes()),
    ]);
    let error = trial.error(trial.cluster()).await;
    assert!(
        matches!(
            error,
            Error::Exited {
                server: "kube-apiserver",
                ..
            }
        ),
        "{error}"
    );
    assert_contains(&error, &["unknown flag: --nonsense"]);
}

#[tokio::test]
async fn later_etcd_exit_is_detected() {
    let short_lived = "#!/bin/sh\n: > etcd.sock\nsleep 0.2\necho 'no space left' >&2\nexit 1\n";
    let trial = TestAssets::with(&[
        ("etcd", short_lived.as_bytes()),
        ("kube-apiserver", NEVER_READY.as_bytes()),
    ]);
    let error = trial.error(trial.cluster()).await;
    assert!(matches!(error, Error::Exited { server: "etcd", .. }), "{error}");
    assert_contains(&error, &["no space left"]);
}

#[tokio::test]
async fn unready_servers_are_stopped_at_the_deadline() {
    for (etcd, waiting_for) in [(NEVER_READY, "etcd"), (GOOD_ETCD, "kube-apiserver")] {
        let trial = TestAssets::with(&[
            ("etcd", etcd.as_bytes()),
            ("kube-apiserver", NEVER_READY.as_bytes()),
        ]);
        let error = trial
            .error(trial.cluster().ready_within(Duration::from_millis(300)))
            .await;
        assert!(
            matches!(error, Error::NotReady { server, .. } if server == waiting_for),
            "{error}"
        );
        assert_contains(
            &error,
            &["not ready after 300ms", "ready_within", "(the log is empty)"],
        );
    }
}

#[tokio::test]
async fn cancelled_start_leaves_nothing_behind() {
    let trial = TestAssets::with(&[
        ("etcd", GOOD_ETCD.as_bytes()),
        ("kube-apiserver", NEVER_READY.as_bytes()),
    ]);
    let start = trial.cluster().start();
    assert!(
        tokio::time::timeout(Duration::from_millis(300), start)
            .await
            .is_err()
    );
    assert_eq!(trial.temp_dir.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn port_in_use_error_names_the_port() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let trial = TestAssets::with(&[
        ("etcd", GOOD_ETCD.as_bytes()),
        ("kube-apiserver", NEVER_READY.as_bytes()),
    ]);
    let error = trial.error(trial.cluster().port(port)).await;
    assert!(
        matches!(error, Error::PortTaken { port: named } if named == port),
        "{error}"
    );
    assert_contains(&error, &[&port.to_string(), "choose another one"]);
}

#[tokio::test]
async fn lost_port_is_retried_unless_it_was_requested() {
    for (port, starts) in [(None, 5), (Some(free_port()), 1)] {
        let trial = TestAssets::with(&[
            ("etcd", GOOD_ETCD.as_bytes()),
            ("kube-apiserver", PORT_IN_USE_API_SERVER.as_bytes()),
        ]);
        let cluster = match port {
            Some(port) => trial.cluster().port(port),
            None => trial.cluster(),
        };
        let error = trial.error(cluster).await;
        assert!(matches!(error, Error::PortTaken { .. }), "{error}");
        let counted = fs::read_to_string(trial.assets.path().join("kube-apiserver.starts")).unwrap();
        assert_eq!(counted.lines().count(), starts);
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Writes a kubeconfig to a new folder, with `change` applied to its text.
fn kubeconfig(change: impl Fn(String) -> String) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let text = format!(
        r#"
apiVersion: v1
kind: Config
current-context: here
contexts:
- {{ name: here, context: {{ cluster: c, user: u }} }}
- {{ name: there, context: {{ cluster: gone, user: u }} }}
- {{ name: nobody, context: {{ cluster: c, user: gone }} }}
clusters:
- {{ name: c, cluster: {{ server: "http://127.0.0.1:{}" }} }}
users:
- {{ name: u, user: {{ token: t }} }}
"#,
        free_port()
    );
    fs::write(&path, change(text)).unwrap();
    (folder, path)
}

#[tokio::test]
async fn missing_kubeconfig_error_names_the_file() {
    let error = Cluster::existing()
        .kubeconfig("/nowhere/config")
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::KubeconfigUnreadable { .. }), "{error}");
    assert_contains(&error, &["/nowhere/config", "KUBECONFIG"]);
}

#[tokio::test]
async fn invalid_kubeconfig_error_names_the_file() {
    let (_folder, path) = kubeconfig(|_| "{ unclosed".to_owned());
    let error = Cluster::existing().kubeconfig(&path).connect().await.unwrap_err();
    assert!(matches!(error, Error::KubeconfigInvalid { .. }), "{error}");
    assert_contains(&error, &[path.to_str().unwrap(), "kubectl config view"]);
}

#[tokio::test]
async fn unknown_context_error_lists_the_contexts() {
    let (_folder, path) = kubeconfig(|text| text);
    let error = Cluster::existing()
        .kubeconfig(&path)
        .context("elsewhere")
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoContext { .. }), "{error}");
    assert_contains(
        &error,
        &["`elsewhere`", "`here`, `there`", path.to_str().unwrap()],
    );

    let (_folder, path) = kubeconfig(|text| text.replace("current-context: here", ""));
    let error = Cluster::existing().kubeconfig(&path).connect().await.unwrap_err();
    assert!(matches!(error, Error::NoCurrentContext { .. }), "{error}");
    assert_contains(&error, &["`here`, `there`", "choose one with `context`"]);
}

#[tokio::test]
async fn context_with_unknown_cluster_or_user_is_an_error() {
    let (_folder, path) = kubeconfig(|text| text);
    for (context, part) in [("there", "cluster"), ("nobody", "user")] {
        let error = Cluster::existing()
            .kubeconfig(&path)
            .context(context)
            .connect()
            .await
            .unwrap_err();
        assert_contains(
            &error,
            &[&format!("context `{context}`"), &format!("names {part} `gone`")],
        );
    }
}

#[tokio::test]
async fn missing_credential_file_error_names_field_and_kubeconfig() {
    for (field, from, to) in [
        (
            "certificate-authority",
            r#"server: ""#,
            r#"certificate-authority: gone.pem, server: ""#,
        ),
        ("client-certificate", "token: t", "client-certificate: gone.pem"),
        ("client-key", "token: t", "client-key: gone.pem"),
        ("tokenFile", "token: t", "tokenFile: gone.pem"),
    ] {
        let (folder, path) = kubeconfig(|text| text.replace(from, to));
        let error = Cluster::existing().kubeconfig(&path).connect().await.unwrap_err();
        assert!(
            matches!(error, Error::CredentialUnreadable { .. }),
            "{field}: {error}"
        );
        let file = folder.path().join("gone.pem");
        assert_contains(
            &error,
            &[
                field,
                file.to_str().unwrap(),
                path.to_str().unwrap(),
                "correct the path",
            ],
        );
    }
}

#[tokio::test]
async fn unreachable_server_error_names_the_server() {
    let (_folder, path) = kubeconfig(|text| text);
    let error = Cluster::existing().kubeconfig(&path).connect().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_contains(&error, &["http://127.0.0.1:", "check that it runs"]);
}
