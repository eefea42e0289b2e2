//! Values in the JSON form of recorded cases: an object with one key, the type.

use base64::Engine;
use serde_json::{Map as JsonMap, Value as Json, json};
use windlass_cel::{Cidr, Duration, Ip, Map, Quantity, Semver, Text, Type, Url, Value};

/// Describes a value as the recordings do.
pub(crate) fn describe(value: &Value<'_>) -> Json {
    match value {
        Value::Null => json!({"null": null}),
        Value::Bool(value) => json!({"bool": value}),
        Value::Int(value) => json!({"int": value.to_string()}),
        Value::Uint(value) => json!({"uint": value.to_string()}),
        Value::Double(value) => json!({"double": double(*value)}),
        Value::String(text) => json!({"string": &**text}),
        Value::Bytes(bytes) => json!({"bytes": base64::engine::general_purpose::STANDARD.encode(bytes)}),
        Value::Timestamp(timestamp) => {
            // The recordings are in UTC.
            let seconds = windlass_cel::Timestamp::from_unix(timestamp.unix()).unwrap();
            let text = timestamp.to_text();
            let fraction = text.split_once('.').map_or("", |(_, rest)| {
                let end = rest
                    .find(|sign: char| !sign.is_ascii_digit())
                    .unwrap_or(rest.len());
                &rest[..end]
            });
            let mut utc = seconds.to_text();
            if !fraction.is_empty() {
                utc = utc.replace('Z', &format!(".{fraction}Z"));
            }
            json!({"timestamp": utc})
        }
        Value::Duration(duration) => json!({"duration": duration.nanos().to_string()}),
        Value::Optional(None) => json!({"optional": null}),
        Value::Optional(Some(value)) => json!({"optional": describe(value)}),
        Value::Type(type_) => json!({"type": type_name(type_)}),
        Value::List(list) => {
            let items: Vec<_> = list
                .iter()
                .map(|item| {
                    item.map_or_else(
                        |error| json!({"error": error.to_string()}),
                        |item| describe(&item),
                    )
                })
                .collect();
            json!({"list": items})
        }
        Value::Map(map) => {
            let mut entries: Vec<_> = map
                .keys()
                .iter()
                .map(|key| {
                    // A null property is among the keys, but absent.
                    let Some(value) = map.get(key) else {
                        return (describe(key), json!({"error": "absent"}));
                    };
                    let value = value.map_or_else(
                        |error| json!({"error": error.to_string()}),
                        |value| describe(&value),
                    );
                    (describe(key), value)
                })
                .collect();
            entries.sort_by_key(|(key, _)| key.to_string());
            json!({"map": entries})
        }
        other => describe_library(other),
    }
}

fn describe_library(value: &Value<'_>) -> Json {
    if let Some(quantity) = value.downcast::<Quantity>() {
        return json!({"quantity": quantity.amount.to_string()});
    }
    if let Some(ip) = value.downcast::<Ip>() {
        return json!({"ip": ip.to_string()});
    }
    if let Some(cidr) = value.downcast::<Cidr>() {
        return json!({"cidr": cidr.to_string()});
    }
    if let Some(semver) = value.downcast::<Semver>() {
        return json!({"semver": semver.to_string()});
    }
    if let Some(url) = value.downcast::<Url>() {
        return json!({"url": url.as_str()});
    }
    if value.type_name() == "kubernetes.NamedFormat" {
        return json!({"format": format!("{value:?}").split('"').nth(3).unwrap_or_default()});
    }
    json!({"other": value.type_name()})
}

fn type_name(type_: &Type) -> String {
    match type_ {
        Type::List(_) | Type::Map(_) => type_.to_string(),
        _ => type_.name().to_owned(),
    }
}

fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    value.to_string()
}

/// Whether values are the same; floats are compared by value.
pub(crate) fn same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Object(one), Json::Object(other)) => {
            if let (Some(one), Some(other)) = (quantity_of(one), quantity_of(other)) {
                // Kubernetes keeps the text of a quantity, which expressions cannot see.
                return one == other;
            }
            if let (Some(one), Some(other)) = (double_of(one), double_of(other)) {
                return one.total_cmp(&other).is_eq()
                    || one.partial_cmp(&other) == Some(std::cmp::Ordering::Equal);
            }
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        _ => one == other,
    }
}

fn quantity_of(object: &JsonMap<String, Json>) -> Option<windlass_api::quantity::Amount> {
    object.get("quantity")?.as_str()?.parse().ok()
}

fn double_of(object: &JsonMap<String, Json>) -> Option<f64> {
    let text = object.get("double")?.as_str()?;
    match text {
        "Infinity" | "+Inf" => Some(f64::INFINITY),
        "-Infinity" | "-Inf" => Some(f64::NEG_INFINITY),
        other => other.parse().ok(),
    }
}

/// Makes a value of its description.
pub(crate) fn parse(json: &Json) -> Option<Value<'static>> {
    let (kind, inner) = json.as_object()?.iter().next()?;
    let text = || inner.as_str().unwrap_or_default().to_owned();
    Some(match kind.as_str() {
        "null" => Value::Null,
        "bool" => Value::Bool(inner.as_bool()?),
        "int" => Value::Int(text().parse().ok()?),
        "uint" => Value::Uint(text().parse().ok()?),
        "double" => Value::Double(double_of(json.as_object()?)?),
        "string" => Value::String(Text::from(text())),
        "bytes" => Value::Bytes(
            base64::engine::general_purpose::STANDARD
                .decode(text())
                .ok()?
                .into(),
        ),
        "duration" => Value::Duration(Duration::from_nanos(text().parse().ok()?)),
        "timestamp" => {
            let env = windlass_cel::Env::kubernetes();
            let program = env.compile(&format!("timestamp('{}')", text())).ok()?;
            match program.evaluate(&[]).value.ok()? {
                Value::Timestamp(timestamp) => Value::Timestamp(timestamp),
                _ => return None,
            }
        }
        "optional" if inner.is_null() => Value::Optional(None),
        "optional" => Value::some(parse(inner)?),
        "list" => Value::list(inner.as_array()?.iter().map(parse).collect::<Option<_>>()?),
        "map" => {
            let entries = inner
                .as_array()?
                .iter()
                .map(|entry| Some((parse(entry.get(0)?)?, parse(entry.get(1)?)?)));
            Value::Map(Map::from_entries(entries.collect::<Option<Vec<_>>>()?))
        }
        _ => return None,
    })
}
