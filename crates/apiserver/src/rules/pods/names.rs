//! What a pod says by name: its host, its account, its name servers, and the annotations that mean something.

use std::collections::HashSet;

use serde_json::Value;

use super::super::findings::{Findings, entries, list, text};
use crate::{internals, json, naming, schema::Problem, trail::Trail};

const SEARCH: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";

pub(super) fn check(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if !text(&spec["hostnameOverride"]).is_empty() {
        check_hostname(spec, path, findings);
    }
    for key in ["serviceAccountName", "nodeName"] {
        named(spec, key, naming::subdomain, path, findings);
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = "must be between 1 and 2147483647, inclusive";
        findings.invalid(path.at("activeDeadlineSeconds"), seconds, why);
    }
    for key in ["hostname", "subdomain"] {
        named(spec, key, naming::label, path, findings);
    }
    super::check_tolerations(&spec["tolerations"], &path.at("tolerations"), findings);
    for (index, alias) in list(&spec["hostAliases"]).iter().enumerate() {
        let aliases = path.at("hostAliases");
        let alias_path = aliases.item(index);
        let ip = text(&alias["ip"]);
        findings.named(alias_path.at("ip"), ip, naming::address(ip));
        for (index, name) in list(&alias["hostnames"]).iter().map(text).enumerate() {
            let field = alias_path.at("hostnames");
            findings.named(field.item(index), name, naming::subdomain(name));
        }
    }
    for key in ["priorityClassName", "runtimeClassName"] {
        named(spec, key, naming::subdomain, path, findings);
    }
}

fn named(spec: &Value, key: &str, rule: fn(&str) -> Vec<String>, path: &Trail<'_>, findings: &mut Findings) {
    let name = text(&spec[key]);
    if !name.is_empty() {
        findings.named(path.at(key), name, rule(name));
    }
}

fn check_hostname(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let name = text(&spec["hostnameOverride"]);
    let field = path.at("hostnameOverride");
    if name.len() > 64 {
        findings.add(field, Problem::TooLong(64));
    } else {
        findings.named(field, name, naming::subdomain(name));
    }
    for (other, why) in [
        (
            "setHostnameAsFQDN",
            "may not be set when `hostnameOverride` is set",
        ),
        ("hostNetwork", "when `hostNetwork` is true"),
    ] {
        if spec[other] == true {
            findings.forbidden(field, why);
        }
    }
}

pub(super) fn check_dns(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let config = &spec["dnsConfig"];
    let servers = list(&config["nameservers"]);
    if spec["dnsPolicy"] == "None" {
        if config.is_null() {
            findings.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            findings.required(path.at("nameservers"), why);
            return;
        }
    }
    if servers.len() > 3 {
        let why = "must not have more than 3 nameservers";
        findings.invalid(path.at("nameservers"), servers.to_vec(), why);
    }
    for (index, server) in servers.iter().map(text).enumerate() {
        let field = path.at("nameservers");
        findings.named(field.item(index), server, naming::address(server));
    }
    let searches = list(&config["searches"]);
    if searches.len() > 32 {
        let why = "must not have more than 32 search paths";
        findings.invalid(path.at("searches"), searches.to_vec(), why);
    }
    let length: usize = searches.iter().map(|search| text(search).len() + 1).sum();
    if length > 2049 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        findings.invalid(path.at("searches"), searches.to_vec(), why);
    }
    for (index, search) in searches.iter().map(text).enumerate() {
        let field = path.at("searches");
        let name = search.strip_suffix('.').unwrap_or(search);
        if search != "." && name.split('.').any(|part| !is_search_label(part)) {
            findings.invalid(field.item(index), name, SEARCH);
        }
    }
    for (index, option) in list(&config["options"]).iter().enumerate() {
        if text(&option["name"]).is_empty() {
            findings.required(path.at("options").item(index), "must not be empty");
        }
    }
}

/// Name servers know names with underscores: `_http._tcp`.
fn is_search_label(part: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = part.as_bytes();
    bytes
        .iter()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
        && (end(bytes.first()) || bytes.first() == Some(&b'_'))
        && end(bytes.last())
}

/// The claims to devices that containers may refer to.
pub(super) fn check_claims(claims: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let sources = ["resourceClaimName", "resourceClaimTemplateName"];
    for (index, claim) in list(claims).iter().enumerate() {
        let path = path.item(index);
        let name = text(&claim["name"]);
        if findings.given(path.at("name"), &claim["name"]) {
            findings.named(path.at("name"), name, naming::label(name));
        }
        let why = match sources.iter().filter(|source| !claim[**source].is_null()).count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => continue,
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        let shown = internals::shown("PodResourceClaim", claim);
        findings.add(path, Problem::InvalidText(shown, why.to_owned()));
    }
}

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// For changed pods, of which it is looked at again.
pub(super) fn check_deletion_cost(pod: &Value, findings: &mut Findings) {
    let path = Trail::from_root("metadata.annotations");
    check_cost(&pod["metadata"]["annotations"], &path, findings);
}

fn check_cost(annotations: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if let Some(cost) = annotations.get(COST).and_then(Value::as_str)
        && cost.parse::<i32>().is_err()
    {
        findings.invalid(path.entry(COST), cost, "must be a 32bit integer");
    }
}

/// On a pod that a kubelet made of a file of its own.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// What containers' `AppArmor` profiles begin with.
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The annotations of pods that the server itself reads.
pub(super) fn check_annotations(pod: &Value, path: &Trail<'_>, findings: &mut Findings) {
    const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
    const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
    let (annotations, spec) = (&pod["metadata"]["annotations"], &pod["spec"]);
    if let Some(mirror) = annotations.get(MIRROR)
        && text(&spec["nodeName"]).is_empty()
    {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        findings.invalid(path.entry(MIRROR), mirror.clone(), why);
    }
    if let Some(text) = annotations.get(TOLERATIONS).and_then(Value::as_str)
        && let Err(why) = json::read(text.as_bytes())
    {
        findings.invalid(path, TOLERATIONS, &why);
    }
    check_cost(annotations, path, findings);
    if let Some(profile) = annotations.get(SECCOMP).and_then(Value::as_str)
        && !matches!(profile, "runtime/default" | "docker/default" | "unconfined")
        && !profile.starts_with("localhost/")
    {
        findings.invalid(path.at(SECCOMP), profile, "must be a valid seccomp profile");
    }
    let mut containers = None;
    for (key, _) in entries(annotations) {
        let Some(name) = key.strip_prefix(APP_ARMOR) else {
            continue;
        };
        let containers = containers.get_or_insert_with(|| {
            let kinds = ["containers", "initContainers", "ephemeralContainers"];
            let all = kinds.into_iter().flat_map(|kind| list(&spec[kind]));
            all.map(|container| text(&container["name"]))
                .collect::<HashSet<_>>()
        });
        if !containers.contains(name) {
            findings.invalid(path.entry(key), name, "container not found");
        }
    }
}
