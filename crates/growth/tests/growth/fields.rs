//! Requests with objects in which a field of the schema is long.

use serde_json::{Value, json};

use crate::{
    harness::{Harness, JSON, Measurements},
    minimal_objects,
    requests::Request,
    schemas::{LongField, Resource, Shape, Style},
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Requests with an object in which one field is long. The object is deleted afterwards, because stored objects cost
/// too.
pub(crate) async fn measure_one_long_field(
    lab: &Harness<'_>,
    resource: &Resource,
    long: &LongField,
    style: Style,
    count: usize,
) -> Measurements {
    let base = base(lab, resource);
    let works = write_and_read(lab, resource, long, style, count, &base).await;
    if resource.stored {
        let place = format!("{}/{}", collection(resource), name(&base));
        lab.send(request("DELETE", &place, JSON, String::new())).await;
    }
    works
}

async fn write_and_read(
    lab: &Harness<'_>,
    resource: &Resource,
    long: &LongField,
    style: Style,
    count: usize,
    base: &Value,
) -> Measurements {
    let mut works = Measurements::new();
    let what = |schema: &Value| lab.schemas.entries(schema, long.shape, count, style);
    let (mut object, mut change) = (base.clone(), json!({}));
    for place in [&mut object, &mut change] {
        lab.schemas.put(resource, place, &long.path, &what);
    }
    let place = collection(resource);
    let body = object.to_string();
    let code = lab
        .measure(&mut works, "create", request("POST", &place, JSON, body))
        .await;
    // For strings, one style is enough for the remaining requests.
    if !resource.stored || long.shape == Shape::Strings && style != Style::Invalid {
        return works;
    }
    if code != 201 {
        let (code, answer) = lab.send(request("POST", &place, JSON, base.to_string())).await;
        assert_eq!(
            code,
            201,
            "{}: {}",
            resource.kind,
            String::from_utf8_lossy(&answer)
        );
    }
    let place = format!("{place}/{}", name(base));
    // Invalid values are rejected the same way by every kind of patch.
    let most = if style == Style::Invalid { 2 } else { usize::MAX };
    for (what, kind, patch) in patches(lab, resource, long, &change).into_iter().take(most) {
        lab.measure(
            &mut works,
            what,
            request("PATCH", &place, kind, patch.to_string()),
        )
        .await;
    }
    if style == Style::Identical {
        return works;
    }
    let apply = format!("{place}?fieldManager=a&force=true");
    let kind = "application/apply-patch+yaml";
    lab.measure(
        &mut works,
        "apply",
        request("PATCH", &apply, kind, object.to_string()),
    )
    .await;
    let (_, stored) = lab.send(request("GET", &place, JSON, String::new())).await;
    let stored: Value = serde_json::from_slice(&stored).expect("JSON");
    object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    lab.measure(
        &mut works,
        "update",
        request("PUT", &place, JSON, object.to_string()),
    )
    .await;
    // Reading does not depend on validity.
    if style == Style::Invalid {
        return works;
    }
    for (what, accept) in [("get as table", TABLE), ("get as protobuf", PROTOBUF)] {
        let request = Request {
            headers: vec![("accept".to_owned(), accept.to_owned())],
            ..request("GET", &place, JSON, String::new())
        };
        lab.measure(&mut works, what, request).await;
    }
    lab.measure(
        &mut works,
        "delete",
        request("DELETE", &place, JSON, String::new()),
    )
    .await;
    works
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("it has a name")
}

/// A request with an object in which every field is long.
pub(crate) async fn measure_all_fields_long(
    lab: &Harness<'_>,
    resource: &Resource,
    count: usize,
) -> Measurements {
    let mut works = Measurements::new();
    let base = base(lab, resource);
    let mut object = base.clone();
    lab.schemas.fill(resource, &mut object, count);
    object["metadata"]["name"] = base["metadata"]["name"].clone();
    let request = request("POST", &collection(resource), JSON, object.to_string());
    lab.measure(&mut works, "create", request).await;
    works
}

fn request(method: &'static str, path: &str, kind: &'static str, body: String) -> Request {
    Request {
        method,
        path: path.to_owned(),
        kind,
        headers: Vec::new(),
        body,
    }
}

/// A small valid object.
fn base(lab: &Harness<'_>, resource: &Resource) -> Value {
    let name = format!("g{:06}", lab.unique_number());
    let mut object = lab.schemas.small(resource, &name);
    minimal_objects::merge(&mut object, &minimal_objects::extra_fields(&resource.kind));
    match &*resource.kind {
        "CustomResourceDefinition" => {
            object["spec"]["names"] = json!({"kind": format!("G{name}"), "plural": name});
            object["metadata"]["name"] = format!("{name}.x0.example.com").into();
        }
        "APIService" => object["metadata"]["name"] = format!("v1.{name}").into(),
        _ => {}
    }
    object
}

/// Patches that make a field long, and patches of a field that is long already.
fn patches(
    lab: &Harness<'_>,
    resource: &Resource,
    long: &LongField,
    change: &Value,
) -> Vec<(&'static str, &'static str, Value)> {
    let mut patches = vec![
        ("strategic patch", STRATEGIC, change.clone()),
        ("merge patch", "application/merge-patch+json", change.clone()),
    ];
    let (Some((field, above)), Shape::List | Shape::Map) = (long.path.split_last(), long.shape) else {
        return patches;
    };
    let whole = pointer(change, &long.path);
    let entries = change.pointer(&whole).expect("set above");
    patches.push((
        "json patch",
        "application/json-patch+json",
        operations(&whole, entries),
    ));
    let Value::Array(items) = entries else {
        return patches;
    };
    let schema = lab.schemas.at(resource, &long.path);
    let keys: Vec<Value> = match schema["patchMergeKey"].as_str() {
        Some(key) => items.iter().map(|item| json!({key: item[key]})).collect(),
        None => items.clone(),
    };
    let deletions = keys.iter().map(|key| {
        let mut key = key.clone();
        if key.is_object() {
            key["$patch"] = "delete".into();
        }
        key
    });
    let retained = (0..items.len())
        .map(|index| format!("r{index}"))
        .chain([field.clone()]);
    for (what, directives) in [
        (
            "strategic patch with order",
            vec![(format!("$setElementOrder/{field}"), keys.clone().into())],
        ),
        (
            "strategic patch with retained keys",
            vec![("$retainKeys".to_owned(), retained.collect())],
        ),
        (
            "strategic patch that deletes",
            vec![
                (field.clone(), deletions.collect()),
                (format!("$deleteFromPrimitiveList/{field}"), keys.clone().into()),
            ],
        ),
    ] {
        let mut patch = change.clone();
        // Directives are beside the field.
        let place = patch
            .pointer_mut(&pointer(change, above))
            .and_then(Value::as_object_mut);
        place.expect("the parent is an object").extend(directives);
        patches.push((what, STRATEGIC, patch));
    }
    patches
}

/// Adds a field entry by entry, then tests each.
fn operations(whole: &str, entries: &Value) -> Value {
    let empty = if entries.is_array() { json!([]) } else { json!({}) };
    let mut operations = vec![json!({"op": "add", "path": whole, "value": empty})];
    let mut test = Vec::new();
    for (index, item) in entries.as_array().into_iter().flatten().enumerate() {
        operations.push(json!({"op": "add", "path": format!("{whole}/-"), "value": item}));
        test.push(json!({"op": "test", "path": format!("{whole}/{index}"), "value": item}));
    }
    for (key, value) in entries.as_object().into_iter().flatten() {
        let path = format!("{whole}/{}", key.replace('~', "~0").replace('/', "~1"));
        operations.push(json!({"op": "add", "path": path, "value": value}));
        test.push(json!({"op": "test", "path": path, "value": value}));
    }
    operations.extend(test);
    operations.into()
}

/// The JSON pointer of a path in a value with one entry at each level.
fn pointer(value: &Value, path: &[String]) -> String {
    path.iter().fold(String::new(), |pointer, part| {
        let first = match value.pointer(&pointer) {
            Some(Value::Array(_)) => "0",
            _ => "x0",
        };
        pointer + "/" + if part == "*" { first } else { part }
    })
}

/// The collection's path.
fn collection(resource: &Resource) -> String {
    let Resource {
        group,
        version,
        plural,
        ..
    } = resource;
    let namespace = if resource.namespaced {
        "namespaces/default/"
    } else {
        ""
    };
    match &**group {
        "" => format!("/api/{version}/{namespace}{plural}"),
        group => format!("/apis/{group}/{version}/{namespace}{plural}"),
    }
}
