//! JSON of a CRD's versions and schemas as Go prints them in messages: with Go's field names, in their order, including
//! empty fields.

use serde_json::Value;

use super::{
    super::{list, text},
    CommonFields,
};

/// The type of a field, which determines how it is printed if empty.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Flag,
    /// A pointer, list or map of plain values.
    Plain,
    Schema,
    Schemas,
    SchemaMap,
    /// A schema or a list of schemas.
    Items,
    Additional,
}

const FIELDS: [(&str, &str, Kind); 44] = [
    ("ID", "id", Kind::Text),
    ("Schema", "$schema", Kind::Text),
    ("Ref", "$ref", Kind::Plain),
    ("Description", "description", Kind::Text),
    ("Type", "type", Kind::Text),
    ("Nullable", "nullable", Kind::Flag),
    ("Format", "format", Kind::Text),
    ("Title", "title", Kind::Text),
    ("Default", "default", Kind::Plain),
    ("Maximum", "maximum", Kind::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", Kind::Flag),
    ("Minimum", "minimum", Kind::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", Kind::Flag),
    ("MaxLength", "maxLength", Kind::Plain),
    ("MinLength", "minLength", Kind::Plain),
    ("Pattern", "pattern", Kind::Text),
    ("MaxItems", "maxItems", Kind::Plain),
    ("MinItems", "minItems", Kind::Plain),
    ("UniqueItems", "uniqueItems", Kind::Flag),
    ("MultipleOf", "multipleOf", Kind::Plain),
    ("Enum", "enum", Kind::Plain),
    ("MaxProperties", "maxProperties", Kind::Plain),
    ("MinProperties", "minProperties", Kind::Plain),
    ("Required", "required", Kind::Plain),
    ("Items", "items", Kind::Items),
    ("AllOf", "allOf", Kind::Schemas),
    ("OneOf", "oneOf", Kind::Schemas),
    ("AnyOf", "anyOf", Kind::Schemas),
    ("Not", "not", Kind::Schema),
    ("Properties", "properties", Kind::SchemaMap),
    ("AdditionalProperties", "additionalProperties", Kind::Additional),
    ("PatternProperties", "patternProperties", Kind::SchemaMap),
    ("Dependencies", "dependencies", Kind::Plain),
    ("AdditionalItems", "additionalItems", Kind::Additional),
    ("Definitions", "definitions", Kind::SchemaMap),
    ("ExternalDocs", "externalDocs", Kind::Plain),
    ("Example", "example", Kind::Plain),
    (
        "XPreserveUnknownFields",
        "x-kubernetes-preserve-unknown-fields",
        Kind::Plain,
    ),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Kind::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Kind::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Kind::Plain),
    ("XListType", "x-kubernetes-list-type", Kind::Plain),
    ("XMapType", "x-kubernetes-map-type", Kind::Plain),
    ("XValidations", "x-kubernetes-validations", Kind::Plain),
];

/// Formats a validation rule like Go, which escapes what HTML would interpret.
pub(super) fn rule(rule: &Value) -> String {
    let given = |key: &str| match &rule[key] {
        Value::Null => "\"\"".to_owned(),
        value => html_escaped(value),
    };
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        given("rule"),
        given("message"),
        given("messageExpression"),
        html_escaped(&rule["reason"]),
        given("fieldPath"),
        rule["optionalOldSelf"]
    )
}

fn html_escaped(value: &Value) -> String {
    let json = value.to_string();
    let mut escaped = String::with_capacity(json.len());
    for sign in json.chars() {
        match sign {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            sign => escaped.push(sign),
        }
    }
    escaped
}

/// Go's name and the JSON name of each schema field, in Go's order.
pub(super) fn fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.iter().map(|(go, json, _)| (*go, *json))
}

/// Formats a schema like Go.
pub(super) fn schema(schema: &Value) -> String {
    let fields = FIELDS
        .iter()
        .map(|(go, json, kind)| format!("\"{go}\":{}", field(&schema[*json], *kind)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn field(value: &Value, kind: Kind) -> String {
    match (kind, value) {
        (Kind::Text, Value::Null) => "\"\"".to_owned(),
        (Kind::Flag, Value::Null) => "false".to_owned(),
        (_, Value::Null) => "null".to_owned(),
        (Kind::Text | Kind::Flag | Kind::Plain, value) => value.to_string(),
        (Kind::Schema, value) => schema(value),
        (Kind::Schemas, value) => {
            let schemas: Vec<_> = list(value).iter().map(schema).collect();
            format!("[{}]", schemas.join(","))
        }
        (Kind::SchemaMap, value) => {
            let fields = value.as_object().into_iter().flatten();
            let fields: Vec<_> = fields
                .map(|(name, value)| format!("{name:?}:{}", schema(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        (Kind::Items, value) => match value {
            Value::Array(schemas) => {
                let schemas: Vec<_> = schemas.iter().map(schema).collect();
                format!("{{\"Schema\":null,\"JSONSchemas\":[{}]}}", schemas.join(","))
            }
            value => format!("{{\"Schema\":{},\"JSONSchemas\":null}}", schema(value)),
        },
        (Kind::Additional, Value::Bool(allowed)) => format!("{{\"Allows\":{allowed},\"Schema\":null}}"),
        (Kind::Additional, value) => format!("{{\"Allows\":true,\"Schema\":{}}}", schema(value)),
    }
}

/// Formats the versions of a CRD like Go, without the fields they have in common.
pub(super) fn versions(versions: &[Value], common: &CommonFields) -> String {
    let of = |version: &Value| {
        let own = |key: &str, write: &dyn Fn(&Value) -> String| match &version[key] {
            Value::Null => "null".to_owned(),
            _ if common.has(key) => "null".to_owned(),
            value => write(value),
        };
        let flag = |key: &str| version[key] == true;
        format!(
            "{{\"Name\":{:?},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
            text(&version["name"]),
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            version["deprecationWarning"],
            own("schema", &|value| format!(
                "{{\"OpenAPIV3Schema\":{}}}",
                field(&value["openAPIV3Schema"], Kind::Schema)
            )),
            own("subresources", &subresources),
            own("additionalPrinterColumns", &columns),
            own("selectableFields", &selectable),
        )
    };
    let versions: Vec<_> = versions.iter().map(of).collect();
    format!("[{}]", versions.join(","))
}

fn subresources(value: &Value) -> String {
    let scale = match &value["scale"] {
        Value::Null => "null".to_owned(),
        scale => format!(
            "{{\"SpecReplicasPath\":{:?},\"StatusReplicasPath\":{:?},\"LabelSelectorPath\":{}}}",
            text(&scale["specReplicasPath"]),
            text(&scale["statusReplicasPath"]),
            scale["labelSelectorPath"]
        ),
    };
    let status = if value["status"].is_null() { "null" } else { "{}" };
    format!("{{\"Status\":{status},\"Scale\":{scale}}}")
}

fn columns(value: &Value) -> String {
    let of = |column: &Value| {
        format!(
            "{{\"Name\":{:?},\"Type\":{:?},\"Format\":{:?},\"Description\":{:?},\"Priority\":{},\"JSONPath\":{:?}}}",
            text(&column["name"]),
            text(&column["type"]),
            text(&column["format"]),
            text(&column["description"]),
            column["priority"].as_i64().unwrap_or(0),
            text(&column["jsonPath"])
        )
    };
    let columns: Vec<_> = list(value).iter().map(of).collect();
    format!("[{}]", columns.join(","))
}

fn selectable(value: &Value) -> String {
    let fields: Vec<_> = list(value)
        .iter()
        .map(|field| format!("{{\"JSONPath\":{:?}}}", text(&field["jsonPath"])))
        .collect();
    format!("[{}]", fields.join(","))
}
