//! Probes and lifecycle hooks.

use serde_json::Value;

use super::{
    super::super::error_list::{ErrorList, list, text},
    Pod,
};
use crate::{field_path::FieldPath, kinds::pod::defaults::GRACE_SECONDS, pick::pick};

const HEADER_MESSAGE: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";

pub(super) fn check(pod: &Pod<'_>, container: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let [lifecycle, liveness, readiness, startup] = pick(
        container,
        ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"],
    );
    if !lifecycle.is_null() {
        let path = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            if !lifecycle[hook].is_null() {
                check_handler(pod, &lifecycle[hook], &path.child(hook), errors);
            }
        }
    }
    for (kind, probe) in [
        ("livenessProbe", liveness),
        ("readinessProbe", readiness),
        ("startupProbe", startup),
    ] {
        if !probe.is_null() {
            check_probe(pod, kind, probe, &path.child(kind), errors);
        }
    }
}

fn check_probe(pod: &Pod<'_>, kind: &str, probe: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    check_handler(pod, probe, path, errors);
    let [failures, delay, period, successes, grace, timeout] = pick(
        probe,
        [
            "failureThreshold",
            "initialDelaySeconds",
            "periodSeconds",
            "successThreshold",
            "terminationGracePeriodSeconds",
            "timeoutSeconds",
        ],
    );
    for (key, number) in [
        ("initialDelaySeconds", delay),
        ("timeoutSeconds", timeout),
        ("periodSeconds", period),
        ("successThreshold", successes),
        ("failureThreshold", failures),
    ] {
        errors.not_negative(path.child(key), number);
    }
    let field = path.child("terminationGracePeriodSeconds");
    if grace.as_i64().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(field, grace.clone(), "must be greater than 0");
    }
    if kind == "readinessProbe" {
        if !grace.is_null() {
            errors.invalid(field, grace.clone(), "must not be set for readinessProbes");
        }
        return;
    }
    // Liveness and startup probes succeed with the first success.
    if successes.as_i64().is_some_and(|count| count != 1) {
        errors.invalid(path.child("successThreshold"), successes.clone(), "must be 1");
    }
}

fn check_handler(pod: &Pod<'_>, handler: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let [exec, grpc, http, sleep, tcp] = pick(handler, ["exec", "grpc", "httpGet", "sleep", "tcpSocket"]);
    let mut seen = 0;
    for (kind, action) in [
        ("exec", exec),
        ("httpGet", http),
        ("tcpSocket", tcp),
        ("grpc", grpc),
        ("sleep", sleep),
    ] {
        let path = path.child(kind);
        if action.is_null() {
            continue;
        }
        seen += 1;
        if seen > 1 {
            errors.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" if list(&action["command"]).is_empty() => errors.required(path.child("command"), ""),
            "httpGet" => {
                let [headers, at, port, scheme] = pick(action, ["httpHeaders", "path", "port", "scheme"]);
                errors.require(path.child("path"), at);
                errors.port(path.child("port"), port);
                errors.one_of(path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
                for header in list(headers) {
                    let name = text(&header["name"]);
                    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                    if name.is_empty() || !name.bytes().all(plain) {
                        errors.invalid(path.child("httpHeaders"), name, HEADER_MESSAGE);
                    }
                }
            }
            "tcpSocket" | "grpc" => errors.port(path.child("port"), &action["port"]),
            "sleep" => {
                let seconds = action["seconds"].as_i64().unwrap_or(0);
                let grace = pod.spec["terminationGracePeriodSeconds"]
                    .as_i64()
                    .unwrap_or(GRACE_SECONDS);
                if !(0..=grace).contains(&seconds) {
                    let why =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(path, seconds, &why);
                }
            }
            _ => {}
        }
    }
    if seen == 0 {
        errors.required(path, "must specify a handler type");
    }
}
