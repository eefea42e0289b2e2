//! OpenAPI v2 in protobuf: the messages of gnostic's `OpenAPIv2.proto`, which client-go reads.
//!
//! Each function converts one JSON object of the document to its message. Fields are written in the order of their
//! numbers, and empty ones are omitted, as protobuf encoders do.

use serde_json::{Map, Value};

use crate::yaml;

/// An encoded message.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or_default());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, field: u64, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    pub(super) fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    /// A map entry: a message with a name and a value.
    pub(super) fn map_entry(&mut self, field: u64, name: &str, value: &Self) {
        let mut entry = Self::default();
        entry.text(1, name);
        entry.message(2, value);
        self.message(field, &entry);
    }

    /// A `oneof` message with this field set.
    fn one_of(field: u64, message: &Self) -> Self {
        let mut outer = Self::default();
        outer.message(field, message);
        outer
    }

    fn flag(&mut self, field: u64, value: &Value) {
        if value == true {
            self.varint(field << 3);
            self.varint(1);
        }
    }

    fn number(&mut self, field: u64, value: &Value) {
        if let Some(number) = value.as_f64().filter(|number| *number != 0.0) {
            self.varint(field << 3 | 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn integer(&mut self, field: u64, value: &Value) {
        if let Some(number) = value.as_i64().filter(|number| *number != 0) {
            self.varint(field << 3);
            self.varint(number.cast_unsigned());
        }
    }

    fn string(&mut self, field: u64, value: &Value) {
        self.text(field, value.as_str().unwrap_or_default());
    }

    fn strings(&mut self, field: u64, value: &Value) {
        for text in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    /// A value of any type is encoded as YAML.
    fn any(&mut self, field: u64, value: &Value) {
        if !value.is_null() {
            self.message(field, &any(value));
        }
    }

    /// The fields that start with `x-`.
    fn extensions(&mut self, field: u64, fields: &Map<String, Value>) {
        for (name, value) in fields.iter().filter(|(name, _)| name.starts_with("x-")) {
            self.map_entry(field, name, &any(value));
        }
    }
}

fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(2, &yaml::to_yaml(value));
    message
}

pub(super) fn info(info: &Value) -> Message {
    let mut message = Message::default();
    message.string(1, &info["title"]);
    message.string(2, &info["version"]);
    message
}

/// A security requirement without scopes.
pub(super) fn requirement(name: &str) -> Message {
    let mut message = Message::default();
    message.map_entry(1, name, &Message::default());
    message
}

/// The only security definition.
pub(super) fn api_key(name: &str, definition: &Value) -> Message {
    let mut key = Message::default();
    key.string(1, &definition["type"]);
    key.string(2, &definition["name"]);
    key.string(3, &definition["in"]);
    let mut message = Message::default();
    message.map_entry(1, name, &Message::one_of(2, &key));
    message
}

pub(super) fn path_item(item: &Value) -> Message {
    const METHODS: [(&str, u64); 7] = [
        ("get", 2),
        ("put", 3),
        ("post", 4),
        ("delete", 5),
        ("options", 6),
        ("head", 7),
        ("patch", 8),
    ];
    let mut message = Message::default();
    for (method, field) in METHODS {
        if let Some(fields) = item[method].as_object() {
            message.message(field, &operation(fields));
        }
    }
    parameters(&mut message, 9, &item["parameters"]);
    message
}

fn operation(fields: &Map<String, Value>) -> Message {
    let of = |key: &str| fields.get(key).unwrap_or(&Value::Null);
    let mut message = Message::default();
    message.strings(1, of("tags"));
    message.string(5, of("operationId"));
    message.strings(6, of("produces"));
    message.strings(7, of("consumes"));
    parameters(&mut message, 8, of("parameters"));
    let mut responses = Message::default();
    for (code, response) in of("responses").as_object().into_iter().flatten() {
        let mut answer = Message::default();
        if let Some(answered) = response.get("schema") {
            answer.message(2, &Message::one_of(1, &schema(answered)));
        }
        responses.map_entry(1, code, &Message::one_of(1, &answer));
    }
    message.message(9, &responses);
    message.strings(10, of("schemes"));
    message.extensions(13, fields);
    message
}

fn parameters(message: &mut Message, field: u64, list: &Value) {
    for entry in list.as_array().into_iter().flatten() {
        let item = match entry["$ref"].as_str() {
            Some(target) => {
                let mut reference = Message::default();
                reference.text(1, target);
                Message::one_of(2, &reference)
            }
            None => Message::one_of(1, &parameter(entry)),
        };
        message.message(field, &item);
    }
}

pub(super) fn parameter(parameter: &Value) -> Message {
    let mut message = Message::default();
    if parameter["in"] == "body" {
        message.string(2, &parameter["name"]);
        message.string(3, &parameter["in"]);
        message.flag(4, &parameter["required"]);
        message.message(5, &schema(&parameter["schema"]));
        return Message::one_of(1, &message);
    }
    message.flag(1, &parameter["required"]);
    message.string(2, &parameter["in"]);
    message.string(4, &parameter["name"]);
    // Query parameters have `allowEmptyValue`, which shifts the following field numbers by one.
    let (kind, shift) = if parameter["in"] == "path" { (4, 0) } else { (3, 1) };
    message.string(5 + shift, &parameter["type"]);
    message.flag(19 + shift, &parameter["uniqueItems"]);
    Message::one_of(2, &Message::one_of(kind, &message))
}

pub(super) fn schema(schema: &Value) -> Message {
    let mut message = Message::default();
    let Some(fields) = schema.as_object() else {
        return message;
    };
    let of = |key: &str| fields.get(key).unwrap_or(&Value::Null);
    message.string(1, of("$ref"));
    message.string(2, of("format"));
    message.string(3, of("title"));
    message.string(4, of("description"));
    message.any(5, of("default"));
    message.number(6, of("multipleOf"));
    message.number(7, of("maximum"));
    message.flag(8, of("exclusiveMaximum"));
    message.number(9, of("minimum"));
    message.flag(10, of("exclusiveMinimum"));
    message.integer(11, of("maxLength"));
    message.integer(12, of("minLength"));
    message.string(13, of("pattern"));
    message.integer(14, of("maxItems"));
    message.integer(15, of("minItems"));
    message.flag(16, of("uniqueItems"));
    message.integer(17, of("maxProperties"));
    message.integer(18, of("minProperties"));
    message.strings(19, of("required"));
    for value in of("enum").as_array().into_iter().flatten() {
        message.message(20, &any(value));
    }
    match of("additionalProperties") {
        Value::Null => {}
        Value::Bool(allowed) => {
            let mut item = Message::default();
            item.varint(2 << 3);
            item.varint((*allowed).into());
            message.message(21, &item);
        }
        inner => message.message(21, &Message::one_of(1, &self::schema(inner))),
    }
    if let Some(name) = of("type").as_str() {
        let mut item = Message::default();
        item.text(1, name);
        message.message(22, &item);
    }
    if of("items").is_object() {
        message.message(23, &Message::one_of(1, &self::schema(of("items"))));
    }
    if let Some(properties) = of("properties").as_object() {
        let mut map = Message::default();
        for (name, property) in properties {
            map.map_entry(1, name, &self::schema(property));
        }
        message.message(25, &map);
    }
    if let Some(docs) = of("externalDocs").as_object() {
        let mut item = Message::default();
        item.string(1, docs.get("description").unwrap_or(&Value::Null));
        item.string(2, docs.get("url").unwrap_or(&Value::Null));
        message.message(29, &item);
    }
    message.any(30, of("example"));
    message.extensions(31, fields);
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A message's fields by number; varints as eight bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let (first, rest) = bytes.split_first().expect("a whole number");
                *bytes = rest;
                value |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let content = match key & 7 {
                0 => varint(&mut bytes).to_le_bytes().to_vec(),
                length => {
                    let length = match length {
                        1 => 8,
                        2 => usize::try_from(varint(&mut bytes)).expect("small"),
                        other => panic!("unexpected wire type: {other}"),
                    };
                    let (content, rest) = bytes.split_at(length);
                    bytes = rest;
                    content.to_vec()
                }
            };
            found.push((key >> 3, content));
        }
        found
    }

    /// The only field of a message.
    fn only(bytes: &[u8]) -> (u64, Vec<u8>) {
        let mut found = fields(bytes);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn schema_fields_have_their_numbers() {
        let written = schema(&json!({
            "format": "int32", "minimum": 1.5, "maxLength": 300, "required": ["a", "b"], "type": "object",
            "properties": {"a": {"$ref": "#/definitions/x"}}, "additionalProperties": false,
            "x-kubernetes-list-type": "set",
        }));
        let found = fields(&written.0);
        let numbers: Vec<_> = found.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 9, 11, 19, 19, 21, 22, 25, 31]);
        assert_eq!(found[0].1, b"int32");
        assert_eq!(found[1].1, 1.5_f64.to_le_bytes());
        assert_eq!(found[2].1, 300_u64.to_le_bytes());
        assert_eq!(only(&found[5].1), (2, 0_u64.to_le_bytes().to_vec()));
        assert_eq!(only(&found[6].1), (1, b"object".to_vec()));
        let (_, property) = only(&found[7].1);
        let named = fields(&property);
        assert_eq!(named[0], (1, b"a".to_vec()));
        assert_eq!(only(&named[1].1), (1, b"#/definitions/x".to_vec()));
        let extension = fields(&found[8].1);
        assert_eq!(extension[0], (1, b"x-kubernetes-list-type".to_vec()));
        assert_eq!(only(&extension[1].1), (2, b"set\n".to_vec()));
    }

    #[test]
    fn query_and_path_parameters_have_different_numbers() {
        for (place, kind, of_type, unique) in [("query", 3, 6, 20), ("path", 4, 5, 19)] {
            let written =
                parameter(&json!({"name": "a", "in": place, "type": "string", "uniqueItems": true}));
            let (not_body, one) = only(&written.0);
            let (number, inner) = only(&one);
            assert_eq!((not_body, number), (2, kind));
            let numbers: Vec<_> = fields(&inner).iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, [2, 4, of_type, unique]);
        }
        let body =
            parameter(&json!({"name": "body", "in": "body", "required": true, "schema": {"type": "string"}}));
        let (is_body, inner) = only(&body.0);
        let numbers: Vec<_> = fields(&inner).iter().map(|(number, _)| *number).collect();
        assert_eq!((is_body, numbers), (1, vec![2, 3, 4, 5]));
    }
}
