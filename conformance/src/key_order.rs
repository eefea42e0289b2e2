//! Parses JSON and keeps the order of keys, which other code ignores.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The member that is added to each object: its keys, in order.
const KEYS: &str = "(keys)";

/// Parses a document. Every object in it gets one more member, `(keys)`.
pub(crate) fn parse(json: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice::<Ordered>(json).map(|Ordered(value)| value)
}

struct Ordered(Value);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OrderedVisitor).map(Self)
    }
}

struct OrderedVisitor;

impl<'de> Visitor<'de> for OrderedVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Ordered(item)) = sequence.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        let mut keys = Vec::new();
        while let Some((key, Ordered(value))) = map.next_entry::<String, _>()? {
            keys.push(Value::from(key.clone()));
            fields.insert(key, value);
        }
        fields.insert(KEYS.to_owned(), keys.into());
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_object_lists_its_keys_in_order() {
        let parsed = parse(br#"{"b": [{"z": 1, "a": null}], "a": {}}"#).expect("JSON");
        assert_eq!(
            parsed,
            json!({"(keys)": ["b", "a"], "a": {"(keys)": []}, "b": [{"(keys)": ["z", "a"], "a": null, "z": 1}]})
        );
    }
}
