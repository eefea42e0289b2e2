//! Volumes of pods and their sources.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::naming;

use super::{
    super::super::{
        duplicates::Duplicates,
        error_list::{ErrorList, entries, list, text},
        persistent_volume_claim,
    },
    Pod, env,
};
use crate::{field_path::FieldPath, schema::quantity};

/// The volume sources, in the order in which they are checked.
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

/// The required fields of sources.
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

const MODE_MESSAGE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn check(pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let volumes = list(&pod.spec["volumes"]);
    // Claim templates come first, and replace volumes of the same name.
    for (index, claim) in pod.claims.iter().enumerate() {
        let name = text(&claim["metadata"]["name"]);
        errors.invalid_each(path.index(index).child("name"), name, naming::label(name));
    }
    let repeats = Duplicates::by_field(volumes, "name");
    let own = volumes.iter().enumerate();
    for (index, volume) in own.filter(|(_, volume)| !pod.claim_names.contains(text(&volume["name"]))) {
        let path = path.index(index + pod.claims.len());
        let mut given = entries(volume).filter(|(key, source)| *key != "name" && !source.is_null());
        match (given.next(), given.next()) {
            (None, _) => errors.required(path, "must specify a volume type"),
            (Some((source, _)), None) => check_source(pod, volume, source, &path, errors),
            (Some(_), Some(_)) => check_sources(pod, volume, &path, errors),
        }
        let name = text(&volume["name"]);
        if errors.require(path.child("name"), &volume["name"]) {
            errors.invalid_each(path.child("name"), name, naming::label(name));
            if repeats.contains(index) {
                errors.duplicate(path.child("name"), name);
            }
        }
    }
}

/// Of several sources the first is checked, and the others are rejected.
fn check_sources(pod: &Pod<'_>, volume: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let mut sources = SOURCES.iter().filter(|source| !volume[**source].is_null());
    if let Some(source) = sources.next() {
        check_source(pod, volume, source, path, errors);
    }
    for extra in sources {
        // The real server's messages spell some differently here.
        let extra = match *extra {
            "downwardAPI" => "downwarAPI",
            "cephfs" => "cephFS",
            extra => extra,
        };
        errors.forbidden(path.child(extra), "may not specify more than 1 volume type");
    }
}

fn check_source(pod: &Pod<'_>, volume: &Value, kind: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (source, outer, path) = (&volume[kind], path, path.child(kind));
    let required = REQUIRED.iter().find(|(source, _)| *source == kind);
    for key in required.map_or(&[][..], |(_, keys)| *keys) {
        errors.require(path.child(key), &source[*key]);
    }
    match kind {
        "emptyDir" if quantity::nanos(&source["sizeLimit"]).is_some_and(|nanos| nanos < 0) => {
            let why = "SizeLimit field must be a valid resource quantity";
            errors.forbidden(path.child("sizeLimit"), why);
        }
        "hostPath" => {
            if errors.require(path.child("path"), &source["path"]) {
                no_backsteps(&source["path"], &path.child("path"), errors);
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
            errors.one_of(path.child("type"), &source["type"], &kinds);
        }
        "secret" | "configMap" => {
            check_mode(&source["defaultMode"], &path.child("defaultMode"), errors);
            check_items(&source["items"], &path.child("items"), errors);
        }
        "nfs" => {
            errors.require(path.child("server"), &source["server"]);
            errors.require(path.child("path"), &source["path"]);
            if !text(&source["path"]).starts_with('/') {
                let why = "must be an absolute path";
                errors.invalid(path.child("path"), text(&source["path"]), why);
            }
        }
        "downwardAPI" => {
            check_mode(&source["defaultMode"], &path.child("defaultMode"), errors);
            for file in list(&source["items"]) {
                check_file(file, &path, errors);
            }
        }
        "projected" => check_projected(source, &path, errors),
        "csi" => {
            let driver = text(&source["driver"]);
            if !driver.is_empty() {
                let name = driver.to_lowercase();
                errors.invalid_each(path.child("driver"), &name, naming::subdomain(&name));
            }
        }
        "ephemeral" => check_ephemeral(pod, volume, outer, errors),
        "image" => {
            if !pod.is_template {
                errors.require(path.child("reference"), &source["reference"]);
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            errors.one_of_if_given(path.child("pullPolicy"), &source["pullPolicy"], &policies);
        }
        _ => {}
    }
}

fn no_backsteps(value: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if text(value).split('/').any(|part| part == "..") {
        errors.invalid(path, text(value), "must not contain '..'");
    }
}

fn check_mode(mode: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if let Some(mode) = mode.as_i64().filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(path, mode, MODE_MESSAGE);
    }
}

/// A path within a volume whose files come from the API.
fn check_path(value: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let inner = text(value);
    errors.relative_path(path, inner);
    if inner.starts_with("..") && !inner.starts_with("../") {
        errors.invalid(path, inner, "must not start with '..'");
    }
}

fn check_items(items: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for (index, item) in list(items).iter().enumerate() {
        let path = path.index(index);
        errors.require(path.child("key"), &item["key"]);
        errors.require(path.child("path"), &item["path"]);
        check_path(&item["path"], &path.child("path"), errors);
        check_mode(&item["mode"], &path.child("mode"), errors);
    }
}

fn check_file(file: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    errors.require(path.child("path"), &file["path"]);
    check_path(&file["path"], &path.child("path"), errors);
    let (field, resource) = (&file["fieldRef"], &file["resourceFieldRef"]);
    if !field.is_null() {
        env::check_field(field, &env::FILE_FIELDS, &path.child("fieldRef"), errors);
        if !resource.is_null() {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(path, "resource", why);
        }
    } else if !resource.is_null() {
        let path = path.child("resourceFieldRef");
        if errors.require(path.child("containerName"), &resource["containerName"]) {
            env::check_resource(resource, &path, errors);
        }
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    check_mode(&file["mode"], &path.child("mode"), errors);
}

fn check_projected(projected: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    check_mode(&projected["defaultMode"], &path.child("defaultMode"), errors);
    let sources = list(&projected["sources"]);
    let place = path.child("sources");
    // The paths used by earlier sources.
    let mut earlier = HashSet::new();
    for (index, source) in sources.iter().enumerate() {
        let item = place.index(index);
        for kind in ["secret", "configMap"] {
            let (from, field) = (&source[kind], item.child(kind));
            if from.is_null() {
                continue;
            }
            errors.require(field.child("name"), &from["name"]);
            check_items(&from["items"], &field.child("items"), errors);
            let mut own = HashSet::new();
            for taken in list(&from["items"]) {
                let target = text(&taken["path"]);
                let taken = earlier.contains(target) || !own.insert(target);
                if !target.is_empty() && taken {
                    errors.invalid(path, text(&from["name"]), "conflicting duplicate paths");
                }
            }
        }
        for file in list(&source["downwardAPI"]["items"]) {
            check_file(file, &item.child("downwardAPI"), errors);
        }
        let token = &source["serviceAccountToken"];
        if !token.is_null() {
            let seconds = token["expirationSeconds"].as_i64().unwrap_or(3600);
            let field = item.child("serviceAccountToken");
            let field = field.child("expirationSeconds");
            if seconds < 600 {
                errors.invalid(field, seconds, "may not specify a duration less than 10 minutes");
            }
            if seconds > 1 << 32 {
                errors.invalid(
                    field,
                    seconds,
                    "may not specify a duration larger than 2^32 seconds",
                );
            }
            if errors.require(path.child("path"), &token["path"]) {
                check_path(&token["path"], &path.child("path"), errors);
            }
        }
        earlier.extend(paths(source));
        let given = source.as_object().into_iter().flatten();
        if given.filter(|(_, from)| !from.is_null()).count() > 1 {
            let why = "may not specify more than 1 volume type per source";
            errors.forbidden(item, why);
        }
    }
}

/// The paths that a source uses.
fn paths(source: &Value) -> impl Iterator<Item = &str> {
    ["secret", "configMap", "downwardAPI"]
        .into_iter()
        .flat_map(|kind| list(&source[kind]["items"]))
        .map(|item| text(&item["path"]))
}

fn check_ephemeral(pod: &Pod<'_>, volume: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let template = &volume["ephemeral"]["volumeClaimTemplate"];
    if template.is_null() {
        errors.required(path.child("ephemeral.volumeClaimTemplate"), "");
    } else {
        persistent_volume_claim::check_claim(
            &template["spec"],
            &path.child("ephemeral.volumeClaimTemplate.spec"),
            errors,
        );
    }
    let name = text(&volume["name"]);
    if !pod.name.is_empty() && !name.is_empty() && pod.name.len() + name.len() > 252 {
        let claim = format!("{}-{name}", pod.name);
        for why in naming::subdomain(&claim) {
            errors.invalid(path.child("name"), name, &format!("PVC name {claim:?}: {why}"));
        }
    }
}
