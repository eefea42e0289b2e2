//! `/metrics`: the state of the server in Prometheus' text format, with kube-apiserver's names.
//!
//! Everything is read when it is asked for, so that metrics cost nothing otherwise. Counters and latencies of requests are
//! not kept.

use std::{collections::HashSet, fmt::Write};

use super::Api;
use crate::registry;

/// The media type of Prometheus' text format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// The metrics of a server.
pub(super) fn render(api: &Api) -> String {
    let mut text = String::new();
    let (reads, writes) = api.in_flight.used(&api.limits);
    family(
        &mut text,
        ("apiserver_current_inflight_requests", "gauge"),
        "Number of requests in flight that count against the limits, per request kind.",
        [
            ("request_kind=\"mutating\"".to_owned(), writes),
            ("request_kind=\"readOnly\"".to_owned(), reads),
        ],
    );
    let watches = api
        .limits
        .watches
        .saturating_sub(api.watch_permits.available_permits());
    family(
        &mut text,
        ("apiserver_longrunning_requests", "gauge"),
        "Number of open watches.",
        [("component=\"apiserver\",verb=\"WATCH\"".to_owned(), watches)],
    );
    family(
        &mut text,
        ("apiserver_resource_objects", "gauge"),
        "Number of stored objects split by group resource.",
        stored_objects(api),
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

/// Writes a metric with its series: labels and value.
fn family(
    text: &mut String,
    (name, kind): (&str, &str),
    help: &str,
    series: impl IntoIterator<Item = (String, usize)>,
) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in series {
        let _ = writeln!(text, "{name}{{{labels}}} {value}");
    }
}

/// The number of objects of each stored resource.
fn stored_objects(api: &Api) -> Vec<(String, usize)> {
    let catalogue = api.store.registry.catalogue();
    let mut tables = HashSet::new();
    let mut counts = Vec::new();
    for resource in &catalogue.resources {
        // All versions of a resource share a table.
        if !resource.supports("list") || !tables.insert(&*resource.table) {
            continue;
        }
        let snapshot = api.store.storage.snapshot(&resource.table, None);
        let labels = format!("group=\"{}\",resource=\"{}\"", resource.group, resource.plural);
        counts.push((labels, snapshot.map_or(0, |snapshot| snapshot.count())));
    }
    counts
}
