//! The environment of a container, and the fields of its pod that it may see.

use std::collections::HashMap;

use serde_json::Value;

use super::super::findings::{Findings, list, text};
use crate::{
    naming,
    pick::pick,
    schema::{Problem, quantity},
    trail::Trail,
};

/// What a variable can hold of a pod.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What a file can hold of a pod.
pub(super) const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// What can be named at all; where it may stand is another question.
const KNOWN_FIELDS: [&str; 4] = [
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "status.phase",
];

const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

pub(super) fn check(variables: &[Value], sources: &[Value], path: &Trail<'_>, findings: &mut Findings) {
    let place = path.at("env");
    for (index, variable) in variables.iter().enumerate() {
        let path = place.item(index);
        let [name, from] = pick(variable, ["name", "valueFrom"]);
        if findings.given(path.at("name"), name) && !is_name(text(name)) {
            findings.invalid(path.at("name"), text(name), NAME);
        }
        if !from.is_null() {
            check_source(variable, &path.at("valueFrom"), findings);
        }
    }
    let place = path.at("envFrom");
    for (index, source) in sources.iter().enumerate() {
        let path = place.item(index);
        let prefix = text(&source["prefix"]);
        if !is_name(prefix) {
            findings.invalid(path.at("prefix"), prefix, NAME);
        }
        let mut given = 0;
        for kind in ["configMapRef", "secretRef"] {
            if source[kind].is_null() {
                continue;
            }
            given += 1;
            let field = path.at(kind);
            if findings.given(field.at("name"), &source[kind]["name"]) {
                let name = text(&source[kind]["name"]);
                findings.named(field.at("name"), name, naming::subdomain(name));
            }
        }
        match given {
            0 => findings.invalid(place, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => findings.invalid(place, "", "may not have more than one field specified at a time"),
        }
    }
}

fn is_name(name: &str) -> bool {
    name.bytes()
        .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

fn check_source(variable: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let from = &variable["valueFrom"];
    let mut given = 0;
    let sources = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    for kind in sources {
        let (source, path) = (&from[kind], path.at(kind));
        if source.is_null() {
            continue;
        }
        given += 1;
        match kind {
            "fieldRef" => check_field(source, &ENV_FIELDS, &path, findings),
            "resourceFieldRef" => check_resource(source, &path, findings),
            "fileKeyRef" => {
                for key in ["key", "path", "volumeName"] {
                    findings.given(path.at(key), &source[key]);
                }
                findings.inner_path(path.at("path"), text(&source["path"]));
            }
            _ => check_key(source, &path, findings),
        }
    }
    if given == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        findings.invalid(path, "", why);
    } else if !text(&variable["value"]).is_empty() {
        findings.invalid(path, "", "may not be specified when `value` is not empty");
    } else if given > 1 {
        findings.invalid(path, "", "may not have more than one field specified at a time");
    }
}

fn check_key(source: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let (name, key) = (text(&source["name"]), text(&source["key"]));
    findings.named(path.at("name"), name, naming::subdomain(name));
    if findings.given(path.at("key"), &source["key"]) {
        findings.named(path.at("key"), key, naming::config_key(key));
    }
}

/// A field of the pod, where only some may be seen.
pub(super) fn check_field(source: &Value, seen: &[&str], path: &Trail<'_>, findings: &mut Findings) {
    if !findings.given(path.at("fieldPath"), &source["fieldPath"]) {
        return;
    }
    let field = text(&source["fieldPath"]);
    let cannot = |why: String| format!("error converting fieldPath: {why}");
    let version = text(&source["apiVersion"]);
    if !matches!(version, "" | "v1") {
        let why = cannot(format!("unsupported pod version: {version}"));
        findings.invalid(path.at("fieldPath"), field, &why);
        return;
    }
    let subscripted = field
        .split_once("['")
        .and_then(|(base, key)| Some((base, key.strip_suffix("']")?)));
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            findings.named(path, &key, naming::qualified(&key));
        }
        Some(("metadata.labels", key)) => findings.named(path, key, naming::qualified(key)),
        Some(_) => {
            let why = cannot(format!("field label does not support subscript: {field}"));
            findings.invalid(path.at("fieldPath"), field, &why);
        }
        None if seen.contains(&field) => {}
        None if ENV_FIELDS.contains(&field) || KNOWN_FIELDS.contains(&field) => {
            let seen = seen.iter().map(|field| Value::from(*field)).collect();
            findings.add(path.at("fieldPath"), Problem::NotSupported(field.into(), seen));
        }
        None => {
            let why = cannot(format!("field label not supported: {field}"));
            findings.invalid(path.at("fieldPath"), field, &why);
        }
    }
}

/// A resource of a container.
pub(super) fn check_resource(source: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let resource = text(&source["resource"]);
    let is_huge = ["limits.hugepages-", "requests.hugepages-"]
        .iter()
        .any(|prefix| resource.starts_with(prefix));
    if findings.given(path.at("resource"), &source["resource"]) && !is_huge {
        findings.one_of(path.at("resource"), &source["resource"], &RESOURCES);
    }
    check_divisor(source, path, findings);
}

fn check_divisor(source: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let divisor = quantity::nanos(&source["divisor"]).filter(|nanos| *nanos != 0);
    let (Some(divisor), resource) = (divisor, text(&source["resource"])) else {
        return;
    };
    let what = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" => {
            if ![1_000_000, 1_000_000_000].contains(&divisor) {
                let why = "only divisor's values 1m and 1 are supported with the cpu resource";
                findings.invalid(path.at("divisor"), resource, why);
            }
            return;
        }
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        name if name.starts_with("hugepages-") => "hugepages",
        _ => return,
    };
    let one = 1_000_000_000_i128;
    let units = [1000_i128, 1024].map(|base| (0..=6).map(move |power| one * base.pow(power)));
    if !units.into_iter().flatten().any(|unit| unit == divisor) {
        let why = format!(
            "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the {what} resource"
        );
        findings.invalid(path.at("divisor"), resource, &why);
    }
}

/// The volumes that variables are read from must be there.
pub(super) fn check_files(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    // Of several volumes with one name, the first counts.
    let mut volumes = HashMap::new();
    for volume in list(&spec["volumes"]) {
        volumes.entry(text(&volume["name"])).or_insert(volume);
    }
    for kind in ["initContainers", "containers"] {
        let place = path.at(kind);
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            let place = place.item(index);
            let place = place.at("env");
            for (index, variable) in list(&container["env"]).iter().enumerate() {
                let source = &variable["valueFrom"]["fileKeyRef"];
                let name = text(&source["volumeName"]);
                if source.is_null() {
                    continue;
                }
                let field = place.item(index);
                let field = field.at("valueFrom.fileKeyRef.volumeName");
                match volumes.get(name) {
                    None => findings.add(field, Problem::NotFound(name.into())),
                    Some(volume) if volume["emptyDir"].is_null() => {
                        findings.invalid(field, name, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
