//! Names in a pod: hostname, service account, DNS, and annotations that have a meaning.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::naming;

use crate::kinds::error_list::{ErrorList, entries, list, text};
use crate::{field_path::FieldPath, internal_types, json, schema::Problem};

const SEARCH_MESSAGE: &str = r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";

pub(super) fn check(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if !text(&spec["hostnameOverride"]).is_empty() {
        check_hostname(spec, path, errors);
    }
    for key in ["serviceAccountName", "nodeName"] {
        check_name(spec, key, naming::subdomain, path, errors);
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.invalid(path.child("activeDeadlineSeconds"), seconds, why);
    }
    for key in ["hostname", "subdomain"] {
        check_name(spec, key, naming::label, path, errors);
    }
    super::check_tolerations(&spec["tolerations"], &path.child("tolerations"), errors);
    for (index, alias) in list(&spec["hostAliases"]).iter().enumerate() {
        let aliases = path.child("hostAliases");
        let alias_path = aliases.index(index);
        let ip = text(&alias["ip"]);
        errors.invalid_each(alias_path.child("ip"), ip, naming::ip_address(ip));
        for (index, name) in list(&alias["hostnames"]).iter().map(text).enumerate() {
            let field = alias_path.child("hostnames");
            errors.invalid_each(field.index(index), name, naming::subdomain(name));
        }
    }
    for key in ["priorityClassName", "runtimeClassName"] {
        check_name(spec, key, naming::subdomain, path, errors);
    }
}

fn check_name(
    spec: &Value,
    key: &str,
    rule: fn(&str) -> Vec<String>,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    let name = text(&spec[key]);
    if !name.is_empty() {
        errors.invalid_each(path.child(key), name, rule(name));
    }
}

fn check_hostname(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let name = text(&spec["hostnameOverride"]);
    let field = path.child("hostnameOverride");
    if name.len() > 64 {
        errors.add(field, Problem::TooLong(64));
    } else {
        errors.invalid_each(field, name, naming::subdomain(name));
    }
    for (other, why) in [
        (
            "setHostnameAsFQDN",
            "may not be set when `hostnameOverride` is set",
        ),
        ("hostNetwork", "when `hostNetwork` is true"),
    ] {
        if spec[other] == true {
            errors.forbidden(field, why);
        }
    }
}

pub(super) fn check_dns(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let config = &spec["dnsConfig"];
    let servers = list(&config["nameservers"]);
    if spec["dnsPolicy"] == "None" {
        if config.is_null() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(path.child("nameservers"), why);
            return;
        }
    }
    if servers.len() > 3 {
        let why = "must not have more than 3 nameservers";
        errors.invalid(path.child("nameservers"), servers.to_vec(), why);
    }
    for (index, server) in servers.iter().map(text).enumerate() {
        let field = path.child("nameservers");
        errors.invalid_each(field.index(index), server, naming::ip_address(server));
    }
    let searches = list(&config["searches"]);
    if searches.len() > 32 {
        let why = "must not have more than 32 search paths";
        errors.invalid(path.child("searches"), searches.to_vec(), why);
    }
    let length: usize = searches.iter().map(|search| text(search).len() + 1).sum();
    if length > 2049 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(path.child("searches"), searches.to_vec(), why);
    }
    for (index, search) in searches.iter().map(text).enumerate() {
        let field = path.child("searches");
        let name = search.strip_suffix('.').unwrap_or(search);
        if search != "." && name.split('.').any(|part| !is_search_label(part)) {
            errors.invalid(field.index(index), name, SEARCH_MESSAGE);
        }
    }
    for (index, option) in list(&config["options"]).iter().enumerate() {
        if text(&option["name"]).is_empty() {
            errors.required(path.child("options").index(index), "must not be empty");
        }
    }
}

/// DNS search paths may contain underscores: `_http._tcp`.
fn is_search_label(part: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = part.as_bytes();
    bytes
        .iter()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
        && (end(bytes.first()) || bytes.first() == Some(&b'_'))
        && end(bytes.last())
}

/// Validates the resource claims that containers may refer to.
pub(super) fn check_claims(claims: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let sources = ["resourceClaimName", "resourceClaimTemplateName"];
    for (index, claim) in list(claims).iter().enumerate() {
        let path = path.index(index);
        let name = text(&claim["name"]);
        if errors.require(path.child("name"), &claim["name"]) {
            errors.invalid_each(path.child("name"), name, naming::label(name));
        }
        let why = match sources.iter().filter(|source| !claim[**source].is_null()).count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => continue,
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        let shown = internal_types::format_as_struct("PodResourceClaim", claim);
        errors.add(path, Problem::InvalidText(shown, why.to_owned()));
    }
}

const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

/// For updates, which check it again.
pub(super) fn check_deletion_cost(pod: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("metadata.annotations");
    check_cost(&pod["metadata"]["annotations"], &path, errors);
}

fn check_cost(annotations: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if let Some(cost) = annotations.get(DELETION_COST_ANNOTATION).and_then(Value::as_str)
        && cost.parse::<i32>().is_err()
    {
        errors.invalid(
            path.key(DELETION_COST_ANNOTATION),
            cost,
            "must be a 32bit integer",
        );
    }
}

/// The annotation of mirror pods, which a kubelet creates for its static pods.
pub(crate) const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The prefix of `AppArmor` annotations.
pub(super) const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Validates the annotations that the server itself reads.
pub(super) fn check_annotations(pod: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
    const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
    let (annotations, spec) = (&pod["metadata"]["annotations"], &pod["spec"]);
    if let Some(mirror) = annotations.get(MIRROR_ANNOTATION)
        && text(&spec["nodeName"]).is_empty()
    {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(path.key(MIRROR_ANNOTATION), mirror.clone(), why);
    }
    if let Some(text) = annotations.get(TOLERATIONS).and_then(Value::as_str)
        && let Err(why) = json::read(text.as_bytes())
    {
        errors.invalid(path, TOLERATIONS, &why);
    }
    check_cost(annotations, path, errors);
    if let Some(profile) = annotations.get(SECCOMP).and_then(Value::as_str)
        && !matches!(profile, "runtime/default" | "docker/default" | "unconfined")
        && !profile.starts_with("localhost/")
    {
        errors.invalid(path.child(SECCOMP), profile, "must be a valid seccomp profile");
    }
    let mut containers = None;
    for (key, _) in entries(annotations) {
        let Some(name) = key.strip_prefix(APP_ARMOR_PREFIX) else {
            continue;
        };
        let containers = containers.get_or_insert_with(|| {
            let kinds = ["containers", "initContainers", "ephemeralContainers"];
            let all = kinds.into_iter().flat_map(|kind| list(&spec[kind]));
            all.map(|container| text(&container["name"]))
                .collect::<HashSet<_>>()
        });
        if !containers.contains(name) {
            errors.invalid(path.key(key), name, "container not found");
        }
    }
}
