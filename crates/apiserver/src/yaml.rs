//! YAML bodies as JSON trees, with limits.
//!
//! A YAML text of a few kilobytes can stand for any amount of data (an alias repeats what its anchor holds), and the
//! parser's work grows with the square of how deep brackets nest. Both are bounded here: what a body becomes may be ten
//! times as large as the body, and no deeper than anything that could be stored.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How much a body may become, in nodes and bytes of text, for each of its own bytes.
const GROWTH: usize = 10;

/// What any body may become, however small it is.
const LEAST: usize = 64 * 1024;

/// How many brackets may be open at once. The parser itself refuses more than 128 levels, after reading everything;
/// brackets inside of texts are counted too, so that this is far more than that.
const BRACKETS: usize = 1_000;

/// Reads a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    if too_deep(body) {
        return Err(format!("exceeded max depth of {BRACKETS}"));
    }
    let budget = Cell::new(LEAST + body.len().saturating_mul(GROWTH));
    let tree = Tree { budget: &budget };
    tree.deserialize(serde_yaml_ng::Deserializer::from_slice(body))
        .map_err(|error| error.to_string())
}

fn too_deep(body: &[u8]) -> bool {
    let mut open = 0_usize;
    body.iter().any(|byte| {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        open > BRACKETS
    })
}

/// Builds a tree as long as the budget lasts.
#[derive(Clone, Copy)]
struct Tree<'a> {
    budget: &'a Cell<usize>,
}

impl Tree<'_> {
    fn spend<E: serde::de::Error>(self, cost: usize) -> Result<(), E> {
        let left = self.budget.get().checked_sub(cost);
        self.budget
            .set(left.ok_or_else(|| E::custom("document contains excessive aliasing"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.spend(1)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.spend(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.spend(key.len())?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} already set in map")));
            }
            object.insert(key, fields.next_value_seed(self)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_reads_as_the_json_that_it_stands_for() {
        let yaml = "a: 1\nb: [x, 'y', 1.5, null, true]\nc: &c {d: e}\nf: *c\n'4': -2\n";
        let json =
            json!({"a": 1, "b": ["x", "y", 1.5, null, true], "c": {"d": "e"}, "f": {"d": "e"}, "4": -2});
        assert_eq!(decode(yaml.as_bytes()), Ok(json));
    }

    #[test]
    fn an_alias_may_repeat_a_little_and_not_without_end() {
        let list = |aliases: usize| {
            format!(
                "a: &a [{}]\nb: [{}]\n",
                "x, ".repeat(1_000),
                "*a, ".repeat(aliases)
            )
        };
        assert!(decode(list(10).as_bytes()).is_ok());
        assert!(
            decode(list(1_000).as_bytes())
                .unwrap_err()
                .contains("excessive aliasing")
        );
    }

    #[test]
    fn brackets_nest_to_a_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(decode(nested(100).as_bytes()).is_ok());
        assert!(
            decode(nested(500_000).as_bytes())
                .unwrap_err()
                .contains("max depth")
        );
    }

    proptest! {
        #[test]
        fn what_json_can_say_yaml_says_too(text in "[a-z0-9 \\[\\]{}:,\"-]{0,40}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(decode(text.as_bytes()), Ok(value));
            }
        }
    }
}
