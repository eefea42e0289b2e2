//! Probes, and what runs at the start and end of a container.

use std::fmt::Display;

use serde_json::Value;

use super::findings::{Findings, list, text};

const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

pub(super) fn check(container: &Value, path: &dyn Display, findings: &mut Findings) {
    for hook in ["postStart", "preStop"] {
        let handler = &container["lifecycle"][hook];
        if !handler.is_null() {
            check_handler(handler, &format_args!("{path}.lifecycle.{hook}"), findings);
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[kind];
        if probe.is_null() {
            continue;
        }
        let path = format_args!("{path}.{kind}");
        check_handler(probe, &path, findings);
        for key in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            findings.not_negative(format_args!("{path}.{key}"), &probe[key]);
        }
        // One success is enough to be alive; being ready may take more.
        let successes = &probe["successThreshold"];
        if kind != "readinessProbe" && successes.as_i64().is_some_and(|count| count != 1) {
            findings.invalid(
                format_args!("{path}.successThreshold"),
                successes.clone(),
                "must be 1",
            );
        }
    }
}

fn check_handler(handler: &Value, path: &dyn Display, findings: &mut Findings) {
    let mut seen = 0;
    for kind in HANDLERS {
        let action = &handler[kind];
        if action.is_null() {
            continue;
        }
        seen += 1;
        if seen > 1 {
            findings.forbidden(
                format_args!("{path}.{kind}"),
                "may not specify more than 1 handler type",
            );
            continue;
        }
        match kind {
            "exec" if list(&action["command"]).is_empty() => {
                findings.required(format_args!("{path}.exec.command"), "");
            }
            "httpGet" => {
                if text(&action["path"]).is_empty() {
                    findings.required(format_args!("{path}.httpGet.path"), "");
                }
                findings.port(format_args!("{path}.httpGet.port"), &action["port"]);
                findings.one_of(
                    format_args!("{path}.httpGet.scheme"),
                    &action["scheme"],
                    &["HTTP", "HTTPS"],
                );
            }
            "tcpSocket" | "grpc" => findings.port(format_args!("{path}.{kind}.port"), &action["port"]),
            _ => {}
        }
    }
    if seen == 0 {
        findings.required(path, "must specify a handler type");
    }
}
