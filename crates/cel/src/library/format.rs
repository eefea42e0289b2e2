//! Named formats, such as `format.dns1123Label().validate(name)`.

use std::any::Any;

use windlass_api::naming;

use super::no_overload;
use crate::{Type, Value, function::FunctionSpec, time, value::Opaque};

/// A named format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedFormat {
    /// The name in expressions.
    key: &'static str,
    name: &'static str,
    /// The length of its regular expression, for the cost.
    pub(crate) regex_size: u64,
    problems: fn(&str) -> Vec<String>,
}

impl Opaque for NamedFormat {
    fn type_of(&self) -> Type {
        Type::parse("NamedFormat")
    }

    fn equals(&self, other: &dyn Opaque) -> Option<bool> {
        other
            .as_any()
            .downcast_ref()
            .map(|other: &Self| self.name == other.name)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

const fn format(
    key: &'static str,
    name: &'static str,
    regex_size: u64,
    problems: fn(&str) -> Vec<String>,
) -> NamedFormat {
    NamedFormat {
        key,
        name,
        regex_size,
        problems,
    }
}

static FORMATS: [NamedFormat; 13] = [
    format("dns1123Label", "DNS1123Label", 30, naming::label),
    format("dns1123Subdomain", "DNS1123Subdomain", 60, naming::subdomain),
    format("dns1035Label", "DNS1035Label", 30, naming::label_1035),
    format("qualifiedName", "QualifiedName", 60, naming::qualified),
    format("dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| {
        naming::label(&without_dash(text))
    }),
    format("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        naming::subdomain(&without_dash(text))
    }),
    format("dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| {
        naming::label_1035(&without_dash(text))
    }),
    format("labelValue", "LabelValue", 40, naming::label_value),
    format("uri", "URI", 1103, |text| {
        super::url::problem(text).into_iter().collect()
    }),
    format("uuid", "uuid", 70, |text| {
        unless(is_uuid(text), "does not match the UUID format")
    }),
    format("byte", "byte", 84, |text| {
        unless(is_base64(text), "invalid base64")
    }),
    format("date", "date", 71, |text| {
        unless(time::parse_date(text).is_some(), "invalid date")
    }),
    format("datetime", "datetime", 71, |text| {
        unless(
            !text.is_empty() && time::parse_date_time(text).is_some(),
            "invalid datetime",
        )
    }),
];

/// A prefix may end with a dash, because a suffix follows.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(start) if !start.is_empty() => format!("{start}a"),
        _ => text.to_owned(),
    }
}

fn unless(valid: bool, problem: &str) -> Vec<String> {
    if valid {
        Vec::new()
    } else {
        vec![problem.to_owned()]
    }
}

fn is_uuid(text: &str) -> bool {
    let hex: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    hex.len() == 32 && hex.iter().all(u8::is_ascii_hexdigit) && (groups == [8, 4, 4, 4, 12] || groups == [32])
}

fn is_base64(text: &str) -> bool {
    use base64::Engine;
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// A row for the constructor of a format.
macro_rules! constructor {
    ($name:literal, $key:literal) => {
        FunctionSpec {
            name: $name,
            overloads: &[($name, "() -> NamedFormat")],
            eval: |_| Ok(named($key).map_or(Value::Null, |format| Value::opaque(*format))),
        }
    };
}

fn named(key: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.key == key)
}

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    constructor!("format.dns1123Label", "dns1123Label"),
    constructor!("format.dns1123Subdomain", "dns1123Subdomain"),
    constructor!("format.dns1035Label", "dns1035Label"),
    constructor!("format.qualifiedName", "qualifiedName"),
    constructor!("format.dns1123LabelPrefix", "dns1123LabelPrefix"),
    constructor!("format.dns1123SubdomainPrefix", "dns1123SubdomainPrefix"),
    constructor!("format.dns1035LabelPrefix", "dns1035LabelPrefix"),
    constructor!("format.labelValue", "labelValue"),
    constructor!("format.uri", "uri"),
    constructor!("format.uuid", "uuid"),
    constructor!("format.byte", "byte"),
    constructor!("format.date", "date"),
    constructor!("format.datetime", "datetime"),
    FunctionSpec {
        name: "format.named",
        overloads: &[("format-named", "(string) -> optional(NamedFormat)")],
        eval: |args| match &args.values[0] {
            Value::String(key) => Ok(named(key).map_or(Value::Optional(None), |format| {
                Value::some(Value::opaque(*format))
            })),
            _ => no_overload("format.named", args.values),
        },
    },
    FunctionSpec {
        name: "validate",
        overloads: &[(
            "format-validate",
            "NamedFormat.(string) -> optional(list(string))",
        )],
        eval: |args| {
            let (Some(format), Value::String(text)) =
                (args.values[0].downcast::<NamedFormat>(), &args.values[1])
            else {
                return no_overload("validate", args.values);
            };
            Ok(outcome((format.problems)(text)))
        },
    },
];

fn outcome<'a>(problems: Vec<String>) -> Value<'a> {
    if problems.is_empty() {
        return Value::Optional(None);
    }
    Value::some(Value::list(problems.into_iter().map(Value::string).collect()))
}
