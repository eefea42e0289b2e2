//! Rules that hold for the metadata of every object.

use serde_json::Value;

use crate::{
    naming,
    object::Object,
    registry::{NameRule, Resource},
    rules::Changed,
    schema::{FieldError, Problem},
};

/// All annotations of an object together may be this long.
const ANNOTATIONS: usize = 256 * 1024;

/// The finalizers that need no domain.
pub(crate) const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What is wrong with the name of a new object.
pub(crate) fn name(object: &Object, rule: NameRule) -> Vec<FieldError> {
    let check = |text: &str| match rule {
        NameRule::Subdomain => naming::subdomain(text),
        NameRule::Label => naming::label(text),
        NameRule::PathSegment => naming::path_segment(text),
    };
    let mut errors = Vec::new();
    let base = object.meta("generateName");
    if !base.is_empty() {
        // What is generated may end the base's dash.
        let probe = base
            .strip_suffix('-')
            .map_or_else(|| base.to_owned(), |base| format!("{base}a"));
        report(&mut errors, "metadata.generateName", base, check(&probe));
    }
    if object.name().is_empty() {
        let why = "name or generateName is required".to_owned();
        errors.push(FieldError::new("metadata.name", Problem::Required(why)));
    } else {
        report(&mut errors, "metadata.name", object.name(), check(object.name()));
    }
    errors
}

fn report(errors: &mut Vec<FieldError>, field: &str, value: &str, problems: Vec<String>) {
    errors.extend(
        problems
            .into_iter()
            .map(|why| FieldError::new(field, Problem::Invalid(value.into(), why))),
    );
}

/// What is wrong with an object's labels, annotations, finalizers and owners.
pub(crate) fn metadata(object: &Object, resource: &Resource) -> Vec<FieldError> {
    let mut errors = custom_metadata(object);
    // Custom objects get away with a warning.
    let checked = !resource.custom && Looks::of(resource).finalizers > 0;
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

/// What is wrong with the metadata of custom resources, and of resources inside them.
pub(crate) fn custom_metadata(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in object.labels() {
        report(&mut errors, "metadata.labels", key, naming::qualified(key));
        report(&mut errors, "metadata.labels", value, naming::label_value(value));
    }
    let annotations = object.metadata().get("annotations").and_then(Value::as_object);
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        // Case does not matter to annotations: only what is wrong as it stands is looked at again.
        if !naming::qualified(key).is_empty() {
            let key = key.to_lowercase();
            report(&mut errors, "metadata.annotations", &key, naming::qualified(&key));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS {
        errors.push(FieldError::new(
            "metadata.annotations",
            Problem::TooLong(ANNOTATIONS as u64),
        ));
    }
    owners(object, &mut errors);
    for finalizer in object.finalizers() {
        report(
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

fn owners(object: &Object, errors: &mut Vec<FieldError>) {
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
            Problem::InvalidText(shown_owner(owner), why),
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
        let all: Vec<_> = owners.iter().map(shown_owner).collect();
        errors.push(FieldError::new(
            "metadata.ownerReferences",
            Problem::InvalidText(format!("[{}]", all.join(",")), why),
        ));
    }
}

/// A reference in Go's order of fields.
fn shown_owner(owner: &Value) -> String {
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

/// What is wrong with a changed object, in the order and as often as the real server's checks come upon it.
pub(crate) fn of_changed(metadata: &[FieldError], changed: Changed, resource: &Resource) -> Vec<FieldError> {
    let Changed { rules, changes } = changed;
    if metadata.is_empty() {
        return rules.into_iter().chain(changes).collect();
    }
    let looks = Looks::of(resource);
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
        Order::ChangesFirst => (changes, rules),
        Order::Together | Order::Between => (rules, changes),
    };
    if looks.metadata > 2 {
        again(&mut errors, looks.finalizers > 0);
    }
    if looks.metadata > 3 && looks.order == Order::Together {
        again(&mut errors, looks.finalizers > 0);
    }
    errors.extend(first);
    if looks.metadata > 3 && looks.order != Order::Together {
        again(&mut errors, looks.finalizers > 0);
    }
    errors.extend(second);
    errors
}

/// How many of the real server's checks look at the metadata of a changed object.
struct Looks {
    metadata: usize,
    /// Whose names are looked at by the older checks alone; where there are none of these, they may be any.
    finalizers: usize,
    order: Order,
}

/// In which order a kind's checks of changed objects look at things.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// All of the metadata, then the rules, then what may not change.
    Together,
    /// The metadata once more between rules and changes.
    Between,
    /// As [`Order::Between`], with the changes before the rules.
    ChangesFirst,
}

impl Looks {
    fn of(resource: &Resource) -> Self {
        let (metadata, finalizers) = match (&*resource.group, &*resource.kind) {
            _ if resource.custom => (3, 1),
            ("" | "events.k8s.io", "Event") | ("policy", "PodDisruptionBudget") => (2, 0),
            ("coordination.k8s.io", "Lease") => (3, 0),
            ("node.k8s.io", "RuntimeClass") => (4, 0),
            ("", "LimitRange" | "ResourceQuota" | "Service")
            | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
            | ("autoscaling", _)
            | ("batch", "CronJob")
            | ("discovery.k8s.io", "EndpointSlice")
            | ("networking.k8s.io", "NetworkPolicy") => (3, 1),
            _ => (4, 2),
        };
        let order = match (&*resource.group, &*resource.kind) {
            ("batch", "Job") | ("", "Node") | ("rbac.authorization.k8s.io", _) => Order::Between,
            ("networking.k8s.io", "IngressClass") => Order::ChangesFirst,
            _ => Order::Together,
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
    fn a_name_or_the_base_of_one_is_checked() {
        let errors = |metadata: Value| {
            let object = Object::new(json!({"metadata": metadata})).expect("an object");
            name(&object, NameRule::Subdomain)
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
    fn labels_owners_and_finalizers_are_checked() {
        let catalogue = crate::registry::Registry::new().catalogue();
        let resource = catalogue.find("", "v1", "pods").expect("built in");
        let count = |value: Value| {
            let object = Object::new(json!({"metadata": value})).expect("an object");
            metadata(&object, resource).len()
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
