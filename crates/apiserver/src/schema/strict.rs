//! Finds unknown and duplicate fields in the text of a body, in the order in which Go's decoder reports them.

use std::{collections::HashSet, fmt};

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{SchemaView, Type};
use crate::{field_path::FieldPath, json::ReportedPaths};

/// Messages about the unknown and duplicate fields of a JSON document in the order of the text, as many as the real server
/// reports. The document has been read before.
pub(crate) fn problems_in_order(schema: SchemaView<'_>, json: &[u8]) -> Vec<String> {
    let mut problems = ReportedPaths::default();
    let finder = ProblemFinder {
        schema,
        path: &FieldPath::Root,
        problems: &mut problems,
    };
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.disable_recursion_limit();
    // Everything that was found before an error is reported.
    let _ = finder.deserialize(&mut reader);
    problems.into_paths()
}

/// Looks at one value. Its text is skipped where the schema allows anything, or no fields.
struct ProblemFinder<'a> {
    schema: SchemaView<'a>,
    path: &'a FieldPath<'a>,
    problems: &'a mut ReportedPaths,
}

impl<'de> DeserializeSeed<'de> for ProblemFinder<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.schema.node().kind {
            Type::Object | Type::Array if !self.schema.preserves_unknown() => {
                deserializer.deserialize_any(self)
            }
            _ => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ()),
        }
    }
}

impl<'de> Visitor<'de> for ProblemFinder<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some(schema) = self.schema.items() else {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let mut index = 0;
        loop {
            let item = ProblemFinder {
                schema,
                path: &FieldPath::Index(self.path, index),
                problems: self.problems,
            };
            if access.next_element_seed(item)?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = FieldPath::Child(self.path, &key);
            let Some(schema) = self.schema.field(&key) else {
                // Go's decoder skips its value, and does not count it as a duplicate.
                self.problems
                    .add_text(|| format!("unknown field {:?}", path.to_string()));
                access.next_value::<IgnoredAny>()?;
                continue;
            };
            if keys.contains(&key) {
                self.problems
                    .add_text(|| format!("duplicate field {:?}", path.to_string()));
            }
            access.next_value_seed(ProblemFinder {
                schema,
                path: &path,
                problems: self.problems,
            })?;
            keys.insert(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    #[test]
    fn problems_are_in_the_order_of_the_text() {
        let item = json!({"type": "object", "properties": {"b": {"type": "integer"}}});
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {
            "l": {"type": "array", "items": item},
            "m": {"type": "object", "additionalProperties": item},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}))
        .expect("a schema");
        let text =
            br#"{"z":{"q":1,"q":2},"l":[{"y":1,"b":1,"b":2,"x":1}],"any":{"a":1,"a":2},"l":[{"w":1}],"z":1,
            "m":{"k.k":{"c":1},"k.k":{}}}"#;
        assert_eq!(
            problems_in_order(schema.view(), text),
            [
                "unknown field \"z\"",
                "unknown field \"l[0].y\"",
                "duplicate field \"l[0].b\"",
                "unknown field \"l[0].x\"",
                "duplicate field \"l\"",
                "unknown field \"l[0].w\"",
                "unknown field \"m.k.k.c\"",
                "duplicate field \"m.k.k\"",
            ]
        );
    }
}
