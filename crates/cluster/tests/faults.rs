//! What can be wrong with assets, servers and kubeconfigs: each gives one clear error, and leaves nothing behind.
//! The servers are small scripts here, so none of this needs a control plane.

mod leftovers;

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use leftovers::Place;
use windlass_cluster::{Cluster, Error, Real};

/// Makes the socket that says that etcd is there, and stays.
const GOOD_ETCD: &str = "#!/bin/sh\n: > etcd.sock\nexec sleep 1000\n";
const SILENT: &str = "#!/bin/sh\nexec sleep 1000\n";
const LOSES_ITS_PORT: &str =
    "#!/bin/sh\necho start >> \"$0.starts\"\necho 'listen tcp: bind: address already in use'\nexit 1\n";

/// A folder of programs, and a place for the clusters that are tried with them.
struct Trial {
    assets: tempfile::TempDir,
    place: Place,
}

impl Trial {
    fn with(programs: &[(&str, &[u8])]) -> Self {
        let assets = tempfile::tempdir().unwrap();
        for (name, content) in programs {
            write_program(&assets.path().join(name), content);
        }
        Self {
            assets,
            place: Place::new(),
        }
    }

    fn cluster(&self) -> Real {
        Cluster::real()
            .assets(self.assets.path())
            .temp_dir(self.place.path())
    }

    /// The error of a start, which must have left nothing behind.
    async fn error(&self, cluster: Real) -> Error {
        let error = cluster.start().await.expect_err("this cannot start");
        assert_eq!(self.place.leftovers(), Vec::<String>::new(), "after: {error}");
        error
    }
}

/// Another process writes the file. If we did, a child that another test forks at that moment would hold it open for
/// writing, and running it would fail with "text file busy".
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
fn says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[tokio::test]
async fn a_folder_without_binaries_is_named_together_with_the_build() {
    let trial = Trial::with(&[]);
    let error = trial.error(trial.cluster()).await;
    assert!(
        matches!(error, Error::MissingBinary { binary: "etcd", .. }),
        "{error}"
    );
    says(
        &error,
        &[
            trial.assets.path().to_str().unwrap(),
            "hack/control-plane/build etcd",
        ],
    );
}

#[tokio::test]
async fn controllers_are_missing_in_a_folder_of_setup_envtest() {
    let envtest: [(&str, &[u8]); 3] = [
        ("etcd", GOOD_ETCD.as_bytes()),
        ("kube-apiserver", b""),
        ("kubectl", b""),
    ];
    let trial = Trial::with(&envtest);
    for (cluster, binary) in [
        (trial.cluster().controllers(), "kube-controller-manager"),
        (trial.cluster().scheduler(), "kube-scheduler"),
    ] {
        let error = trial.error(cluster).await;
        says(
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
async fn programs_for_another_machine_are_recognised() {
    // An ELF header for a machine type that does not exist, and something that is no program at all.
    let mut elf = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xfe\xfe\x01\0\0\0\0\0\0\0\0\0\0\0";
    elf[24] = 1;
    let contents: [&[u8]; 2] = [&elf, b"\x00\x01\x02\x03 not a program"];
    for content in contents {
        let trial = Trial::with(&[("etcd", content), ("kube-apiserver", content)]);
        let error = trial.error(trial.cluster()).await;
        assert!(matches!(error, Error::WrongArchitecture { .. }), "{error}");
        says(
            &error,
            &["etcd", "hack/control-plane/build", "setup-envtest use --os"],
        );
    }
}

#[tokio::test]
async fn a_file_that_may_not_be_executed_is_named() {
    let trial = Trial::with(&[("kube-apiserver", b"")]);
    fs::write(trial.assets.path().join("etcd"), GOOD_ETCD).unwrap();
    let error = trial.error(trial.cluster()).await;
    assert!(matches!(error, Error::Spawn { .. }), "{error}");
    says(
        &error,
        &["etcd", "Permission denied", "check that it is executable"],
    );
}

#[tokio::test]
async fn etcd_that_dies_shows_its_last_words() {
    let dying = "#!/bin/sh\nseq 1 100\necho 'the disk is on fire' >&2\nexit 7\n";
    let trial = Trial::with(&[("etcd", dying.as_bytes()), ("kube-apiserver", b"")]);
    let error = trial.error(trial.cluster()).await;
    assert!(matches!(error, Error::Exited { server: "etcd", .. }), "{error}");
    says(
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
async fn a_dying_api_server_takes_etcd_with_it() {
    let dying = "#!/bin/sh\necho 'unknown flag: --nonsense' >&2\nexit 1\n";
    let trial = Trial::with(&[
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
    says(&error, &["unknown flag: --nonsense"]);
}

#[tokio::test]
async fn etcd_that_dies_later_is_noticed_too() {
    let short_lived = "#!/bin/sh\n: > etcd.sock\nsleep 0.2\necho 'no space left' >&2\nexit 1\n";
    let trial = Trial::with(&[
        ("etcd", short_lived.as_bytes()),
        ("kube-apiserver", SILENT.as_bytes()),
    ]);
    let error = trial.error(trial.cluster()).await;
    assert!(matches!(error, Error::Exited { server: "etcd", .. }), "{error}");
    says(&error, &["no space left"]);
}

#[tokio::test]
async fn servers_that_do_not_become_ready_are_stopped_at_the_deadline() {
    for (etcd, waiting_for) in [(SILENT, "etcd"), (GOOD_ETCD, "kube-apiserver")] {
        let trial = Trial::with(&[("etcd", etcd.as_bytes()), ("kube-apiserver", SILENT.as_bytes())]);
        let error = trial
            .error(trial.cluster().ready_within(Duration::from_millis(300)))
            .await;
        assert!(
            matches!(error, Error::NotReady { server, .. } if server == waiting_for),
            "{error}"
        );
        says(
            &error,
            &["not ready after 300ms", "ready_within", "(the log is empty)"],
        );
    }
}

#[tokio::test]
async fn a_start_that_is_cancelled_leaves_nothing_behind() {
    let trial = Trial::with(&[
        ("etcd", GOOD_ETCD.as_bytes()),
        ("kube-apiserver", SILENT.as_bytes()),
    ]);
    let start = trial.cluster().start();
    assert!(
        tokio::time::timeout(Duration::from_millis(300), start)
            .await
            .is_err()
    );
    assert_eq!(trial.place.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let trial = Trial::with(&[
        ("etcd", GOOD_ETCD.as_bytes()),
        ("kube-apiserver", SILENT.as_bytes()),
    ]);
    let error = trial.error(trial.cluster().port(port)).await;
    assert!(
        matches!(error, Error::PortTaken { port: named } if named == port),
        "{error}"
    );
    says(&error, &[&port.to_string(), "choose another one"]);
}

#[tokio::test]
async fn a_port_that_is_lost_to_another_process_is_tried_again_unless_it_was_asked_for() {
    for (port, starts) in [(None, 5), (Some(free_port()), 1)] {
        let trial = Trial::with(&[
            ("etcd", GOOD_ETCD.as_bytes()),
            ("kube-apiserver", LOSES_ITS_PORT.as_bytes()),
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

/// A kubeconfig in a folder of its own, with `change` applied to its text.
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
async fn a_kubeconfig_that_is_not_there_is_named() {
    let error = Cluster::existing()
        .kubeconfig("/nowhere/config")
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::KubeconfigUnreadable { .. }), "{error}");
    says(&error, &["/nowhere/config", "KUBECONFIG"]);
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_yaml_is_named() {
    let (_folder, path) = kubeconfig(|_| "{ unclosed".to_owned());
    let error = Cluster::existing().kubeconfig(&path).connect().await.unwrap_err();
    assert!(matches!(error, Error::KubeconfigInvalid { .. }), "{error}");
    says(&error, &[path.to_str().unwrap(), "kubectl config view"]);
}

#[tokio::test]
async fn a_context_that_is_not_there_is_answered_with_those_that_are() {
    let (_folder, path) = kubeconfig(|text| text);
    let error = Cluster::existing()
        .kubeconfig(&path)
        .context("elsewhere")
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoContext { .. }), "{error}");
    says(
        &error,
        &["`elsewhere`", "`here`, `there`", path.to_str().unwrap()],
    );

    let (_folder, path) = kubeconfig(|text| text.replace("current-context: here", ""));
    let error = Cluster::existing().kubeconfig(&path).connect().await.unwrap_err();
    assert!(matches!(error, Error::NoCurrentContext { .. }), "{error}");
    says(&error, &["`here`, `there`", "choose one with `context`"]);
}

#[tokio::test]
async fn a_context_must_name_a_cluster_and_a_user_that_exist() {
    let (_folder, path) = kubeconfig(|text| text);
    for (context, part) in [("there", "cluster"), ("nobody", "user")] {
        let error = Cluster::existing()
            .kubeconfig(&path)
            .context(context)
            .connect()
            .await
            .unwrap_err();
        says(
            &error,
            &[&format!("context `{context}`"), &format!("names {part} `gone`")],
        );
    }
}

#[tokio::test]
async fn a_missing_credential_file_is_named_with_its_field_and_the_kubeconfig() {
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
        says(
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
async fn a_server_that_does_not_answer_is_named() {
    let (_folder, path) = kubeconfig(|text| text);
    let error = Cluster::existing().kubeconfig(&path).connect().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    says(&error, &["http://127.0.0.1:", "check that it runs"]);
}
