//! `'%s is %d'.format([name, count])`, with the formatter of the strings extension before version 4.

use std::fmt::Write;

use super::{Result, no_overload};
use crate::{
    EvalError, Type, Value,
    ast::{Expr, Kind, Literal},
    budget::Work,
    check::Checked,
    function::{Args, FunctionSpec},
    go_format,
};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[FunctionSpec {
    name: "format",
    overloads: &[("string_format", "string.(list(dyn)) -> string")],
    eval: format,
}];

/// A part of a format.
enum Part<'t> {
    Text(&'t str),
    /// A clause begins; the argument is looked up before the clause is read.
    Start,
    Clause(Clause),
}

#[derive(Clone, Copy)]
struct Clause {
    verb: Verb,
    precision: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    String,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    LowerHex,
    UpperHex,
    Octal,
}

/// Digits after the point, unless the format says how many.
const PRECISION: usize = 6;

/// The greatest precision; more digits than a float has, and a bound of the result's size.
const MAX_PRECISION: usize = 10_000;

/// Splits a format. Calls `each` with its parts in order, until one fails.
fn parse(
    format: &str,
    mut each: impl FnMut(Part<'_>) -> std::result::Result<(), EvalError>,
) -> std::result::Result<(), EvalError> {
    let parsing = |message: String| EvalError::new(format!("could not parse formatting clause: {message}"));
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        each(Part::Text(&rest[..percent]))?;
        rest = &rest[percent + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            each(Part::Text("%"))?;
            rest = after;
            continue;
        }
        each(Part::Start)?;
        if rest.is_empty() {
            return Err(EvalError::new("unexpected end of string"));
        }
        let mut precision = PRECISION;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|sign: char| !sign.is_ascii_digit());
            let Some(end) = end else {
                return Err(parsing(
                    "error while parsing precision: could not find end of precision specifier".to_owned(),
                ));
            };
            precision = after[..end].parse().map_err(|_| {
                parsing(format!(
                    "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {}: invalid syntax",
                    go_format::quote(&after[..end])
                ))
            })?;
            rest = &after[end..];
        }
        let verb = rest.chars().next().unwrap_or_default();
        rest = &rest[verb.len_utf8()..];
        let verb = match verb {
            's' => Verb::String,
            'd' => Verb::Decimal,
            'f' => Verb::Fixed,
            'e' => Verb::Scientific,
            'b' => Verb::Binary,
            'x' => Verb::LowerHex,
            'X' => Verb::UpperHex,
            'o' => Verb::Octal,
            other => return Err(parsing(format!("unrecognized formatting clause \"{other}\""))),
        };
        each(Part::Clause(Clause { verb, precision }))?;
    }
    each(Part::Text(rest))
}

fn format<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (Value::String(format), Value::List(list)) = (&args.values[0], &args.values[1]) else {
        return no_overload("format", args.values);
    };
    let mut writer = Writer {
        text: String::new(),
        work: args.work,
    };
    let mut next = 0;
    parse(format, |part| {
        match part {
            Part::Text(part) => writer.push(part)?,
            Part::Start if next < list.len() => {}
            Part::Start => return Err(EvalError::new(format!("index {next} out of range"))),
            Part::Clause(clause) => {
                let value = list.get(next).unwrap_or(Ok(Value::Null))?;
                next += 1;
                clause
                    .format(&value, &mut writer)
                    .map_err(|failure| match failure {
                        Failure::Refused(why) => EvalError::new(format!("error during formatting: {why}")),
                        Failure::Ended(error) => error,
                    })?;
            }
        }
        Ok(())
    })?;
    Ok(Value::string(writer.text))
}

/// The text of a format, whose bytes are counted before they are written.
struct Writer<'w> {
    text: String,
    work: &'w mut Work,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) -> std::result::Result<(), EvalError> {
        self.work.build(text.len())?;
        self.text.push_str(text);
        Ok(())
    }
}

/// Why a value is not formatted.
enum Failure {
    /// The clause does not take it.
    Refused(String),
    /// The evaluation ends.
    Ended(EvalError),
}

impl From<EvalError> for Failure {
    fn from(error: EvalError) -> Self {
        Self::Ended(error)
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

impl Clause {
    fn format(self, value: &Value<'_>, writer: &mut Writer<'_>) -> std::result::Result<(), Failure> {
        if self.verb == Verb::String {
            if !string(value, writer)? {
                return Err(self.refuse(&value.type_name()).into());
            }
            return Ok(());
        }
        match value {
            // Hexadecimal text is twice as long.
            Value::String(text) => writer.work.build(text.len().saturating_mul(2))?,
            Value::Bytes(bytes) => writer.work.build(bytes.len().saturating_mul(2))?,
            _ => {}
        }
        let text = self.short(value)?;
        writer.push(&text)?;
        Ok(())
    }

    /// Formats a number or the like.
    fn short(self, value: &Value<'_>) -> std::result::Result<String, String> {
        let precision = self.precision.min(MAX_PRECISION);
        Ok(match (self.verb, value) {
            (Verb::Decimal, Value::Int(value)) => value.to_string(),
            (Verb::Decimal, Value::Uint(value)) => value.to_string(),
            (Verb::Fixed, Value::Double(value)) => fixed(*value, precision),
            (Verb::Scientific, Value::Double(value)) => scientific(*value, precision),
            (Verb::Fixed | Verb::Scientific, Value::String(text)) => match &**text {
                "NaN" => "NaN".to_owned(),
                "Infinity" => "\u{221e}".to_owned(),
                "-Infinity" => "-\u{221e}".to_owned(),
                _ => return Err(self.refuse("string")),
            },
            (Verb::Binary, Value::Int(value)) => signed(*value, |value| format!("{value:b}")),
            (Verb::Binary, Value::Uint(value)) => format!("{value:b}"),
            (Verb::Binary, Value::Bool(value)) => u8::from(*value).to_string(),
            (Verb::Octal, Value::Int(value)) => signed(*value, |value| format!("{value:o}")),
            (Verb::Octal, Value::Uint(value)) => format!("{value:o}"),
            (Verb::LowerHex | Verb::UpperHex, _) => {
                let text = match value {
                    Value::Int(value) => signed(*value, |value| format!("{value:x}")),
                    Value::Uint(value) => format!("{value:x}"),
                    Value::String(text) => hex(text.as_bytes()),
                    Value::Bytes(bytes) => hex(bytes),
                    other => return Err(self.refuse(&other.type_name())),
                };
                if self.verb == Verb::UpperHex {
                    text.to_ascii_uppercase()
                } else {
                    text
                }
            }
            _ => return Err(self.refuse(&value.type_name())),
        })
    }

    /// The message about a value of a type that the clause does not take.
    fn refuse(self, type_name: &str) -> String {
        let what = match self.verb {
            Verb::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Verb::Decimal => "decimal clause can only be used on integers",
            Verb::Fixed => "fixed-point clause can only be used on doubles",
            Verb::Scientific => "scientific clause can only be used on doubles",
            Verb::Binary => "only integers and bools can be formatted as binary",
            Verb::LowerHex | Verb::UpperHex => {
                "only integers, byte buffers, and strings can be formatted as hex"
            }
            Verb::Octal => "octal clause can only be used on integers",
        };
        format!("{what}, was given {type_name}")
    }

    /// Whether the clause takes values of a type, for the check of literals.
    fn takes(self, type_: &Type) -> bool {
        if type_.is_dyn() {
            return true;
        }
        match self.verb {
            Verb::String => !matches!(type_, Type::Object(_) | Type::Opaque(..)),
            Verb::Decimal | Verb::Octal => matches!(type_, Type::Int | Type::Uint),
            Verb::Fixed | Verb::Scientific => matches!(type_, Type::Double | Type::String),
            Verb::Binary => matches!(type_, Type::Int | Type::Uint | Type::Bool),
            Verb::LowerHex | Verb::UpperHex => {
                matches!(type_, Type::Int | Type::Uint | Type::String | Type::Bytes)
            }
        }
    }
}

fn signed(value: i64, format: impl Fn(u64) -> String) -> String {
    let text = format(value.unsigned_abs());
    if value < 0 { format!("-{text}") } else { text }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn fixed(value: f64, precision: usize) -> String {
    match special(value) {
        Some(text) => text,
        None => grouped(&format!("{value:.precision$}")),
    }
}

fn special(value: f64) -> Option<String> {
    if value.is_nan() {
        Some("NaN".to_owned())
    } else if value.is_infinite() {
        Some(if value > 0.0 { "\u{221e}" } else { "-\u{221e}" }.to_owned())
    } else {
        None
    }
}

/// With commas between thousands, as the locale of the server has it.
fn grouped(number: &str) -> String {
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    let mut text = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Always with six digits: the precision is the least width instead, as in cel-go.
fn scientific(value: f64, width: usize) -> String {
    if let Some(text) = special(value) {
        return format!("{text:>width$}");
    }
    let text = format!("{value:.PRECISION$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let superscript: String = format!("{:02}", exponent.abs())
        .chars()
        .map(|digit| match digit {
            '1' => '\u{b9}',
            '2' => '\u{b2}',
            '3' => '\u{b3}',
            other => char::from_u32(u32::from(other) - u32::from('0') + 0x2070).unwrap_or(other),
        })
        .collect();
    let sign = if exponent < 0 { "\u{207b}" } else { "" };
    let text = format!("{mantissa}\u{d7}10{sign}{superscript}");
    format!("{text:>width$}")
}

/// Writes the value of `%s`; false if there is none.
fn string(value: &Value<'_>, writer: &mut Writer<'_>) -> std::result::Result<bool, EvalError> {
    writer.work.spend(1)?;
    match value {
        Value::Null => writer.push("null")?,
        Value::Type(type_) => writer.push(type_.name())?,
        Value::List(list) => {
            writer.push("[")?;
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    writer.push(", ")?;
                }
                match element {
                    Ok(element) if nested(&element, writer)? => {}
                    _ => return Ok(false),
                }
            }
            writer.push("]")?;
        }
        Value::Map(map) => {
            let keys = map.keys();
            writer.work.build_list(keys.len().saturating_mul(2))?;
            let mut entries = Vec::with_capacity(keys.len());
            for key in &keys {
                let Some(Ok(value)) = map.look_up(key, writer.work) else {
                    return Ok(false);
                };
                let (Some(key), Some(value)) = (apart(key, writer)?, apart(&value, writer)?) else {
                    return Ok(false);
                };
                entries.push((key, value));
            }
            entries.sort();
            writer.push("{")?;
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    writer.push(", ")?;
                }
                for part in [key, ":", value] {
                    writer.push(part)?;
                }
            }
            writer.push("}")?;
        }
        Value::Optional(_) | Value::Opaque(_) => return Ok(false),
        Value::String(text) => writer.push(text)?,
        other => {
            if let Value::Bytes(bytes) = other {
                writer.work.build(bytes.len())?;
            }
            writer.push(&crate::display::plain(other))?;
        }
    }
    Ok(true)
}

/// A part of a map as a text of its own, so that the entries can be sorted.
fn apart(value: &Value<'_>, writer: &mut Writer<'_>) -> std::result::Result<Option<String>, EvalError> {
    let mut part = Writer {
        text: String::new(),
        work: writer.work,
    };
    Ok(nested(value, &mut part)?.then_some(part.text))
}

/// Writes a value inside of a list or a map, which looks like a literal; false if there is none.
fn nested(value: &Value<'_>, writer: &mut Writer<'_>) -> std::result::Result<bool, EvalError> {
    let text = match value {
        Value::String(text) => {
            writer.work.build(text.len())?;
            go_format::quote(text)
        }
        Value::Bytes(bytes) => {
            writer.work.build(bytes.len())?;
            format!("b{}", go_format::quote(&String::from_utf8_lossy(bytes)))
        }
        Value::Double(value) if !value.is_finite() => go_format::quote(match value {
            value if value.is_nan() => "NaN",
            value if *value > 0.0 => "+Inf",
            _ => "-Inf",
        }),
        Value::Double(value) => format!("{value:.PRECISION$}"),
        Value::Timestamp(timestamp) => format!("timestamp({})", go_format::quote(&timestamp.to_text())),
        Value::Duration(duration) => format!("duration({})", go_format::quote(&duration.to_seconds_text())),
        other => return string(other, writer),
    };
    writer.push(&text)?;
    Ok(true)
}

/// Checks a literal format with a literal list. Returns the node and the message of the first mistake.
pub(crate) fn check<'e>(checked: &Checked, call: &'e Expr) -> Option<(&'e Expr, String)> {
    let format_call = call.as_call()?;
    let (Some(Literal::String(format)), [list]) =
        (format_call.target.as_ref()?.as_literal(), &format_call.args[..])
    else {
        return None;
    };
    let Kind::List(list) = &list.kind else { return None };
    let mut used = 0;
    let mut wrong = None;
    let result = parse(format, |part| {
        let Part::Clause(clause) = part else { return Ok(()) };
        let arg = list
            .elements
            .get(used)
            .ok_or_else(|| EvalError::new(format!("index {used} out of range")))?;
        used += 1;
        if let Some(bad) = refused(checked, clause, arg) {
            wrong = Some(bad);
            let name = checked.type_of(bad.id).name().to_owned();
            return Err(EvalError::new(format!(
                "error during formatting: {}",
                clause.refuse(&name)
            )));
        }
        Ok(())
    });
    match result {
        Err(error) => Some((wrong.unwrap_or(call), error.to_string())),
        Ok(()) if list.elements.len() > used => Some((
            call,
            format!(
                "too many arguments supplied to string.format (expected {used}, got {})",
                list.elements.len()
            ),
        )),
        Ok(()) => None,
    }
}

/// The part of an argument that a clause does not take.
fn refused<'e>(checked: &Checked, clause: Clause, arg: &'e Expr) -> Option<&'e Expr> {
    if !clause.takes(checked.type_of(arg.id)) {
        return Some(arg);
    }
    if clause.verb != Verb::String {
        return None;
    }
    match &arg.kind {
        Kind::List(list) => list
            .elements
            .iter()
            .find_map(|element| refused(checked, clause, element)),
        Kind::Map(entries) => entries.iter().find_map(|entry| {
            refused(checked, clause, &entry.key).or_else(|| refused(checked, clause, &entry.value))
        }),
        _ => None,
    }
}
