//! What a compromised agent can do on the host's bus: the shipped bus policy on a real dbus-daemon, with fake
//! services behind it.
//!
//! The daemon, the client and the services all run as the user of the test. So the policy is loaded for this user
//! instead of `windlass-reboot`, and later (`mandatory`) rules allow what the services need.
//!
//! Without a dbus-daemon on the PATH, or if the user has no name, the cases are ignored with that reason.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use libtest_mimic::{Completion, Trial};
use parking_lot::Mutex;
use tokio::{task::JoinSet, time::timeout};
use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{
        Api,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_cluster::Cluster;
use windlass_reboot::state::AnnotationKeys;
use windlass_suite::{STEP_TIMEOUT, program};
use zbus::{Connection, MessageStream, connection::Builder, message::Type};

const POLICY: &str = include_str!("../host/windlass-reboot.dbus.conf");

const LOGIND: [&str; 3] = [
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
];
const SYSTEMD: [&str; 3] = [
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
];
const BUS: [&str; 3] = [
    "org.freedesktop.DBus",
    "/org/freedesktop/DBus",
    "org.freedesktop.DBus",
];

type Case = fn() -> anyhow::Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let missing = missing();
    let cases: [(&str, Case); 4] = [
        ("agent_reboots_through_the_bus", || {
            run(agent_reboots_through_the_bus())
        }),
        ("client_can_call_only_reboot", || {
            run(client_can_call_only_reboot())
        }),
        ("client_cannot_send_signals", || run(client_cannot_send_signals())),
        ("same_calls_pass_without_the_policy", || {
            run(same_calls_pass_without_the_policy())
        }),
    ];
    let trials = cases.into_iter().map(|(name, case)| {
        let missing = missing.clone();
        Trial::ignorable_test(name, move || match missing {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => case()
                .map(|()| Completion::Completed)
                .map_err(|error| format!("{error:?}").into()),
        })
    });
    trials.collect()
}

/// Why no bus can be started here.
fn missing() -> Option<String> {
    let found = Command::new("dbus-daemon")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match found {
        Ok(status) if status.success() => {}
        _ => return Some("no dbus-daemon on the PATH (Debian: apt-get install dbus-daemon)".to_owned()),
    }
    let named = Command::new("id")
        .arg("-un")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match named {
        Ok(status) if status.success() => None,
        _ => Some("this user has no name, and dbus-daemon refuses such users".to_owned()),
    }
}

fn run(case: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { timeout(STEP_TIMEOUT * 2, case).await.context("timed out")? })
}

/// A bus with fake services that record what reaches them.
struct Bus {
    folder: tempfile::TempDir,
    daemon: Child,
    calls: Arc<Mutex<Vec<String>>>,
    services: JoinSet<()>,
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Bus {
    /// Starts a bus with the rules of a system bus, followed by `policy`.
    async fn start(policy: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("system.d"))?;
        std::fs::write(folder.path().join("system.d/windlass-reboot.conf"), policy)?;
        let config = folder.path().join("bus.conf");
        std::fs::write(&config, config_of(folder.path()))?;
        let daemon = Command::new("dbus-daemon")
            .arg(format!("--config-file={}", config.display()))
            .args(["--nofork", "--nopidfile"])
            .stderr(std::fs::File::create(folder.path().join("log"))?)
            .spawn()?;
        let mut bus = Self {
            folder,
            daemon,
            calls: Arc::default(),
            services: JoinSet::new(),
        };
        // The socket's file exists before the daemon listens on it.
        while std::os::unix::net::UnixStream::connect(bus.socket()).is_err() {
            if bus.daemon.try_wait()?.is_some() {
                let log = std::fs::read_to_string(bus.folder.path().join("log"))?;
                anyhow::bail!("the bus did not start: {log}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for [name, ..] in [LOGIND, SYSTEMD] {
            bus.play(name).await?;
        }
        Ok(bus)
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("socket")
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.socket().display())
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        Ok(Builder::address(self.address().as_str()).build().await?)
    }

    /// A service that answers every call, and records the calls and signals that it receives.
    async fn play(&mut self, name: &'static str) -> anyhow::Result<()> {
        let service = self.connect().await?;
        call(&service, BUS, "RequestName", &(name, 0_u32)).await?;
        call(&service, BUS, "AddMatch", &"type='signal'").await?;
        let (calls, mut messages) = (Arc::clone(&self.calls), MessageStream::from(&service));
        self.services.spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                let header = message.header();
                let member = header.member().map(ToString::to_string).unwrap_or_default();
                match message.message_type() {
                    Type::MethodCall => {
                        calls.lock().push(format!("{name} {member}"));
                        let _ = service.reply(&header, &()).await;
                    }
                    Type::Signal if header.sender().is_some_and(|sender| sender.as_str() != BUS[0]) => {
                        calls.lock().push(format!("{name} sees {member}"));
                    }
                    _ => {}
                }
            }
        });
        Ok(())
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }
}

/// The relevant rules of dbus-daemon's own system.conf and of systemd's services.
fn config_of(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={folder}/socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Properties"/>
    <allow send_destination="org.freedesktop.login1"/>
    <allow send_destination="org.freedesktop.systemd1"/>
  </policy>
  <includedir>{folder}/system.d</includedir>
  <policy context="mandatory">
    <allow own="org.freedesktop.login1"/>
    <allow own="org.freedesktop.systemd1"/>
    <allow receive_type="method_call"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus" send_member="RequestName"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus" send_member="AddMatch"/>
  </policy>
</busconfig>
"#
    )
}

/// The shipped policy, for the user of this test.
fn policy_for_this_user() -> String {
    let user = rustix::process::geteuid().as_raw();
    let policy = POLICY.replace("user=\"windlass-reboot\"", &format!("user=\"{user}\""));
    assert_ne!(policy, POLICY);
    policy
}

async fn call<B>(
    client: &Connection,
    [service, object, interface]: [&str; 3],
    method: &str,
    body: &B,
) -> zbus::Result<()>
where
    B: serde::Serialize + zbus::zvariant::DynamicType,
{
    client
        .call_method(Some(service), object, Some(interface), method, body)
        .await
        .map(drop)
}

/// Calls that would reveal information about the host or take it over.
async fn attacks(client: &Connection) -> Vec<(&'static str, zbus::Result<()>)> {
    let nothing = ();
    let other_object = [LOGIND[0], "/org/freedesktop/login1/session/_31", LOGIND[2]];
    let properties = [SYSTEMD[0], SYSTEMD[1], "org.freedesktop.DBus.Properties"];
    vec![
        ("PowerOff", call(client, LOGIND, "PowerOff", &false).await),
        (
            "RebootWithFlags",
            call(client, LOGIND, "RebootWithFlags", &1_u64).await,
        ),
        (
            "ScheduleShutdown",
            call(client, LOGIND, "ScheduleShutdown", &("poweroff", 0_u64)).await,
        ),
        (
            "Inhibit",
            call(client, LOGIND, "Inhibit", &("shutdown", "a", "b", "delay")).await,
        ),
        (
            "ListSessions",
            call(client, LOGIND, "ListSessions", &nothing).await,
        ),
        ("Reboot", call(client, other_object, "Reboot", &false).await),
        (
            "StartTransientUnit",
            call(client, SYSTEMD, "StartTransientUnit", &("a.service", "fail")).await,
        ),
        (
            "StartUnit",
            call(client, SYSTEMD, "StartUnit", &("a.service", "fail")).await,
        ),
        (
            "SetEnvironment",
            call(client, SYSTEMD, "SetEnvironment", &vec!["A=b"]).await,
        ),
        ("ListUnits", call(client, SYSTEMD, "ListUnits", &nothing).await),
        (
            "GetAll",
            call(client, properties, "GetAll", &"org.freedesktop.systemd1.Manager").await,
        ),
    ]
}

async fn client_can_call_only_reboot() -> anyhow::Result<()> {
    let bus = Bus::start(&policy_for_this_user()).await?;
    let client = bus.connect().await?;
    call(&client, LOGIND, "Reboot", &false).await?;
    assert_eq!(bus.calls(), ["org.freedesktop.login1 Reboot"]);
    for (what, answer) in attacks(&client).await {
        let refused = answer.expect_err(what).to_string();
        ensure!(refused.contains("AccessDenied"), "{what}: {refused}");
    }
    for method in ["ListNames", "ListActivatableNames", "GetId"] {
        let refused = call(&client, BUS, method, &())
            .await
            .expect_err(method)
            .to_string();
        ensure!(refused.contains("AccessDenied"), "{method}: {refused}");
    }
    assert_eq!(bus.calls().len(), 1, "nothing else arrived");
    Ok(())
}

/// Without the policy, the bus of this test allows all of these calls.
async fn same_calls_pass_without_the_policy() -> anyhow::Result<()> {
    let bus = Bus::start("<busconfig/>").await?;
    let client = bus.connect().await?;
    for (what, answer) in attacks(&client).await {
        answer.with_context(|| what)?;
    }
    client
        .emit_signal(None::<&str>, "/a", "a.b", "Forged", &())
        .await?;
    call(&client, LOGIND, "Last", &()).await?;
    let calls = bus.calls();
    assert!(
        calls.contains(&"org.freedesktop.systemd1 StartTransientUnit".to_owned()),
        "{calls:?}"
    );
    assert!(
        calls.contains(&"org.freedesktop.login1 sees Forged".to_owned()),
        "{calls:?}"
    );
    Ok(())
}

async fn client_cannot_send_signals() -> anyhow::Result<()> {
    let bus = Bus::start(&policy_for_this_user()).await?;
    let client = bus.connect().await?;
    client
        .emit_signal(
            None::<&str>,
            "/org/freedesktop/login1",
            LOGIND[2],
            "PrepareForShutdown",
            &true,
        )
        .await?;
    client
        .emit_signal(
            Some(SYSTEMD[0]),
            "/org/freedesktop/login1",
            LOGIND[2],
            "PrepareForShutdown",
            &true,
        )
        .await?;
    // Messages of a connection arrive in order.
    call(&client, LOGIND, "Reboot", &false).await?;
    assert_eq!(bus.calls(), ["org.freedesktop.login1 Reboot"]);
    Ok(())
}

/// The agent's program, from the command on its node to the D-Bus call, needs nothing that the policy denies.
async fn agent_reboots_through_the_bus() -> anyhow::Result<()> {
    let bus = Bus::start(&policy_for_this_user()).await?;
    let cluster = Cluster::embedded().start().await?;
    let (nodes, names) = (Api::<Node>::all(cluster.client()), AnnotationKeys::default());
    let node = from_value(json!({ "metadata": { "name": "metal" } }))?;
    nodes.create(&PostParams::default(), &node).await?;
    let boot_id = bus.folder.path().join("boot_id");
    std::fs::write(&boot_id, "boot-a\n")?;
    let state = json!({
        "phase": "Armed", "policy": "default", "epoch": 3, "since": "2026-01-01T00:00:00Z",
    });
    let command = json!({ "bootID": "boot-a", "epoch": 3 });
    let armed = json!({ "metadata": { "annotations": {
        &names.state: state.to_string(), &names.reboot_now: command.to_string(),
    } } });
    nodes
        .patch("metal", &PatchParams::default(), &Patch::Merge(armed))
        .await?;
    let kubeconfig = cluster.kubeconfig()?.display().to_string();
    let mut flags = vec![
        "--kubeconfig".to_owned(),
        kubeconfig,
        "--no-listen".to_owned(),
        format!("--boot-id-file={}", boot_id.display()),
        format!("--dbus-address={}", bus.address()),
        "--node=metal".to_owned(),
    ];
    if rustix::process::geteuid().is_root() {
        flags.push("--allow-root".to_owned());
    }
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let mut agent = program(env!("CARGO_BIN_EXE_reboot-agent"), &flags)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let called = async {
        while bus.calls().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(STEP_TIMEOUT, called)
        .await
        .context("logind was not called")?;
    agent.kill().await?;
    assert_eq!(bus.calls(), ["org.freedesktop.login1 Reboot"]);
    Ok(())
}
