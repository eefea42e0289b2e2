//! Pods on the nodes of an embedded cluster: scheduling, start, pod scripts, termination.

use crate::cluster_with_nodes;

use std::time::Duration;

use anyhow::Result;
use cluster_with_nodes::{
    condition, create_and_watch, events, is_ready, pod, pod_with_script, pods, start, wait_until, watch_until,
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api,
    api::{DeleteParams, LogParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_cluster::Cluster;

fn embedded(nodes: usize) -> windlass_cluster::Embedded {
    Cluster::embedded().nodes(nodes)
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// Formats the state of a container: kind, reason, readiness.
fn state(status: &Value) -> String {
    let (kind, state) = status["state"]
        .as_object()
        .and_then(|state| state.iter().next())
        .expect("a state");
    let ready = if status["ready"] == true { " ready" } else { "" };
    match state["reason"].as_str() {
        Some(reason) => format!("{kind} {reason}{ready}"),
        None => format!("{kind}{ready}"),
    }
}

/// Formats each state of a pod: phase, init containers, containers. Repetitions are dropped.
fn steps(states: &[Value]) -> Vec<String> {
    let mut steps: Vec<String> = states
        .iter()
        .map(|pod| {
            if pod.is_null() {
                return "gone".to_owned();
            }
            let lists = ["initContainerStatuses", "containerStatuses"];
            let all = lists
                .iter()
                .flat_map(|list| pod["status"][*list].as_array().into_iter().flatten());
            let containers: Vec<_> = all.map(state).collect();
            let deleting = if pod["metadata"]["deletionTimestamp"].is_null() {
                ""
            } else {
                " deleting"
            };
            format!("{}{deleting}: {}", phase(pod), containers.join(", "))
        })
        .collect();
    steps.dedup();
    steps
}

#[tokio::test(start_paused = true)]
async fn pod_is_scheduled_and_becomes_ready() -> Result<()> {
    let cluster = start(embedded(3)).await?;
    let pods = pods(&cluster);
    let seen = create_and_watch(&pods, &pod("web", json!({})), is_ready).await?;
    let brief: Vec<_> = seen
        .iter()
        .map(|pod| {
            (
                phase(pod),
                pod["spec"]["nodeName"].as_str(),
                condition(pod, "PodScheduled")["status"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        brief,
        [
            ("Pending", None, None),
            ("Pending", Some("node-1"), Some("True")),
            ("Running", Some("node-1"), Some("True")),
        ]
    );
    let status = &seen[2]["status"];
    let kinds: Vec<_> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| c["type"].as_str())
        .collect();
    let order = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    assert_eq!(kinds, order.map(Some));
    assert_eq!(
        (&status["hostIP"], &status["podIP"]),
        (&json!("172.18.0.2"), &json!("10.244.0.2"))
    );
    assert_eq!(
        status["containerStatuses"][0]["image"],
        "docker.io/library/nginx:latest"
    );
    let events = events(&cluster, "web").await?;
    let events: Vec<_> = events
        .iter()
        .map(|(reason, text)| (reason.as_str(), text.as_str()))
        .collect();
    assert_eq!(
        events[0],
        ("Scheduled", "Successfully assigned default/web to node-1")
    );
    assert_eq!(events[1], ("Pulling", "Pulling image \"nginx\""));
    assert!(
        events[2].1.starts_with("Successfully pulled image \"nginx\" in "),
        "{events:?}"
    );
    assert_eq!(
        events[3..],
        [("Created", "Container created"), ("Started", "Container started")]
    );
    let log = pods.logs("web", &LogParams::default()).await?;
    assert_eq!(log, "web: started from image nginx\n");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn container_stages_take_time_at_finite_speed() -> Result<()> {
    let cluster = start(embedded(1).speed(2.0)).await?;
    let pods = pods(&cluster);
    let spec = json!({
        "terminationGracePeriodSeconds": 30,
        "initContainers": [
            {"name": "prepare", "image": "busybox"},
            {"name": "side", "image": "proxy", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "web", "image": "nginx", "readinessProbe": {
            "initialDelaySeconds": 4, "httpGet": {"port": 80},
        }}],
    });
    let begun = Instant::now();
    let seen = create_and_watch(&pods, &pod("web", json!({"spec": spec})), is_ready).await?;
    assert_eq!(
        steps(&seen),
        [
            "Pending: ",
            "Pending: waiting PodInitializing, waiting PodInitializing, waiting PodInitializing",
            "Pending: running, waiting PodInitializing, waiting PodInitializing",
            "Pending: terminated Completed ready, waiting PodInitializing, waiting PodInitializing",
            "Pending: terminated Completed ready, running ready, waiting PodInitializing",
            "Running: terminated Completed ready, running ready, running",
            "Running: terminated Completed ready, running ready, running ready",
        ]
    );
    // Three times 1.5 s for pull and start, 0.5 s for the init container, 4 s for the probe, all at double speed.
    assert_eq!(begun.elapsed().as_millis() / 10, 450);
    let waiting = condition(&seen[2], "Initialized");
    assert_eq!(
        waiting["message"],
        "containers with incomplete status: [prepare side]"
    );
    let waiting = condition(&seen[seen.len() - 2], "Ready");
    assert_eq!(waiting["message"], "containers with unready status: [web]");

    pods.delete("web", &DeleteParams::default()).await?;
    let seen = watch_until(&pods, "web", "0", Value::is_null).await?;
    assert_eq!(
        steps(&seen)[1..],
        [
            "Succeeded deleting: terminated Completed ready, terminated Completed, terminated Completed",
            "gone"
        ]
    );
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_terminates_immediately_or_after_its_grace_period() -> Result<()> {
    let cluster = start(embedded(1)).await?;
    let pods = pods(&cluster);
    for (name, script, grace, expected) in [
        ("polite", "", None, 0),
        ("stubborn", "ignores-term", None, 30),
        ("short", "ignores-term", Some(7), 7),
        ("forced", "ignores-term", Some(0), 0),
    ] {
        pods.create(&PostParams::default(), &pod_with_script(name, script, &json!({})))
            .await?;
        wait_until(&pods, name, is_ready).await?;
        let begun = Instant::now();
        let params = DeleteParams {
            grace_period_seconds: grace,
            ..DeleteParams::default()
        };
        pods.delete(name, &params).await?;
        wait_until(&pods, name, Value::is_null).await?;
        assert_eq!(begun.elapsed().as_secs(), expected, "{name}");
    }
    let events = events(&cluster, "polite").await?;
    assert!(
        events.contains(&("Killing".to_owned(), "Stopping container web".to_owned())),
        "{events:?}"
    );
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn second_deletion_shortens_the_grace_period() -> Result<()> {
    let cluster = start(embedded(1)).await?;
    let pods = pods(&cluster);
    pods.create(
        &PostParams::default(),
        &pod_with_script("web", "ignores-term", &json!({})),
    )
    .await?;
    wait_until(&pods, "web", is_ready).await?;
    let begun = Instant::now();
    pods.delete("web", &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    pods.delete("web", &DeleteParams::default().grace_period(2))
        .await?;
    wait_until(&pods, "web", Value::is_null).await?;
    assert_eq!(begun.elapsed().as_secs(), 7);
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pod_scripts_simulate_failures() -> Result<()> {
    let cluster = start(embedded(1)).await?;
    let pods = pods(&cluster);
    let never = json!({"restartPolicy": "Never"});
    let on_failure = json!({"restartPolicy": "OnFailure"});
    let init = json!({"restartPolicy": "Never", "initContainers": [{"name": "prepare", "image": "busybox"}]});
    let cases: [(&str, &str, &Value, &str, &[&str]); 5] = [
        (
            "done",
            "done after=1s",
            &never,
            "Succeeded",
            &[
                "Pending: ",
                "Running: running ready",
                "Succeeded: terminated Completed",
            ],
        ),
        (
            "fails",
            "exit=3 after=1s",
            &never,
            "Failed",
            &["Pending: ", "Running: running ready", "Failed: terminated Error"],
        ),
        (
            "again",
            "exit=1 times=2 after=1s",
            &on_failure,
            "",
            &[
                "Pending: ",
                "Running: running ready",
                "Running: terminated Error",
                "Running: running ready",
                "Running: terminated Error",
                "Running: waiting CrashLoopBackOff",
                "Running: running ready",
            ],
        ),
        (
            "init",
            "exit=1 container=prepare",
            &init,
            "Failed",
            &["Pending: ", "Failed: terminated Error, waiting PodInitializing"],
        ),
        (
            "pull",
            "pull-fails times=1",
            &never,
            "",
            &[
                "Pending: ",
                "Pending: waiting ErrImagePull",
                "Pending: waiting ImagePullBackOff",
                "Running: running ready",
            ],
        ),
    ];
    for (name, script, spec, end, expected) in cases {
        let restarts = if name == "again" { 2 } else { 0 };
        let object = pod_with_script(name, script, spec);
        let seen = create_and_watch(&pods, &object, |pod| match end {
            "" => is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == restarts,
            end => phase(pod) == end,
        });
        assert_eq!(steps(&seen.await?), expected, "{name}");
    }
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn crashing_container_backs_off_exponentially() -> Result<()> {
    let cluster = start(embedded(1)).await?;
    let pods = pods(&cluster);
    pods.create(
        &PostParams::default(),
        &pod_with_script("web", "crash-loop", &json!({})),
    )
    .await?;
    let begun = Instant::now();
    let mut waits = Vec::new();
    for restarts in 1..=7 {
        let crashed = wait_until(&pods, "web", |pod| {
            let status = &pod["status"]["containerStatuses"][0];
            status["restartCount"] == restarts && status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        });
        let crashed = crashed.await?;
        waits.push(begun.elapsed().as_secs());
        let uid = crashed["metadata"]["uid"].as_str().unwrap_or_default();
        let status = &crashed["status"]["containerStatuses"][0];
        if restarts == 1 {
            let text = format!("back-off 10s restarting failed container=web pod=web_default({uid})");
            assert_eq!(status["state"]["waiting"]["message"], text);
            assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
        }
    }
    // Immediately the first time, then after 10 s, 20 s, 40 s, 80 s, 160 s, and from then on five minutes.
    assert_eq!(waits, [0, 10, 30, 70, 150, 310, 610]);
    let events = events(&cluster, "web").await?;
    assert!(
        events.iter().any(|(reason, text)| reason == "BackOff"
            && text.starts_with("Back-off restarting failed container web in pod web_default(")),
        "{events:?}"
    );
    let previous = pods
        .logs(
            "web",
            &LogParams {
                previous: true,
                ..LogParams::default()
            },
        )
        .await?;
    assert_eq!(previous, "web: started from image nginx\nweb: stopped\n");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn readiness_waits_for_scripts_and_readiness_gates() -> Result<()> {
    let cluster = start(embedded(1)).await?;
    let pods = pods(&cluster);
    let begun = Instant::now();
    pods.create(
        &PostParams::default(),
        &pod_with_script("late", "ready after=5s", &json!({})),
    )
    .await?;
    wait_until(&pods, "late", is_ready).await?;
    assert_eq!(begun.elapsed().as_secs(), 5);

    pods.create(
        &PostParams::default(),
        &pod_with_script("never", "never-ready", &json!({})),
    )
    .await?;
    let running = wait_until(&pods, "never", |pod| phase(pod) == "Running").await?;
    assert_eq!(condition(&running, "Ready")["reason"], "ContainersNotReady");

    let gate = json!({"spec": {"readinessGates": [{"conditionType": "example.com/open"}]}});
    pods.create(&PostParams::default(), &pod("gated", gate)).await?;
    let waiting = wait_until(&pods, "gated", |pod| phase(pod) == "Running").await?;
    assert_eq!(condition(&waiting, "ContainersReady")["status"], "True");
    assert_eq!(
        condition(&waiting, "Ready")["message"],
        "corresponding condition of pod readiness gate \"example.com/open\" does not exist."
    );
    let open = json!({"status": {"conditions": [{"type": "example.com/open", "status": "True"}]}});
    pods.patch_status("gated", &PatchParams::default(), &Patch::Strategic(open))
        .await?;
    let ready = wait_until(&pods, "gated", is_ready).await?;
    assert_eq!(condition(&ready, "example.com/open")["status"], "True");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn invalid_pod_script_causes_an_event_and_is_ignored() -> Result<()> {
    let cluster = start(embedded(1)).await?;
    let pods = pods(&cluster);
    pods.create(
        &PostParams::default(),
        &pod_with_script("web", "explode", &json!({})),
    )
    .await?;
    wait_until(&pods, "web", is_ready).await?;
    let events = events(&cluster, "web").await?;
    let (_, text) = events
        .iter()
        .find(|(reason, _)| reason == "InvalidPodScript")
        .expect("a warning");
    assert!(
        text.contains("windlass.dev/pod-script") && text.contains("`explode`"),
        "{text}"
    );
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn nodes_renew_their_leases() -> Result<()> {
    let cluster = start(embedded(2)).await?;
    let leases = Api::<Lease>::namespaced(cluster.client(), "kube-node-lease");
    let renewed = |lease: &Value| lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
    let first = wait_until(&leases, "node-2", |lease| !lease.is_null()).await?;
    assert_eq!(
        (
            &first["spec"]["holderIdentity"],
            &first["spec"]["leaseDurationSeconds"]
        ),
        (&json!("node-2"), &json!(40))
    );
    assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "Node");
    let begun = Instant::now();
    wait_until(&leases, "node-2", |lease| renewed(lease) != renewed(&first)).await?;
    assert!(begun.elapsed() <= Duration::from_secs(10));
    tokio::time::sleep(Duration::from_mins(10)).await;
    let node = wait_until(&Api::<Node>::all(cluster.client()), "node-2", |_| true).await?;
    assert!(is_ready(&node));
    cluster.stop().await;
    Ok(())
}
