//! Validation of object metadata, for every kind.

use serde_json::Value;
use windlass_api::naming;

use crate::{
    object::Object,
    registry::{NameRule, Resource},
    rules::UpdateErrors,
    schema::{FieldError, Problem},
};

/// Limit on the total size of an object's annotations, in bytes.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// Finalizers that need no domain prefix.
pub(crate) const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Validates the name of a new object.
pub(crate) fn check_name(object: &Object, rule: NameRule) -> Vec<FieldError> {
    let check = |text: &str| match rule {
        NameRule::Subdomain => naming::subdomain(text),
        NameRule::Label => naming::label(text),
        NameRule::PathSegment => naming::path_segment(text),
    };
    let mut errors = Vec::new();
    let base = object.meta("generateName");
    if !base.is_empty() {
        // The generated suffix follows the trailing dash.
        let probe = base
            .strip_suffix('-')
            .map_or_else(|| base.to_owned(), |base| format!("{base}a"));
        add_invalid(&mut errors, "metadata.generateName", base, check(&probe));
    }
    if object.name().is_empty() {
        let why = "name or generateName is required".to_owned();
        errors.push(FieldError::new("metadata.name", Problem::Required(why)));
    } else {
        add_invalid(&mut errors, "metadata.name", object.name(), check(object.name()));
    }
    errors
}

fn add_invalid(errors: &mut Vec<FieldError>, field: &str, value: &str, problems: Vec<String>) {
    errors.extend(
        problems
            .into_iter()
            .map(|why| FieldError::new(field, Problem::Invalid(value.into(), why))),
    );
}

/// Validates an object's labels, annotations, finalizers and owner references.
pub(crate) fn check_metadata(object: &Object, resource: &Resource) -> Vec<FieldError> {
    let mut errors = check_custom_metadata(object);
    // For custom resources an unqualified finalizer is only a warning.
    let checked = !resource.is_custom && MetadataChecks::for_resource(resource).finalizers > 0;
    for (index, finalizer) in object.finalizers().enumerate().filter(|_| checked) {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified".to_owned();
            errors.push(FieldError::new(
                format!("metadata.finalizers[{index}]"),
                Problem::Invalid(finalizer.into(), why),
            ));
        }
    }
    errors
}

/// Validates the metadata of custom resources, and of resources embedded in them.
pub(crate) fn check_custom_metadata(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in object.labels() {
        add_invalid(&mut errors, "metadata.labels", key, naming::qualified(key));
        add_invalid(&mut errors, "metadata.labels", value, naming::label_value(value));
    }
    let annotations = object.metadata().get("annotations").and_then(Value::as_object);
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        // Annotation keys are case-insensitive: only a key that is invalid as written is checked again in lower case.
        if !naming::qualified(key).is_empty() {
            let key = key.to_lowercase();
            add_invalid(&mut errors, "metadata.annotations", &key, naming::qualified(&key));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS_BYTES {
        errors.push(FieldError::new(
            "metadata.annotations",
            Problem::TooLong(MAX_ANNOTATIONS_BYTES as u64),
        ));
    }
    check_owner_references(object, &mut errors);
    for finalizer in object.finalizers() {
        add_invalid(
            &mut errors,
            "metadata.finalizers",
            finalizer,
            naming::qualified(finalizer),
        );
    }
    if ["orphan", "foregroundDeletion"]
        .iter()
        .all(|wanted| object.finalizers().any(|f| f == *wanted))
    {
        let list: Vec<_> = object.finalizers().map(Value::from).collect();
        let why = "finalizer orphan and foregroundDeletion cannot be both set".to_owned();
        errors.push(FieldError::new(
            "metadata.finalizers",
            Problem::Invalid(list.into(), why),
        ));
    }
    errors
}

fn check_owner_references(object: &Object, errors: &mut Vec<FieldError>) {
    let owners = object.metadata().get("ownerReferences").and_then(Value::as_array);
    let owners = owners.map_or(&[][..], Vec::as_slice);
    for owner in owners {
        for key in ["apiVersion", "kind", "name", "uid"] {
            let text = owner[key].as_str().unwrap_or_default();
            if text.is_empty() || (key == "apiVersion" && text.matches('/').count() > 1) {
                let why = if key == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                errors.push(FieldError::new(
                    format!("metadata.ownerReferences.{key}"),
                    Problem::Invalid(owner[key].as_str().unwrap_or_default().into(), why.to_owned()),
                ));
            }
        }
    }
    for owner in owners
        .iter()
        .filter(|owner| owner["apiVersion"] == "v1" && owner["kind"] == "Event")
    {
        let why = "/v1, Kind=Event is disallowed from being an owner".to_owned();
        errors.push(FieldError::new(
            "metadata.ownerReferences",
            Problem::InvalidText(format_owner_reference(owner), why),
        ));
    }
    let controllers: Vec<_> = owners
        .iter()
        .filter(|owner| owner["controller"] == true)
        .collect();
    if let [first, second, ..] = controllers[..] {
        let named = |owner: &Value| {
            let text = |key: &str| owner[key].as_str().unwrap_or_default();
            format!("{}/{}", text("kind"), text("name"))
        };
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            named(first),
            named(second)
        );
        let all: Vec<_> = owners.iter().map(format_owner_reference).collect();
        errors.push(FieldError::new(
            "metadata.ownerReferences",
            Problem::InvalidText(format!("[{}]", all.join(",")), why),
        ));
    }
}

/// Formats an owner reference in the field order of Go's struct.
fn format_owner_reference(owner: &Value) -> String {
    let fields = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let fields: Vec<_> = fields
        .iter()
        .filter(|key| !owner[**key].is_null())
        .map(|key| format!("\"{key}\":{}", owner[*key]))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// The errors of an update, in the order and with the repetitions of the real server's checks.
pub(crate) fn update_errors(
    metadata: &[FieldError],
    changed: UpdateErrors,
    resource: &Resource,
) -> Vec<FieldError> {
    let UpdateErrors {
        rules,
        immutable_fields,
    } = changed;
    if metadata.is_empty() {
        return rules.into_iter().chain(immutable_fields).collect();
    }
    let looks = MetadataChecks::for_resource(resource);
    let names = |error: &&FieldError| error.field.starts_with("metadata.finalizers[");
    let always = |error: &&FieldError| {
        matches!(&*error.field, "metadata.labels" | "metadata.annotations")
            || error.field.starts_with("metadata.ownerReferences")
    };
    let mut errors = Vec::new();
    let once = metadata.iter().filter(|error| !names(error) && !always(error));
    let again = |errors: &mut Vec<FieldError>, with_names: bool| {
        let shown = metadata
            .iter()
            .filter(|error| always(error) || (with_names && names(error)));
        errors.extend(shown.cloned());
    };
    again(&mut errors, false);
    errors.extend(once.cloned());
    again(&mut errors, false);
    let (first, second) = match looks.order {
        CheckOrder::ChangesFirst => (immutable_fields, rules),
        CheckOrder::MetadataFirst | CheckOrder::MetadataBetween => (rules, immutable_fields),
    };
    if looks.metadata > 2 {
        again(&mut errors, looks.finalizers > 0);
    }
    if looks.metadata > 3 && looks.order == CheckOrder::MetadataFirst {
        again(&mut errors, looks.finalizers > 0);
    }
    errors.extend(first);
    if looks.metadata > 3 && looks.order != CheckOrder::MetadataFirst {
        again(&mut errors, looks.finalizers > 0);
    }
    errors.extend(second);
    errors
}

/// How many of the real server's update checks validate the metadata.
struct MetadataChecks {
    metadata: usize,
    /// How many checks validate finalizer names. Only the older checks do; without them, any name is valid.
    finalizers: usize,
    order: CheckOrder,
}

/// The order in which a kind's update checks run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckOrder {
    /// All of the metadata, then the rules, then immutable fields.
    MetadataFirst,
    /// The metadata once more between rules and immutable fields.
    MetadataBetween,
    /// Like [`CheckOrder::MetadataBetween`], with immutable fields before the rules.
    ChangesFirst,
}

impl MetadataChecks {
    fn for_resource(resource: &Resource) -> Self {
        let (metadata, finalizers) = match (&*resource.group, &*resource.kind) {
            _ if resource.is_custom => (3, 1),
            ("" | "events.k8s.io", "Event") | ("policy", "PodDisruptionBudget") => (2, 0),
            ("coordination.k8s.io", "Lease") => (3, 0),
            ("node.k8s.io", "RuntimeClass") | ("apiextensions.k8s.io", _) => (4, 0),
            ("", "LimitRange" | "ResourceQuota" | "Service")
            | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
            | ("autoscaling", _)
            | ("batch", "CronJob")
            | ("discovery.k8s.io", "EndpointSlice")
            | ("networking.k8s.io", "NetworkPolicy") => (3, 1),
            _ => (4, 2),
        };
        let order = match (&*resource.group, &*resource.kind) {
            ("batch", "Job") | ("", "Node") | ("rbac.authorization.k8s.io", _) => CheckOrder::MetadataBetween,
            ("networking.k8s.io", "IngressClass") => CheckOrder::ChangesFirst,
            _ => CheckOrder::MetadataFirst,
        };
        Self {
            metadata,
            finalizers,
            order,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn name_and_generate_name_are_validated() {
        let errors = |metadata: Value| {
            let object = Object::new(json!({"metadata": metadata})).expect("an object");
            check_name(&object, NameRule::Subdomain)
                .into_iter()
                .map(|error| error.field)
                .collect::<Vec<_>>()
        };
        assert_eq!(errors(json!({"name": "a.b"})), Vec::<String>::new());
        assert_eq!(
            errors(json!({"name": "a-x1y2z", "generateName": "a-"})),
            Vec::<String>::new()
        );
        assert_eq!(errors(json!({})), ["metadata.name"]);
        assert_eq!(
            errors(json!({"name": "A_x1y2z", "generateName": "A_"})),
            ["metadata.generateName", "metadata.name"]
        );
    }

    #[test]
    fn labels_owners_and_finalizers_are_validated() {
        let catalogue = crate::registry::Registry::new().catalogue();
        let resource = catalogue.find("", "v1", "pods").expect("built in");
        let count = |value: Value| {
            let object = Object::new(json!({"metadata": value})).expect("an object");
            check_metadata(&object, resource).len()
        };
        assert_eq!(count(json!({"labels": {"a.b/c_D": "x-Y.z", "e": ""}})), 0);
        assert_eq!(count(json!({"labels": {"a": "-x"}})), 1);
        assert_eq!(count(json!({"labels": {"/a": "x"}})), 1);
        assert_eq!(count(json!({"annotations": {"a b": "x"}})), 1);
        assert_eq!(count(json!({"finalizers": ["a.io/b", "orphan"]})), 0);
        assert_eq!(count(json!({"finalizers": ["x"]})), 1);
        assert_eq!(
            count(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]})),
            1
        );
    }
}
