//! Converts resource quantities, such as `500m` or `1Gi`, to integers that can be compared and added.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Returns the quantity in thousandths, rounded up, or zero if it is invalid. Saturates.
pub(super) fn milli_value(quantity: &Quantity) -> i64 {
    parse(&quantity.0, 3)
}

/// Returns the quantity in whole units, rounded up, or zero if it is invalid. Saturates.
pub(super) fn value(quantity: &Quantity) -> i64 {
    parse(&quantity.0, 0)
}

/// Returns the quantity times ten to the power of `shift`. The server has validated it, so an invalid one may count as
/// zero.
fn parse(text: &str, shift: i32) -> i64 {
    let end = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let Some((base, exponent)) = scale(suffix) else {
        return 0;
    };
    // The server keeps nine digits after the decimal point.
    let fraction = &fraction[..fraction.len().min(9)];
    let Ok(digits) = format!("{whole}{fraction}").parse::<i128>() else {
        return 0;
    };
    let (mut up, mut down) = (1_i128, 10_i128.pow(u32::try_from(fraction.len()).unwrap_or(0)));
    for (base, exponent) in [(base, exponent), (10, shift)] {
        let factor = i128::from(base).saturating_pow(exponent.unsigned_abs());
        if exponent >= 0 {
            up = up.saturating_mul(factor);
        } else {
            down = down.saturating_mul(factor);
        }
    }
    let scaled = digits.saturating_mul(up);
    let rounded = scaled / down + i128::from(scaled % down > 0);
    i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
}

/// Returns base and exponent of a suffix.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => (
            10,
            suffix
                .strip_prefix(['e', 'E'])?
                .parse()
                .ok()
                .filter(|e| (-18..=18).contains(e))?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_in_every_form_and_round_up() {
        for (text, in_thousandths, in_units) in [
            ("0", 0, 0),
            ("1", 1000, 1),
            ("250m", 250, 1),
            ("1.5", 1500, 2),
            ("0.0001", 1, 1),
            ("1Ki", 1_024_000, 1024),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("2k", 2_000_000, 2000),
            ("12e3", 12_000_000, 12_000),
            ("9E", i64::MAX, 9_000_000_000_000_000_000),
            ("900E", i64::MAX, i64::MAX),
            ("-1", -1000, -1),
            ("much", 0, 0),
        ] {
            let quantity = Quantity(text.to_owned());
            assert_eq!(
                (milli_value(&quantity), value(&quantity)),
                (in_thousandths, in_units),
                "{text}"
            );
        }
    }
}
