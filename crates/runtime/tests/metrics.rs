//! The output of `/metrics`, checked with a strict parser.

use crate::exposition;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use exposition::{Kind, parse};
use http::{Method, StatusCode};
use proptest::{
    collection::{btree_map, btree_set},
    prelude::*,
};
use tokio::time::sleep;
use windlass_runtime::{
    ReconcileOutcome,
    metrics::{
        DurationHistogram, Format, Metrics, Reading,
        prometheus_client::metrics::{counter::Counter, family::Family},
    },
};
use windlass_workqueue::{AddOptions, Priority, WorkQueue};

/// Metrics of a program with one leading controller that has sent requests.
fn settings() -> Metrics {
    let metrics = Metrics::new();
    metrics.controller("settings", NonZeroUsize::MIN);
    metrics.queue("settings");
    metrics.leader("settings", || true, || 2);
    metrics
        .requests("127.0.0.1:6443")
        .count(&Method::GET, Some(StatusCode::OK));
    metrics
}

#[test]
fn metrics_match_controller_runtime_in_names_types_labels_and_buckets() {
    let ours = parse(&settings().scrape(Format::Prometheus));
    let theirs = include_str!("data/controller-runtime-metrics.txt");
    let mut compared = 0;
    for line in theirs.lines().filter(|line| !line.starts_with('#')) {
        let [name, kind, labels, bounds] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("name, type, labels, bounds: {line}");
        };
        let family = ours.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(family.kind.name(), kind, "{name}");
        let found: BTreeSet<_> = family
            .samples
            .iter()
            .flat_map(|sample| sample.labels.keys())
            .collect();
        let found: Vec<_> = found
            .into_iter()
            .map(String::as_str)
            .filter(|label| *label != "le")
            .collect();
        assert_eq!(found.join(","), labels.trim_matches('-'), "{name}");
        let le: Vec<_> = family
            .samples
            .iter()
            .filter_map(|sample| sample.labels.get("le"))
            .collect();
        let le: Vec<_> = le.into_iter().map(String::as_str).collect();
        assert_eq!(le.join(","), bounds.trim_matches('-'), "{name}");
        compared += 1;
    }
    assert_eq!(compared, 24);
}

/// Metrics that neither controller-runtime nor client-go has.
#[test]
fn other_metrics_have_the_windlass_prefix() {
    let theirs = include_str!("data/controller-runtime-metrics.txt");
    let known: BTreeSet<_> = theirs.lines().filter_map(|line| line.split(' ').next()).collect();
    let own: Vec<_> = parse(&settings().scrape(Format::Prometheus))
        .into_keys()
        .filter(|name| !known.contains(name.as_str()) && !name.starts_with("windlass_"))
        .collect();
    // The first is client-go's but not registered by controller-runtime; the second belongs to the retry limit, which
    // client-go does not have.
    assert_eq!(own, ["leader_election_slowpath_total", "workqueue_dropped_total"]);
}

/// Errors, panics and timeouts overlap as in controller-runtime.
#[test]
fn reconcile_outcomes_are_counted_like_controller_runtime() {
    let metrics = Metrics::new();
    let controller = metrics.controller("settings", NonZeroUsize::new(4).expect("not zero"));
    let value = |name: &str, labels: &str| {
        let text = metrics.scrape(Format::Prometheus);
        let line = format!("controller_runtime_{name}{{controller=\"settings\"{labels}}} ");
        let found = text.lines().find_map(|found| found.strip_prefix(&*line));
        found
            .unwrap_or_else(|| panic!("{line} in\n{text}"))
            .parse::<u64>()
            .expect("a number")
    };
    let figures = || {
        [
            value("reconcile_total", r#",result="success""#),
            value("reconcile_total", r#",result="requeue""#),
            value("reconcile_total", r#",result="requeue_after""#),
            value("reconcile_total", r#",result="error""#),
            value("reconcile_errors_total", ""),
            value("terminal_reconcile_errors_total", ""),
            value("reconcile_panics_total", ""),
            value("reconcile_timeouts_total", ""),
        ]
    };
    let mut before = figures();
    assert_eq!(before, [0; 8], "all series exist from the start");
    assert_eq!(value("max_concurrent_reconciles", ""), 4);
    for (ended, expected) in [
        (ReconcileOutcome::Done, [1, 0, 0, 0, 0, 0, 0, 0]),
        (ReconcileOutcome::Requeued, [0, 0, 1, 0, 0, 0, 0, 0]),
        (ReconcileOutcome::Failed, [0, 0, 0, 1, 1, 0, 0, 0]),
        (ReconcileOutcome::Terminal, [0, 0, 0, 1, 1, 1, 0, 0]),
        (ReconcileOutcome::Panicked, [0, 0, 0, 1, 1, 0, 1, 0]),
        (ReconcileOutcome::TimedOut, [0, 0, 0, 1, 1, 0, 0, 1]),
    ] {
        controller.count(ended);
        let after = figures();
        let mut more = after;
        more.iter_mut()
            .zip(before)
            .for_each(|(after, before)| *after -= before);
        assert_eq!(more, expected, "{ended:?}");
        before = after;
    }
}

#[tokio::test(start_paused = true)]
async fn running_reconcile_is_active_and_its_duration_is_recorded() {
    let metrics = Metrics::new();
    let controller = metrics.controller("settings", NonZeroUsize::MIN);
    let line = |line: &str| {
        metrics
            .scrape(Format::Prometheus)
            .lines()
            .any(|found| found == line)
    };
    let active = controller.start();
    sleep(Duration::from_millis(200)).await;
    assert!(line(
        r#"controller_runtime_active_workers{controller="settings"} 1"#
    ));
    assert!(line(
        r#"controller_runtime_reconcile_time_seconds_count{controller="settings"} 0"#
    ));
    drop(active);
    assert!(line(
        r#"controller_runtime_active_workers{controller="settings"} 0"#
    ));
    assert!(line(
        r#"controller_runtime_reconcile_time_seconds_sum{controller="settings"} 0.2"#
    ));
    assert!(line(
        r#"controller_runtime_reconcile_time_seconds_bucket{controller="settings",le="0.15"} 0"#
    ));
    assert!(line(
        r#"controller_runtime_reconcile_time_seconds_bucket{controller="settings",le="0.2"} 1"#
    ));
}

#[tokio::test(start_paused = true)]
async fn queue_metrics_follow_the_queue() {
    let metrics = Metrics::new();
    let queue = WorkQueue::<&str>::builder()
        .metrics(metrics.queue("settings"))
        .build();
    let asked = queue.clone();
    metrics.before_scrape(move || asked.report_metrics());
    let value = |name: &str| {
        let families = parse(&metrics.scrape(Format::Prometheus));
        let (name, priority) = name
            .split_once('@')
            .map_or((name, None), |(name, at)| (name, Some(at)));
        let name = format!("workqueue_{name}");
        let samples = families.values().flat_map(|family| &family.samples);
        let found: Vec<_> = samples
            .filter(|sample| sample.name == name)
            .filter(|sample| priority.is_none_or(|at| sample.labels["priority"] == at))
            .collect();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0].labels["name"], "settings");
        assert_eq!(found[0].labels["controller"], "settings");
        found[0].value
    };
    assert!(value("depth@0").abs() < f64::EPSILON, "exists from the start");
    queue.add("a");
    for key in ["b", "c"] {
        let add = AddOptions {
            priority: Priority::LOW,
            ..AddOptions::default()
        };
        queue.add_with(key, add);
    }
    let got = |expected: f64, name: &str| {
        let value = value(name);
        assert!((value - expected).abs() < 1e-9, "{name}: {value}, not {expected}");
    };
    got(1.0, "depth@0");
    got(2.0, "depth@-100");
    got(3.0, "adds_total");
    sleep(Duration::from_secs(2)).await;
    let taken = queue.next().await.expect("a key");
    got(0.0, "depth@0");
    got(1.0, "queue_duration_seconds_count");
    got(2.0, "queue_duration_seconds_sum");
    sleep(Duration::from_secs(3)).await;
    got(3.0, "unfinished_work_seconds");
    got(3.0, "longest_running_processor_seconds");
    taken.done();
    got(0.0, "unfinished_work_seconds");
    got(3.0, "work_duration_seconds_sum");
    got(0.0, "retries_total");
    got(0.0, "dropped_total");
}

#[test]
fn read_metrics_are_collected_at_each_scrape() {
    let metrics = Metrics::new();
    let leads = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&leads);
    metrics.leader("a", move || asked.load(Ordering::Relaxed), || 4);
    metrics.leader("b", || true, || 0);
    metrics.read_gauge("queued", "Queued", || [Reading::new(0.5)]);
    metrics.read_counter("dropped", "Dropped", || {
        ["full", "spam"].map(|reason| Reading::new(7).label("reason", reason))
    });
    metrics.read_counter("nothing", "Nothing", || None);
    let lines = || {
        let text = metrics.scrape(Format::Prometheus);
        let families = parse(&text);
        assert!(!families.contains_key("nothing_total"));
        let shown = |line: &&str| {
            ["leader_", "queued", "dropped"]
                .iter()
                .any(|name| line.starts_with(name))
        };
        text.lines().filter(shown).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut expected = [
        r#"dropped_total{reason="full"} 7"#,
        r#"dropped_total{reason="spam"} 7"#,
        r#"leader_election_master_status{name="a"} 0"#,
        r#"leader_election_master_status{name="b"} 1"#,
        r#"leader_election_slowpath_total{name="a"} 4"#,
        r#"leader_election_slowpath_total{name="b"} 0"#,
        "queued 0.5",
    ];
    assert_eq!(lines(), expected);
    leads.store(true, Ordering::Relaxed);
    expected[2] = r#"leader_election_master_status{name="a"} 1"#;
    assert_eq!(lines(), expected);
    // Registering an election again replaces it.
    metrics.leader("a", || true, || 4);
    assert_eq!(lines().len(), expected.len());
}

/// Limits the cardinality of custom priorities.
#[test]
fn many_priorities_share_a_series() {
    let metrics = Metrics::new();
    let queue = metrics.queue("settings");
    for priority in 1..=40 {
        queue.depth(Priority::from(priority), 2);
    }
    queue.depth(Priority::from(40), 0);
    let families = parse(&metrics.scrape(Format::Prometheus));
    let depths: BTreeMap<_, _> = families["workqueue_depth"]
        .samples
        .iter()
        .map(|sample| (sample.labels["priority"].as_str(), sample.value))
        .collect();
    assert_eq!(depths.len(), 26);
    // 0 to 24 have their own; of the sixteen others one is empty.
    assert!(
        (depths["exceeded_cardinality_limit"] - 30.0).abs() < f64::EPSILON,
        "{depths:?}"
    );
    assert!((depths["24"] - 2.0).abs() < f64::EPSILON);
}

#[test]
fn label_values_are_escaped() {
    let metrics = Metrics::new();
    let family = Family::<[(&str, String); 1], Counter>::default();
    let odd = [
        "a\"b",
        "a\\",
        "a\nb",
        "\\\"",
        "a{le=\"1\"} 5",
        "# EOF",
        "grüß, gott",
        "",
    ];
    for value in odd {
        family.get_or_create(&[("odd", value.to_owned())]).inc();
    }
    metrics.register(|registry| registry.register("odd", "Odd", family));
    let families = parse(&metrics.scrape(Format::Prometheus));
    let found: BTreeSet<_> = families["odd_total"]
        .samples
        .iter()
        .map(|sample| sample.labels["odd"].as_str())
        .collect();
    assert_eq!(found, BTreeSet::from(odd));
}

proptest! {
    #[test]
    fn label_values_and_numbers_round_trip(values in btree_map(any::<String>(), any::<u64>(), 1..5)) {
        let metrics = Metrics::new();
        let shown = values.clone();
        metrics.read_gauge("any", "Any", move || {
            let readings = shown.iter().map(|(value, bits)| Reading::new(f64::from_bits(*bits)).label("any", value));
            readings.collect::<Vec<_>>()
        });
        let families = parse(&metrics.scrape(Format::Prometheus));
        let found: BTreeMap<_, _> = families["any"]
            .samples
            .iter()
            .map(|sample| (sample.labels["any"].clone(), sample.value))
            .collect();
        prop_assert_eq!(found.len(), values.len());
        for (value, bits) in values {
            let (number, found) = (f64::from_bits(bits), found[&value]);
            prop_assert!(number.to_bits() == found.to_bits() || number.is_nan() && found.is_nan(), "{} {}", number, found);
        }
    }

    /// A bound is a label, so its number must not change.
    #[test]
    fn bucket_bounds_round_trip(bounds in btree_set(1_u64..10_000_000_000_000, 1..8)) {
        #[allow(clippy::cast_precision_loss, reason = "any number will do")]
        let bounds: Vec<_> = bounds.into_iter().map(|nanos| nanos as f64 * 1e-9).collect();
        let metrics = Metrics::new();
        metrics.register(|registry| registry.register("any", "Any", DurationHistogram::new(&bounds)));
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = metrics.scrape(format);
            let families = parse(text.strip_suffix("# EOF\n").unwrap_or(&text));
            let found = families["any"].samples.iter().filter_map(|sample| sample.labels.get("le")?.parse().ok());
            let found: Vec<f64> = found.filter(|bound: &f64| bound.is_finite()).collect();
            prop_assert_eq!(&found, &bounds);
        }
    }
}

#[test]
fn open_metrics_has_the_same_values() {
    let metrics = settings();
    let plain = parse(&metrics.scrape(Format::Prometheus));
    let open = metrics.scrape(Format::OpenMetrics);
    // In Go's notation for this format.
    for le in [
        "1e-08",
        "9.999999999999999e-06",
        "0.001",
        "0.15",
        "1.0",
        "1000.0",
        "+Inf",
    ] {
        assert!(open.contains(&format!("{{le=\"{le}\",")), "{le} in\n{open}");
    }
    let body = open.strip_suffix("# EOF\n").expect("it ends with EOF");
    let open = parse(body);
    let changing = |name: &str| name.starts_with("process_");
    for (name, family) in &plain {
        let base = match family.kind {
            Kind::Counter => name.strip_suffix("_total").expect("a counter's suffix"),
            _ => name,
        };
        let other = open.get(base).unwrap_or_else(|| panic!("{base} is missing"));
        assert_eq!(other.samples.len(), family.samples.len(), "{name}");
        if !changing(name) {
            let sum = |samples: &[exposition::Sample]| samples.iter().map(|sample| sample.value).sum::<f64>();
            assert!(
                (sum(&other.samples) - sum(&family.samples)).abs() < 1e-9,
                "{name}"
            );
        }
    }
    assert_eq!(open.len(), plain.len());
}

#[test]
fn scrapes_are_deterministic() {
    let metrics = Metrics::new();
    for name in ["b", "c", "a", "e", "d"] {
        metrics.controller(name, NonZeroUsize::MIN);
    }
    let steady = || {
        let text = metrics.scrape(Format::Prometheus);
        let lines = text.lines().filter(|line| !line.contains("process_"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let other = Metrics::new();
    for name in ["e", "d", "c", "b", "a"] {
        other.controller(name, NonZeroUsize::MIN);
    }
    let text = other.scrape(Format::Prometheus);
    let lines: Vec<_> = text.lines().filter(|line| !line.contains("process_")).collect();
    assert_eq!(steady(), lines);
}

#[test]
fn format_is_negotiated_by_the_accept_header() {
    // The second is what Prometheus 3 sends.
    for (accept, format) in [
        ("", Format::Prometheus),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            Format::OpenMetrics,
        ),
        ("text/html, */*", Format::Prometheus),
        (
            "text/plain, application/openmetrics-text;q=0.5",
            Format::Prometheus,
        ),
        ("application/openmetrics-text;q=0", Format::Prometheus),
        ("application/openmetrics-text", Format::OpenMetrics),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}

#[test]
fn process_metrics_are_exported() {
    let families = parse(&Metrics::new().scrape(Format::Prometheus));
    let value = |name: &str| families[name].samples[0].value;
    assert!(value("process_resident_memory_bytes") > 1e5);
    assert!(value("process_open_fds") >= 3.0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.expect("after 1970").as_secs_f64() - value("process_start_time_seconds");
    assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
}

#[test]
fn concurrent_counting_loses_nothing() {
    let metrics = Metrics::new();
    let controller = Arc::new(metrics.controller("settings", NonZeroUsize::MIN));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5000 {
                    drop(controller.start());
                    controller.count(ReconcileOutcome::Done);
                }
            });
        }
    });
    let text = metrics.scrape(Format::Prometheus);
    for line in [
        r#"controller_runtime_reconcile_total{controller="settings",result="success"} 20000"#,
        r#"controller_runtime_reconcile_time_seconds_count{controller="settings"} 20000"#,
        r#"controller_runtime_active_workers{controller="settings"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}
