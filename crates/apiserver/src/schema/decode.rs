//! Decodes a body like the Go structs that the real server decodes it into.
//!
//! ```text
//!   body ─► null is absent ─► wrong types are rejected with Go's messages ─► canonical quantities, times, bytes
//!        ─► empty fields are omitted unless they are pointers; fields without omitempty are added
//! ```

use serde_json::{Map, Value};

use super::{
    NodeId, SchemaView, Type,
    go_field::{GoField, Omit, element},
    quantity, time,
};
use crate::{field_path::FieldPath, golang, json::ReportedPaths};

/// Where the real server gets the value from, which determines its error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the text of a body.
    Json,
    /// From a tree made by a strategic merge patch.
    Tree,
}

/// Normalizes `value` as a round trip through Go's structs would. Returns the paths of unknown fields, which are
/// dropped, in the order of the tree.
pub(crate) fn decode(
    schema: SchemaView<'_>,
    value: &mut Value,
    source: Source,
) -> Result<Vec<String>, String> {
    let mut decoder = Decoder {
        source,
        unknown: ReportedPaths::default(),
    };
    let kind = schema.struct_name().map(|name| format!("v1.{name}"));
    decoder.value(schema, kind.as_deref().unwrap_or_default(), value, Position::ROOT)?;
    Ok(decoder.unknown.into_paths())
}

/// Normalizes a decoded object again after the server changed it. The server's own changes fit the schema, and can
/// leave something empty only among the direct fields of metadata, spec and status, so deeper levels are not visited.
pub(crate) fn renormalize(schema: SchemaView<'_>, value: &mut Value) {
    let mut decoder = Decoder {
        source: Source::Json,
        unknown: ReportedPaths::default(),
    };
    let place = Position {
        max_depth: 2,
        ..Position::ROOT
    };
    let fits = decoder.value(schema, "", value, place);
    debug_assert!(fits.is_ok(), "{fits:?}");
    debug_assert_eq!(
        *value,
        {
            let mut whole = value.clone();
            decode(schema, &mut whole, Source::Json).expect("fits");
            whole
        },
        "a change by the server left an empty field below the visited levels"
    );
}

/// The decoder's position in the object.
#[derive(Clone, Copy)]
struct Position<'a> {
    /// The struct that contains the field.
    owner: &'a str,
    /// The field path as Go's decoder reports it: without indexes.
    fields: &'a FieldPath<'a>,
    /// The field path as warnings report it: with indexes.
    path: &'a FieldPath<'a>,
    /// How many levels of lists and objects to descend from here.
    max_depth: usize,
}

impl Position<'_> {
    const ROOT: Position<'static> = Position {
        owner: "",
        fields: &FieldPath::Root,
        path: &FieldPath::Root,
        max_depth: usize::MAX,
    };
}

struct Decoder {
    source: Source,
    unknown: ReportedPaths,
}

impl Decoder {
    fn value(
        &mut self,
        schema: SchemaView<'_>,
        kind: &str,
        value: &mut Value,
        mut place: Position<'_>,
    ) -> Result<(), String> {
        if value.is_null() {
            *value = self.zero(schema, kind)?;
            return Ok(());
        }
        let facts = schema.node();
        if is_container(value) {
            if place.max_depth == 0 {
                return Ok(());
            }
            place.max_depth -= 1;
        }
        match (facts.kind, &mut *value) {
            (Type::NumberOrString, _) => {
                if !quantity::is_canonical(value) {
                    *value = quantity::canonical(value)?.into();
                }
                Ok(())
            }
            (Type::IntOrString, Value::Number(number)) if fits(number, "int32") => Ok(()),
            (Type::IntOrString, other) if !other.is_string() => Err(self.mismatch(value, "int32", place)),
            (Type::String, Value::String(text)) if kind == "[]uint8" => check_base64(text),
            (Type::String, Value::String(text)) => match facts.time_precision {
                Some(precision) => time::canonical(text, precision).map(|time| *text = time),
                None => Ok(()),
            },
            (Type::String, _) if facts.time_precision.is_some() => Err(self.mismatch(value, "string", place)),
            (Type::Boolean, Value::Bool(_))
            | (Type::Number, Value::Number(_))
            | (Type::Any | Type::IntOrString, _) => Ok(()),
            (Type::Integer, Value::Number(number)) if fits(number, kind) => Ok(()),
            (Type::Array, Value::Array(items)) => {
                let Some(inner) = schema.items() else {
                    return Ok(());
                };
                let kind = element(kind);
                for (index, item) in items.iter_mut().enumerate() {
                    let path = FieldPath::Index(place.path, index);
                    self.value(inner, kind, item, Position { path: &path, ..place })?;
                }
                Ok(())
            }
            (Type::Object, Value::Object(fields)) => match schema.additional() {
                Some(inner) => {
                    let element = if kind.starts_with("map[") {
                        element(kind)
                    } else {
                        ""
                    };
                    let is_resources = kind.ends_with(".ResourceList");
                    for (key, field) in fields {
                        let path = FieldPath::Child(place.path, key);
                        self.value(inner, element, field, Position { path: &path, ..place })?;
                        if is_resources && !quantity::is_canonical(field) {
                            *field = quantity::canonical_milli(field)?.into();
                        }
                    }
                    Ok(())
                }
                None if schema.preserves_unknown() => Ok(()),
                None => self.fields(schema, fields, place),
            },
            _ => Err(self.mismatch(value, kind, place)),
        }
    }

    fn fields(
        &mut self,
        schema: SchemaView<'_>,
        fields: &mut Map<String, Value>,
        place: Position<'_>,
    ) -> Result<(), String> {
        let owner = schema.struct_name().unwrap_or_default();
        let place = Position { owner, ..place };
        let mut properties = schema.sorted_lookup();
        // Few fields are removed: visiting all in place and removing afterwards costs less than half of `retain`.
        let mut gone = Vec::new();
        for (name, value) in fields.iter_mut() {
            let stays = match properties.get(name) {
                None => {
                    self.unknown.add(&FieldPath::Child(place.path, name));
                    false
                }
                Some(property) => match &property.own_node().go {
                    None => !value.is_null(),
                    Some(go) => self.field(property, go, name, value, place)?,
                },
            };
            if !stays {
                gone.push(name.clone());
            }
        }
        for name in &gone {
            fields.remove(name);
        }
        for (name, id) in &schema.node().always_written {
            let property = schema.at(*id);
            let Some(go) = &property.own_node().go else {
                continue;
            };
            let mut value = Value::Null;
            if !fields.contains_key(&**name) && self.field(property, go, name, &mut value, place)? {
                fields.insert(name.to_string(), value);
            }
        }
        Ok(())
    }

    /// Normalizes one field of a struct. Returns whether it is written at all.
    fn field(
        &mut self,
        schema: SchemaView<'_>,
        go: &GoField,
        name: &str,
        value: &mut Value,
        place: Position<'_>,
    ) -> Result<bool, String> {
        if value.is_null() {
            if !is_always_written(schema, go) {
                return Ok(false);
            }
            if go.pointer {
                return Ok(true);
            }
        }
        // Fast path: most fields are unconstrained strings.
        let facts = schema.node();
        if let (Type::String, None, Value::String(text)) = (facts.kind, facts.time_precision, &*value)
            && *go.kind != *"[]uint8"
        {
            return Ok(go.pointer || go.omit == Omit::Never || !text.is_empty());
        }
        let embedded = go
            .embedded
            .as_deref()
            .map(|embedded| FieldPath::Child(place.fields, embedded));
        let place = Position {
            owner: place.owner,
            fields: &FieldPath::Child(embedded.as_ref().unwrap_or(place.fields), name),
            path: &FieldPath::Child(place.path, name),
            max_depth: place.max_depth,
        };
        self.value(schema, &go.kind, value, place)?;
        let left_out = !go.pointer
            && match go.omit {
                Omit::Never => false,
                Omit::Empty => !is_struct(schema) && is_empty(value),
                Omit::Zero => {
                    is_empty(value) || (is_struct(schema) && *value == self.zero(schema, &go.kind)?)
                }
            };
        if left_out {
            return Ok(false);
        }
        // The real server stores protobuf, which does not distinguish an empty list from none.
        let nil = !go.pointer
            && go.omit == Omit::Never
            && !is_struct(schema)
            && is_container(value)
            && is_empty(value);
        if nil {
            *value = Value::Null;
        }
        Ok(true)
    }

    /// The JSON of Go's zero value.
    fn zero(&mut self, schema: SchemaView<'_>, kind: &str) -> Result<Value, String> {
        Ok(match schema.node().kind {
            Type::NumberOrString => "0".into(),
            Type::IntOrString | Type::Integer | Type::Number => 0.into(),
            Type::Boolean => false.into(),
            Type::String if schema.node().time_precision.is_some() => Value::Null,
            Type::String => "".into(),
            Type::Array | Type::Any => Value::Null,
            Type::Object if schema.additional().is_some() || schema.preserves_unknown() => Value::Null,
            Type::Object => {
                let mut empty = Value::Object(Map::new());
                self.value(schema, kind, &mut empty, Position::ROOT)?;
                empty
            }
        })
    }

    fn mismatch(&self, value: &Value, kind: &str, place: Position<'_>) -> String {
        if self.source == Source::Tree {
            return tree_mismatch(value, kind);
        }
        let what = match value {
            Value::Number(number) if kind.starts_with("int") => format!("number {number}"),
            other => golang::json_type(other).to_owned(),
        };
        if place.owner.is_empty() {
            return format!("json: cannot unmarshal {what} into Go value of type {kind}");
        }
        format!(
            "json: cannot unmarshal {what} into Go struct field {}.{} of type {kind}",
            place.owner, place.fields
        )
    }
}

/// The properties of a struct that are written even if unset.
pub(super) fn always_written(schema: SchemaView<'_>) -> impl Iterator<Item = (Box<str>, NodeId)> {
    let all = schema.node().properties.iter();
    all.filter(move |(_, id)| {
        let property = schema.at(*id);
        let go = property.own_node().go.as_ref();
        go.is_some_and(|go| is_always_written(property, go))
    })
    .map(|(name, id)| (name.into(), id))
}

/// Whether Go writes an unset field.
fn is_always_written(schema: SchemaView<'_>, go: &GoField) -> bool {
    match go.omit {
        Omit::Never => true,
        Omit::Empty => !go.pointer && is_struct(schema),
        Omit::Zero => false,
    }
}

/// The messages of the converter that decodes trees instead of text.
fn tree_mismatch(value: &Value, kind: &str) -> String {
    let given = match golang::type_of(value) {
        "[]interface {}" => "slice",
        "map[string]interface {}" => "map",
        scalar => scalar,
    };
    if kind.starts_with("[]") {
        format!("cannot restore slice from {given}")
    } else if kind.starts_with("map[") {
        format!("cannot restore map from {given}")
    } else if kind.contains('.') && value.is_string() {
        format!("cannot restore struct from: {given}")
    } else if given == "float64" || (given == "int64" && kind == "string") {
        format!("cannot convert {given} to {kind}")
    } else {
        format!("unrecognized type: {kind}")
    }
}

fn fits(number: &serde_json::Number, kind: &str) -> bool {
    let Some(number) = number.as_i64() else {
        return false;
    };
    match kind {
        "int32" => i32::try_from(number).is_ok(),
        "uint8" => u8::try_from(number).is_ok(),
        _ => true,
    }
}

/// Whether Go represents it as a struct, which `omitempty` never omits.
fn is_struct(schema: SchemaView<'_>) -> bool {
    match schema.node().kind {
        Type::Object => schema.additional().is_none(),
        Type::NumberOrString | Type::IntOrString => true,
        Type::String => schema.node().time_precision.is_some(),
        // JSON, JSONSchemaPropsOrBool and such are structs, but always behind pointers.
        _ => false,
    }
}

fn is_container(value: &Value) -> bool {
    value.is_array() || value.is_object()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Checks base64 with Go's message, which has the position of the first invalid byte or of an incomplete group of four.
fn check_base64(text: &str) -> Result<(), String> {
    use base64::Engine;

    if base64::engine::general_purpose::STANDARD
        .decode(text.replace(['\r', '\n'], ""))
        .is_ok()
    {
        return Ok(());
    }
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let body = text.trim_end_matches('=');
    let bad = body
        .bytes()
        .position(|byte| !is_digit(byte) && !matches!(byte, b'\r' | b'\n'));
    let at = bad.unwrap_or(body.len() / 4 * 4);
    Err(format!("illegal base64 data at input byte {at}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::registry::{Registry, object_meta};

    #[test]
    fn metadata_is_normalized_like_go() {
        for (given, wanted) in [
            (
                json!({"labels": null, "annotations": {}, "finalizers": []}),
                json!({}),
            ),
            (json!({"labels": {"a": null}}), json!({"labels": {"a": ""}})),
            (json!({"creationTimestamp": null, "generation": 0}), json!({})),
            // A pointer distinguishes zero from unset.
            (
                json!({"deletionGracePeriodSeconds": 0}),
                json!({"deletionGracePeriodSeconds": 0}),
            ),
        ] {
            let mut value = given.clone();
            assert_eq!(
                decode(object_meta().view(), &mut value, Source::Json),
                Ok(Vec::new()),
                "{given}"
            );
            assert_eq!(value, wanted, "{given}");
        }
    }

    #[test]
    fn type_mismatch_names_the_field_or_the_type() {
        for (given, why) in [
            (
                json!({"labels": {"a": 1}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            ),
            (
                json!(5),
                "json: cannot unmarshal number into Go value of type v1.ObjectMeta",
            ),
        ] {
            let error = decode(object_meta().view(), &mut given.clone(), Source::Json);
            assert_eq!(error.as_ref().map_err(String::as_str), Err(why), "{given}");
        }
    }

    /// Any JSON value, with field names that pods have.
    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            prop_oneof![
                Just(""),
                Just("500m"),
                Just("1.5Gi"),
                Just("2020-01-01T00:00:00Z"),
                Just("x")
            ]
            .prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "name",
            "labels",
            "containers",
            "image",
            "args",
            "resources",
            "limits",
            "cpu",
            "ports",
            "containerPort",
            "env",
            "value",
            "volumes",
            "emptyDir",
            "replicas",
            "template",
            "creationTimestamp",
        ]);
        leaf.prop_recursive(6, 48, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn decoding_is_idempotent(body in tree()) {
            let catalogue = Registry::new().catalogue();
            for plural in ["pods", "replicationcontrollers", "configmaps"] {
                let resource = catalogue.find("", "v1", plural).expect("built in");
                let schema = resource.schema.as_ref().expect("built in").view();
                let mut value = body.clone();
                if decode(schema, &mut value, Source::Json).is_ok() {
                    let mut again = value.clone();
                    prop_assert_eq!(decode(schema, &mut again, Source::Json), Ok(Vec::new()));
                    prop_assert_eq!(again, value);
                }
            }
        }
    }
}
