//! Values at run time.
//!
//! ```text
//!   JSON + Schema ──borrowed──► Value ◄──made by functions── Value
//!                                 │
//!                 List::Json, Map::Json, Map::Object: converted element by element, when they are read
//! ```
//!
//! A value is at most 32 bytes, and cheap to clone. Objects are never copied: a value refers to the JSON, and converts
//! what an expression touches.

use std::{borrow::Cow, fmt, ops::Deref, sync::Arc};

use serde_json::Value as Json;

use crate::{
    EvalError, Type,
    list::List,
    map::Map,
    schema::{ListKind, Schema, SchemaKind},
    time::{self, Duration, Timestamp},
};

/// A value of an expression. It may borrow from the variables and from the program.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// 64-bit signed integer.
    Int(i64),
    /// 64-bit unsigned integer.
    Uint(u64),
    /// 64-bit float.
    Double(f64),
    /// Text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A length of time.
    Duration(Duration),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A type, as from `type(1)`.
    Type(Arc<Type>),
    /// An optional value.
    Optional(Option<Arc<Value<'a>>>),
    /// A value that only functions understand, such as a quantity or an IP address.
    Opaque(Arc<dyn Opaque>),
}

/// A value of a library, such as a quantity.
pub trait Opaque: fmt::Debug + Send + Sync + std::any::Any {
    /// Returns the type.
    fn type_of(&self) -> Type;
    /// Whether the other value is equal; `None` if they cannot be compared, such as values of different types.
    fn equals(&self, other: &dyn Opaque) -> Option<bool>;
    /// The size that costs are computed from; 1 unless the value has parts.
    fn size(&self) -> u64 {
        1
    }
    /// Whether `optional.ofNonZeroValue` treats it as absent.
    fn is_zero(&self) -> bool {
        false
    }
    /// Returns the value for downcasts.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Text that is borrowed or shared.
#[derive(Clone)]
pub enum Text<'a> {
    /// From the variables or from the program.
    Borrowed(&'a str),
    /// Made by a function.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::Borrowed(text),
            Cow::Owned(text) => Self::from(text),
        }
    }
}

impl<'a> Value<'a> {
    /// Makes a string without copying it.
    pub const fn text(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// Makes a string.
    pub fn string(text: impl Into<String>) -> Self {
        Self::String(Text::from(text.into()))
    }

    /// Makes an optional value.
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Makes a list.
    pub fn list(values: Vec<Self>) -> Self {
        Self::List(List::from(values))
    }

    pub(crate) fn opaque(value: impl Opaque) -> Self {
        Self::Opaque(Arc::new(value))
    }

    /// Returns the library value, if it is a `T`.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        match self {
            Self::Opaque(value) => value.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Views JSON as a value, without a schema: whole numbers are `int`s, or `uint`s above the greatest `int`.
    pub fn from_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Self::Int(number),
                (None, Some(number)) => Self::Uint(number),
                (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::List(List::json(items, None)),
            Json::Object(fields) => Self::Map(Map::json(fields, None)),
        }
    }

    /// The name of the type at run time.
    pub fn type_name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => crate::types::OPTIONAL,
            Self::Opaque(value) => return Cow::Owned(value.type_of().name().to_owned()),
        })
    }

    /// The type at run time. Lists and maps do not know the types of their elements.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Duration(_) => Type::Duration,
            Self::Timestamp(_) => Type::Timestamp,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Opaque(value) => value.type_of(),
        }
    }

    /// The size that costs are computed from: code points, bytes, items or entries, and 1 for all others.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::String(text) => code_points(text),
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Optional(Some(value)) => value.size(),
            Self::Opaque(value) => value.size(),
            _ => 1,
        }
    }

    /// Whether `optional.ofNonZeroValue` treats the value as absent.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Duration(duration) => duration.nanos() == 0,
            Self::Timestamp(timestamp) => timestamp.is_zero(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            // An absent value is not a zero value in cel-go.
            Self::Type(_) | Self::Optional(_) => false,
            Self::Opaque(value) => value.is_zero(),
        }
    }
}

/// The number of code points. Most text is ASCII, for which it is the length.
pub(crate) fn code_points(text: &str) -> u64 {
    text.chars().count() as u64
}

impl Schema {
    /// Views JSON as a value of this schema.
    ///
    /// Fails if the JSON does not match the schema; nested values are checked only when an expression reads them.
    pub fn value<'a>(&'a self, json: &'a Json) -> Result<Value<'a>, EvalError> {
        if json.is_null() {
            return if self.nullable {
                Ok(Value::Null)
            } else {
                Err(EvalError::new(
                    "invalid data, got null for schema with nullable=false",
                ))
            };
        }
        let mismatch = |expected: &str| {
            EvalError::new(format!(
                "invalid data, expected {expected}, got {}",
                go_type(json)
            ))
        };
        match &self.kind {
            SchemaKind::IntOrString => match json {
                Json::String(text) => Ok(Value::text(text)),
                Json::Number(number) if number.is_i64() => {
                    Ok(Value::Int(number.as_i64().unwrap_or_default()))
                }
                _ => Err(EvalError::new(
                    "invalid data, expected XIntOrString value to be either a string or integer",
                )),
            },
            SchemaKind::Bool => json.as_bool().map(Value::Bool).ok_or_else(|| mismatch("bool")),
            SchemaKind::Int => json.as_i64().map(Value::Int).ok_or_else(|| mismatch("int")),
            SchemaKind::Double => json.as_f64().map(Value::Double).ok_or_else(|| mismatch("float")),
            SchemaKind::String => json.as_str().map(Value::text).ok_or_else(|| mismatch("string")),
            SchemaKind::Bytes | SchemaKind::Date | SchemaKind::DateTime | SchemaKind::Duration => {
                let text = json.as_str().ok_or_else(|| mismatch("string"))?;
                self.formatted(text)
            }
            SchemaKind::List(list) => match json {
                Json::Array(items) => Ok(Value::List(List::json(items, Some(list)))),
                _ => Err(EvalError::new(
                    "invalid data, expected an array for the provided schema with type=array",
                )),
            },
            SchemaKind::Map(_) | SchemaKind::Object(_) => match json {
                Json::Object(fields) => Ok(Value::Map(match &self.kind {
                    SchemaKind::Object(object) => Map::object(fields, object),
                    SchemaKind::Map(values) => Map::json(fields, Some(values)),
                    _ => unreachable!("matched above"),
                })),
                _ => Err(EvalError::new(
                    "invalid data, expected a map for the provided schema with type=object",
                )),
            },
            SchemaKind::Hidden => Ok(Value::from_json(json)),
        }
    }

    /// Parses a string with a format.
    fn formatted<'a>(&self, text: &str) -> Result<Value<'a>, EvalError> {
        let invalid = |what: &str| EvalError::new(format!("Invalid {what} {text}"));
        match self.kind {
            SchemaKind::Bytes => {
                use base64::Engine;
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                let bytes = bytes.map_err(|_| invalid("byte formatted string"))?;
                Ok(Value::Bytes(bytes.into()))
            }
            SchemaKind::Duration => time::parse_schema_duration(text)
                .map(Value::Duration)
                .ok_or_else(|| invalid("duration")),
            SchemaKind::Date => time::parse_date(text)
                .map(Value::Timestamp)
                .ok_or_else(|| invalid("date formatted string")),
            _ => time::parse_date_time(text)
                .map(Value::Timestamp)
                .ok_or_else(|| invalid("date-time formatted string")),
        }
    }
}

/// The name of Go's type that kube-apiserver decodes such JSON to.
fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

/// The keys of a `list-type: map` item, from a value.
pub(crate) fn item_keys<'a>(value: &Value<'a>, kind: &ListKind) -> Option<Vec<Option<Value<'a>>>> {
    let (ListKind::Map(keys), Value::Map(map)) = (kind, value) else {
        return None;
    };
    Some(keys.iter().map(|key| map.get_json_name(key)).collect())
}
