//! One run: a server process, clients, watchers, optionally a hostile client, and the outcome.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, ensure};
use fastrand::Rng;
use serde::Serialize;
use serde_json::json;
use tokio::{
    process::{Child, ChildStdin},
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};
use windlass_bench::{processes, serve};

use super::{
    endpoint::{Connection, Endpoint, Protocol, REQUEST_TIMEOUT},
    hostile::{self, Tally},
    latency::{Histogram, LatencySummary},
    load::{self, NAMESPACES, Shared, Worker, lock},
    model::{Event, View},
    watch::{self as watching, Behaviour, MARKER, Watcher},
};

/// Interval of the audits: longer than a request may take, so that every acknowledgement arrives before the next audit.
const AUDIT_INTERVAL: Duration = Duration::from_secs(REQUEST_TIMEOUT.as_secs() + 5);

/// The server is killed when it uses more memory, to protect the machine from the hostile client's attacks.
const MEMORY_LIMIT_MB: f64 = 4_096.0;

/// Limit for the shutdown: the last requests, and watches that are behind.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_mins(2);

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) time: Duration,
    pub(crate) clients: usize,
    /// Requests per second of all clients together.
    pub(crate) rate: f64,
    pub(crate) seed: u64,
    pub(crate) is_hostile: bool,
    /// For a test: kills the server after this time.
    pub(crate) kill_after: Option<Duration>,
}

/// Outcome of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) hostile: bool,
    pub(crate) seconds: f64,
    /// Latency of the well-behaved clients.
    pub(crate) latency: LatencySummary,
    /// Latency of `/livez`, requested four times per second.
    pub(crate) livez: LatencySummary,
    /// Resident memory of the server in the first minute, and at the end.
    pub(crate) memory_first_mb: f64,
    pub(crate) memory_end_mb: f64,
    pub(crate) memory_peak_mb: f64,
    pub(crate) watch_events: u64,
    pub(crate) relists: u64,
    /// Watch events that were lost, reordered or wrong.
    pub(crate) violations: Vec<String>,
    /// Responses and errors that well-behaved clients should not get.
    pub(crate) unexpected: BTreeMap<String, u64>,
    /// How the server died, if it did.
    pub(crate) died: Option<String>,
    pub(crate) attacks: Tally,
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    // The server exits when its standard input closes, and `wait` would close it.
    let (mut server, _input, endpoint) = start().await?;
    let process = server.id().context("the server process has exited")?;
    let hostile_endpoint = prepare(&endpoint, plan).await?;
    let shared = Shared::new();
    let (stop_sender, stop) = watch::channel(false);
    let (finish_sender, finish) = watch::channel(false);
    let (attack_sender, attack) = watch::channel(["", ""]);
    let mut rng = Rng::with_seed(plan.seed);

    let (mut watchers, views) = watchers(plan, &endpoint, &shared, &finish, &mut rng);
    let mut workers = workers(plan, &endpoint, &shared, &stop, &mut rng);
    let probing = tokio::spawn(probe(endpoint.clone(), stop.clone()));
    let attacking =
        hostile_endpoint.map(|endpoint| tokio::spawn(hostile::attack(endpoint, attack_sender, stop.clone())));

    let started = Instant::now();
    let mut memory = Vec::new();
    let mut died = None;
    let mut is_too_large = false;
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut next_audit = started + AUDIT_INTERVAL;
    let mut next_line = started + Duration::from_secs(10);
    while started.elapsed() < plan.time {
        tokio::select! {
            _ = ticks.tick() => {}
            status = server.wait() => {
                let during = during(*attack.borrow());
                let why = if is_too_large { " (killed at 4 GB of memory)" } else { "" };
                let seconds = started.elapsed().as_secs_f64();
                died = Some(format!("{}{why} after {seconds:.0} s{during}", status?));
                break;
            }
        }
        if plan.kill_after.is_some_and(|after| started.elapsed() >= after) {
            server.start_kill()?;
        }
        memory.push(processes::resident_megabytes(process).unwrap_or_default());
        if memory
            .last()
            .is_some_and(|megabytes| *megabytes > MEMORY_LIMIT_MB)
        {
            is_too_large = true;
            server.start_kill()?;
        }
        let now = Instant::now();
        if now >= next_audit {
            audit(&views, &shared);
            next_audit = now + AUDIT_INTERVAL;
        }
        if now >= next_line {
            next_line = now + Duration::from_secs(10);
            print_progress(started.elapsed(), &shared, &memory, attack.borrow()[1]);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    stop_sender.send_replace(true);
    let mut outcome = Outcome {
        hostile: plan.is_hostile,
        seconds,
        died,
        ..Outcome::default()
    };
    if outcome.died.is_none() {
        let ended = timeout(SHUTDOWN_TIMEOUT, async {
            while workers.join_next().await.is_some() {}
        })
        .await;
        if ended.is_err() {
            shared.add_violations(["clients did not stop in time".to_owned()]);
        }
        // The clients have stopped before the marker is written.
        finish_sender.send_replace(true);
        if let Err(error) = compare(&endpoint, &views, &shared, &mut watchers).await {
            shared.add_violations([format!("cannot compare the final state: {error:#}")]);
        }
    }
    outcome.livez = timeout(SHUTDOWN_TIMEOUT, probing)
        .await
        .context("the probe did not stop in time")??
        .summary();
    if let Some(attacking) = attacking {
        outcome.attacks = timeout(SHUTDOWN_TIMEOUT, attacking)
            .await
            .context("the hostile client did not stop in time")??;
    }
    workers.abort_all();
    watchers.abort_all();
    server.kill().await.ok();
    for (_, view) in &views {
        let view = lock(view);
        outcome.watch_events += view.events;
        outcome.relists += view.relists.saturating_sub(1);
    }
    outcome.latency = shared.latency().summary();
    outcome.violations = shared.violations();
    outcome.unexpected = shared.unexpected();
    store_memory(&mut outcome, &memory);
    Ok(outcome)
}

/// Prints a progress line.
fn print_progress(elapsed: Duration, shared: &Shared, memory: &[f64], attack: &str) {
    let summary = shared.latency().summary();
    eprintln!(
        "{:5.0} s  {:8} requests, p99 {:7.1} ms, {:6.0} MB, {} violations, {} unexpected  {attack}",
        elapsed.as_secs_f64(),
        summary.requests,
        summary.p99_ms,
        memory.last().copied().unwrap_or_default(),
        shared.violations().len(),
        shared.unexpected().values().sum::<u64>(),
    );
}

/// Starts the server in its own process, so that its memory can be measured. Returns it with the administrator's
/// access.
async fn start() -> anyhow::Result<(Child, ChildStdin, Endpoint)> {
    let (mut child, kubeconfig, _) = serve::start().await?;
    let endpoint = Endpoint::open(&kubeconfig).await?;
    let input = child.stdin.take().context("piped")?;
    Ok((child, input, endpoint))
}

/// Creates the namespaces, and a user for the hostile client if there is one.
async fn prepare(endpoint: &Endpoint, plan: &Plan) -> anyhow::Result<Option<Endpoint>> {
    let mut connection = endpoint.connect(Protocol::Http1).await?;
    let json = "application/json";
    let own = [load::DYING_NAMESPACE.to_owned(), hostile::NAMESPACE.to_owned()];
    for name in (0..NAMESPACES).map(load::namespace).chain(own) {
        let body = json!({"metadata": {"name": name}}).to_string();
        let response = connection.send("POST", "/api/v1/namespaces", json, body).await?;
        ensure!(
            response.code == 201,
            "cannot create namespace {name}: {}",
            response.json()
        );
    }
    fill_history(&mut connection).await?;
    if !plan.is_hostile {
        return Ok(None);
    }
    let namespace = hostile::NAMESPACE;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let subject = json!({"kind": "ServiceAccount", "name": "mallory", "namespace": namespace});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"});
    for (path, body) in [
        (&accounts, json!({"metadata": {"name": "mallory"}})),
        (&accounts, json!({"metadata": {"name": "default"}})),
        (
            &bindings,
            json!({"metadata": {"name": "mallory"}, "roleRef": role, "subjects": [subject]}),
        ),
    ] {
        let response = connection.send("POST", path, json, body.to_string()).await?;
        ensure!([201, 409].contains(&response.code), "{path}: {}", response.json());
    }
    let request = json!({"spec": {"expirationSeconds": 24 * 3600}}).to_string();
    let response = connection
        .send("POST", &format!("{accounts}/mallory/token"), json, request)
        .await?
        .json();
    let token = response["status"]["token"]
        .as_str()
        .context("the response has no token")?;
    Ok(Some(endpoint.with_token(token)))
}

/// Names the last attack and the current one, for a message about the server's end.
fn during(attacks: [&str; 2]) -> String {
    match attacks {
        ["", ""] => String::new(),
        ["", attack] => format!(" during the attack `{attack}`"),
        [last, attack] => format!(" during the attack `{attack}`, after `{last}`"),
    }
}

/// Fills the server's event history, which is bounded in bytes, so that later growth of its memory is a leak.
async fn fill_history(connection: &mut Connection) -> anyhow::Result<()> {
    /// More than the default history of 64 MiB, in secrets of 680 KiB.
    const EVENTS: usize = 128;
    const BYTES: usize = 512 * 1024;
    let secrets = format!("/api/v1/namespaces/{}/secrets", load::DYING_NAMESPACE);
    let secret = |number: usize| {
        let text = number.to_string() + &"x".repeat(BYTES);
        json!({"metadata": {"name": "history"}, "stringData": {"text": text}}).to_string()
    };
    let json = "application/json";
    let response = connection.send("POST", &secrets, json, secret(0)).await?;
    ensure!(response.code == 201, "{secrets}: {}", response.json());
    let target = format!("{secrets}/history");
    for number in 1..=EVENTS {
        let response = connection.send("PUT", &target, json, secret(number)).await?;
        ensure!(response.code == 200, "{target}: {}", response.json());
    }
    Ok(())
}

type Views = Vec<(String, Arc<Mutex<View>>)>;

/// Starts the watchers, a fifth of the clients. A third of them stall, and another third also drop their connections.
fn watchers(
    plan: &Plan,
    endpoint: &Endpoint,
    shared: &Arc<Shared>,
    finish: &watch::Receiver<bool>,
    rng: &mut Rng,
) -> (JoinSet<()>, Views) {
    let mut tasks = JoinSet::new();
    let mut views = Vec::new();
    for number in 0..(plan.clients / 5).max(2) {
        let namespace = load::namespace(number);
        let view = Arc::new(Mutex::new(View::default()));
        views.push((namespace.clone(), Arc::clone(&view)));
        let watcher = Watcher {
            endpoint: endpoint.clone(),
            protocol: if (number / 3).is_multiple_of(2) {
                Protocol::Http1
            } else {
                Protocol::Http2
            },
            namespace,
            behaviour: [Behaviour::Attentive, Behaviour::Stalling, Behaviour::Dropping][number % 3],
            view,
            shared: Arc::clone(shared),
            rng: rng.fork(),
            finish: finish.clone(),
        };
        tasks.spawn(watcher.run());
    }
    (tasks, views)
}

/// Starts the other clients; two of them have connections that die.
fn workers(
    plan: &Plan,
    endpoint: &Endpoint,
    shared: &Arc<Shared>,
    stop: &watch::Receiver<bool>,
    rng: &mut Rng,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        tasks.spawn(load::run_with_dying_connections(
            endpoint.clone(),
            rng.fork(),
            stop.clone(),
        ));
    }
    let count = plan.clients.saturating_sub((plan.clients / 5).max(2) + 2).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let pause = Duration::from_secs_f64(count as f64 / plan.rate);
    for number in 0..count {
        let worker = Worker {
            number,
            endpoint: endpoint.clone(),
            shared: Arc::clone(shared),
            pause,
            rng: rng.fork(),
            stop: stop.clone(),
        };
        tasks.spawn(worker.run());
    }
    tasks
}

/// Requests `/livez`, as a kubelet would.
async fn probe(endpoint: Endpoint, mut stop: watch::Receiver<bool>) -> Histogram {
    let mut histogram = Histogram::default();
    let mut connection: Option<Connection> = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(250)) => {}
            _ = stop.wait_for(|stop| *stop) => return histogram,
        }
        let requested_at = Instant::now();
        if connection.is_none() {
            connection = endpoint.connect(Protocol::Http1).await.ok();
        }
        if let Some(open) = &mut connection
            && open.get("/livez").await.is_err()
        {
            connection = None;
        }
        histogram.add(requested_at.elapsed());
    }
}

/// Audits every watcher, and drops the writes that all of them have observed.
fn audit(views: &Views, shared: &Shared) {
    let mut audited: BTreeMap<&str, u64> = BTreeMap::new();
    for (namespace, view) in views {
        let Some(log) = shared.log(namespace) else {
            continue;
        };
        let mut view = lock(view);
        let violations = view.audit(&lock(log));
        shared.add_violations(
            violations
                .into_iter()
                .map(|violation| format!("{namespace}: {violation}")),
        );
        let least = audited.entry(namespace).or_insert(u64::MAX);
        *least = view.audited().min(*least);
    }
    for (namespace, revision) in audited {
        if let Some(log) = shared.log(namespace) {
            lock(log).forget_up_to(revision);
        }
    }
}

/// Compares the final state: after all writes, every watcher must observe the last one and know the existing objects.
async fn compare(
    endpoint: &Endpoint,
    views: &Views,
    shared: &Shared,
    watchers: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let mut connection = endpoint.connect(Protocol::Http1).await?;
    for number in 0..NAMESPACES {
        let namespace = load::namespace(number);
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let body = json!({"metadata": {"name": MARKER, "labels": {"app": "soak"}}}).to_string();
        let response = connection.send("POST", &path, "application/json", body).await?;
        let revision = response
            .revision()
            .with_context(|| format!("marker: {}", response.code))?;
        if let Some(log) = shared.log(&namespace) {
            lock(log).acknowledge(revision, MARKER, Event::Added);
        }
    }
    let ended = timeout(SHUTDOWN_TIMEOUT, async {
        while watchers.join_next().await.is_some() {}
    })
    .await;
    if ended.is_err() {
        shared.add_violations([format!(
            "{} watchers have not observed the last write",
            watchers.len()
        )]);
    }
    let mut lists = BTreeMap::new();
    for (namespace, view) in views {
        if !lists.contains_key(namespace) {
            let (_, objects) = watching::list(&mut connection, namespace).await?;
            lists.insert(namespace.clone(), objects);
        }
        let mut view = lock(view);
        let mut violations = view.compare(&lists[namespace]);
        if let Some(log) = shared.log(namespace) {
            violations.extend(view.audit_all(&lock(log)));
        }
        shared.add_violations(
            violations
                .into_iter()
                .map(|violation| format!("{namespace}: {violation}")),
        );
    }
    Ok(())
}

/// Stores the median memory of the second half of the first minute and of the last half minute; in a short run, of its
/// thirds.
fn store_memory(outcome: &mut Outcome, memory: &[f64]) {
    let window = (memory.len() / 3).clamp(1, 60);
    let median = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    };
    let first = &memory[..window.min(memory.len())];
    outcome.memory_first_mb = median(&first[first.len() / 2..]);
    outcome.memory_end_mb = median(&memory[memory.len().saturating_sub(window.div_ceil(2))..]);
    outcome.memory_peak_mb = memory.iter().copied().fold(0.0, f64::max);
}
