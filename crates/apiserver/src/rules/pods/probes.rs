//! Probes, and what runs at the start and end of a container.

use serde_json::Value;

use super::{
    super::findings::{Findings, list, text},
    Pod,
};
use crate::{pick::pick, trail::Trail};

const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";

pub(super) fn check(pod: &Pod<'_>, container: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let [lifecycle, liveness, readiness, startup] = pick(
        container,
        ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"],
    );
    if !lifecycle.is_null() {
        let path = path.at("lifecycle");
        for hook in ["postStart", "preStop"] {
            if !lifecycle[hook].is_null() {
                check_handler(pod, &lifecycle[hook], &path.at(hook), findings);
            }
        }
    }
    for (kind, probe) in [
        ("livenessProbe", liveness),
        ("readinessProbe", readiness),
        ("startupProbe", startup),
    ] {
        if !probe.is_null() {
            check_probe(pod, kind, probe, &path.at(kind), findings);
        }
    }
}

fn check_probe(pod: &Pod<'_>, kind: &str, probe: &Value, path: &Trail<'_>, findings: &mut Findings) {
    check_handler(pod, probe, path, findings);
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
        findings.not_negative(path.at(key), number);
    }
    let field = path.at("terminationGracePeriodSeconds");
    if grace.as_i64().is_some_and(|seconds| seconds <= 0) {
        findings.invalid(field, grace.clone(), "must be greater than 0");
    }
    if kind == "readinessProbe" {
        if !grace.is_null() {
            findings.invalid(field, grace.clone(), "must not be set for readinessProbes");
        }
        return;
    }
    // One success is enough to be alive; being ready may take more.
    if successes.as_i64().is_some_and(|count| count != 1) {
        findings.invalid(path.at("successThreshold"), successes.clone(), "must be 1");
    }
}

fn check_handler(pod: &Pod<'_>, handler: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let [exec, grpc, http, sleep, tcp] = pick(handler, ["exec", "grpc", "httpGet", "sleep", "tcpSocket"]);
    let mut seen = 0;
    for (kind, action) in [
        ("exec", exec),
        ("httpGet", http),
        ("tcpSocket", tcp),
        ("grpc", grpc),
        ("sleep", sleep),
    ] {
        let path = path.at(kind);
        if action.is_null() {
            continue;
        }
        seen += 1;
        if seen > 1 {
            findings.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" if list(&action["command"]).is_empty() => findings.required(path.at("command"), ""),
            "httpGet" => {
                let [headers, at, port, scheme] = pick(action, ["httpHeaders", "path", "port", "scheme"]);
                findings.given(path.at("path"), at);
                findings.port(path.at("port"), port);
                findings.one_of(path.at("scheme"), scheme, &["HTTP", "HTTPS"]);
                for header in list(headers) {
                    let name = text(&header["name"]);
                    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                    if name.is_empty() || !name.bytes().all(plain) {
                        findings.invalid(path.at("httpHeaders"), name, HEADER);
                    }
                }
            }
            "tcpSocket" | "grpc" => findings.port(path.at("port"), &action["port"]),
            "sleep" => {
                let seconds = action["seconds"].as_i64().unwrap_or(0);
                let grace = pod.spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
                if !(0..=grace).contains(&seconds) {
                    let why =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    findings.invalid(path, seconds, &why);
                }
            }
            _ => {}
        }
    }
    if seen == 0 {
        findings.required(path, "must specify a handler type");
    }
}
