//! Objects from a schema.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

/// How deep objects become; optional fields below are left out.
const MAX_DEPTH: usize = 8;

/// The schema of a version of a CRD, as JSON.
pub(super) fn schema_of(crd: &CustomResourceDefinition, version: &str) -> Value {
    let versions = crd.spec.versions.iter();
    let schema = versions
        .filter(|served| served.name == version)
        .find_map(|served| serde_json::to_value(served.schema.as_ref()?.open_api_v3_schema.as_ref()?).ok());
    schema.unwrap_or_default()
}

/// Generates values of schemas. The same seed yields the same values on every machine, so that a failure can be repeated.
pub(super) struct Generator {
    state: u64,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The content of an object: all but `apiVersion`, `kind` and `metadata`.
    pub(super) fn object(&mut self, schema: &Value) -> Value {
        let mut object = self.value(schema, 0);
        if let Some(fields) = object.as_object_mut() {
            fields.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
        }
        if object.is_object() { object } else { json!({}) }
    }

    /// The next number: `SplitMix64`, which is good enough for tests, and has no state but a number.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if let Some(choices) = schema["enum"].as_array().filter(|choices| !choices.is_empty()) {
            let index = usize::try_from(self.below(choices.len() as u64)).unwrap_or_default();
            return choices[index].clone();
        }
        if schema["nullable"] == true && self.below(4) == 0 {
            return Value::Null;
        }
        for alternatives in ["oneOf", "anyOf"] {
            // Alternatives with a type of their own; others only restrict.
            let list = schema[alternatives].as_array();
            let typed: Vec<_> = list
                .into_iter()
                .flatten()
                .filter(|one| one["type"].is_string())
                .collect();
            if !typed.is_empty() && schema["type"].is_null() {
                let index = usize::try_from(self.below(typed.len() as u64)).unwrap_or_default();
                return self.value(typed[index], depth);
            }
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return if self.below(2) == 0 {
                json!(self.below(100))
            } else {
                json!(self.text(schema))
            };
        }
        match schema["type"].as_str() {
            Some("boolean") => json!(self.below(2) == 0),
            Some("integer") => json!(self.integer(schema)),
            Some("number") => {
                let whole = self.integer(schema).clamp(-1_000_000, 1_000_000);
                if self.below(2) == 0 {
                    json!(whole)
                } else {
                    json!(f64::from(i32::try_from(whole).unwrap_or_default()) + 0.5)
                }
            }
            Some("string") => json!(self.text(schema)),
            Some("array") => self.list(schema, depth),
            _ => self.map(schema, depth),
        }
    }

    fn integer(&mut self, schema: &Value) -> i64 {
        let (low, high) = match schema["format"].as_str() {
            Some("uint8") => (0, i64::from(u8::MAX)),
            Some("uint16") => (0, i64::from(u16::MAX)),
            Some("uint32") => (0, i64::from(u32::MAX)),
            Some("uint64" | "uint") => (0, i64::MAX),
            Some("int8") => (i64::from(i8::MIN), i64::from(i8::MAX)),
            Some("int16") => (i64::from(i16::MIN), i64::from(i16::MAX)),
            Some("int64") => (i64::MIN, i64::MAX),
            _ => (i64::from(i32::MIN), i64::from(i32::MAX)),
        };
        // `schemars` writes the bounds of integers as floats.
        let bound = |key: &str| {
            let number = schema[key].as_number()?;
            number
                .as_i64()
                .or_else(|| format!("{:.0}", number.as_f64()?).parse().ok())
        };
        let low = bound("minimum").map_or(low, |bound| bound.max(low));
        let high = bound("maximum").map_or(high, |bound| bound.min(high));
        // Most mistakes are at the ends, and with small numbers.
        let chosen = match self.below(5) {
            0 => low,
            1 => high,
            _ => i64::try_from(self.below(20)).unwrap_or_default(),
        };
        chosen.clamp(low, high.max(low))
    }

    fn text(&mut self, schema: &Value) -> String {
        match schema["format"].as_str() {
            Some("date-time") => return format!("20{:02}-03-04T05:06:07Z", self.below(80)),
            Some("date") => return format!("20{:02}-03-04", self.below(80)),
            Some("duration") => return format!("{}s", self.below(100)),
            Some("byte") => {
                return ["", "YQ==", "YWJj"][usize::try_from(self.below(3)).unwrap_or_default()].to_owned();
            }
            Some("uuid") => return format!("00000000-0000-4000-8000-{:012x}", self.below(1 << 40)),
            _ => {}
        }
        let least = schema["minLength"].as_u64().unwrap_or_default();
        let most = schema["maxLength"].as_u64().unwrap_or(least + 12).max(least);
        let length = least + self.below((most - least + 1).min(13));
        // Digits too, for types such as quantities that are texts in the schema.
        let letters: &[u8] = if self.below(4) == 0 {
            b"0123456789"
        } else {
            b"abcxyz-0/.~ "
        };
        (0..length)
            .map(|_| {
                char::from(letters[usize::try_from(self.below(letters.len() as u64)).unwrap_or_default()])
            })
            .collect()
    }

    fn list(&mut self, schema: &Value, depth: usize) -> Value {
        let least = schema["minItems"].as_u64().unwrap_or_default();
        let most = schema["maxItems"].as_u64().unwrap_or(least + 3).max(least);
        let length = if depth >= MAX_DEPTH {
            least
        } else {
            least + self.below((most - least + 1).min(4))
        };
        (0..length)
            .map(|_| self.value(&schema["items"], depth + 1))
            .collect()
    }

    fn map(&mut self, schema: &Value, depth: usize) -> Value {
        let mut fields = Map::new();
        let required = |name: &str| {
            schema["required"]
                .as_array()
                .is_some_and(|names| names.iter().any(|required| required == name))
        };
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let is_there = required(name) || (depth < MAX_DEPTH && self.below(3) > 0);
            if is_there {
                fields.insert(name.clone(), self.value(field, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() && depth < MAX_DEPTH {
            for _ in 0..self.below(3) {
                let key = self.text(&Value::Null);
                fields.insert(key, self.value(&schema["additionalProperties"], depth + 1));
            }
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == true && self.below(2) == 0 {
            fields.insert("free".to_owned(), json!({"x": self.below(9)}));
        }
        fields.into()
    }
}
