//! Real control planes: several at once, their users, and their end.

use crate::leftovers;

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Node, Pod},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use leftovers::ClusterFolder;
use serde_json::{from_value, json};
use windlass_cluster::{Backend, Cluster, KUBERNETES_VERSION};
use windlass_suite::{Suite, Target};

/// Set for a copy of this program that starts a cluster in this folder and waits to be killed.
pub(crate) const KILLED_COPY: &str = "WINDLASS_TEST_VICTIM";

pub(crate) fn suite() -> Suite {
    Suite::new("real")
        .case_on(
            Target::Real,
            "two_control_planes_run_side_by_side_and_leave_nothing_behind",
            two_run_side_by_side,
        )
        .case_on(
            Target::Real,
            "panic_stops_the_control_plane",
            panic_stops_the_control_plane,
        )
        .case_on(
            Target::Real,
            "killing_the_owner_stops_the_control_plane",
            killing_the_owner_stops_the_servers,
        )
        .case_on(
            Target::Real,
            "user_has_the_rights_of_its_groups",
            a_user_is_in_its_groups,
        )
        .case_on(
            Target::Real,
            "existing_cluster_is_used_through_its_kubeconfig",
            an_existing_cluster_is_used,
        )
        .case_on(
            Target::Real,
            "controllers_create_and_scheduler_binds_pods",
            controllers_and_scheduler,
        )
}

async fn two_run_side_by_side() -> anyhow::Result<()> {
    let place = ClusterFolder::new();
    let real = || Cluster::real().temp_dir(place.path());
    let (one, two) = tokio::try_join!(real().start(), real().start())?;
    assert_eq!(one.backend(), Backend::Real);
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        assert_eq!(one.version(), format!("v{KUBERNETES_VERSION}"));
    }
    let mode = one.kubeconfig()?.metadata()?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a kubeconfig holds a private key");
    let admin = one.kubeconfig()?;
    let folder = admin.parent().context("a kubeconfig is in a folder")?;
    assert_eq!(
        folder.metadata()?.permissions().mode() & 0o777,
        0o700,
        "etcd's socket is in this folder"
    );

    let object = ConfigMap {
        metadata: ObjectMeta {
            name: Some("only-here".into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let maps = |cluster: &Cluster| Api::<ConfigMap>::namespaced(cluster.client(), "default");
    maps(&one).create(&PostParams::default(), &object).await?;
    assert!(maps(&one).get_opt("only-here").await?.is_some());
    assert!(
        maps(&two).get_opt("only-here").await?.is_none(),
        "they do not share a store"
    );

    one.stop().await;
    maps(&two)
        .list(&ListParams::default())
        .await
        .context("the other one keeps running")?;
    // Drop outside of any runtime.
    std::thread::spawn(move || drop(two))
        .join()
        .expect("drop does not panic");
    assert_eq!(place.leftovers(), Vec::<String>::new());
    Ok(())
}

async fn panic_stops_the_control_plane() -> anyhow::Result<()> {
    let place = ClusterFolder::new();
    let cluster = Cluster::real().temp_dir(place.path()).start().await?;
    assert!(!place.leftovers().is_empty(), "a running cluster is detected");
    let task = tokio::spawn(async move {
        let _cluster = cluster;
        panic!("expected by the test");
    });
    assert!(task.await.is_err_and(|error| error.is_panic()));
    assert_eq!(place.leftovers(), Vec::<String>::new());
    Ok(())
}

async fn killing_the_owner_stops_the_servers() -> anyhow::Result<()> {
    let place = ClusterFolder::new();
    let mut victim = Command::new(std::env::current_exe()?)
        .env(KILLED_COPY, place.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(victim.stdout.take().expect("it is piped")).read_line(&mut line)?;
    assert_eq!(line, "ready\n");
    let before = place.leftovers();
    for server in ["etcd", "kube-apiserver", "windlass-janitor"] {
        assert!(
            before.iter().any(|line| line.contains(server)),
            "no {server} in {before:?}"
        );
    }
    victim.kill()?;
    victim.wait()?;
    // Without SIGKILL, a graceful kube-apiserver would take about 13 seconds.
    eventually("the end of all processes", Duration::from_secs(8), async || {
        place.leftovers().is_empty()
    })
    .await
}

pub(crate) fn run_killed_copy(place: &str) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _cluster = runtime
        .block_on(Cluster::real().temp_dir(place).start())
        .expect("it starts");
    println!("ready");
    loop {
        std::thread::park();
    }
}

async fn a_user_is_in_its_groups() -> anyhow::Result<()> {
    let cluster = Cluster::real().start().await?;
    let alice = cluster.user("alice", ["makers", "menders", "élèves: 3ᵉ"]).await?;
    assert_eq!(
        who_am_i(alice.client()).await?,
        (
            "alice".to_owned(),
            ["makers", "menders", "élèves: 3ᵉ", "system:authenticated"]
                .map(Into::into)
                .to_vec()
        )
    );
    assert_eq!(
        alice.kubeconfig()?.metadata()?.permissions().mode() & 0o777,
        0o600
    );
    rights_come_from_groups(&cluster, &alice.client(), "menders").await?;

    let loner = cluster.user("loner", [""; 0]).await?;
    assert_eq!(who_am_i(loner.client()).await?.1, ["system:authenticated"]);
    assert!(cluster.user("", ["makers"]).await.is_err());
    cluster.stop().await;
    Ok(())
}

async fn an_existing_cluster_is_used() -> anyhow::Result<()> {
    let real = Cluster::real().start().await?;
    let existing = Cluster::existing()
        .kubeconfig(real.kubeconfig()?)
        .connect()
        .await?;
    assert_eq!(
        (existing.backend(), existing.version()),
        (Backend::Existing, real.version())
    );
    assert_ne!(existing.kubeconfig()?, real.kubeconfig()?);
    let copy = existing.kubeconfig()?;
    assert_eq!(copy.metadata()?.permissions().mode() & 0o777, 0o600);

    let bob = existing.user("bob", ["makers", "menders"]).await?;
    let (name, groups) = who_am_i(bob.client()).await?;
    assert_eq!(name, "bob");
    assert_eq!(groups, ["makers", "menders", "system:authenticated"]);
    rights_come_from_groups(&existing, &bob.client(), "makers").await?;

    existing.stop().await;
    assert!(!copy.exists());
    real.client()
        .apiserver_version()
        .await
        .context("an existing cluster is not ours to stop")?;
    real.stop().await;
    Ok(())
}

async fn who_am_i(client: Client) -> anyhow::Result<(String, Vec<String>)> {
    let review = Api::<SelfSubjectReview>::all(client);
    let answer = review
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = answer
        .status
        .and_then(|status| status.user_info)
        .context("no user info")?;
    Ok((user.username.unwrap_or_default(), user.groups.unwrap_or_default()))
}

/// Checks that the user is forbidden before a role is bound to `group`, and allowed afterwards. It does not use the role
/// `view`, which only controllers aggregate.
async fn rights_come_from_groups(cluster: &Cluster, user: &Client, group: &str) -> anyhow::Result<()> {
    let maps = Api::<ConfigMap>::namespaced(user.clone(), "default");
    let refused = maps.list(&ListParams::default()).await;
    ensure!(
        matches!(refused, Err(kube::Error::Api(status)) if status.code == 403),
        "not refused"
    );
    let binding: ClusterRoleBinding = from_value(json!({
        "metadata": { "name": "trusted" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
    }))?;
    Api::all(cluster.client())
        .create(&PostParams::default(), &binding)
        .await?;
    // The authorizer observes the binding through its own watch.
    eventually("the right to list", Duration::from_secs(30), async || {
        maps.list(&ListParams::default()).await.is_ok()
    })
    .await
}

async fn controllers_and_scheduler() -> anyhow::Result<()> {
    let place = ClusterFolder::new();
    let cluster = Cluster::real()
        .controllers()
        .scheduler()
        .temp_dir(place.path())
        .start()
        .await?;
    let nodes = Api::<Node>::all(cluster.client());
    let node: Node = from_value(json!({ "metadata": { "name": "n1" } }))?;
    nodes.create(&PostParams::default(), &node).await?;
    let room = json!({ "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" } } });
    nodes
        .patch_status("n1", &PatchParams::default(), &Patch::Merge(room))
        .await?;

    let deployment: Deployment = from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                // No kubelet reports the node as ready.
                "spec": { "containers": [{ "name": "c", "image": "i" }], "tolerations": [{ "operator": "Exists" }] },
            },
        },
    }))?;
    Api::namespaced(cluster.client(), "default")
        .create(&PostParams::default(), &deployment)
        .await?;
    let pods = Api::<Pod>::namespaced(cluster.client(), "default");
    eventually("two pods on the node", Duration::from_secs(30), async || {
        let list = pods.list(&ListParams::default().labels("app=web")).await;
        let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("n1");
        list.is_ok_and(|list| list.items.iter().filter(|pod| on_node(pod)).count() == 2)
    })
    .await?;
    cluster.stop().await;
    assert_eq!(place.leftovers(), Vec::<String>::new());
    Ok(())
}

async fn eventually(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(limit, wait)
        .await
        .with_context(|| format!("timed out after {limit:?}, waiting for {what}"))
}
