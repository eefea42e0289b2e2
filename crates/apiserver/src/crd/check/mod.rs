//! What is wrong with a CRD, in the real server's words.
//!
//! The real server does not look at a CRD as it was sent: what all versions have in common (with a single version:
//! everything) is moved from the versions to `spec.validation`, `spec.subresources`, `spec.additionalPrinterColumns` and
//! `spec.selectableFields`, where CRDs had it in earlier days. Errors are told with those paths ([`Common`]).

mod defaults;
mod dump;
mod openapi;
mod parts;
mod structural;

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{
    conditions::{self, ESTABLISHED},
    lifecycle::{APPROVAL, Approval, approval_text, is_protected},
    list, spec, text,
};
use crate::{
    naming,
    object::Object,
    schema::{FieldError, Problem, Schema, is_known_format},
};

/// What was found to be wrong, in the order in which the real server finds it.
#[derive(Default)]
struct Findings(Vec<FieldError>);

impl Findings {
    fn add(&mut self, field: impl Into<String>, problem: Problem) {
        self.0.push(FieldError::new(field, problem));
    }

    fn required(&mut self, field: impl Into<String>, why: &str) {
        self.add(field, Problem::Required(why.to_owned()));
    }

    fn invalid(&mut self, field: impl Into<String>, value: impl Into<Value>, why: impl Into<String>) {
        self.add(field, Problem::Invalid(value.into(), why.into()));
    }

    fn forbidden(&mut self, field: impl Into<String>, why: impl Into<String>) {
        self.add(field, Problem::Forbidden(why.into()));
    }

    fn unsupported(&mut self, field: impl Into<String>, value: &str, choices: &[&str]) {
        let choices = choices.iter().map(|choice| Value::from(*choice)).collect();
        self.add(field, Problem::NotSupported(value.into(), choices));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The parts that all versions of a CRD have in common, and that are therefore looked for above them.
struct Common(Vec<&'static str>);

impl Common {
    fn of(versions: &[Value]) -> Self {
        let same = |key: &&str| {
            let first = versions.first().map(|version| &version[*key]);
            !versions.is_empty() && versions.iter().all(|version| Some(&version[*key]) == first)
        };
        let parts = [
            "schema",
            "subresources",
            "additionalPrinterColumns",
            "selectableFields",
        ];
        Self(parts.into_iter().filter(same).collect())
    }

    fn has(&self, part: &str) -> bool {
        self.0.contains(&part)
    }
}

/// Everything that is wrong with a CRD: with a new one, or with one that takes the place of another.
pub(crate) fn check(crd: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let spec = spec(crd);
    let wanted = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    if old.is_none() && crd.name() != wanted {
        findings.invalid(
            "metadata.name",
            crd.name(),
            "must be spec.names.plural+\".\"+spec.group",
        );
    }
    check_spec(spec, &mut findings);
    if let Some(old) = old {
        check_changes(crd, old, &mut findings);
    }
    check_accepted_names(crd, &mut findings);
    check_stored_versions(crd, &mut findings);
    check_approval(crd, old, &mut findings);
    if spec["preserveUnknownFields"] == true {
        findings.invalid(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
    findings.0
}

/// What is wrong with the status of a CRD that a client writes.
pub(crate) fn check_status(crd: &Object) -> Vec<FieldError> {
    let mut findings = Findings::default();
    check_accepted_names(crd, &mut findings);
    findings.0
}

fn check_spec(spec: &Value, findings: &mut Findings) {
    let group = text(&spec["group"]);
    let problems = naming::subdomain(group);
    if group.is_empty() {
        findings.required("spec.group", "");
    } else if !problems.is_empty() {
        findings.invalid("spec.group", group, problems.join(","));
    } else if !group.contains('.') {
        findings.invalid("spec.group", group, "should be a domain with at least one dot");
    }
    match text(&spec["scope"]) {
        "" => findings.required("spec.scope", ""),
        "Cluster" | "Namespaced" => {}
        other => findings.unsupported("spec.scope", other, &["Cluster", "Namespaced"]),
    }
    let versions = list(&spec["versions"]);
    let common = Common::of(versions);
    for (index, version) in versions.iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            findings.required(format!("spec.versions[{index}].schema.openAPIV3Schema"), "");
        }
    }
    if spec["preserveUnknownFields"] == true
        && versions.iter().any(|version| has_defaults(&version["schema"]))
    {
        findings.invalid(
            "spec.preserveUnknownFields",
            true,
            "must be false in order to use defaults in the schema",
        );
    }
    for (index, version) in versions.iter().enumerate() {
        check_version(version, &format!("spec.versions[{index}]"), &common, findings);
    }
    check_versions_together(spec, versions, &common, findings);
    // The first version was a field of its own once.
    let first = versions.first().map_or("", |version| text(&version["name"]));
    let problems = naming::label_1035(first);
    if !first.is_empty() && !problems.is_empty() {
        findings.invalid("spec.version", first, problems.join(","));
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][key]).is_empty() {
            findings.required(format!("spec.names.{key}"), "");
        }
    }
    check_names(&spec["names"], "spec.names", findings);
    if let Some(first) = versions.first() {
        let any_status = versions
            .iter()
            .any(|version| has_status(&version["subresources"]));
        if common.has("schema") {
            check_schema(&first["schema"], any_status, "spec.validation", findings);
        }
        if common.has("subresources") {
            parts::check_subresources(&first["subresources"], "spec.subresources", findings);
        }
        if common.has("additionalPrinterColumns") {
            parts::check_columns(
                &first["additionalPrinterColumns"],
                "spec.additionalPrinterColumns",
                findings,
            );
        }
        if common.has("selectableFields") && !list(&first["selectableFields"]).is_empty() {
            if common.has("schema") && !first["schema"].is_null() {
                let schema = &first["schema"]["openAPIV3Schema"];
                parts::check_selectable(
                    &first["selectableFields"],
                    schema,
                    "spec.selectableFields",
                    findings,
                );
            } else {
                findings.invalid(
                    "spec.selectableFields",
                    "",
                    "may only be set when validations.schema is included",
                );
            }
        }
    }
    parts::check_conversion(spec, findings);
}

fn check_version(version: &Value, path: &str, common: &Common, findings: &mut Findings) {
    let name = text(&version["name"]);
    let problems = naming::label_1035(name);
    if !problems.is_empty() {
        findings.invalid(format!("{path}.name"), name, problems.join(","));
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        for why in parts::deprecation_problems(version["deprecated"] == true, warning) {
            findings.invalid(format!("{path}.deprecationWarning"), warning, why);
        }
    }
    if !common.has("schema") {
        let status = has_status(&version["subresources"]);
        check_schema(&version["schema"], status, &format!("{path}.schema"), findings);
    }
    if !common.has("subresources") {
        parts::check_subresources(
            &version["subresources"],
            &format!("{path}.subresources"),
            findings,
        );
    }
    if !common.has("additionalPrinterColumns") {
        let path = format!("{path}.additionalPrinterColumns");
        parts::check_columns(&version["additionalPrinterColumns"], &path, findings);
    }
    if !common.has("selectableFields") && !list(&version["selectableFields"]).is_empty() {
        let path = format!("{path}.selectableFields");
        if common.has("schema") || version["schema"]["openAPIV3Schema"].is_null() {
            let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
            findings.invalid(path, "", why);
        } else {
            let schema = &version["schema"]["openAPIV3Schema"];
            parts::check_selectable(&version["selectableFields"], schema, &path, findings);
        }
    }
}

fn check_versions_together(spec: &Value, versions: &[Value], common: &Common, findings: &mut Findings) {
    let mut complain = |why: &str| {
        let text = match &spec["versions"] {
            Value::Null => "null".to_owned(),
            _ => dump::versions(versions, common),
        };
        findings.add("spec.versions", Problem::InvalidText(text, why.to_owned()));
    };
    let mut names: Vec<_> = versions.iter().map(|version| text(&version["name"])).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < versions.len() {
        complain("must contain unique version names");
    }
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        complain("must have exactly one version marked as storage version");
    }
}

/// Checks the schema of a version, or of all.
fn check_schema(schema: &Value, has_status: bool, path: &str, findings: &mut Findings) {
    let schema = &schema["openAPIV3Schema"];
    if schema.is_null() {
        return;
    }
    let path = format!("{path}.openAPIV3Schema");
    let mut own = Findings::default();
    if has_status {
        openapi::check_root_with_status(schema, &path, &mut own);
    }
    if schema["nullable"] == true {
        own.forbidden(format!("{path}.nullable"), "nullable cannot be true at the root");
    }
    let unreadable = structural::unreadable(schema);
    if unreadable.is_none() {
        let problems = structural::check(schema, &path);
        if problems.is_empty() {
            // What is structural can be built; what cannot is told by the check below.
            if let Ok(built) = Schema::of_crd_defaults(schema) {
                defaults::check(&built, schema, &path, &mut own);
            }
        }
        own.0.extend(problems);
    }
    openapi::check(schema, &path, &mut own);
    if let Some(why) = unreadable.filter(|_| own.is_empty()) {
        own.invalid(&*path, "", why);
    }
    findings.0.extend(own.0);
}

fn check_names(names: &Value, path: &str, findings: &mut Findings) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(&names[key]);
        let is_kind = key.to_lowercase().ends_with("kind");
        let lowered = if is_kind {
            name.to_lowercase()
        } else {
            name.to_owned()
        };
        let problems = naming::label_1035(&lowered);
        if !name.is_empty() && !problems.is_empty() {
            let remark = if is_kind {
                "may have mixed case, but should otherwise match: "
            } else {
                ""
            };
            findings.invalid(
                format!("{path}.{key}"),
                name,
                format!("{remark}{}", problems.join(",")),
            );
        }
    }
    let check_list = |key: &str, findings: &mut Findings| {
        for (index, name) in list(&names[key]).iter().enumerate() {
            let problems = naming::label_1035(text(name));
            if !problems.is_empty() {
                findings.invalid(format!("{path}.{key}[{index}]"), name.clone(), problems.join(","));
            }
        }
    };
    check_list("shortNames", findings);
    if !text(&names["kind"]).is_empty() && names["kind"] == names["listKind"] {
        let why = "kind and listKind may not be the same";
        findings.invalid(format!("{path}.listKind"), names["listKind"].clone(), why);
    }
    check_list("categories", findings);
}

fn check_accepted_names(crd: &Object, findings: &mut Findings) {
    let status = crd.fields().get("status").unwrap_or(&Value::Null);
    check_names(&status["acceptedNames"], "status.acceptedNames", findings);
}

/// What an update may not change.
fn check_changes(crd: &Object, old: &Object, findings: &mut Findings) {
    let mut fixed = |pointer: &str| {
        let (new, old) = (spec(crd).pointer(pointer), spec(old).pointer(pointer));
        if new != old {
            let field = format!("spec{}", pointer.replace('/', "."));
            findings.invalid(
                field,
                new.cloned().unwrap_or_else(|| json!("")),
                "field is immutable",
            );
        }
    };
    if conditions::is_true(old, ESTABLISHED) {
        fixed("/scope");
        fixed("/names/kind");
    }
    fixed("/group");
    fixed("/names/plural");
}

fn check_stored_versions(crd: &Object, findings: &mut Findings) {
    let path = "status.storedVersions";
    let status = crd.fields().get("status").unwrap_or(&Value::Null);
    let stored = list(&status["storedVersions"]);
    if stored.is_empty() {
        findings.invalid(path, Value::Null, "must have at least one stored version");
        return;
    }
    let versions = super::versions(crd);
    let known_versions: HashSet<_> = stored.iter().collect();
    let mut seen = HashSet::new();
    for version in versions {
        let name = &version["name"];
        // A name that is there twice was found the first time.
        let known = known_versions.contains(name) && !seen.contains(name);
        if version["storage"] == true && !known {
            let why = format!("must have the storage version {}", text(name));
            findings.invalid(path, stored.to_vec(), why);
        }
        seen.insert(name);
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let name = text(name);
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            findings.invalid(format!("{path}[{index}]"), name, why);
        }
    }
}

fn check_approval(crd: &Object, old: Option<&Object>, findings: &mut Findings) {
    if !is_protected(text(&spec(crd)["group"])) {
        return;
    }
    let (approval, why) = Approval::of(crd);
    if old.is_some_and(|old| Approval::of(old).0 == approval) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    match approval {
        Approval::Missing => findings.required(field, &why),
        Approval::Invalid => findings.invalid(field, approval_text(crd), why),
        Approval::Approved | Approval::Bypassed => {}
    }
}

fn has_status(subresources: &Value) -> bool {
    subresources.get("status").is_some_and(|status| !status.is_null())
}

fn has_defaults(schema: &Value) -> bool {
    schemas(&schema["openAPIV3Schema"])
        .iter()
        .any(|schema| !schema["default"].is_null())
}

/// What a client is told about the formats in a CRD that mean nothing.
pub(crate) fn warnings(crd: &Object, old: Option<&Object>) -> Vec<String> {
    let known = old.map(unknown_formats).unwrap_or_default();
    unknown_formats(crd)
        .into_iter()
        .filter(|format| !known.contains(format))
        .map(|format| format!("unrecognized format {format:?}"))
        .collect()
}

fn unknown_formats(crd: &Object) -> Vec<String> {
    let versions = super::versions(crd);
    // What the versions have in common is looked at once.
    let times = if Common::of(versions).has("schema") {
        1
    } else {
        versions.len()
    };
    let mut formats = Vec::new();
    for version in versions.iter().take(times) {
        for schema in schemas(&version["schema"]["openAPIV3Schema"]) {
            let (kind, format) = (text(&schema["type"]), text(&schema["format"]));
            if !format.is_empty() && !is_known_format(kind, format) {
                formats.push(format.to_owned());
            }
        }
    }
    formats
}

/// A schema and all schemas inside it.
fn schemas(schema: &Value) -> Vec<&Value> {
    if !schema.is_object() {
        return Vec::new();
    }
    let lists = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .flat_map(|key| list(&schema[key]));
    let maps = ["properties", "patternProperties", "definitions", "dependencies"]
        .into_iter()
        .filter_map(|key| schema[key].as_object())
        .flat_map(|fields| fields.values());
    let single = ["items", "not", "additionalProperties", "additionalItems"].map(|key| &schema[key]);
    let inner = single
        .into_iter()
        .take(1)
        .chain(lists)
        .chain(single.into_iter().skip(1))
        .chain(maps);
    std::iter::once(schema).chain(inner.flat_map(schemas)).collect()
}
