//! Conversions between the basic types.

use super::Result;
use crate::{
    EvalError, Value,
    function::{Args, FunctionSpec},
    go_format,
    library::{Cidr, Ip},
    time::{Duration, Timestamp},
};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "bool",
        overloads: &[
            ("bool_to_bool", "(bool) -> bool"),
            ("string_to_bool", "(string) -> bool"),
        ],
        eval: to_bool,
    },
    FunctionSpec {
        name: "bytes",
        overloads: &[
            ("bytes_to_bytes", "(bytes) -> bytes"),
            ("string_to_bytes", "(string) -> bytes"),
        ],
        eval: to_bytes,
    },
    FunctionSpec {
        name: "double",
        overloads: &[
            ("double_to_double", "(double) -> double"),
            ("int64_to_double", "(int) -> double"),
            ("string_to_double", "(string) -> double"),
            ("uint64_to_double", "(uint) -> double"),
        ],
        eval: to_double,
    },
    FunctionSpec {
        name: "duration",
        overloads: &[
            ("duration_to_duration", "(duration) -> duration"),
            ("int64_to_duration", "(int) -> duration"),
            ("string_to_duration", "(string) -> duration"),
        ],
        eval: to_duration,
    },
    FunctionSpec {
        name: "int",
        overloads: &[
            ("int64_to_int64", "(int) -> int"),
            ("double_to_int64", "(double) -> int"),
            ("duration_to_int64", "(duration) -> int"),
            ("string_to_int64", "(string) -> int"),
            ("timestamp_to_int64", "(timestamp) -> int"),
            ("uint64_to_int64", "(uint) -> int"),
        ],
        eval: to_int,
    },
    FunctionSpec {
        name: "string",
        overloads: &[
            ("string_to_string", "(string) -> string"),
            ("bool_to_string", "(bool) -> string"),
            ("bytes_to_string", "(bytes) -> string"),
            ("double_to_string", "(double) -> string"),
            ("duration_to_string", "(duration) -> string"),
            ("int64_to_string", "(int) -> string"),
            ("timestamp_to_string", "(timestamp) -> string"),
            ("uint64_to_string", "(uint) -> string"),
            ("ip_to_string", "(IP) -> string"),
            ("cidr_to_string", "(CIDR) -> string"),
        ],
        eval: to_string,
    },
    FunctionSpec {
        name: "timestamp",
        overloads: &[
            ("timestamp_to_timestamp", "(timestamp) -> timestamp"),
            ("int64_to_timestamp", "(int) -> timestamp"),
            ("string_to_timestamp", "(string) -> timestamp"),
        ],
        eval: to_timestamp,
    },
    FunctionSpec {
        name: "uint",
        overloads: &[
            ("uint64_to_uint64", "(uint) -> uint"),
            ("double_to_uint64", "(double) -> uint"),
            ("int64_to_uint64", "(int) -> uint"),
            ("string_to_uint64", "(string) -> uint"),
        ],
        eval: to_uint,
    },
];

fn failed(from: &str, to: &str) -> EvalError {
    EvalError::new(format!("type conversion error from '{from}' to '{to}'"))
}

fn unsigned_overflow() -> EvalError {
    EvalError::new("unsigned integer overflow")
}

fn to_bool<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    match args.take(0) {
        value @ Value::Bool(_) => Ok(value),
        Value::String(text) => match &*text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(failed("string", "bool")),
        },
        other => super::no_overload("bool", &[other]),
    }
}

fn to_bytes<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    match args.take(0) {
        value @ Value::Bytes(_) => Ok(value),
        Value::String(text) => {
            args.work.build(text.len())?;
            Ok(Value::Bytes(text.as_bytes().into()))
        }
        other => super::no_overload("bytes", &[other]),
    }
}

#[allow(clippy::cast_precision_loss)]
fn to_double<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    match args.take(0) {
        value @ Value::Double(_) => Ok(value),
        Value::Int(value) => Ok(Value::Double(value as f64)),
        Value::Uint(value) => Ok(Value::Double(value as f64)),
        Value::String(text) => parse_float(&text)
            .map(Value::Double)
            .ok_or_else(|| failed("string", "double")),
        other => super::no_overload("double", &[other]),
    }
}

/// Parses a float as Go does.
fn parse_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = unsigned.starts_with(|sign: char| sign.is_ascii_digit() || sign == '.');
    let is_word = ["inf", "infinity", "nan"]
        .iter()
        .any(|word| unsigned.eq_ignore_ascii_case(word));
    if !is_number && !is_word {
        return None;
    }
    // Go allows underscores between digits.
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let well_placed = (0..bytes.len()).all(|at| {
        bytes[at] != b'_' || (at > 0 && is_digit(bytes.get(at - 1)) && is_digit(bytes.get(at + 1)))
    });
    if !well_placed {
        return None;
    }
    let text = text.replace('_', "");
    let value = match unsigned.get(..2) {
        Some("0x" | "0X") => parse_hexadecimal_float(&text)?,
        _ => text.parse().ok()?,
    };
    // A number that is out of range is an error in Go.
    (is_word || value.is_finite()).then_some(value)
}

/// Parses a float such as `0x1.8p-2`: hexadecimal digits, and a power of two, which must be there.
#[allow(clippy::cast_precision_loss)]
fn parse_hexadecimal_float(text: &str) -> Option<f64> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, exponent) = unsigned.get(2..)?.split_once(['p', 'P'])?;
    let is_decimal = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)) {
        return None;
    }
    // An exponent that is too large for its type is that of zero or of infinity.
    let limit = if exponent.starts_with('-') {
        -100_000
    } else {
        100_000
    };
    let mut exponent: i64 = exponent.parse().unwrap_or(limit).clamp(-100_000, 100_000);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut mantissa: u64 = 0;
    for (index, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_fraction = index >= whole.len();
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            // More digits only decide how the number is rounded.
            mantissa |= u64::from(digit != 0);
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    if mantissa == 0 {
        return Some(sign * 0.0);
    }
    let mut value = sign * mantissa as f64;
    // In steps, since a power of two alone may be out of range.
    while exponent != 0 && value != 0.0 && value.is_finite() {
        let step = exponent.clamp(-1000, 1000);
        value *= 2_f64.powi(i32::try_from(step).ok()?);
        exponent -= step;
    }
    Some(value)
}

fn to_duration<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    match args.take(0) {
        value @ Value::Duration(_) => Ok(value),
        // Declared, but not implemented in cel-go.
        Value::Int(_) => Err(failed("int", "google.protobuf.Duration")),
        Value::String(text) => Duration::parse(&text)
            .map(Value::Duration)
            .ok_or_else(|| failed("string", "google.protobuf.Duration")),
        other => super::no_overload("duration", &[other]),
    }
}

#[allow(clippy::cast_possible_truncation)]
fn to_int<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match args.take(0) {
        value @ Value::Int(_) => Ok(value),
        Value::Uint(value) => i64::try_from(value)
            .map(Value::Int)
            .map_err(|_| EvalError::overflow()),
        Value::Double(value) if value > -LIMIT && value < LIMIT => Ok(Value::Int(value as i64)),
        Value::Double(_) => Err(EvalError::overflow()),
        Value::Duration(duration) => Ok(Value::Int(duration.nanos())),
        Value::Timestamp(timestamp) => Ok(Value::Int(timestamp.unix())),
        Value::String(text) => text.parse().map(Value::Int).map_err(|_| failed("string", "int")),
        other => super::no_overload("int", &[other]),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn to_uint<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    const LIMIT: f64 = 18_446_744_073_709_551_616.0;
    match args.take(0) {
        value @ Value::Uint(_) => Ok(value),
        Value::Int(value) => u64::try_from(value)
            .map(Value::Uint)
            .map_err(|_| unsigned_overflow()),
        Value::Double(value) if (0.0..LIMIT).contains(&value) => Ok(Value::Uint(value as u64)),
        Value::Double(_) => Err(unsigned_overflow()),
        Value::String(text) if text.starts_with('+') => Err(failed("string", "uint")),
        Value::String(text) => text
            .parse()
            .map(Value::Uint)
            .map_err(|_| failed("string", "uint")),
        other => super::no_overload("uint", &[other]),
    }
}

fn to_string<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    if let Value::Bytes(bytes) = &args.values[0] {
        args.work.build(bytes.len())?;
    }
    let text = match args.take(0) {
        value @ Value::String(_) => return Ok(value),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => go_format::float(value),
        Value::Duration(duration) => duration.to_seconds_text(),
        Value::Timestamp(timestamp) => timestamp.to_text(),
        Value::Bytes(bytes) => std::str::from_utf8(&bytes)
            .map_err(|_| EvalError::new("invalid UTF-8 in bytes, cannot convert to string"))?
            .to_owned(),
        other => match (other.downcast::<Ip>(), other.downcast::<Cidr>()) {
            (Some(ip), _) => ip.to_string(),
            (_, Some(cidr)) => cidr.to_string(),
            _ => return super::no_overload("string", &[other]),
        },
    };
    Ok(Value::string(text))
}

fn to_timestamp<'a>(mut args: Args<'_, 'a>) -> Result<'a> {
    match args.take(0) {
        value @ Value::Timestamp(_) => Ok(value),
        Value::Int(seconds) => Timestamp::from_unix(seconds).map(Value::Timestamp),
        Value::String(text) => Timestamp::parse(&text)?
            .map(Value::Timestamp)
            .ok_or_else(|| failed("string", "google.protobuf.Timestamp")),
        other => super::no_overload("timestamp", &[other]),
    }
}
