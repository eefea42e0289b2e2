//! A pod's volumes: each from one source, with what that source needs.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    super::{
        findings::{Findings, entries, list, text},
        repeats::Repeats,
        storage,
    },
    Pod, env,
};
use crate::{naming, schema::quantity, trail::Trail};

/// Where volumes come from, in the order in which they are looked at.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// The fields that a source cannot do without.
const REQUIRED: [(&str, &[&str]); 11] = [
    ("gitRepo", &["repository"]),
    ("secret", &["secretName"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("configMap", &["name"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("cinder", &["volumeID"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("csi", &["driver"]),
    ("flexVolume", &["driver"]),
    ("glusterfs", &["endpoints", "path"]),
];

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn check(pod: &Pod<'_>, path: &Trail<'_>, findings: &mut Findings) {
    let volumes = list(&pod.spec["volumes"]);
    // Claims come first, and take the place of volumes of the same name.
    for (index, claim) in pod.claims.iter().enumerate() {
        let name = text(&claim["metadata"]["name"]);
        findings.named(path.item(index).at("name"), name, naming::label(name));
    }
    let repeats = Repeats::of_field(volumes, "name");
    let own = volumes.iter().enumerate();
    for (index, volume) in own.filter(|(_, volume)| !pod.claimed.contains(text(&volume["name"]))) {
        let path = path.item(index + pod.claims.len());
        let mut given = entries(volume).filter(|(key, source)| *key != "name" && !source.is_null());
        match (given.next(), given.next()) {
            (None, _) => findings.required(path, "must specify a volume type"),
            (Some((source, _)), None) => check_source(pod, volume, source, &path, findings),
            (Some(_), Some(_)) => check_sources(pod, volume, &path, findings),
        }
        let name = text(&volume["name"]);
        if findings.given(path.at("name"), &volume["name"]) {
            findings.named(path.at("name"), name, naming::label(name));
            if repeats.has(index) {
                findings.duplicate(path.at("name"), name);
            }
        }
    }
}

/// Of several sources, one is taken and the others are too many.
fn check_sources(pod: &Pod<'_>, volume: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let mut sources = SOURCES.iter().filter(|source| !volume[**source].is_null());
    if let Some(source) = sources.next() {
        check_source(pod, volume, source, path, findings);
    }
    for extra in sources {
        // Some have another name where they are one too many.
        let extra = match *extra {
            "downwardAPI" => "downwarAPI",
            "cephfs" => "cephFS",
            extra => extra,
        };
        findings.forbidden(path.at(extra), "may not specify more than 1 volume type");
    }
}

fn check_source(pod: &Pod<'_>, volume: &Value, kind: &str, path: &Trail<'_>, findings: &mut Findings) {
    let (source, outer, path) = (&volume[kind], path, path.at(kind));
    let required = REQUIRED.iter().find(|(source, _)| *source == kind);
    for key in required.map_or(&[][..], |(_, keys)| *keys) {
        findings.given(path.at(key), &source[*key]);
    }
    match kind {
        "emptyDir" if quantity::nanos(&source["sizeLimit"]).is_some_and(|nanos| nanos < 0) => {
            let why = "SizeLimit field must be a valid resource quantity";
            findings.forbidden(path.at("sizeLimit"), why);
        }
        "hostPath" => {
            if findings.given(path.at("path"), &source["path"]) {
                no_backsteps(&source["path"], &path.at("path"), findings);
            }
            let kinds = [
                "",
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ];
            findings.one_of(path.at("type"), &source["type"], &kinds);
        }
        "secret" | "configMap" => {
            check_mode(&source["defaultMode"], &path.at("defaultMode"), findings);
            check_items(&source["items"], &path.at("items"), findings);
        }
        "nfs" => {
            findings.given(path.at("server"), &source["server"]);
            findings.given(path.at("path"), &source["path"]);
            if !text(&source["path"]).starts_with('/') {
                let why = "must be an absolute path";
                findings.invalid(path.at("path"), text(&source["path"]), why);
            }
        }
        "downwardAPI" => {
            check_mode(&source["defaultMode"], &path.at("defaultMode"), findings);
            for file in list(&source["items"]) {
                check_file(file, &path, findings);
            }
        }
        "projected" => check_projected(source, &path, findings),
        "csi" => {
            let driver = text(&source["driver"]);
            if !driver.is_empty() {
                let name = driver.to_lowercase();
                findings.named(path.at("driver"), &name, naming::subdomain(&name));
            }
        }
        "ephemeral" => check_ephemeral(pod, volume, outer, findings),
        "image" => {
            if !pod.is_template {
                findings.given(path.at("reference"), &source["reference"]);
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            findings.one_of_if_given(path.at("pullPolicy"), &source["pullPolicy"], &policies);
        }
        _ => {}
    }
}

fn no_backsteps(value: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if text(value).split('/').any(|part| part == "..") {
        findings.invalid(path, text(value), "must not contain '..'");
    }
}

fn check_mode(mode: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if let Some(mode) = mode.as_i64().filter(|mode| !(0..=0o777).contains(mode)) {
        findings.invalid(path, mode, MODE);
    }
}

/// A path below a volume that is the server's to fill.
fn check_path(value: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let inner = text(value);
    findings.inner_path(path, inner);
    if inner.starts_with("..") && !inner.starts_with("../") {
        findings.invalid(path, inner, "must not start with '..'");
    }
}

fn check_items(items: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for (index, item) in list(items).iter().enumerate() {
        let path = path.item(index);
        findings.given(path.at("key"), &item["key"]);
        findings.given(path.at("path"), &item["path"]);
        check_path(&item["path"], &path.at("path"), findings);
        check_mode(&item["mode"], &path.at("mode"), findings);
    }
}

fn check_file(file: &Value, path: &Trail<'_>, findings: &mut Findings) {
    findings.given(path.at("path"), &file["path"]);
    check_path(&file["path"], &path.at("path"), findings);
    let (field, resource) = (&file["fieldRef"], &file["resourceFieldRef"]);
    if !field.is_null() {
        env::check_field(field, &env::FILE_FIELDS, &path.at("fieldRef"), findings);
        if !resource.is_null() {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            findings.invalid(path, "resource", why);
        }
    } else if !resource.is_null() {
        let path = path.at("resourceFieldRef");
        if findings.given(path.at("containerName"), &resource["containerName"]) {
            env::check_resource(resource, &path, findings);
        }
    } else {
        findings.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    check_mode(&file["mode"], &path.at("mode"), findings);
}

fn check_projected(projected: &Value, path: &Trail<'_>, findings: &mut Findings) {
    check_mode(&projected["defaultMode"], &path.at("defaultMode"), findings);
    let sources = list(&projected["sources"]);
    let place = path.at("sources");
    // The paths that the sources before put something at.
    let mut earlier = HashSet::new();
    for (index, source) in sources.iter().enumerate() {
        let item = place.item(index);
        for kind in ["secret", "configMap"] {
            let (from, field) = (&source[kind], item.at(kind));
            if from.is_null() {
                continue;
            }
            findings.given(field.at("name"), &from["name"]);
            check_items(&from["items"], &field.at("items"), findings);
            let mut own = HashSet::new();
            for taken in list(&from["items"]) {
                let target = text(&taken["path"]);
                let taken = earlier.contains(target) || !own.insert(target);
                if !target.is_empty() && taken {
                    findings.invalid(path, text(&from["name"]), "conflicting duplicate paths");
                }
            }
        }
        for file in list(&source["downwardAPI"]["items"]) {
            check_file(file, &item.at("downwardAPI"), findings);
        }
        let token = &source["serviceAccountToken"];
        if !token.is_null() {
            let seconds = token["expirationSeconds"].as_i64().unwrap_or(3600);
            let field = item.at("serviceAccountToken");
            let field = field.at("expirationSeconds");
            if seconds < 600 {
                findings.invalid(field, seconds, "may not specify a duration less than 10 minutes");
            }
            if seconds > 1 << 32 {
                findings.invalid(
                    field,
                    seconds,
                    "may not specify a duration larger than 2^32 seconds",
                );
            }
            if findings.given(path.at("path"), &token["path"]) {
                check_path(&token["path"], &path.at("path"), findings);
            }
        }
        earlier.extend(paths(source));
        let given = source.as_object().into_iter().flatten();
        if given.filter(|(_, from)| !from.is_null()).count() > 1 {
            let why = "may not specify more than 1 volume type per source";
            findings.forbidden(item, why);
        }
    }
}

/// The paths that a source puts something at.
fn paths(source: &Value) -> impl Iterator<Item = &str> {
    ["secret", "configMap", "downwardAPI"]
        .into_iter()
        .flat_map(|kind| list(&source[kind]["items"]))
        .map(|item| text(&item["path"]))
}

fn check_ephemeral(pod: &Pod<'_>, volume: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let template = &volume["ephemeral"]["volumeClaimTemplate"];
    if template.is_null() {
        findings.required(path.at("ephemeral.volumeClaimTemplate"), "");
    } else {
        storage::check_claim(
            &template["spec"],
            &path.at("ephemeral.volumeClaimTemplate.spec"),
            findings,
        );
    }
    let name = text(&volume["name"]);
    if !pod.name.is_empty() && !name.is_empty() && pod.name.len() + name.len() > 252 {
        let claim = format!("{}-{name}", pod.name);
        for why in naming::subdomain(&claim) {
            findings.invalid(path.at("name"), name, &format!("PVC name {claim:?}: {why}"));
        }
    }
}
