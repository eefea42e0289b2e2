//! Types whose JSON is not an object of their fields.
//!
//! Each function takes the parts of a message, which may be split on the wire; no parts mean zero.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Fault, bytes,
    wire::{Reader, Wire},
    wrong_wire_type,
};

/// The first second of the year 1: Go's zero time, which is null in JSON.
const ZERO_TIME: i64 = -62_135_596_800;

fn each_field<'a>(
    parts: &[&'a [u8]],
    mut take: impl FnMut(u32, Wire<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for part in parts {
        let mut reader = Reader::new(part);
        while let Some((number, wire)) = reader.next_field()? {
            take(number, wire)?;
        }
    }
    Ok(())
}

/// RFC 3339 with whole seconds, or with six decimals.
pub(super) fn time(parts: &[&[u8]], micros: bool) -> Result<Value, Fault> {
    if parts.iter().all(|part| part.is_empty()) {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    each_field(parts, |number, wire| {
        match number {
            1 => seconds = varint(wire, "seconds")?.cast_signed(),
            2 => nanos = int32(varint(wire, "nanos")?),
            _ => {}
        }
        Ok(())
    })?;
    if micros {
        // JSON has no more than microseconds.
        nanos -= nanos % 1000;
    } else {
        nanos = 0;
    }
    if (seconds, nanos) == (ZERO_TIME, 0) {
        return Ok(Value::Null);
    }
    let time = Timestamp::new(seconds, nanos).map_err(|_| Fault::TimeOutOfRange)?;
    if time.as_second() < ZERO_TIME {
        return Err(Fault::TimeOutOfRange);
    }
    Ok(if micros {
        format!("{time:.6}").into()
    } else {
        time.to_string().into()
    })
}

/// A quantity as the client wrote it.
pub(super) fn quantity(parts: &[&[u8]]) -> Result<Value, Fault> {
    let mut text = &b"0"[..];
    each_field(parts, |number, wire| {
        if number == 1 {
            text = bytes(wire, "string")?;
        }
        Ok(())
    })?;
    Ok(string(text))
}

pub(super) fn int_or_string(parts: &[&[u8]]) -> Result<Value, Fault> {
    let (mut is_text, mut number, mut text) = (false, 0, &[][..]);
    each_field(parts, |field, wire| {
        match field {
            1 => is_text = varint(wire, "type")? == 1,
            2 => number = int32(varint(wire, "intVal")?),
            3 => text = bytes(wire, "strVal")?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(if is_text { string(text) } else { number.into() })
}

/// A message whose only field is JSON text; no text is null.
pub(super) fn json(parts: &[&[u8]]) -> Result<Value, Fault> {
    let mut text = &[][..];
    each_field(parts, |number, wire| {
        if number == 1 {
            text = bytes(wire, "raw")?;
        }
        Ok(())
    })?;
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(text).map_err(|error| Fault::Json(error.to_string()))
}

/// Go's protobuf strings may contain any bytes; invalid UTF-8 becomes U+FFFD, like in Go's JSON.
pub(super) fn string(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// A number as JSON: `1`, not `1.0`.
pub(super) fn float(bits: u64) -> Result<Value, Fault> {
    let number = f64::from_bits(bits);
    serde_json::from_str(&number.to_string()).map_err(|_| Fault::NotFinite)
}

/// The low 32 bits, like Go: a negative number is sign-extended to 64 bits on the wire.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the high half carries only the sign"
)]
pub(super) fn int32(value: u64) -> i32 {
    value as i32
}

fn varint(wire: Wire<'_>, field: &str) -> Result<u64, Fault> {
    match wire {
        Wire::Varint(value) => Ok(value),
        other => Err(wrong_wire_type(other, field)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::number, *};

    fn seconds(value: i64) -> Vec<u8> {
        number(1, value.cast_unsigned())
    }

    #[test]
    fn times_are_rfc_3339_and_the_zero_time_is_null() {
        let with_nanos = |nanos: &[u8]| [&seconds(1_700_000_000)[..], &[0x10], nanos].concat();
        let text = "2023-11-14T22:13:20";
        for (bytes, micros, expected) in [
            (seconds(1_700_000_000), false, Ok(json!(format!("{text}Z")))),
            (with_nanos(&[0xe8, 0x07]), false, Ok(json!(format!("{text}Z")))),
            (
                with_nanos(&[0xe8, 0x07]),
                true,
                Ok(json!(format!("{text}.000001Z"))),
            ),
            (
                with_nanos(&[0xe7, 0x07]),
                true,
                Ok(json!(format!("{text}.000000Z"))),
            ),
            (seconds(0), false, Ok(json!("1970-01-01T00:00:00Z"))),
            (seconds(0), true, Ok(json!("1970-01-01T00:00:00.000000Z"))),
            (vec![], false, Ok(Value::Null)),
            (seconds(ZERO_TIME), true, Ok(Value::Null)),
            (
                [seconds(ZERO_TIME), number(2, 999)].concat(),
                true,
                Ok(Value::Null),
            ),
            (seconds(ZERO_TIME + 1), false, Ok(json!("0001-01-01T00:00:01Z"))),
            (seconds(ZERO_TIME - 1), false, Err(Fault::TimeOutOfRange)),
            (seconds(i64::MAX), false, Err(Fault::TimeOutOfRange)),
            (seconds(i64::MIN), true, Err(Fault::TimeOutOfRange)),
        ] {
            assert_eq!(time(&[&bytes], micros), expected, "{bytes:?}");
        }
    }

    #[test]
    fn quantity_is_its_text() {
        assert_eq!(quantity(&[b"\x0a\x04500m"]), Ok(json!("500m")));
        assert_eq!(quantity(&[]), Ok(json!("0")));
        assert_eq!(
            quantity(&[b"\x08\x01"]),
            Err(wrong_wire_type(Wire::Varint(1), "string"))
        );
    }

    #[test]
    fn int_or_string_follows_its_type() {
        assert_eq!(int_or_string(&[b"\x08\x00\x10\x50\x1a\x00"]), Ok(json!(80)));
        assert_eq!(int_or_string(&[b"\x08\x01\x10\x00\x1a\x0325%"]), Ok(json!("25%")));
        let minus_one = b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(int_or_string(&[minus_one]), Ok(json!(-1)));
        assert_eq!(int_or_string(&[]), Ok(json!(0)));
    }

    #[test]
    fn embedded_json_is_parsed() {
        assert_eq!(json(&[b"\x0a\x07{\"a\":1}"]), Ok(json!({"a": 1})));
        assert_eq!(json(&[b"\x0a\x00"]), Ok(Value::Null));
        assert!(matches!(json(&[b"\x0a\x01{"]), Err(Fault::Json(_))));
    }

    #[test]
    fn whole_numbers_have_no_fraction() {
        for (number, expected) in [(1.0, "1"), (0.5, "0.5"), (-3.0, "-3"), (1e300, "1e+300")] {
            let value = float(f64::to_bits(number)).expect("finite");
            assert_eq!(value.to_string(), expected);
        }
        assert_eq!(float(f64::NAN.to_bits()), Err(Fault::NotFinite));
        assert_eq!(float(f64::INFINITY.to_bits()), Err(Fault::NotFinite));
    }
}
