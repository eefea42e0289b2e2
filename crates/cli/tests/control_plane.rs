//! kube-controller-manager and kube-scheduler on the drop-in kube-apiserver: both do their work, and log no error.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use windlass::kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use windlass_cluster::control_plane_program;
use windlass_suite::{Suite, Target};

const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";

/// Limit of every wait: a CronJob starts at the next full minute.
const TIMEOUT: Duration = Duration::from_secs(90);

/// How often the simulated kubelet looks at its pods, and how often a wait looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let programs = control_plane_program(CONTROLLER_MANAGER).and_then(|_| control_plane_program(SCHEDULER));
    windlass_suite::run([Suite::new("control-plane").requires(programs).case_on(
        Target::Real,
        "stateful_sets_jobs_and_cron_jobs_run_on_the_drop_in",
        workloads_run,
    )])
}

async fn workloads_run() -> anyhow::Result<()> {
    let plane = ControlPlane::start().await?;
    let client = plane.client.clone();
    create_node(&client).await?;
    let kubelet = tokio::spawn({
        let client = client.clone();
        async move { kubelet(&client).await }
    });

    let container = json!({"name": "main", "image": "example.com/image"});
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}});
    let job = json!({"completions": 3, "parallelism": 2, "template": {
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }});
    send(
        &client,
        "POST",
        CRON_JOBS,
        json!({
            "metadata": {"name": "each-minute"},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
        }),
    )
    .await?;
    send(
        &client,
        "POST",
        JOBS,
        json!({"metadata": {"name": "once"}, "spec": job}),
    )
    .await?;
    send(&client, "POST", STATEFUL_SETS, json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "serviceName": "web", "selector": {"matchLabels": {"app": "a"}}, "template": template},
    }))
    .await?;

    let web = format!("{STATEFUL_SETS}/web");
    wait_for(&client, &web, |set| set["status"]["readyReplicas"] == 2).await?;
    let second = get(&client, "/api/v1/namespaces/default/pods/web-1").await?;
    ensure!(second["spec"]["nodeName"] == NODE, "not scheduled: {second}");
    let scale = json!({"spec": {"replicas": 1}});
    send(&client, "PATCH", &format!("{web}/scale"), scale).await?;
    wait_for(&client, &web, |set| {
        set["status"]["replicas"] == 1 && set["status"]["currentReplicas"] == 1
    })
    .await?;

    wait_for(&client, &format!("{JOBS}/once"), |job| {
        job["status"]["succeeded"] == 3 && has_condition(job, "Complete")
    })
    .await?;
    wait_for(&client, &format!("{CRON_JOBS}/each-minute"), |cron| {
        cron["status"]["lastSuccessfulTime"].is_string()
    })
    .await?;

    // Garbage collection and the deletion of a namespace.
    let owner = json!({"metadata": {"name": "owner"}});
    let owner = send(&client, "POST", CONFIG_MAPS, owner).await?;
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}});
    send(&client, "POST", CONFIG_MAPS, dependent).await?;
    send(&client, "DELETE", &format!("{CONFIG_MAPS}/owner"), json!({})).await?;
    wait_until_gone(&client, &format!("{CONFIG_MAPS}/dependent")).await?;
    send(
        &client,
        "POST",
        "/api/v1/namespaces",
        json!({"metadata": {"name": "short"}}),
    )
    .await?;
    let root = "/api/v1/namespaces/short/configmaps/kube-root-ca.crt";
    wait_for(&client, root, |map| map["data"]["ca.crt"].is_string()).await?;
    send(&client, "DELETE", "/api/v1/namespaces/short", json!({})).await?;
    wait_until_gone(&client, "/api/v1/namespaces/short").await?;

    // Both verify their own clients with the CA of kube-system/extension-apiserver-authentication.
    for program in &plane.programs {
        let status = plane.metrics_status(program).await?;
        ensure!(status == 200, "{}: /metrics answered {status}", program.name);
    }
    kubelet.abort();
    let mut errors = Vec::new();
    for program in &plane.programs {
        let log = fs::read_to_string(&program.log)?;
        let found = log.lines().filter(|line| is_error(line));
        errors.extend(found.map(|line| format!("{}: {line}", program.name)));
    }
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

const NODE: &str = "node-1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// What the programs log as errors, whatever the server answers.
const OWN_ERRORS: [&str; 2] = [
    // At the start of every kube-controller-manager.
    "The manifest file is empty, ignoring.",
    // A sync that began before the watch delivered the controller's own last write; it is repeated.
    "is not as new as written version",
];

/// Whether a line of the log is an error or worse: `E1118 01:02:03.000000 …`.
fn is_error(line: &str) -> bool {
    line.starts_with(['E', 'F'])
        && line[1..].starts_with(|c: char| c.is_ascii_digit())
        && !OWN_ERRORS.iter().any(|own| line.contains(own))
}

fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

async fn create_node(client: &Client) -> anyhow::Result<()> {
    send(
        client,
        "POST",
        "/api/v1/nodes",
        json!({"metadata": {"name": NODE}}),
    )
    .await?;
    beat(client).await
}

/// The node's heartbeat.
async fn beat(client: &Client) -> anyhow::Result<()> {
    let now = now();
    let resources = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    let status = json!({"status": {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
    }});
    send(client, "PATCH", &format!("/api/v1/nodes/{NODE}/status"), status).await?;
    Ok(())
}

fn now() -> String {
    let now = windlass::k8s_openapi::jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A node's kubelet: runs the pods that are bound to it, and ends those of Jobs.
async fn kubelet(client: &Client) {
    let mut rounds = 0_u32;
    loop {
        // Another writer of the same object is no error: the next round looks again.
        let _ = kubelet_round(client).await;
        rounds += 1;
        if rounds.is_multiple_of(25) {
            let _ = beat(client).await;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn kubelet_round(client: &Client) -> anyhow::Result<()> {
    let pods = get(
        client,
        &format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}"),
    )
    .await?;
    for pod in pods["items"].as_array().into_iter().flatten() {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}",
            text("/metadata/namespace"),
            text("/metadata/name")
        );
        if !text("/metadata/deletionTimestamp").is_empty() {
            send(client, "DELETE", &path, json!({"gracePeriodSeconds": 0})).await?;
            continue;
        }
        let is_job = text("/metadata/ownerReferences/0/kind") == "Job";
        let (phase, state) = match text("/status/phase") {
            "Pending" => ("Running", json!({"running": {"startedAt": now()}})),
            "Running" if is_job => {
                let ended =
                    json!({"exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now()});
                ("Succeeded", json!({"terminated": ended}))
            }
            _ => continue,
        };
        let is_ready = phase == "Running";
        let ready = if is_ready { "True" } else { "False" };
        let condition = |kind: &str| json!({"type": kind, "status": ready, "lastTransitionTime": now()});
        let status = json!({"status": {
            "phase": phase,
            "podIP": "10.244.0.2",
            "podIPs": [{"ip": "10.244.0.2"}],
            "startTime": now(),
            "conditions": [condition("Ready"), condition("ContainersReady")],
            "containerStatuses": [{
                "name": "main", "image": "example.com/image", "imageID": "", "restartCount": 0,
                "ready": is_ready, "started": is_ready, "state": state,
            }],
        }});
        send(client, "PATCH", &format!("{path}/status"), status).await?;
    }
    Ok(())
}

/// A drop-in kube-apiserver, and the programs that run on it.
struct ControlPlane {
    client: Client,
    authority: Authority,
    programs: Vec<Program>,
    server: Child,
    folder: TempDir,
}

struct Program {
    name: &'static str,
    child: Child,
    port: u16,
    log: PathBuf,
}

impl ControlPlane {
    async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        let authority = Authority::new()?;
        let ca = write(at, "ca.crt", &authority.certificate)?;
        let ca_key = write(at, "ca.key", &authority.key)?;
        let (certificate, key) = authority.sign("kube-apiserver", &[])?;
        let service_account = write(at, "service-account.key", &KeyPair::generate()?.serialize_pem())?;
        let port = free_port()?;
        let program = at.join("kube-apiserver");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), &program)?;
        let server = Command::new(program)
            .arg(format!("--secure-port={port}"))
            .arg(format!(
                "--tls-cert-file={}",
                write(at, "server.crt", &certificate)?
            ))
            .arg(format!(
                "--tls-private-key-file={}",
                write(at, "server.key", &key)?
            ))
            .arg(format!("--client-ca-file={ca}"))
            .arg("--authorization-mode=Node,RBAC")
            // As kubeadm passes them.
            .arg(format!("--requestheader-client-ca-file={ca}"))
            .arg("--requestheader-allowed-names=front-proxy-client")
            .arg("--requestheader-extra-headers-prefix=X-Remote-Extra-")
            .arg("--requestheader-group-headers=X-Remote-Group")
            .arg("--requestheader-username-headers=X-Remote-User")
            .arg("--enable-admission-plugins=NodeRestriction")
            .arg("--enable-bootstrap-token-auth=true")
            .arg("--allow-privileged=true")
            .arg(format!("--service-account-signing-key-file={service_account}"))
            .stdin(Stdio::null())
            .stderr(File::create(at.join("kube-apiserver.log"))?)
            .spawn()?;
        let admin = authority.kubeconfig(port, "admin", &["system:masters"])?;
        let client = client(admin).await?;
        let mut plane = Self {
            client,
            authority,
            programs: Vec::new(),
            server,
            folder,
        };
        let deadline = Instant::now() + TIMEOUT;
        while get(&plane.client, "/api/v1/namespaces/kube-system")
            .await
            .is_err()
        {
            ensure!(Instant::now() < deadline, "kube-apiserver does not answer");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        plane.spawn(
            CONTROLLER_MANAGER,
            port,
            &[
                "--use-service-account-credentials=true".to_owned(),
                format!("--service-account-private-key-file={service_account}"),
                format!("--root-ca-file={ca}"),
                format!("--cluster-signing-cert-file={ca}"),
                format!("--cluster-signing-key-file={ca_key}"),
            ],
        )?;
        plane.spawn(SCHEDULER, port, &[])?;
        // Pods need it.
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        wait_for(&plane.client, account, |_| true).await?;
        Ok(plane)
    }

    /// Starts a program as in production: with leader election, and with its own HTTPS port.
    fn spawn(&mut self, name: &'static str, server: u16, more: &[String]) -> anyhow::Result<()> {
        let at = self.folder.path();
        let kubeconfig = self
            .authority
            .kubeconfig(server, &format!("system:{name}"), &[])?;
        let kubeconfig = write(at, &format!("{name}.kubeconfig"), &kubeconfig.to_string())?;
        let port = free_port()?;
        let log = at.join(format!("{name}.log"));
        let child = Command::new(control_plane_program(name)?)
            .arg(format!("--kubeconfig={kubeconfig}"))
            .arg(format!("--authentication-kubeconfig={kubeconfig}"))
            .arg(format!("--authorization-kubeconfig={kubeconfig}"))
            .arg(format!("--secure-port={port}"))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--cert-dir={}", at.join(name).display()))
            .args(more)
            .current_dir(at)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        self.programs.push(Program {
            name,
            child,
            port,
            log,
        });
        Ok(())
    }

    /// The status of `/metrics` of a program for the administrator.
    async fn metrics_status(&self, program: &Program) -> anyhow::Result<u16> {
        let mut kubeconfig = self
            .authority
            .kubeconfig(program.port, "admin", &["system:masters"])?;
        // Its certificate is self-signed.
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        cluster["insecure-skip-tls-verify"] = true.into();
        cluster
            .as_object_mut()
            .context("a cluster")?
            .remove("certificate-authority-data");
        let request = http::Request::get("/metrics").body(Vec::new().into())?;
        Ok(client(kubeconfig).await?.send(request).await?.status().as_u16())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let programs = self.programs.iter_mut().map(|program| &mut program.child);
        for child in programs.chain([&mut self.server]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("logs were in {}", self.folder.path().display());
        }
    }
}

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = key.serialize_pem();
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
            key: pem,
        })
    }

    /// Signs a certificate for a user or for this machine. Returns it with its key.
    fn sign(&self, name: &str, groups: &[&str]) -> anyhow::Result<(String, String)> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok((certificate, key.serialize_pem()))
    }

    /// A kubeconfig of a user, for a server on this port.
    fn kubeconfig(&self, port: u16, name: &str, groups: &[&str]) -> anyhow::Result<Value> {
        let (certificate, key) = self.sign(name, groups)?;
        let server = format!("https://127.0.0.1:{port}");
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": base64(&self.certificate)}}],
            "users": [{"name": "u", "user": {
                "client-certificate-data": base64(&certificate), "client-key-data": base64(&key),
            }}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }))
    }
}

fn base64(text: &str) -> String {
    let encoded = windlass::k8s_openapi::ByteString(text.as_bytes().to_vec());
    let json = serde_json::to_value(encoded).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

async fn client(kubeconfig: Value) -> anyhow::Result<Client> {
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

async fn get(client: &Client, path: &str) -> anyhow::Result<Value> {
    Ok(client.request(http::Request::get(path).body(Vec::new())?).await?)
}

/// Sends a request with a JSON body; a PATCH is a strategic merge patch.
async fn send(client: &Client, method: &str, path: &str, body: Value) -> anyhow::Result<Value> {
    let content_type = match method {
        "PATCH" => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(body.to_string().into_bytes())?;
    let sent = client.request(request).await;
    sent.with_context(|| format!("{method} {path}"))
}

/// Waits until an object exists and is as expected.
async fn wait_for(client: &Client, path: &str, is_done: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let found = get(client, path).await;
        if found.as_ref().is_ok_and(&is_done) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "timed out waiting for {path}: {found:?}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn wait_until_gone(client: &Client, path: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while let Ok(found) = get(client, path).await {
        ensure!(Instant::now() < deadline, "{path} still exists: {found}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, content: &str) -> anyhow::Result<String> {
    let path = folder.join(name);
    fs::write(&path, content)?;
    Ok(path.display().to_string())
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
