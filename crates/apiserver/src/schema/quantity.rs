//! Quantities such as `500m` or `1Gi`, in the real server's canonical form.

use serde_json::Value;

/// Quantities are kept in billionths: finer ones are rounded away from zero.
const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// Kubernetes' cap on quantities.
const MAX: i128 = i64::MAX as i128 * NANOS_PER_UNIT;

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// Fast check for the canonical form in whole thousandths, which nearly all quantities have.
pub(crate) fn is_canonical(value: &Value) -> bool {
    let usual = value.as_str().and_then(parse_common);
    usual.is_some_and(|(number, (form, _))| {
        let step = if form == Format::Binary { 1024 } else { 1000 };
        number % step != 0
    })
}

/// The canonical form of a quantity given as string or number.
pub(crate) fn canonical(value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let refuse = || {
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned()
    };
    if text.is_empty() {
        // An empty string in a body is zero.
        return Ok("0".to_owned());
    }
    let (nanos, form) = parse(&text).ok_or_else(refuse)?;
    Ok(format_quantity(nanos, form))
}

/// Like [`canonical`], rounded up to thousandths: the precision of resource lists.
pub(crate) fn canonical_milli(value: &Value) -> Result<String, String> {
    const THOUSANDTH: i128 = NANOS_PER_UNIT / 1000;
    let text = canonical(value)?;
    let Some((nanos, form)) = parse(&text).filter(|(nanos, _)| nanos % THOUSANDTH != 0) else {
        return Ok(text);
    };
    let rounded = (nanos / THOUSANDTH + nanos.signum()) * THOUSANDTH;
    Ok(format_quantity(rounded, form))
}

/// A quantity in billionths. `None` if it is invalid.
pub(crate) fn nanos(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => parse(text).map(|(nanos, _)| nanos),
        Value::Number(number) => parse(&number.to_string()).map(|(nanos, _)| nanos),
        _ => None,
    }
}

/// Fast parse of common quantities (up to nine digits and a suffix): the number, the format, and the billionths per
/// unit.
fn parse_common(text: &str) -> Option<(u32, (Format, i128))> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, suffix) = text.split_at(length);
    if !(1..=9).contains(&length) || digits.starts_with('0') {
        return None;
    }
    let unit = match suffix {
        "m" => (Format::Decimal, NANOS_PER_UNIT / 1000),
        "" => (Format::Decimal, NANOS_PER_UNIT),
        "k" => (Format::Decimal, NANOS_PER_UNIT * 1000),
        "M" => (Format::Decimal, NANOS_PER_UNIT * 1_000_000),
        "Ki" => (Format::Binary, NANOS_PER_UNIT << 10),
        "Mi" => (Format::Binary, NANOS_PER_UNIT << 20),
        "Gi" => (Format::Binary, NANOS_PER_UNIT << 30),
        _ => return None,
    };
    let digits = digits.bytes().map(|digit| u32::from(digit - b'0'));
    Some((digits.fold(0, |number, digit| number * 10 + digit), unit))
}

fn parse(text: &str) -> Option<(i128, Format)> {
    if let Some((number, (form, unit))) = parse_common(text) {
        return Some((i128::from(number) * unit, form));
    }
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (digits, suffix) = rest.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let (form, base, exponent) = parse_suffix(suffix)?;
    let mut amount = Amount::default();
    for digit in whole.bytes() {
        amount.push(digit);
    }
    for digit in fraction.bytes() {
        amount.push(digit);
        amount.exponent -= 1;
    }
    let nanos = amount.nanos(base, exponent)?;
    Some((if negative { -nanos } else { nanos }, form))
}

/// The format of a suffix, and its factor `base`^`exponent`.
fn parse_suffix(suffix: &str) -> Option<(Format, i128, i32)> {
    if let Some(power) = BINARY
        .iter()
        .position(|known| *known == suffix)
        .filter(|p| *p > 0)
    {
        return Some((Format::Binary, 1024, i32::try_from(power).ok()?));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((Format::Decimal, 10, *exponent));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Format::Exponent, 10, exponent))
}

/// Digits and their power of ten.
#[derive(Default)]
struct Amount {
    digits: i128,
    exponent: i32,
    /// Whether non-zero digits were cut off, which rounds up.
    truncated: bool,
}

impl Amount {
    fn push(&mut self, digit: u8) {
        let digit = i128::from(digit - b'0');
        // Thirty digits reach from the billionths far beyond the cap.
        if self.digits >= 10i128.pow(30) {
            self.truncated |= digit > 0;
            self.exponent += 1;
        } else {
            self.digits = self.digits * 10 + digit;
        }
    }

    fn nanos(&self, base: i128, exponent: i32) -> Option<i128> {
        let (mut ten, mut value) = (self.exponent + 9, self.digits);
        if base == 10 {
            ten = ten.checked_add(exponent)?;
        } else {
            value = value
                .checked_mul(base.checked_pow(u32::try_from(exponent).ok()?)?)
                .unwrap_or(MAX);
        }
        if value == 0 {
            return Some(0);
        }
        let nanos = if ten >= 0 {
            let factor = 10i128.checked_pow(ten.unsigned_abs());
            factor.and_then(|factor| value.checked_mul(factor)).unwrap_or(MAX)
        } else {
            match 10i128.checked_pow(ten.unsigned_abs()) {
                Some(factor) => value / factor + i128::from(value % factor > 0 || self.truncated),
                None => 1,
            }
        };
        Some(nanos.min(MAX))
    }
}

fn format_quantity(nanos: i128, form: Format) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    if form == Format::Binary && nanos.abs() >= 1024 * NANOS_PER_UNIT {
        let up = i128::from(nanos % NANOS_PER_UNIT != 0) * nanos.signum();
        let (mut value, mut power) = (nanos / NANOS_PER_UNIT + up, 0);
        while value % 1024 == 0 && power < BINARY.len() - 1 {
            value /= 1024;
            power += 1;
        }
        return format!("{value}{}", BINARY[power]);
    }
    let (mut value, mut step) = (nanos, 0);
    while value % 1000 == 0 && step < DECIMAL.len() - 1 {
        value /= 1000;
        step += 1;
    }
    let (suffix, exponent) = DECIMAL[step];
    match form {
        Format::Exponent if exponent == 0 => value.to_string(),
        Format::Exponent => format!("{value}e{exponent}"),
        _ => format!("{value}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_have_canonical_forms() {
        for (given, form) in [
            (json!("500m"), "500m"),
            (json!(0.5), "500m"),
            (json!("0.5"), "500m"),
            (json!("1000m"), "1"),
            (json!("1000"), "1k"),
            (json!(1), "1"),
            (json!("1024Mi"), "1Gi"),
            (json!("1000Mi"), "1000Mi"),
            (json!("1.5Gi"), "1536Mi"),
            (json!("0.5Ki"), "512"),
            (json!("1e3"), "1e3"),
            (json!("1500e3"), "1500e3"),
            (json!("0.1n"), "1n"),
            (json!("-1.5"), "-1500m"),
            (json!("100000000000000000000E"), "9223372036854775807"),
            (json!("0"), "0"),
            (json!("1."), "1"),
            (json!(".5"), "500m"),
            (json!("0500m"), "500m"),
            (json!("999999999Gi"), "999999999Gi"),
        ] {
            assert_eq!(canonical(&given).as_deref(), Ok(form), "{given}");
            assert!(!is_canonical(&given) || given == form, "{given}");
        }
        for (given, form) in [
            ("0.0001", "1m"),
            ("100u", "1m"),
            ("1.0005", "1001m"),
            ("1500m", "1500m"),
        ] {
            assert_eq!(canonical_milli(&json!(given)).as_deref(), Ok(form), "{given}");
        }
        for bad in [
            json!("x"),
            json!("1x"),
            json!("1.2.3"),
            json!("."),
            json!(true),
            json!("1 "),
            json!("--1"),
        ] {
            assert!(canonical(&bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn fast_canonical_check_is_correct(text in "[0-9]{1,10}(m|k|M|Ki|Mi|Gi|)") {
            let value = Value::from(text.as_str());
            let form = canonical(&value).expect("a quantity");
            proptest::prop_assert_eq!(is_canonical(&value) && form != text, false);
            // The sign makes it take the slow path.
            proptest::prop_assert_eq!(nanos(&value), nanos(&format!("+{text}").into()));
        }

        #[test]
        fn canonical_form_is_stable_and_equal(text in "-?[0-9]{1,6}(\\.[0-9]{1,4})?(n|u|m|k|M|G|Ki|Mi|Gi|e[0-9]|)") {
            let form = canonical(&text.as_str().into()).expect("a quantity");
            let again = canonical(&form.as_str().into()).expect("a quantity");
            proptest::prop_assert_eq!(nanos(&form.as_str().into()), nanos(&again.as_str().into()));
            // Fractions of a binary quantity are rounded up to a whole, which may need no binary suffix: without one it
            // is read as a decimal quantity, whose form may be shorter.
            if !text.ends_with('i') {
                proptest::prop_assert_eq!(&again, &form);
                proptest::prop_assert_eq!(nanos(&text.into()), nanos(&form.into()));
            }
        }
    }
}
