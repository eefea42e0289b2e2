//! Custom resources of a kind with every feature of schemas whose values can be long.

use serde_json::{Map, Value, json};

use crate::{
    harness::{Harness, Measurements},
    requests::{Request, get, patch, post},
};

/// The style of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Valid,
    /// Of a wrong JSON type.
    WrongType,
    /// With fields that the schema does not specify.
    Unknown,
    /// Wrong, and below a key that is as long as the list.
    LongKey,
    /// Each entry twice.
    Duplicate,
    /// Labels, finalizers and owner references instead of entries.
    Metadata,
}

pub(crate) const STYLES: [Style; 6] = [
    Style::Valid,
    Style::WrongType,
    Style::Unknown,
    Style::LongKey,
    Style::Duplicate,
    Style::Metadata,
];

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/x0.example.com/v1/namespaces/default/widgets";

/// Creates the definition.
pub(crate) async fn prepare(lab: &Harness<'_>) {
    let (code, answer) = lab.send(post(CRDS, definition("widgets", "Widget"))).await;
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
}

pub(crate) fn definition(plural: &str, kind: &str) -> Value {
    let part = part_schema();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.x0.example.com")},
        "spec": {
            "group": "x0.example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": part, "status": part}}},
            }],
        },
    })
}

fn part_schema() -> Value {
    let integer = json!({"type": "integer", "maximum": 1_000_000, "multipleOf": 1});
    let text = json!({"type": "string", "pattern": "^[a-z0-9]*$", "maxLength": 100});
    let item = json!({"type": "object", "required": ["k"], "properties": {
        "k": text, "v": integer, "d": {"type": "string", "default": "d"},
    }});
    let list = |list_type: &str, items: &Value| json!({"type": "array", "x-kubernetes-list-type": list_type, "items": items});
    let mut keyed = list("map", &item);
    keyed["x-kubernetes-list-map-keys"] = json!(["k"]);
    let embedded = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    json!({"type": "object", "properties": {
        "atomic": list("atomic", &integer),
        "set": list("set", &text),
        "keyed": keyed,
        "nested": {"type": "array", "items": {"type": "array", "items": item}},
        "table": {"type": "object", "additionalProperties": {"type": "array", "items": item}},
        "either": {"type": "array", "items": {"x-kubernetes-int-or-string": true}},
        "one": {"type": "array", "items": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": integer, "b": integer},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "allOf": [{"minProperties": 1}], "not": {"minProperties": 5},
        }},
        "embedded": {"type": "array", "items": embedded},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }})
}

/// A spec or status with long lists and maps.
fn part(style: Style, n: usize) -> Value {
    let each = |make: &dyn Fn(usize) -> Value| -> Vec<Value> { (0..n).map(make).collect() };
    let item = |index: usize| match style {
        Style::WrongType | Style::LongKey => json!({"k": index, "v": "x"}),
        Style::Unknown => json!({"k": format!("k{index:03}"), format!("u{index:03}"): {"x": 1}}),
        Style::Duplicate => json!({"k": format!("k{:03}", index / 2), "v": 1}),
        Style::Valid | Style::Metadata => json!({"k": format!("k{index:03}"), "v": index}),
    };
    let number = |index: usize| match style {
        Style::WrongType | Style::LongKey => json!(format!("x{index:03}")),
        Style::Duplicate => json!(index / 2),
        _ => json!(index),
    };
    let text = |index: usize| match style {
        Style::WrongType | Style::LongKey => json!(index),
        Style::Duplicate => json!(format!("t{:03}", index / 2)),
        _ => json!(format!("t{index:03}")),
    };
    let either = |index: usize| match style {
        Style::WrongType => json!({"a": index}),
        _ if index.is_multiple_of(2) => json!("x"),
        _ => json!(index),
    };
    let one = |index: usize| match style {
        Style::WrongType => json!({"a": 1, "b": "x"}),
        _ if index.is_multiple_of(2) => json!({"a": 1}),
        _ => json!({"b": 1}),
    };
    let embedded = |index: usize| match style {
        Style::WrongType => {
            json!({"apiVersion": "a/b/c", "kind": "-", "metadata": {"name": format!("-{index:03}")}})
        }
        Style::Unknown => json!({"apiVersion": "v1", "kind": "Pod", "metadata": {format!("u{index:03}"): 1}}),
        _ => json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("a{index:03}")}}),
    };
    let key = "x".repeat(8 * n);
    let table: Map<_, _> = match style {
        Style::LongKey => [(key, each(&item).into())].into_iter().collect(),
        _ => (0..n)
            .map(|index| (format!("t{index:03}"), json!([item(index)])))
            .collect(),
    };
    let open: Map<_, _> = (0..n)
        .map(|index| (format!("o{index:03}"), json!({"a": [index]})))
        .collect();
    json!({
        "atomic": each(&number), "set": each(&text), "keyed": each(&item), "nested": [each(&item), each(&item)],
        "table": table, "either": each(&either), "one": each(&one), "embedded": each(&embedded), "open": open,
    })
}

fn object(style: Style, n: usize, name: &str) -> Value {
    let mut metadata = json!({"name": name});
    if style == Style::Metadata {
        let labels: Map<_, _> = (0..n).map(|index| (format!("l{index:03}"), json!("v"))).collect();
        metadata["labels"] = labels.clone().into();
        metadata["annotations"] = labels.into();
        metadata["finalizers"] = (0..n).map(|index| format!("example.com/f{index:03}")).collect();
        let owner = |index| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o{index:03}"), "uid": format!("u{index:03}")});
        metadata["ownerReferences"] = (0..n).map(owner).collect();
    }
    json!({
        "apiVersion": "x0.example.com/v1", "kind": "Widget", "metadata": metadata,
        "spec": part(style, n), "status": part(style, n),
    })
}

/// Creates an object, and changes a valid one, which is as long, in every way.
pub(crate) async fn measure(lab: &Harness<'_>, style: Style, n: usize) -> Measurements {
    let mut works = Measurements::new();
    let call = lab.unique_number();
    let created = object(style, n, &format!("c{call}"));
    lab.measure(&mut works, "create", post(WIDGETS, created)).await;
    let name = format!("w{call}");
    let place = format!("{WIDGETS}/{name}");
    let (code, answer) = lab.send(post(WIDGETS, object(Style::Valid, n, &name))).await;
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
    let mut changed = object(style, n, &name);
    // Every entry has a counterpart, but at another place.
    let keyed = changed["spec"]["keyed"].as_array_mut().expect("a list");
    keyed.reverse();
    let apply = format!("{place}?fieldManager=a&force=true");
    lab.measure(
        &mut works,
        "apply",
        patch("application/apply-patch+yaml", &apply, &changed),
    )
    .await;
    lab.measure(
        &mut works,
        "merge patch",
        patch("application/merge-patch+json", &place, &changed),
    )
    .await;
    for (what, suffix) in [("update of the status", "/status"), ("update", "")] {
        let (_, stored) = lab.send(get(place.clone())).await;
        let stored: Value = serde_json::from_slice(&stored).expect("JSON");
        changed["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        let request = Request {
            method: "PUT",
            ..post(&format!("{place}{suffix}"), &changed)
        };
        lab.measure(&mut works, what, request).await;
    }
    let request = Request {
        method: "DELETE",
        ..get(place)
    };
    lab.measure(&mut works, "delete", request).await;
    works
}
