//! Go type information of the built-in kinds' fields (`hack/registry/types`). The real server decodes bodies into Go
//! structs, which determines omitted fields, fields that are always present, and error messages.

use serde_json::Value;

/// The Go type of a field, and when it is omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoField {
    /// Without the pointer: `int32`, `[]v1.Container`, `v1.PodSpec`.
    pub(crate) kind: Box<str>,
    /// A pointer distinguishes absent from empty.
    pub(crate) pointer: bool,
    pub(crate) omit: Omit,
    /// The embedded struct that contains the field; the decoder's errors name it.
    pub(crate) embedded: Option<Box<str>>,
}

/// When a field is omitted from the JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Omit {
    /// Never: a nil pointer, list or map is `null`.
    #[default]
    Never,
    /// When empty; a struct never is.
    Empty,
    /// When it has its zero value, even if it is a struct.
    Zero,
}

impl GoField {
    /// Parses `*int32,omitempty,in:ProbeHandler`.
    pub(super) fn parse(text: &Value) -> Option<Self> {
        let mut parts = text.as_str()?.split(',');
        let kind = parts.next()?;
        let mut field = Self {
            kind: kind.trim_start_matches('*').into(),
            pointer: kind.starts_with('*'),
            omit: Omit::Never,
            embedded: None,
        };
        for part in parts {
            match part {
                "omitempty" if field.omit == Omit::Never => field.omit = Omit::Empty,
                "omitzero" => field.omit = Omit::Zero,
                _ => field.embedded = part.strip_prefix("in:").map(Into::into),
            }
        }
        Some(field)
    }
}

/// The element type of a list or map.
pub(super) fn element(kind: &str) -> &str {
    let element = kind.strip_prefix("[]").or_else(|| {
        kind.strip_prefix("map[")
            .and_then(|rest| rest.split_once(']').map(|(_, e)| e))
    });
    element.unwrap_or(kind).trim_start_matches('*')
}
