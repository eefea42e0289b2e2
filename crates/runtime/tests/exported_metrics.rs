//! Pushed metrics, compared with the metrics page.

use std::{collections::BTreeMap, time::Duration};

use opentelemetry_proto::tonic::{
    common::v1::KeyValue,
    metrics::v1::{Metric, metric::Data, number_data_point},
};
use tokio::sync::mpsc;
use windlass_runtime::{
    Action, Context, Manager, Request,
    metrics::{
        DurationHistogram, Format,
        prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge},
    },
};

use crate::{
    ENDPOINT,
    collector::{Collector, attribute},
    exposition,
    harness::{Running, controller, server},
    model::{CONFIG_MAPS, config_map},
    telemetry, turn,
};

/// The samples of a metric as `/metrics` writes them, by name and labels.
fn samples(metric: &Metric) -> BTreeMap<(String, BTreeMap<String, String>), String> {
    let labels = |attributes: &[KeyValue]| -> BTreeMap<_, _> {
        let keys = attributes.iter().map(|attribute| attribute.key.clone());
        keys.map(|key| (key.clone(), attribute(attributes, &key).expect("a value")))
            .collect()
    };
    let name = |suffix: &str| format!("{}{suffix}", metric.name);
    let mut samples = BTreeMap::new();
    match metric.data.as_ref().expect("data") {
        Data::Gauge(gauge) => {
            for point in &gauge.data_points {
                samples.insert((name(""), labels(&point.attributes)), number(point.value));
            }
        }
        Data::Sum(sum) => {
            assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "cumulative");
            for point in &sum.data_points {
                assert!(point.start_time_unix_nano > 0 && point.time_unix_nano >= point.start_time_unix_nano);
                samples.insert((name(""), labels(&point.attributes)), number(point.value));
            }
        }
        Data::Histogram(histogram) => {
            for point in &histogram.data_points {
                assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                let labels = labels(&point.attributes);
                let bounds = point.explicit_bounds.iter().copied().chain([f64::INFINITY]);
                let mut total = 0;
                for (bound, count) in bounds.zip(&point.bucket_counts) {
                    total += count;
                    let mut labels = labels.clone();
                    labels.insert("le".to_owned(), bound.to_string());
                    samples.insert((name("_bucket"), labels), total.to_string());
                }
                samples.insert((name("_count"), labels.clone()), point.count.to_string());
                samples.insert((name("_sum"), labels), point.sum.expect("a sum").to_string());
            }
        }
        other => panic!("{other:?}"),
    }
    samples
}

fn number(value: Option<number_data_point::Value>) -> String {
    match value.expect("a value") {
        number_data_point::Value::AsDouble(value) => value.to_string(),
        number_data_point::Value::AsInt(value) => value.to_string(),
    }
}

#[tokio::test]
async fn pushed_metrics_are_those_of_the_metrics_page() {
    let _turn = turn().await;
    let collector = Collector::start(&[]);
    let telemetry = telemetry(&[(ENDPOINT, &collector.endpoint), ("OTEL_TRACES_EXPORTER", "none")]);
    assert!(telemetry.layer::<tracing_subscriber::Registry>().is_none());
    let server = server();
    server.put(CONFIG_MAPS, config_map("a", "1"));
    let (ran, mut runs) = mpsc::unbounded_channel();
    let reconciler = move |_: Request, _: Context| {
        let _ = ran.send(());
        async { Ok(Action::done()) }
    };
    let manager = Manager::new(server.client())
        .controller(controller().reconcile(reconciler))
        .telemetry(telemetry);
    let metrics = manager.metrics();
    let sold = Family::<Vec<(String, String)>, Counter>::default();
    let (stock, times) = (
        Gauge::<i64>::default(),
        DurationHistogram::new(&[0.005, 1.0, 2.5]),
    );
    metrics.register(|registry| {
        registry.register("shop_sold", "Cones, \"scoops\" and \\ more", sold.clone());
        registry.register("shop_stock", "Cones", stock.clone());
        registry.register("shop_time_seconds", "Time", times.clone());
    });
    let odd = "a \"quoted\" \\ text\nin two lines";
    sold.get_or_create(&vec![("kind".to_owned(), odd.to_owned())])
        .inc_by(7);
    sold.get_or_create(&vec![("kind".to_owned(), "b".to_owned())])
        .inc();
    stock.set(-4);
    for milliseconds in [1, 5, 6, 900, 2000, 3000] {
        times.observe(Duration::from_millis(milliseconds));
    }
    let running = Running::start(manager);
    runs.recv().await.expect("a reconcile runs");
    running.stop().await.expect("stops cleanly");

    let page = exposition::parse(&metrics.scrape(Format::Prometheus));
    let (resource, pushed) = collector.metrics();
    assert_eq!(attribute(&resource, "service.name").as_deref(), Some("test"));
    let pushed: BTreeMap<_, _> = pushed
        .iter()
        .map(|metric| (metric.name.as_str(), metric))
        .collect();
    let sold = samples(pushed["shop_sold_total"]);
    let labels = BTreeMap::from([("kind".to_owned(), odd.to_owned())]);
    assert_eq!(sold[&("shop_sold_total".to_owned(), labels)], "7");
    assert_eq!(pushed["shop_stock"].description, "Cones.");
    let mut compared = 0;
    for (name, family) in &page {
        let metric = pushed.get(name.as_str());
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in {:?}", pushed.keys()));
        // The others change between the push and this look at the page.
        if !["shop_", "controller_runtime_", "workqueue_", "rest_client_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            continue;
        }
        let expected: BTreeMap<_, _> = family
            .samples
            .iter()
            .map(|sample| {
                let mut labels = sample.labels.clone();
                if let Some(le) = labels.get_mut("le") {
                    *le = le.parse::<f64>().expect("a bound").to_string();
                }
                ((sample.name.clone(), labels), sample.value.to_string())
            })
            .collect();
        assert_eq!(samples(metric), expected, "{name}");
        compared += 1;
    }
    assert!(compared >= 20, "{compared} families");
    assert_eq!(page.len(), pushed.len());
}
