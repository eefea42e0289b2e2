//! `/metrics`: the state of the server in Prometheus' text format, with kube-apiserver's names and labels.
//!
//! The number of objects and of permits is read when it is asked for. A watch is counted when it begins, and has no latency.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::{Display, Write},
};

use http::request::Parts;
use windlass_api::request::RequestInfo;

use super::Api;
use crate::{
    patch::PatchKind,
    registry,
    request_metrics::{BUCKETS_MS, Labels, Series},
};

/// The media type of Prometheus' text format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// The verb of a request in the metrics.
pub(super) fn verb(parts: &Parts, info: &RequestInfo) -> &'static str {
    match &*info.access.verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" if PatchKind::is_apply(&parts.headers) => "APPLY",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        // A verb that is not a known one, as the real server calls it.
        _ => "other",
    }
}

/// The metrics of a server.
pub(super) fn render(api: &Api) -> String {
    let mut text = String::new();
    let (reads, writes) = api.metrics.current();
    family(
        &mut text,
        ("apiserver_current_inflight_requests", "gauge"),
        "Number of requests that are being handled and are not long-running, per request kind.",
        [
            ("request_kind=\"mutating\"".to_owned(), writes),
            ("request_kind=\"readOnly\"".to_owned(), reads),
        ],
    );
    let requests = api.metrics.total();
    long_running(&mut text, &requests);
    durations(&mut text, &requests);
    totals(&mut text, &requests);
    let counts = stored_objects(api);
    family(
        &mut text,
        ("apiserver_resource_objects", "gauge"),
        "Number of stored objects split by group resource.",
        counts
            .iter()
            .map(|(group, plural, count)| (format!("group=\"{group}\",resource=\"{plural}\""), *count)),
    );
    family(
        &mut text,
        ("apiserver_storage_objects", "gauge"),
        "Number of stored objects split by kind. Deprecated, as in kube-apiserver: use apiserver_resource_objects.",
        counts.iter().map(|(group, plural, count)| {
            let dot = if group.is_empty() { "" } else { "." };
            (format!("resource=\"{plural}{dot}{group}\""), *count)
        }),
    );
    let version = registry::version();
    family(
        &mut text,
        ("kubernetes_build_info", "gauge"),
        "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, \
         Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
        [(version.to_labels(), 1)],
    );
    text
}

type Requests = BTreeMap<(Box<str>, Labels), Series>;

fn long_running(text: &mut String, requests: &Requests) {
    family(
        text,
        ("apiserver_longrunning_requests", "gauge"),
        "Number of open watches broken out by verb, group, version, resource, scope and component.",
        requests
            .iter()
            .filter(|(_, series)| series.open > 0)
            .map(|((plural, labels), series)| {
                let Labels {
                    verb,
                    scope,
                    subresource,
                    version,
                    group,
                    ..
                } = labels;
                let labels = format!(
                    "component=\"apiserver\",group=\"{group}\",resource=\"{plural}\",scope=\"{scope}\",subresource=\"{subresource}\",\
                     verb=\"{verb}\",version=\"{version}\""
                );
                (labels, series.open)
            }),
    );
}

fn durations(text: &mut String, requests: &Requests) {
    const NAME: &str = "apiserver_request_duration_seconds";
    header(
        text,
        (NAME, "histogram"),
        "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, \
         scope and component.",
    );
    for ((plural, labels), series) in requests {
        let count: u64 = series.buckets.iter().sum();
        if count == 0 {
            continue;
        }
        let labels = request_labels(plural, labels);
        let mut below = 0;
        for (bound, bucket) in BUCKETS_MS.iter().zip(series.buckets) {
            below += bucket;
            let bound = seconds(*bound);
            let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let sum = series.total_time.as_secs_f64();
        let _ = writeln!(
            text,
            "{NAME}_bucket{{{labels},le=\"+Inf\"}} {count}\n{NAME}_sum{{{labels}}} {sum}\n{NAME}_count{{{labels}}} {count}"
        );
    }
}

fn totals(text: &mut String, requests: &Requests) {
    family(
        text,
        ("apiserver_request_total", "counter"),
        "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, \
         and HTTP response code.",
        requests.iter().flat_map(|((plural, labels), series)| {
            let labels = request_labels(plural, labels);
            let codes = series.codes.iter();
            codes.map(move |(code, count)| (format!("code=\"{code}\",{labels}"), *count))
        }),
    );
}

/// The labels of a request, in the real server's order.
fn request_labels(plural: &str, labels: &Labels) -> String {
    let Labels {
        verb,
        scope,
        dry_run,
        subresource,
        version,
        group,
    } = labels;
    let component = if plural.is_empty() { "" } else { "apiserver" };
    let dry_run = if *dry_run { "All" } else { "" };
    format!(
        "component=\"{component}\",dry_run=\"{dry_run}\",group=\"{group}\",resource=\"{plural}\",scope=\"{scope}\",\
         subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
    )
}

/// A bucket's bound: `0.005`, `1`, `1.25`.
fn seconds(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes a metric with its series: labels and value.
fn family<V: Display>(
    text: &mut String,
    (name, kind): (&str, &str),
    help: &str,
    series: impl IntoIterator<Item = (String, V)>,
) {
    header(text, (name, kind), help);
    for (labels, value) in series {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}

fn header(text: &mut String, (name, kind): (&str, &str), help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Group, plural and number of objects of each stored resource.
fn stored_objects(api: &Api) -> Vec<(Box<str>, Box<str>, usize)> {
    let catalogue = api.store.registry.catalogue();
    let mut tables = HashSet::new();
    let mut counts = Vec::new();
    for resource in &catalogue.resources {
        // All versions of a resource share a table.
        if !resource.supports("list") || !tables.insert(&*resource.table) {
            continue;
        }
        let snapshot = api.store.storage.snapshot(&resource.table, None, None);
        let count = snapshot.map_or(0, |snapshot| snapshot.count());
        counts.push((resource.group.clone(), resource.plural.clone(), count));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_written_like_the_real_servers() {
        let bounds = [5, 25, 100, 1_000, 1_250, 60_000].map(seconds);
        assert_eq!(bounds, ["0.005", "0.025", "0.1", "1", "1.25", "60"]);
    }
}
