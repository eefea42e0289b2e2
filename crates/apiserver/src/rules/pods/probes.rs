//! Probes, and what runs at the start and end of a container.

use serde_json::Value;

use super::{
    super::findings::{Findings, list, text},
    Pod,
};
use crate::trail::Trail;

const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";

pub(super) fn check(pod: &Pod<'_>, container: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let lifecycle = &container["lifecycle"];
    if !lifecycle.is_null() {
        let path = path.at("lifecycle");
        for hook in ["postStart", "preStop"] {
            if !lifecycle[hook].is_null() {
                check_handler(pod, &lifecycle[hook], &path.at(hook), findings);
            }
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[kind];
        if !probe.is_null() {
            check_probe(pod, kind, probe, &path.at(kind), findings);
        }
    }
}

fn check_probe(pod: &Pod<'_>, kind: &str, probe: &Value, path: &Trail<'_>, findings: &mut Findings) {
    check_handler(pod, probe, path, findings);
    for key in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        findings.not_negative(path.at(key), &probe[key]);
    }
    let (grace, field) = (
        &probe["terminationGracePeriodSeconds"],
        path.at("terminationGracePeriodSeconds"),
    );
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
    let successes = &probe["successThreshold"];
    if successes.as_i64().is_some_and(|count| count != 1) {
        findings.invalid(path.at("successThreshold"), successes.clone(), "must be 1");
    }
}

fn check_handler(pod: &Pod<'_>, handler: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let mut seen = 0;
    for kind in HANDLERS {
        let (action, path) = (&handler[kind], path.at(kind));
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
                findings.given(path.at("path"), &action["path"]);
                findings.port(path.at("port"), &action["port"]);
                findings.one_of(path.at("scheme"), &action["scheme"], &["HTTP", "HTTPS"]);
                for header in list(&action["httpHeaders"]) {
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
