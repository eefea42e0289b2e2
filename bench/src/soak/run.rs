//! One run: a server of its own, clients, watchers, perhaps a hostile one, and what came of it.

use std::{
    collections::BTreeMap,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context, ensure};
use fastrand::Rng;
use serde::Serialize;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};
use windlass_bench::{processes, serve};

use super::{
    hostile::{self, Tally},
    latency::{Figures, Histogram},
    load::{self, NAMESPACES, Shared, Worker, locked},
    model::{Event, View},
    watch::{self as watching, MARKER, Manner, Watcher},
    wire::{Line, Protocol, REQUEST, Wire},
};

/// How far audits of the watches are apart: further than a request may take, so that no acknowledgement is later than the next one.
const AUDIT: Duration = Duration::from_secs(REQUEST.as_secs() + 5);

/// The server is killed when it takes more, so that the machine survives what the hostile client does.
const MEMORY_LIMIT_MB: f64 = 4_096.0;

/// How long the end may take: the last requests, and watches that are behind.
const ENDING: Duration = Duration::from_mins(2);

/// How a run is made.
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

/// What came of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) hostile: bool,
    pub(crate) seconds: f64,
    /// Requests of clients that behave.
    pub(crate) latency: Figures,
    /// `/livez`, asked four times a second.
    pub(crate) livez: Figures,
    /// Resident memory of the server in the first minute, and at the end.
    pub(crate) memory_first_mb: f64,
    pub(crate) memory_end_mb: f64,
    pub(crate) memory_peak_mb: f64,
    pub(crate) watch_events: u64,
    pub(crate) relists: u64,
    /// Watch events that were lost, reordered or wrong.
    pub(crate) violations: Vec<String>,
    /// Answers and errors that clients that behave should not get.
    pub(crate) surprises: BTreeMap<String, u64>,
    /// How the server ended before it was told to.
    pub(crate) died: Option<String>,
    pub(crate) attacks: Tally,
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    // The server ends when its standard input does, which waiting for it would close.
    let (mut server, _input, wire) = start().await?;
    let process = server.id().context("a process that runs")?;
    let hostile_wire = prepare(&wire, plan).await?;
    let shared = Shared::new();
    let (stop_sender, stop) = watch::channel(false);
    let (finish_sender, finish) = watch::channel(false);
    let (attack_sender, attack) = watch::channel(["", ""]);
    let mut rng = Rng::with_seed(plan.seed);

    let (mut watchers, views) = watchers(plan, &wire, &shared, &finish, &mut rng);
    let mut workers = workers(plan, &wire, &shared, &stop, &mut rng);
    let probing = tokio::spawn(probe(wire.clone(), stop.clone()));
    let attacking = hostile_wire.map(|wire| tokio::spawn(hostile::attack(wire, attack_sender, stop.clone())));

    let started = Instant::now();
    let mut memory = Vec::new();
    let mut died = None;
    let mut is_too_large = false;
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut next_audit = started + AUDIT;
    let mut next_line = started + Duration::from_secs(10);
    while started.elapsed() < plan.time {
        tokio::select! {
            _ = ticks.tick() => {}
            status = server.wait() => {
                let during = match *attack.borrow() {
                    ["", ""] => String::new(),
                    ["", attack] => format!(" during the attack `{attack}`"),
                    [last, attack] => format!(" during the attack `{attack}`, after `{last}`"),
                };
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
            next_audit = now + AUDIT;
        }
        if now >= next_line {
            next_line = now + Duration::from_secs(10);
            progress(started.elapsed(), &shared, &memory, attack.borrow()[1]);
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
        let ended = timeout(ENDING, async { while workers.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            shared.wrong(["clients did not end".to_owned()]);
        }
        // Before the marker is written, the clients have stopped reading.
        finish_sender.send_replace(true);
        if let Err(error) = compare(&wire, &views, &shared, &mut watchers).await {
            shared.wrong([format!("the end could not be compared: {error:#}")]);
        }
    }
    outcome.livez = timeout(ENDING, probing)
        .await
        .context("the probe did not end")??
        .figures();
    if let Some(attacking) = attacking {
        outcome.attacks = timeout(ENDING, attacking)
            .await
            .context("the hostile client did not end")??;
    }
    workers.abort_all();
    watchers.abort_all();
    server.kill().await.ok();
    for (_, view) in &views {
        let view = locked(view);
        outcome.watch_events += view.events;
        outcome.relists += view.relists.saturating_sub(1);
    }
    outcome.latency = shared.latency().figures();
    outcome.violations = shared.violations();
    outcome.surprises = shared.surprises();
    remember(&mut outcome, &memory);
    Ok(outcome)
}

/// A progress line.
fn progress(elapsed: Duration, shared: &Shared, memory: &[f64], attack: &str) {
    let figures = shared.latency().figures();
    eprintln!(
        "{:5.0} s  {:8} requests, p99 {:7.1} ms, {:6.0} MB, {} violations, {} surprises  {attack}",
        elapsed.as_secs_f64(),
        figures.requests,
        figures.p99_ms,
        memory.last().copied().unwrap_or_default(),
        shared.violations().len(),
        shared.surprises().values().sum::<u64>(),
    );
}

/// The server in a process of its own, so that its memory is its own; and as whom to come.
async fn start() -> anyhow::Result<(Child, ChildStdin, Wire)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(serve::SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().context("piped")?;
    let line = BufReader::new(output).lines().next_line().await?;
    let line = line.context("the server's process ended before it served")?;
    let (kubeconfig, _) = line.split_once('\t').context("a path and a time")?;
    let wire = Wire::open(kubeconfig).await?;
    let input = child.stdin.take().context("piped")?;
    Ok((child, input, wire))
}

/// Makes the namespaces, and a user for the hostile client if there is one.
async fn prepare(wire: &Wire, plan: &Plan) -> anyhow::Result<Option<Wire>> {
    let mut line = wire.connect(Protocol::Http1).await?;
    let json = "application/json";
    let own = [load::DYING.to_owned(), hostile::NAMESPACE.to_owned()];
    for name in (0..NAMESPACES).map(load::namespace).chain(own) {
        let body = json!({"metadata": {"name": name}}).to_string();
        let answer = line.send("POST", "/api/v1/namespaces", json, body).await?;
        ensure!(answer.code == 201, "namespace {name}: {}", answer.json());
    }
    fill_history(&mut line).await?;
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
        let answer = line.send("POST", path, json, body.to_string()).await?;
        ensure!([201, 409].contains(&answer.code), "{path}: {}", answer.json());
    }
    let request = json!({"spec": {"expirationSeconds": 24 * 3600}}).to_string();
    let answer = line
        .send("POST", &format!("{accounts}/mallory/token"), json, request)
        .await?
        .json();
    let token = answer["status"]["token"].as_str().context("a token")?;
    Ok(Some(wire.with_token(token)))
}

/// Fills the server's history of events, which is bounded in bytes: its memory then grows only by what is not bounded.
async fn fill_history(line: &mut Line) -> anyhow::Result<()> {
    /// More than the default history of 64 MiB, in secrets of 680 KiB.
    const EVENTS: usize = 128;
    const BYTES: usize = 512 * 1024;
    let secrets = format!("/api/v1/namespaces/{}/secrets", load::DYING);
    let secret = |number: usize| {
        let text = number.to_string() + &"x".repeat(BYTES);
        json!({"metadata": {"name": "history"}, "stringData": {"text": text}}).to_string()
    };
    let json = "application/json";
    let answer = line.send("POST", &secrets, json, secret(0)).await?;
    ensure!(answer.code == 201, "{secrets}: {}", answer.json());
    let target = format!("{secrets}/history");
    for number in 1..=EVENTS {
        let answer = line.send("PUT", &target, json, secret(number)).await?;
        ensure!(answer.code == 200, "{target}: {}", answer.json());
    }
    Ok(())
}

type Views = Vec<(String, Arc<Mutex<View>>)>;

/// A fifth of the clients watch; every third of them does not read for a while, every third drops its connections too.
fn watchers(
    plan: &Plan,
    wire: &Wire,
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
            wire: wire.clone(),
            protocol: if (number / 3).is_multiple_of(2) {
                Protocol::Http1
            } else {
                Protocol::Http2
            },
            namespace,
            manner: [Manner::Attentive, Manner::Stalling, Manner::Dropping][number % 3],
            view,
            shared: Arc::clone(shared),
            rng: rng.fork(),
            finish: finish.clone(),
        };
        tasks.spawn(watcher.run());
    }
    (tasks, views)
}

/// The other clients; two of them have connections that die.
fn workers(
    plan: &Plan,
    wire: &Wire,
    shared: &Arc<Shared>,
    stop: &watch::Receiver<bool>,
    rng: &mut Rng,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        tasks.spawn(load::die_again_and_again(wire.clone(), rng.fork(), stop.clone()));
    }
    let count = plan.clients.saturating_sub((plan.clients / 5).max(2) + 2).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let pause = Duration::from_secs_f64(count as f64 / plan.rate);
    for number in 0..count {
        let worker = Worker {
            number,
            wire: wire.clone(),
            shared: Arc::clone(shared),
            pause,
            rng: rng.fork(),
            stop: stop.clone(),
        };
        tasks.spawn(worker.run());
    }
    tasks
}

/// Whether the server is alive, as a kubelet would ask.
async fn probe(wire: Wire, mut stop: watch::Receiver<bool>) -> Histogram {
    let mut histogram = Histogram::default();
    let mut line: Option<Line> = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(250)) => {}
            _ = stop.wait_for(|stop| *stop) => return histogram,
        }
        let asked = Instant::now();
        if line.is_none() {
            line = wire.connect(Protocol::Http1).await.ok();
        }
        if let Some(open) = &mut line
            && open.get("/livez").await.is_err()
        {
            line = None;
        }
        histogram.add(asked.elapsed());
    }
}

/// Looks at what every watcher has seen, and forgets what all of them have.
fn audit(views: &Views, shared: &Shared) {
    let mut audited: BTreeMap<&str, u64> = BTreeMap::new();
    for (namespace, view) in views {
        let Some(log) = shared.log(namespace) else {
            continue;
        };
        let mut view = locked(view);
        let wrong = view.audit(&locked(log));
        shared.wrong(wrong.into_iter().map(|wrong| format!("{namespace}: {wrong}")));
        let least = audited.entry(namespace).or_insert(u64::MAX);
        *least = view.audited().min(*least);
    }
    for (namespace, revision) in audited {
        if let Some(log) = shared.log(namespace) {
            locked(log).forget_up_to(revision);
        }
    }
}

/// When all writes are over: every watcher sees the last one, and then knows what is there.
async fn compare(
    wire: &Wire,
    views: &Views,
    shared: &Shared,
    watchers: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let mut line = wire.connect(Protocol::Http1).await?;
    for number in 0..NAMESPACES {
        let namespace = load::namespace(number);
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let body = json!({"metadata": {"name": MARKER, "labels": {"app": "soak"}}}).to_string();
        let answer = line.send("POST", &path, "application/json", body).await?;
        let revision = answer
            .revision()
            .with_context(|| format!("marker: {}", answer.code))?;
        if let Some(log) = shared.log(&namespace) {
            locked(log).acknowledge(revision, MARKER, Event::Added);
        }
    }
    let ended = timeout(ENDING, async { while watchers.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        shared.wrong([format!(
            "{} watchers have not seen the last write",
            watchers.len()
        )]);
    }
    let mut lists = BTreeMap::new();
    for (namespace, view) in views {
        if !lists.contains_key(namespace) {
            let (_, objects) = watching::list(&mut line, namespace).await?;
            lists.insert(namespace.clone(), objects);
        }
        let mut view = locked(view);
        let mut wrong = view.compare(&lists[namespace]);
        if let Some(log) = shared.log(namespace) {
            wrong.extend(view.audit_all(&locked(log)));
        }
        shared.wrong(wrong.into_iter().map(|wrong| format!("{namespace}: {wrong}")));
    }
    Ok(())
}

/// Medians of the second half of the first minute and of the last half minute; of a short run, of its thirds.
fn remember(outcome: &mut Outcome, memory: &[f64]) {
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
