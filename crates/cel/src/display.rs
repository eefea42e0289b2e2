//! Values as text, as Go's `%v` writes them in messages.

use std::fmt::{self, Write};

use crate::{Value, go_format};

/// A value in an error message.
pub(crate) fn plain(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => go_format::float(*value),
        Value::String(text) => (**text).to_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(duration) => duration.to_seconds_text(),
        Value::Timestamp(timestamp) => timestamp.to_text(),
        other => other.type_name().into_owned(),
    }
}

/// A value of any size as Rust writes it, for messages; a large one is cut off.
pub(crate) fn debug(value: &Value<'_>) -> String {
    let mut text = Bounded(String::new());
    // It fails when the text is full.
    let _ = write!(text, "{value:?}");
    text.0
}

struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const MAX_BYTES: usize = 4096;
        if self.0.len() + text.len() > MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The name of cel-go's type of a value, which some of its messages show.
pub(crate) const fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::List(_) => "*types.baseList",
        Value::Map(_) => "*types.baseMap",
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        Value::Opaque(_) => "types.Opaque",
    }
}
