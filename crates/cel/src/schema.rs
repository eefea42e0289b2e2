//! How JSON is read as CEL values: the types of an OpenAPI schema.
//!
//! A [`Schema`] gives a variable its type for the checker, turns JSON into values at run time (a `date-time` string is a
//! timestamp), and bounds the sizes that cost estimation uses.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value as Json;

use crate::{
    Type,
    names::{escape, is_reserved},
};

/// The largest request that kube-apiserver reads: no string or list can be larger.
pub(crate) const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// The greatest depth of a schema. Deeper ones are cut: their fields are not visible to expressions.
pub(crate) const MAX_SCHEMA_DEPTH: usize = 100;

/// A structural OpenAPI schema, as CEL sees it.
///
/// ```
/// use windlass_cel::{Env, Schema, Value};
/// use serde_json::json;
///
/// let schema = Schema::from_openapi(
///     &json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "max": {"type": "integer"}}}),
///     "Scale",
/// )
/// .unwrap();
/// let mut env = Env::kubernetes();
/// env.declare_schema("self", &schema);
/// let program = env.compile("self.replicas <= self.max").unwrap();
/// let object = json!({"replicas": 3, "max": 5});
/// let variables = [schema.value(&object).unwrap()];
/// let result = program.evaluate(&variables);
/// assert!(matches!(result.value, Ok(Value::Bool(true))));
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    pub(crate) kind: SchemaKind,
    pub(crate) nullable: bool,
    /// The greatest number of code points, bytes, items or entries, as Kubernetes estimates it; 0 for all others.
    pub(crate) max_elements: u64,
    /// The least number of bytes as JSON.
    pub(crate) min_size: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum SchemaKind {
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Date,
    DateTime,
    Duration,
    IntOrString,
    List(Arc<ListSchema>),
    Map(Arc<Schema>),
    Object(Arc<ObjectSchema>),
    /// Data of unknown shape, which expressions cannot see; it is compared as JSON.
    Hidden,
}

#[derive(Debug)]
pub(crate) struct ListSchema {
    pub(crate) items: Schema,
    pub(crate) kind: ListKind,
}

/// `x-kubernetes-list-type`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    /// With the names of the keys.
    Map(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct ObjectSchema {
    pub(crate) name: Arc<str>,
    /// By the name in JSON.
    pub(crate) properties: HashMap<Box<str>, Property, foldhash::fast::FixedState>,
    /// The name in JSON of each visible field, by the name in CEL.
    pub(crate) fields: HashMap<Box<str>, Box<str>, foldhash::fast::FixedState>,
}

#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) schema: Schema,
    /// The name in CEL; `None` if expressions cannot see it.
    pub(crate) cel_name: Option<Box<str>>,
}

impl ObjectSchema {
    /// The name in JSON and the schema of a field, by its name in CEL.
    pub(crate) fn field(&self, name: &str) -> Option<(&str, &Schema)> {
        let json_name = self.fields.get(name)?;
        let property = self.properties.get(json_name)?;
        Some((json_name, &property.schema))
    }
}

impl Schema {
    /// Reads an OpenAPI schema. `name` is the name of the type in error messages.
    ///
    /// Returns `None` if expressions cannot see such data, as with `x-kubernetes-preserve-unknown-fields` and no type.
    pub fn from_openapi(schema: &Json, name: &str) -> Option<Self> {
        read(
            schema,
            name,
            schema_is(schema, "x-kubernetes-embedded-resource"),
            0,
        )
    }

    /// Like [`Schema::from_openapi`], for a whole object: `apiVersion`, `kind`, `metadata.name` and
    /// `metadata.generateName` are visible even if the schema lacks them.
    pub fn from_openapi_root(schema: &Json, name: &str) -> Option<Self> {
        read(schema, name, true, 0)
    }

    /// Returns the type for the checker.
    pub fn to_type(&self) -> Type {
        match &self.kind {
            SchemaKind::Bool => Type::Bool,
            SchemaKind::Int => Type::Int,
            SchemaKind::Double => Type::Double,
            SchemaKind::String => Type::String,
            SchemaKind::Bytes => Type::Bytes,
            SchemaKind::Date | SchemaKind::DateTime => Type::Timestamp,
            SchemaKind::Duration => Type::Duration,
            SchemaKind::IntOrString | SchemaKind::Hidden => Type::Dyn,
            SchemaKind::List(list) => Type::list(list.items.to_type()),
            SchemaKind::Map(values) => Type::map(Type::String, values.to_type()),
            SchemaKind::Object(object) => Type::Object(Arc::clone(&object.name)),
        }
    }

    /// The least number of bytes that such data has as JSON. Kubernetes derives from it how often the data can occur.
    pub const fn min_serialized_size(&self) -> u64 {
        self.min_size
    }

    /// The schema at a step of a path: a field by its name in CEL, `@items`, `@values` or `@keys`.
    pub(crate) fn step(&self, step: &str) -> Option<Step<'_>> {
        match (&self.kind, step) {
            (SchemaKind::List(list), "@items" | "@values") => Some(Step::Schema(&list.items)),
            (SchemaKind::Map(values), "@items" | "@values") => Some(Step::Schema(values)),
            (SchemaKind::Map(_), "@keys") => Some(Step::Key),
            // Only by the escaped name: Kubernetes knows no size of a field with a bare reserved word.
            (SchemaKind::Object(object), _) => object
                .field(step)
                .filter(|_| !is_reserved(step))
                .map(|(_, schema)| Step::Schema(schema)),
            _ => None,
        }
    }

    /// Calls `visit` with each object type inside.
    pub(crate) fn objects(&self, visit: &mut impl FnMut(&Arc<ObjectSchema>)) {
        match &self.kind {
            SchemaKind::List(list) => list.items.objects(visit),
            SchemaKind::Map(values) => values.objects(visit),
            SchemaKind::Object(object) => {
                visit(object);
                object
                    .properties
                    .values()
                    .for_each(|property| property.schema.objects(visit));
            }
            _ => {}
        }
    }
}

/// Where a step of a path leads.
pub(crate) enum Step<'a> {
    Schema(&'a Schema),
    /// The keys of a map.
    Key,
}

fn schema_is(schema: &Json, flag: &str) -> bool {
    schema.get(flag).and_then(Json::as_bool).unwrap_or_default()
}

fn bound(schema: &Json, name: &str) -> Option<u64> {
    let bound = schema.get(name)?;
    // A negative bound counts as zero.
    bound.as_u64().or_else(|| bound.as_i64().map(|_| 0))
}

fn read(schema: &Json, name: &str, is_resource: bool, depth: usize) -> Option<Schema> {
    if depth > MAX_SCHEMA_DEPTH {
        return None;
    }
    let nullable = schema_is(schema, "nullable");
    let simple = |kind, max_elements, min_size| {
        Some(Schema {
            kind,
            nullable,
            max_elements,
            min_size,
        })
    };
    if schema_is(schema, "x-kubernetes-int-or-string") {
        let max = bound(schema, "maxLength").map_or(MAX_REQUEST - 2, |length| length.saturating_mul(4));
        return simple(SchemaKind::IntOrString, max, 1);
    }
    let type_ = if is_resource {
        "object"
    } else {
        schema.get("type").and_then(Json::as_str).unwrap_or_default()
    };
    match type_ {
        "boolean" => simple(SchemaKind::Bool, 0, 4),
        "number" => simple(SchemaKind::Double, 0, 1),
        "integer" => simple(SchemaKind::Int, 0, 1),
        "string" => Some(read_string(schema, nullable)),
        "array" => {
            let items = schema.get("items")?;
            let is_resource = schema_is(items, "x-kubernetes-embedded-resource");
            let items = read(items, &item_type_name(name), is_resource, depth + 1)?;
            let max = bound(schema, "maxItems").unwrap_or_else(|| (MAX_REQUEST - 2) / (items.min_size + 1));
            let kind = match schema.get("x-kubernetes-list-type").and_then(Json::as_str) {
                Some("set") => ListKind::Set,
                Some("map") => ListKind::Map(
                    schema
                        .get("x-kubernetes-list-map-keys")
                        .and_then(Json::as_array)
                        .into_iter()
                        .flatten()
                        .filter_map(|key| key.as_str().map(str::to_owned))
                        .collect(),
                ),
                _ => ListKind::Atomic,
            };
            simple(SchemaKind::List(Arc::new(ListSchema { items, kind })), max, 2)
        }
        "object" => {
            if let Some(values) = schema
                .get("additionalProperties")
                .filter(|values| values.is_object())
            {
                let is_resource = schema_is(values, "x-kubernetes-embedded-resource");
                let values = read(values, &value_type_name(name), is_resource, depth + 1)?;
                let max = bound(schema, "maxProperties")
                    .unwrap_or_else(|| (MAX_REQUEST - 2) / (values.min_size + 6));
                return simple(SchemaKind::Map(Arc::new(values)), max, 2);
            }
            let (object, min_size) = read_object(schema, name, is_resource, depth);
            simple(SchemaKind::Object(Arc::new(object)), 0, min_size)
        }
        _ => None,
    }
}

fn read_string(schema: &Json, nullable: bool) -> Schema {
    let format = schema.get("format").and_then(Json::as_str).unwrap_or_default();
    let length = bound(schema, "maxLength");
    let enumeration = schema
        .get("enum")
        .and_then(Json::as_array)
        .filter(|values| !values.is_empty());
    let (kind, max_elements, min_size) = match format {
        "byte" => (SchemaKind::Bytes, length.unwrap_or(MAX_REQUEST - 2), 2),
        "duration" => (SchemaKind::Duration, 32, 3),
        "date" => (SchemaKind::Date, 12, 12),
        "date-time" => (SchemaKind::DateTime, 32, 21),
        _ => {
            let longest = |values: &Vec<Json>| {
                let lengths = values.iter().filter_map(|value| value.as_str().map(str::len));
                lengths.max().unwrap_or_default() as u64
            };
            let max = match (length, enumeration) {
                (Some(length), _) => length.saturating_mul(4),
                (None, Some(values)) => longest(values),
                (None, None) => MAX_REQUEST - 2,
            };
            (SchemaKind::String, max, 2)
        }
    };
    Schema {
        kind,
        nullable,
        max_elements,
        min_size,
    }
}

/// Whether a schema declares all that the root of an object has anyway. Then it stays as it is.
fn has_object_meta(schema: &Json) -> bool {
    let is = |path: &str, type_: &str| schema.pointer(path).and_then(Json::as_str) == Some(type_);
    is("/properties/kind/type", "string")
        && is("/properties/apiVersion/type", "string")
        && is("/properties/metadata/type", "object")
        && is("/properties/metadata/properties/name/type", "string")
        && is("/properties/metadata/properties/generateName/type", "string")
}

/// The name of the type of a property. A name that expressions cannot use is quoted, so that no other property has it.
pub(crate) fn property_type_name(object: &str, property: &str) -> String {
    match escape(property) {
        Some(cel_name) => format!("{object}.{cel_name}"),
        None => format!("{object}.{property:?}"),
    }
}

/// The name of the type of a list's items.
pub(crate) fn item_type_name(list: &str) -> String {
    format!("{list}.@idx")
}

/// The name of the type of a map's values.
pub(crate) fn value_type_name(map: &str) -> String {
    format!("{map}.@elem")
}

/// Reads the properties of an object; also returns its least size.
fn read_object(schema: &Json, name: &str, is_resource: bool, depth: usize) -> (ObjectSchema, u64) {
    let mut object = ObjectSchema {
        name: name.into(),
        properties: HashMap::default(),
        fields: HashMap::default(),
    };
    let mut min_size = 2;
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let mut add = |json_name: &str, property: &Json| {
        let cel_name = escape(json_name).map(Box::<str>::from);
        let path = property_type_name(name, json_name);
        let embedded = schema_is(property, "x-kubernetes-embedded-resource");
        let read = read(property, &path, embedded, depth + 1);
        let visible = read.is_some();
        let property_schema = read.unwrap_or(Schema {
            kind: SchemaKind::Hidden,
            nullable: true,
            max_elements: 0,
            min_size: 0,
        });
        if visible && required.contains(&json_name) && property.get("default").is_none_or(Json::is_null) {
            min_size += json_name.len() as u64 + property_schema.min_size + 4;
        }
        let cel_name = cel_name.filter(|_| visible);
        if let Some(cel_name) = &cel_name {
            object.fields.insert(cel_name.clone(), json_name.into());
            if is_reserved(json_name) {
                // A reserved word works bare too: the grammar allows it after a dot.
                object.fields.insert(json_name.into(), json_name.into());
            }
        }
        object.properties.insert(
            json_name.into(),
            Property {
                schema: property_schema,
                cel_name,
            },
        );
    };
    let properties = schema.get("properties").and_then(Json::as_object);
    for (json_name, property) in properties.into_iter().flatten() {
        add(json_name, property);
    }
    if is_resource && !has_object_meta(schema) {
        let text = serde_json::json!({"type": "string"});
        add("kind", &text);
        add("apiVersion", &text);
        add(
            "metadata",
            &serde_json::json!({"type": "object", "properties": {"name": text, "generateName": text}}),
        );
    }
    (object, min_size)
}
