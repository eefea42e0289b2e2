//! Requests about objects in which a field of the schema is long.

use serde_json::{Value, json};

use crate::{
    bases,
    lab::{JSON, Lab, Works},
    requests::Request,
    schemas::{Long, Resource, Shape, Style},
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Requests about an object in which one thing is long. It is gone afterwards: what is there costs too.
pub(crate) async fn one_long(
    lab: &Lab<'_>,
    resource: &Resource,
    long: &Long,
    style: Style,
    count: usize,
) -> Works {
    let base = base(lab, resource);
    let works = write_and_read(lab, resource, long, style, count, &base).await;
    if resource.stored {
        let place = format!("{}/{}", collection(resource), name(&base));
        lab.send(request("DELETE", &place, JSON, String::new())).await;
    }
    works
}

async fn write_and_read(
    lab: &Lab<'_>,
    resource: &Resource,
    long: &Long,
    style: Style,
    count: usize,
    base: &Value,
) -> Works {
    let mut works = Works::new();
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
    // One of the styles of strings is enough for what is not about the strings themselves.
    if !resource.stored || long.shape == Shape::Strings && style != Style::Wild {
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
    // What is not allowed is refused in the same way, however it is patched in.
    let most = if style == Style::Wild { 2 } else { usize::MAX };
    for (what, kind, patch) in patches(lab, resource, long, &change).into_iter().take(most) {
        lab.measure(
            &mut works,
            what,
            request("PATCH", &place, kind, patch.to_string()),
        )
        .await;
    }
    if style == Style::Same {
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
    // Reading is the same for what is allowed and for what is not.
    if style == Style::Wild {
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

/// A request about an object in which everything is long.
pub(crate) async fn all_long(lab: &Lab<'_>, resource: &Resource, count: usize) -> Works {
    let mut works = Works::new();
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

/// A small object that is accepted.
fn base(lab: &Lab<'_>, resource: &Resource) -> Value {
    let name = format!("g{:06}", lab.number());
    let mut object = lab.schemas.small(resource, &name);
    bases::merge(&mut object, &bases::needs(&resource.kind));
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

/// Patches that make a field long, and others about a field that is long already.
fn patches(
    lab: &Lab<'_>,
    resource: &Resource,
    long: &Long,
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
    let entries = change.pointer(&whole).expect("just put there");
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
        // Directives about the field stand beside it.
        let place = patch
            .pointer_mut(&pointer(change, above))
            .and_then(Value::as_object_mut);
        place.expect("a field of something").extend(directives);
        patches.push((what, STRATEGIC, patch));
    }
    patches
}

/// Builds up a field entry by entry, and looks at each.
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

/// Where a path leads in a value that has one entry in everything on the way.
fn pointer(value: &Value, path: &[String]) -> String {
    path.iter().fold(String::new(), |pointer, part| {
        let first = match value.pointer(&pointer) {
            Some(Value::Array(_)) => "0",
            _ => "x0",
        };
        pointer + "/" + if part == "*" { first } else { part }
    })
}

/// Where objects of a resource are.
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
