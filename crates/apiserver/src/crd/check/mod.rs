//! Validation of CRDs, with the real server's messages.
//!
//! The real server does not validate a CRD as sent. Fields that all versions have in common (with a single version: all
//! fields) are first moved to `spec.validation`, `spec.subresources`, `spec.additionalPrinterColumns` and
//! `spec.selectableFields`, their place in earlier API versions. Errors have those paths ([`CommonFields`]).

mod defaults;
mod go_json;
mod openapi;
mod parts;
#[cfg(test)]
mod recorded;
mod rules;
mod structural;

use std::collections::HashSet;

use serde_json::{Value, json};
use windlass_api::naming;
use windlass_cel::rules::Rules;

use super::{
    ca_bundle,
    conditions::{self, ESTABLISHED},
    lifecycle::{APPROVAL_ANNOTATION, Approval, approval_text, is_protected},
    list, spec, text,
};
use crate::{
    object::Object,
    schema::{FieldError, MAX_ERROR_BYTES, MAX_ERRORS, Patterns, Problem, Schema, is_known_format},
};

/// Validation errors, in the real server's order, and their length. Beyond the limits of a response, errors are only
/// counted.
#[derive(Default)]
struct ErrorList(Vec<FieldError>, usize);

impl ErrorList {
    fn add(&mut self, field: impl Into<String>, problem: Problem) {
        if self.0.len() < MAX_ERRORS && self.1 < MAX_ERROR_BYTES {
            let error = FieldError::new(field, problem);
            self.1 += error.field.len() + error.message().len();
            self.0.push(error);
        } else if let Some(Problem::Omitted(count)) = self.0.last_mut().map(|last| &mut last.problem) {
            *count += 1;
        } else {
            self.0.push(FieldError::new("", Problem::Omitted(1)));
        }
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

/// The fields that all versions of a CRD have in common, which are validated once, above the versions.
struct CommonFields(Vec<&'static str>);

impl CommonFields {
    fn from_versions(versions: &[Value]) -> Self {
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

/// Validates a new CRD, or an update of `old`.
pub(crate) fn check(crd: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let spec = spec(crd);
    let wanted = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    if old.is_none() && crd.name() != wanted {
        errors.invalid(
            "metadata.name",
            crd.name(),
            "must be spec.names.plural+\".\"+spec.group",
        );
    }
    check_spec(spec, old.map(super::spec), &mut errors);
    check_ca_bundle(crd, old, &mut errors);
    if let Some(old) = old {
        check_changes(crd, old, &mut errors);
    }
    check_accepted_names(crd, &mut errors);
    check_stored_versions(crd, &mut errors);
    check_approval(crd, old, &mut errors);
    if spec["preserveUnknownFields"] == true {
        errors.invalid(
            "spec.preserveUnknownFields",
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
    errors.0
}

/// The CA bundle of an established CRD must stay valid.
fn check_ca_bundle(crd: &Object, old: Option<&Object>, errors: &mut ErrorList) {
    let was_valid = old.is_some_and(|old| {
        conditions::is_true(old, ESTABLISHED) && ca_bundle::problem(ca_bundle::of(old)).is_none()
    });
    let is_used = spec(crd)["conversion"]["strategy"] == "Webhook";
    if !was_valid || !is_used {
        return;
    }
    if let Some(why) = ca_bundle::problem(ca_bundle::of(crd)) {
        let field = "spec.conversion.webhookClientConfig.caBundle";
        errors.invalid(field, ca_bundle::of(crd), why);
    }
}

/// Validates a CRD's status as written by a client.
pub(crate) fn check_status(crd: &Object) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    check_accepted_names(crd, &mut errors);
    errors.0
}

fn check_spec(spec: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let group = text(&spec["group"]);
    let problems = naming::subdomain(group);
    if group.is_empty() {
        errors.required("spec.group", "");
    } else if !problems.is_empty() {
        errors.invalid("spec.group", group, problems.join(","));
    } else if !group.contains('.') {
        errors.invalid("spec.group", group, "should be a domain with at least one dot");
    }
    match text(&spec["scope"]) {
        "" => errors.required("spec.scope", ""),
        "Cluster" | "Namespaced" => {}
        other => errors.unsupported("spec.scope", other, &["Cluster", "Namespaced"]),
    }
    let versions = list(&spec["versions"]);
    let common = CommonFields::from_versions(versions);
    let mut patterns = Patterns::default();
    for (index, version) in versions.iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            errors.required(format!("spec.versions[{index}].schema.openAPIV3Schema"), "");
        }
    }
    if spec["preserveUnknownFields"] == true
        && versions.iter().any(|version| has_defaults(&version["schema"]))
    {
        errors.invalid(
            "spec.preserveUnknownFields",
            true,
            "must be false in order to use defaults in the schema",
        );
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        check_version(version, old, &path, &common, &mut patterns, errors);
    }
    check_version_list(spec, versions, &common, errors);
    // `spec.version` was a field of its own in earlier API versions.
    let first = versions.first().map_or("", |version| text(&version["name"]));
    let problems = naming::label_1035(first);
    if !first.is_empty() && !problems.is_empty() {
        errors.invalid("spec.version", first, problems.join(","));
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][key]).is_empty() {
            errors.required(format!("spec.names.{key}"), "");
        }
    }
    check_names(&spec["names"], "spec.names", errors);
    if let Some(first) = versions.first() {
        let any_status = versions
            .iter()
            .any(|version| has_status(&version["subresources"]));
        if common.has("schema") {
            check_schema(
                &first["schema"],
                any_status,
                is_schema_unchanged(first, old),
                "spec.validation",
                &mut patterns,
                errors,
            );
        }
        if common.has("subresources") {
            parts::check_subresources(&first["subresources"], "spec.subresources", errors);
        }
        if common.has("additionalPrinterColumns") {
            parts::check_columns(
                &first["additionalPrinterColumns"],
                "spec.additionalPrinterColumns",
                errors,
            );
        }
        if common.has("selectableFields") && !list(&first["selectableFields"]).is_empty() {
            if common.has("schema") && !first["schema"].is_null() {
                let schema = &first["schema"]["openAPIV3Schema"];
                parts::check_selectable(
                    &first["selectableFields"],
                    schema,
                    "spec.selectableFields",
                    errors,
                );
            } else {
                errors.invalid(
                    "spec.selectableFields",
                    "",
                    "may only be set when validations.schema is included",
                );
            }
        }
    }
    parts::check_conversion(spec, errors);
}

fn check_version(
    version: &Value,
    old: Option<&Value>,
    path: &str,
    common: &CommonFields,
    patterns: &mut Patterns,
    errors: &mut ErrorList,
) {
    let name = text(&version["name"]);
    let problems = naming::label_1035(name);
    if !problems.is_empty() {
        errors.invalid(format!("{path}.name"), name, problems.join(","));
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        for why in parts::deprecation_problems(version["deprecated"] == true, warning) {
            errors.invalid(format!("{path}.deprecationWarning"), warning, why);
        }
    }
    if !common.has("schema") {
        let status = has_status(&version["subresources"]);
        check_schema(
            &version["schema"],
            status,
            is_schema_unchanged(version, old),
            &format!("{path}.schema"),
            patterns,
            errors,
        );
    }
    if !common.has("subresources") {
        parts::check_subresources(&version["subresources"], &format!("{path}.subresources"), errors);
    }
    if !common.has("additionalPrinterColumns") {
        let path = format!("{path}.additionalPrinterColumns");
        parts::check_columns(&version["additionalPrinterColumns"], &path, errors);
    }
    if !common.has("selectableFields") && !list(&version["selectableFields"]).is_empty() {
        let path = format!("{path}.selectableFields");
        if common.has("schema") || version["schema"]["openAPIV3Schema"].is_null() {
            let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
            errors.invalid(path, "", why);
        } else {
            let schema = &version["schema"]["openAPIV3Schema"];
            parts::check_selectable(&version["selectableFields"], schema, &path, errors);
        }
    }
}

fn check_version_list(spec: &Value, versions: &[Value], common: &CommonFields, errors: &mut ErrorList) {
    let mut complain = |why: &str| {
        let text = match &spec["versions"] {
            Value::Null => "null".to_owned(),
            _ => go_json::versions(versions, common),
        };
        errors.add("spec.versions", Problem::InvalidText(text, why.to_owned()));
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

/// Validates the schema of a version, or the common one.
fn check_schema(
    schema: &Value,
    has_status: bool,
    is_unchanged: bool,
    path: &str,
    patterns: &mut Patterns,
    errors: &mut ErrorList,
) {
    let schema = &schema["openAPIV3Schema"];
    if schema.is_null() {
        return;
    }
    let path = format!("{path}.openAPIV3Schema");
    if path_bytes(schema, path.len()) > MAX_PATH_BYTES {
        let why = format!("the paths of all fields must take no more than {MAX_PATH_BYTES} bytes together");
        return errors.forbidden(path, why);
    }
    let mut own = ErrorList::default();
    if has_status {
        openapi::check_root_with_status(schema, &path, &mut own);
    }
    if schema["nullable"] == true {
        own.forbidden(format!("{path}.nullable"), "nullable cannot be true at the root");
    }
    let unreadable = structural::structural_error(schema);
    let mut compiled = None;
    let mut has_scope = false;
    if unreadable.is_none() {
        let problems = structural::check(schema, &path, patterns);
        if problems.is_empty() {
            compiled = Rules::compile(schema);
            let known = own.0.len();
            // If building fails, the checks below report why.
            if let Ok(built) = Schema::for_crd_defaults(schema, patterns) {
                let rules = compiled.as_ref().map(Rules::root);
                defaults::check(&built, schema, rules, &path, &mut own);
            }
            // The rules are checked only if the defaults are valid.
            has_scope = own.0.len() == known;
        }
        own.0.extend(problems);
    }
    let rules = compiled.as_ref().map(Rules::root);
    let scope = has_scope.then(|| rules::Scope::root(rules, is_unchanged));
    openapi::check(schema, &path, scope, &mut own);
    if let Some(why) = unreadable.filter(|_| own.is_empty()) {
        own.invalid(&*path, "", why);
    }
    errors.0.extend(own.0);
}

/// Whether the stored CRD has this schema for the version. A schema that all its versions have in common is also that of a
/// new version.
fn is_schema_unchanged(version: &Value, old: Option<&Value>) -> bool {
    let old = old.map_or(&[][..], |old| list(&old["versions"]));
    let is_common = CommonFields::from_versions(old).has("schema");
    old.iter()
        .any(|old| (is_common || old["name"] == version["name"]) && old["schema"] == version["schema"])
}

fn check_names(names: &Value, path: &str, errors: &mut ErrorList) {
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
            errors.invalid(
                format!("{path}.{key}"),
                name,
                format!("{remark}{}", problems.join(",")),
            );
        }
    }
    let check_list = |key: &str, errors: &mut ErrorList| {
        for (index, name) in list(&names[key]).iter().enumerate() {
            let problems = naming::label_1035(text(name));
            if !problems.is_empty() {
                errors.invalid(format!("{path}.{key}[{index}]"), name.clone(), problems.join(","));
            }
        }
    };
    check_list("shortNames", errors);
    if !text(&names["kind"]).is_empty() && names["kind"] == names["listKind"] {
        let why = "kind and listKind may not be the same";
        errors.invalid(format!("{path}.listKind"), names["listKind"].clone(), why);
    }
    check_list("categories", errors);
}

fn check_accepted_names(crd: &Object, errors: &mut ErrorList) {
    let status = crd.fields().get("status").unwrap_or(&Value::Null);
    check_names(&status["acceptedNames"], "status.acceptedNames", errors);
}

/// Rejects changes of immutable fields.
fn check_changes(crd: &Object, old: &Object, errors: &mut ErrorList) {
    let mut fixed = |pointer: &str| {
        let (new, old) = (spec(crd).pointer(pointer), spec(old).pointer(pointer));
        if new != old {
            let field = format!("spec{}", pointer.replace('/', "."));
            errors.invalid(
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

fn check_stored_versions(crd: &Object, errors: &mut ErrorList) {
    let path = "status.storedVersions";
    let status = crd.fields().get("status").unwrap_or(&Value::Null);
    let stored = list(&status["storedVersions"]);
    if stored.is_empty() {
        errors.invalid(path, Value::Null, "must have at least one stored version");
        return;
    }
    let versions = super::versions(crd);
    let known_versions: HashSet<_> = stored.iter().collect();
    let mut seen = HashSet::new();
    for version in versions {
        let name = &version["name"];
        // A duplicate name was reported the first time.
        let known = known_versions.contains(name) && !seen.contains(name);
        if version["storage"] == true && !known {
            let why = format!("must have the storage version {}", text(name));
            errors.invalid(path, stored.to_vec(), why);
        }
        seen.insert(name);
    }
    // All versions were seen.
    for (index, name) in stored.iter().enumerate() {
        if !seen.contains(name) {
            let name = text(name);
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(format!("{path}[{index}]"), name, why);
        }
    }
}

fn check_approval(crd: &Object, old: Option<&Object>, errors: &mut ErrorList) {
    if !is_protected(text(&spec(crd)["group"])) {
        return;
    }
    let (approval, why) = Approval::from_crd(crd);
    if old.is_some_and(|old| Approval::from_crd(old).0 == approval) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL_ANNOTATION}]");
    match approval {
        Approval::Missing => errors.required(field, &why),
        Approval::Invalid => errors.invalid(field, approval_text(crd), why),
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

/// Warnings about unknown formats in a CRD.
pub(crate) fn warnings(crd: &Object, old: Option<&Object>) -> Vec<String> {
    let known: HashSet<_> = old.map(unknown_formats).unwrap_or_default().into_iter().collect();
    unknown_formats(crd)
        .into_iter()
        .filter(|format| !known.contains(format))
        .map(|format| format!("unrecognized format {format:?}"))
        .collect()
}

fn unknown_formats(crd: &Object) -> Vec<String> {
    let versions = super::versions(crd);
    // A common schema is checked once.
    let times = if CommonFields::from_versions(versions).has("schema") {
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

/// Limit on the paths of all schemas nested in a schema, in bytes: each is built by every check.
const MAX_PATH_BYTES: usize = 64 << 20;

/// The length of the paths of all schemas nested in a schema, whose own path has a length.
fn path_bytes(schema: &Value, length: usize) -> usize {
    let Some(fields) = schema.as_object() else {
        return 0;
    };
    let inner = fields.iter().map(|(key, value)| {
        let length = length + key.len() + 3;
        match (&**key, value) {
            ("properties" | "patternProperties" | "definitions" | "dependencies", Value::Object(named)) => {
                named
                    .iter()
                    .map(|(name, schema)| path_bytes(schema, length + name.len()))
                    .sum()
            }
            ("allOf" | "anyOf" | "oneOf" | "items", Value::Array(schemas)) => {
                schemas.iter().map(|schema| path_bytes(schema, length)).sum()
            }
            ("items" | "not" | "additionalProperties" | "additionalItems", schema) => {
                path_bytes(schema, length)
            }
            _ => 0,
        }
    });
    inner.fold(length, usize::saturating_add)
}

/// A schema and all schemas nested in it.
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
