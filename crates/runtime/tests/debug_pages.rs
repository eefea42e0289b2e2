//! The debug pages of controllers and caches, as JSON and as tables.

use crate::exposition;
use crate::model;
use crate::served;

use std::{num::NonZeroU32, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use model::{CONFIG_MAPS, Server, config_map};
use serde_json::{Value, json};
use served::Served;
use windlass_cache::{CacheSet, STATISTICS, StatisticKind, WatchScope};
use windlass_runtime::{
    ReconcileOutcome,
    layers::{ClientOptions, RateLimit, wrap},
    metrics::Metrics,
    serving::{
        CacheStatus, ControllerState, ControllerStatus, Endpoints, FailingObject, FinishedReconcile,
        OutcomeCounts, RunningReconcile,
    },
};

fn controllers() -> Vec<ControllerStatus> {
    vec![
        ControllerStatus {
            name: "settings".to_owned(),
            state: ControllerState::Running,
            workers: 2,
            queued: 7,
            delayed: 3,
            running: vec![RunningReconcile {
                key: "team-a/web".to_owned(),
                id: "5f1d".to_owned(),
                trigger: "ConfigMap team-a/web updated".to_owned(),
                seconds: 12.34,
            }],
            failing: vec![
                FailingObject {
                    key: "team-a/db".to_owned(),
                    failures: 4,
                    last_error: "conflict:\n  try again".to_owned(),
                    retry_in_seconds: Some(0.8),
                },
                FailingObject {
                    key: "team-b/x".to_owned(),
                    failures: 1,
                    last_error: "replicas must be positive".to_owned(),
                    retry_in_seconds: None,
                },
            ],
            outcomes: OutcomeCounts {
                done: 40,
                failed: 4,
                terminal: 1,
                ..OutcomeCounts::default()
            },
            last: Some(FinishedReconcile {
                key: "team-a/cache".to_owned(),
                outcome: ReconcileOutcome::TimedOut,
                trigger: "retry 2".to_owned(),
                seconds: 2.5,
                seconds_ago: 0.25,
            }),
        },
        ControllerStatus {
            name: "foo".to_owned(),
            state: ControllerState::Syncing {
                waiting_for: vec!["Foo".to_owned()],
                blocked_by: None,
            },
            workers: 1,
            ..ControllerStatus::default()
        },
    ]
}

#[tokio::test]
async fn controllers_page_has_json_and_text() {
    let served = Served::start(Endpoints::new().controllers(controllers)).await;
    let answer = served
        .request("GET", "/debug/controllers", "Accept: */*\r\n")
        .await;
    assert!(
        answer.head.contains("content-type: application/json"),
        "{}",
        answer.head
    );
    let status: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(
        status[0]["running"][0],
        json!({
            "key": "team-a/web", "id": "5f1d", "trigger": "ConfigMap team-a/web updated", "seconds": 12.34,
        })
    );
    assert_eq!(
        status[0]["failing"],
        json!([
            {"key": "team-a/db", "failures": 4, "lastError": "conflict:\n  try again", "retryInSeconds": 0.8},
            {"key": "team-b/x", "failures": 1, "lastError": "replicas must be positive"},
        ])
    );
    assert_eq!(status[0]["outcomes"]["done"], 40);
    assert_eq!(
        status[0]["last"],
        json!({
            "key": "team-a/cache", "outcome": "timedOut", "trigger": "retry 2", "seconds": 2.5, "secondsAgo": 0.25,
        })
    );
    assert_eq!(status[1].get("last"), None);
    assert_eq!(
        status[1]["state"],
        json!({"phase": "syncing", "waitingFor": ["Foo"]})
    );

    let table = "\
NAME      STATE        WORKERS  RUNNING  QUEUED  DELAYED  FAILING  OUTCOMES
settings  running      2        1        7       3        2        40 done, 4 failed, 1 terminal
foo       syncing Foo  1        0        0       0        0        -

CONTROLLER  RUNNING     FOR    TRIGGER                       ID
settings    team-a/web  12.3s  ConfigMap team-a/web updated  5f1d

CONTROLLER  LAST          AGO   TOOK  OUTCOME    TRIGGER
settings    team-a/cache  0.2s  2.5s  timed out  retry 2

CONTROLLER  FAILING    TIMES  NEXT             LAST ERROR
settings    team-a/db  4      in 0.8s          conflict: try again
settings    team-b/x   1      when it changes  replicas must be positive
";
    assert_eq!(served.get("/debug/controllers?format=text").await.1, table);
    let by_header = served
        .request("GET", "/debug/controllers", "Accept: text/plain\r\n")
        .await;
    assert_eq!(by_header.body, table);
    let json_first = served
        .request(
            "GET",
            "/debug/controllers",
            "Accept: application/json, text/plain\r\n",
        )
        .await;
    assert!(json_first.body.starts_with('['));
    assert!(
        served
            .get("/debug/controllers?format=json")
            .await
            .1
            .starts_with('[')
    );
    served.stop().await;
}

#[tokio::test]
async fn debug_index_lists_the_served_pages() {
    let both = Endpoints::new().controllers(controllers).caches(Vec::new);
    let served = Served::start(both).await;
    let (_, index) = served.get("/debug").await;
    for page in ["/debug/controllers", "/debug/caches"] {
        assert!(index.contains(&format!("{page} ")), "{index}");
        assert_eq!(served.request("GET", page, "").await.status, 200);
    }
    assert_eq!(served.get("/debug/").await.1, index);
    served.stop().await;
    let served = Served::start(Endpoints::new().caches(Vec::new)).await;
    assert!(!served.get("/debug").await.1.contains("controllers"));
    served.stop().await;
    let served = Served::start(Endpoints::new()).await;
    assert_eq!(served.request("GET", "/debug", "").await.status, 404);
    served.stop().await;
}

/// An error that is over is still shown, with its time.
#[tokio::test(start_paused = true)]
async fn caches_page_shows_the_last_error_and_its_time() {
    let model = Server::with(&[]);
    let caches = CacheSet::new(model.client());
    let cache = caches.get::<ConfigMap>(&WatchScope::all());
    let page = || {
        let status: Vec<_> = caches.reports().into_iter().map(CacheStatus::from).collect();
        status[0].last_error.clone()
    };
    let waiting = cache.synced(Duration::from_secs(100)).await;
    assert!(waiting.is_err(), "the kind is not installed");
    let error = page().expect("an error");
    assert!(error.message.contains("waiting for its CRD"), "{error:?}");
    assert!(!error.resolved && error.seconds_ago < 60.0, "{error:?}");
    model.install(CONFIG_MAPS);
    cache.synced(Duration::from_secs(100)).await.expect("it syncs");
    tokio::time::sleep(Duration::from_mins(5)).await;
    let over = page().expect("the last error");
    assert_eq!((over.message, over.resolved), (error.message, true));
    assert!(over.seconds_ago >= 300.0, "{}", over.seconds_ago);
    caches.close().await;
}

#[tokio::test]
async fn caches_page_and_metrics_show_each_cache() {
    let model = Server::with(&[CONFIG_MAPS]);
    let metrics = Metrics::new();
    let options = ClientOptions {
        rate_limit: Some(RateLimit::per_second(NonZeroU32::MIN)),
        metrics: Some(metrics.requests("model")),
        ..ClientOptions::default()
    };
    let caches = CacheSet::new(wrap(model.client(), options));
    let cache = caches.get::<ConfigMap>(&WatchScope::all());
    cache.synced(Duration::from_secs(20)).await.expect("it syncs");
    let (shown, counted) = (caches.clone(), caches.clone());
    metrics.caches(move || counted.reports());
    let status = move || shown.reports().into_iter().map(CacheStatus::from).collect();
    let served = Served::start(Endpoints::new().caches(status).metrics(metrics)).await;

    let status: Value = serde_json::from_str(&served.get("/debug/caches").await.1).expect("JSON");
    assert_eq!(status[0]["kind"], "ConfigMap (v1)");
    assert_eq!(status[0]["scope"], "all namespaces");
    assert_eq!(status[0]["statistics"]["lists"], 1);
    let table = served.get("/debug/caches?format=text").await.1;
    let (head, row) = table.split_once('\n').expect("headers");
    assert!(
        head.starts_with("KIND            SCOPE           OBJECTS  BYTES"),
        "{head}"
    );
    assert!(
        row.starts_with("ConfigMap (v1)  all namespaces  0        0"),
        "{row}"
    );

    let families = exposition::parse(&served.get("/metrics").await.1);
    for statistic in STATISTICS {
        let total = match statistic.kind {
            StatisticKind::Counter => "_total",
            StatisticKind::Gauge => "",
        };
        let name = format!("windlass_cache_{}{total}", statistic.name);
        let sample = &families
            .get(name.as_str())
            .unwrap_or_else(|| panic!("{name} is missing"))
            .samples[0];
        assert_eq!(sample.labels["kind"], "ConfigMap (v1)");
        assert_eq!(sample.labels["scope"], "all namespaces");
        assert!(
            status[0]["statistics"][statistic.name].is_number(),
            "{} is missing: {status}",
            statistic.name
        );
    }
    assert!((families["windlass_cache_lists_total"].samples[0].value - 1.0).abs() < f64::EPSILON);
    // The watch went through the client layers and is alive.
    let requests = &families["rest_client_requests_total"].samples[0];
    assert_eq!(requests.labels["host"], "model");
    assert_eq!(requests.labels["code"], "200");
    model.put(CONFIG_MAPS, config_map("a", "text"));
    while served.get("/debug/caches").await.1.contains("\"objects\": 0") {
        tokio::task::yield_now().await;
    }
    served.stop().await;
    caches.close().await;
}
