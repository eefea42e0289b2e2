//! Numbers and strings as Go prints them.

use std::fmt::Write;

/// A float as `%g` prints it: the shortest digits that identify it, with an exponent below 1e-4 and from 1e6.
pub(crate) fn float(value: f64) -> String {
    const EXPONENT_FROM: i32 = 6;
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let exponential = format!("{value:e}");
    let (mantissa, exponent) = exponential.split_once('e').unwrap_or((&exponential, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..EXPONENT_FROM).contains(&exponent) {
        format!("{value}")
    } else {
        format!(
            "{mantissa}e{}{:02}",
            if exponent < 0 { '-' } else { '+' },
            exponent.abs()
        )
    }
}

/// A string in double quotes, as `strconv.Quote` writes it.
pub(crate) fn quote(text: &str) -> String {
    quote_with(text, |quoted, sign| {
        if sign < ' ' || sign == '\u{7f}' {
            let _ = write!(quoted, "\\x{:02x}", u32::from(sign));
        } else {
            quoted.push(sign);
        }
    })
}

/// A string in double quotes, as CEL's `strings.quote` writes it: only control characters with a name are escaped.
pub(crate) fn quote_named(text: &str) -> String {
    quote_with(text, String::push)
}

fn quote_with(text: &str, write_other: impl Fn(&mut String, char)) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for sign in text.chars() {
        match sign {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            sign => write_other(&mut quoted, sign),
        }
    }
    quoted.push('"');
    quoted
}
