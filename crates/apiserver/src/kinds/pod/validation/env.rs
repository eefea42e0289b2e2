//! Environment variables, and references to fields of the pod.

use std::collections::HashMap;

use serde_json::Value;
use windlass_api::naming;

use crate::kinds::error_list::{ErrorList, list, text};
use crate::{
    field_path::FieldPath,
    pick::pick,
    schema::{Problem, quantity},
};

/// The fields that an environment variable may refer to.
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

/// The fields that a downward API volume may refer to.
pub(super) const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Further known fields, which may not be allowed everywhere.
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

const NAME_MESSAGE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

pub(super) fn check(variables: &[Value], sources: &[Value], path: &FieldPath<'_>, errors: &mut ErrorList) {
    let place = path.child("env");
    for (index, variable) in variables.iter().enumerate() {
        let path = place.index(index);
        let [name, from] = pick(variable, ["name", "valueFrom"]);
        if errors.require(path.child("name"), name) && !is_name(text(name)) {
            errors.invalid(path.child("name"), text(name), NAME_MESSAGE);
        }
        if !from.is_null() {
            check_source(variable, &path.child("valueFrom"), errors);
        }
    }
    let place = path.child("envFrom");
    for (index, source) in sources.iter().enumerate() {
        let path = place.index(index);
        let prefix = text(&source["prefix"]);
        if !is_name(prefix) {
            errors.invalid(path.child("prefix"), prefix, NAME_MESSAGE);
        }
        let mut given = 0;
        for kind in ["configMapRef", "secretRef"] {
            if source[kind].is_null() {
                continue;
            }
            given += 1;
            let field = path.child(kind);
            if errors.require(field.child("name"), &source[kind]["name"]) {
                let name = text(&source[kind]["name"]);
                errors.invalid_each(field.child("name"), name, naming::subdomain(name));
            }
        }
        match given {
            0 => errors.invalid(place, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(place, "", "may not have more than one field specified at a time"),
        }
    }
}

fn is_name(name: &str) -> bool {
    name.bytes()
        .all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

fn check_source(variable: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
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
        let (source, path) = (&from[kind], path.child(kind));
        if source.is_null() {
            continue;
        }
        given += 1;
        match kind {
            "fieldRef" => check_field(source, &ENV_FIELDS, &path, errors),
            "resourceFieldRef" => check_resource(source, &path, errors),
            "fileKeyRef" => {
                for key in ["key", "path", "volumeName"] {
                    errors.require(path.child(key), &source[key]);
                }
                errors.relative_path(path.child("path"), text(&source["path"]));
            }
            _ => check_key(source, &path, errors),
        }
    }
    if given == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(path, "", why);
    } else if !text(&variable["value"]).is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if given > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

fn check_key(source: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (name, key) = (text(&source["name"]), text(&source["key"]));
    errors.invalid_each(path.child("name"), name, naming::subdomain(name));
    if errors.require(path.child("key"), &source["key"]) {
        errors.invalid_each(path.child("key"), key, naming::config_key(key));
    }
}

/// A reference to a field of the pod, which must be one of `seen`.
pub(super) fn check_field(source: &Value, seen: &[&str], path: &FieldPath<'_>, errors: &mut ErrorList) {
    if !errors.require(path.child("fieldPath"), &source["fieldPath"]) {
        return;
    }
    let field = text(&source["fieldPath"]);
    let cannot = |why: String| format!("error converting fieldPath: {why}");
    let version = text(&source["apiVersion"]);
    if !matches!(version, "" | "v1") {
        let why = cannot(format!("unsupported pod version: {version}"));
        errors.invalid(path.child("fieldPath"), field, &why);
        return;
    }
    let subscripted = field
        .split_once("['")
        .and_then(|(base, key)| Some((base, key.strip_suffix("']")?)));
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            errors.invalid_each(path, &key, naming::qualified(&key));
        }
        Some(("metadata.labels", key)) => errors.invalid_each(path, key, naming::qualified(key)),
        Some(_) => {
            let why = cannot(format!("field label does not support subscript: {field}"));
            errors.invalid(path.child("fieldPath"), field, &why);
        }
        None if seen.contains(&field) => {}
        None if ENV_FIELDS.contains(&field) || KNOWN_FIELDS.contains(&field) => {
            let seen = seen.iter().map(|field| Value::from(*field)).collect();
            errors.add(path.child("fieldPath"), Problem::NotSupported(field.into(), seen));
        }
        None => {
            let why = cannot(format!("field label not supported: {field}"));
            errors.invalid(path.child("fieldPath"), field, &why);
        }
    }
}

/// A reference to a resource of a container.
pub(super) fn check_resource(source: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let resource = text(&source["resource"]);
    let is_huge = ["limits.hugepages-", "requests.hugepages-"]
        .iter()
        .any(|prefix| resource.starts_with(prefix));
    if errors.require(path.child("resource"), &source["resource"]) && !is_huge {
        errors.one_of(path.child("resource"), &source["resource"], &RESOURCES);
    }
    check_divisor(source, path, errors);
}

fn check_divisor(source: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let divisor = quantity::nanos(&source["divisor"]).filter(|nanos| *nanos != 0);
    let (Some(divisor), resource) = (divisor, text(&source["resource"])) else {
        return;
    };
    let what = match resource.split_once('.').map_or("", |(_, name)| name) {
        "cpu" => {
            if ![1_000_000, 1_000_000_000].contains(&divisor) {
                let why = "only divisor's values 1m and 1 are supported with the cpu resource";
                errors.invalid(path.child("divisor"), resource, why);
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
        errors.invalid(path.child("divisor"), resource, &why);
    }
}

/// Checks that the volumes of `fileKeyRef` exist.
pub(super) fn check_files(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    // Of several volumes with the same name, the first counts.
    let mut volumes = HashMap::new();
    for volume in list(&spec["volumes"]) {
        volumes.entry(text(&volume["name"])).or_insert(volume);
    }
    for kind in ["initContainers", "containers"] {
        let place = path.child(kind);
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            let place = place.index(index);
            let place = place.child("env");
            for (index, variable) in list(&container["env"]).iter().enumerate() {
                let source = &variable["valueFrom"]["fileKeyRef"];
                let name = text(&source["volumeName"]);
                if source.is_null() {
                    continue;
                }
                let field = place.index(index);
                let field = field.child("valueFrom.fileKeyRef.volumeName");
                match volumes.get(name) {
                    None => errors.add(field, Problem::NotFound(name.into())),
                    Some(volume) if volume["emptyDir"].is_null() => {
                        errors.invalid(field, name, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
