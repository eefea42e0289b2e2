//! Exact sums of Kubernetes quantities such as `250m` or `1Gi`.
//!
//! A quantity is parsed into a whole number of nano units, the smallest unit of Kubernetes, and a suffix style (`1Gi` or
//! `1G`). There is no floating point and no rounding.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A quantity that does not parse or is too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid quantity {0:?}: write a number with an optional suffix, as in `250m`, `1.5` or `64Mi`")]
pub struct InvalidQuantity(String);

/// Returns the exact sum in Kubernetes' canonical form: without a fraction, in the style of the first quantity that is not
/// zero, with the largest suffix that fits. Returns `0` for no quantities.
///
/// ```
/// use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
/// use windlass_runtime::quantity::sum;
///
/// let requests = ["250m", "250m"].map(|text| Quantity(text.into()));
/// assert_eq!(sum(&requests)?, Quantity("500m".into()));
/// # Ok::<_, windlass_runtime::quantity::InvalidQuantity>(())
/// ```
pub fn sum<'a>(quantities: impl IntoIterator<Item = &'a Quantity>) -> Result<Quantity, InvalidQuantity> {
    let mut total = Amount {
        nanos: 0,
        style: Style::Decimal,
    };
    for quantity in quantities {
        let invalid = || InvalidQuantity(quantity.0.clone());
        let amount = Amount::parse(&quantity.0).ok_or_else(invalid)?;
        if total.nanos == 0 {
            total.style = amount.style;
        }
        total.nanos = total.nanos.checked_add(amount.nanos).ok_or_else(invalid)?;
    }
    Ok(Quantity(total.write()))
}

struct Amount {
    nanos: i128,
    style: Style,
}

/// The suffix style.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `12M`
    Decimal,
    /// `12Mi`
    Binary,
    /// `12e6`
    Exponent,
}

/// Suffixes of powers of 1000, from nano.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Suffixes of powers of 1024, from one.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const NANOS: i128 = 1_000_000_000;

impl Amount {
    fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = text.find(|sign: char| !sign.is_ascii_digit() && sign != '.');
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let (style, factor, exponent) = parse_suffix(suffix)?;
        let digits = digits.checked_mul(factor)?;
        // Scales to nano units in one step, so that no intermediate value overflows if the result fits.
        let shift = exponent
            .checked_add(9)?
            .checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let power = 10_i128.checked_pow(shift.unsigned_abs())?;
        let nanos = match shift {
            0.. => digits.checked_mul(power)?,
            // Rounds up below nano, as the server does.
            _ => digits / power + i128::from(digits % power > 0),
        };
        let nanos = if negative { -nanos } else { nanos };
        Some(Self { nanos, style })
    }

    fn write(&self) -> String {
        let is_whole = self.nanos % NANOS == 0;
        match self.style {
            // Below one Ki, or with a fraction, there is no binary suffix.
            Style::Binary if is_whole && self.nanos.abs() >= 1024 * NANOS => {
                let (number, times) = divide_out(self.nanos / NANOS, 1024, BINARY.len());
                format!("{number}{}", BINARY[times])
            }
            Style::Decimal | Style::Binary => {
                let (number, times) = divide_out(self.nanos, 1000, DECIMAL.len());
                match number {
                    0 => "0".to_owned(),
                    _ => format!("{number}{}", DECIMAL[times]),
                }
            }
            Style::Exponent => {
                let (number, times) = divide_out(self.nanos, 1000, usize::MAX);
                match (number, times) {
                    (0, _) | (_, 3) => number.to_string(),
                    (_, 0..3) => format!("{number}e-{}", 9 - 3 * times),
                    _ => format!("{number}e{}", 3 * times - 9),
                }
            }
        }
    }
}

/// Divides by `base` while there is no remainder, fewer than `limit` times. Returns the quotient and how often.
fn divide_out(mut number: i128, base: i128, limit: usize) -> (i128, usize) {
    let mut times = 0;
    while number != 0 && number % base == 0 && times + 1 < limit {
        number /= base;
        times += 1;
    }
    (number, times)
}

/// Parses a suffix into its style, a factor, and a power of ten.
fn parse_suffix(suffix: &str) -> Option<(Style, i128, i32)> {
    let position = |suffixes: &[&str]| {
        let found = suffixes.iter().position(|known| *known == suffix)?;
        i32::try_from(found).ok()
    };
    if let Some(thousands) = position(&DECIMAL) {
        return Some((Style::Decimal, 1, 3 * thousands - 9));
    }
    if let Some(times) = position(&BINARY) {
        return Some((Style::Binary, 1 << (10 * times), 0));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Style::Exponent, 1, exponent.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn total(texts: &str) -> Result<String, InvalidQuantity> {
        let amounts: Vec<_> = texts.split(' ').map(|text| Quantity(text.to_owned())).collect();
        sum(&amounts).map(|sum| sum.0)
    }

    /// The expected sums are those of Kubernetes' `resource.Quantity`.
    #[test]
    fn sums_match_kubernetes_quantities() {
        for (texts, expected) in [
            ("250m 250m", "500m"),
            ("0 250m", "250m"),
            ("250m 750m", "1"),
            ("1.5 500m", "2"),
            ("0.1 0.2", "300m"),
            ("1u 1n", "1001n"),
            ("100n 900n", "1u"),
            ("1k 1", "1001"),
            ("1500 500", "2k"),
            ("999k 1k", "1M"),
            ("1Gi 1Gi", "2Gi"),
            ("512Mi 512Mi", "1Gi"),
            ("64Mi 1", "67108865"),
            ("1Gi 1G", "2073741824"),
            ("1G 1Gi", "2073741824"),
            ("500Mi 1500Ki", "513500Ki"),
            ("1023 1", "1024"),
            ("1Ki 1", "1025"),
            ("0.5Gi 0.5Gi", "1Gi"),
            ("1.5Gi 1", "1610612737"),
            ("100 28", "128"),
            ("128974848 129M", "257974848"),
            ("12e3 1", "12001"),
            ("1e6 1", "1000001"),
            ("1e-3 1", "1001e-3"),
            ("1E 1E", "2E"),
            ("-1 250m", "-750m"),
            ("1 -1", "0"),
            ("1Mi -1Mi", "0"),
            ("7E 7E", "14E"),
            ("1.G 1", "1000000001"),
            ("0Gi 1Ki", "1Ki"),
            ("0 0", "0"),
            ("0.0001 1", "1000100u"),
            (".5 .5", "1"),
            ("+1 1", "2"),
            ("1Ki 500m", "1024500m"),
            ("1Ei 1Ei", "2Ei"),
            ("1Pi 1Ti", "1025Ti"),
            ("1e3 2e3", "3e3"),
            ("1E3 1E3", "2e3"),
        ] {
            assert_eq!(total(texts).as_deref(), Ok(expected), "{texts}");
        }
        assert_eq!(sum([]), Ok(Quantity("0".into())));
    }

    /// Kubernetes' own library returns 1 here.
    #[test]
    fn sum_beyond_the_largest_suffix_is_right() {
        assert_eq!(total("900E 100E").as_deref(), Ok("1000E"));
    }

    #[test]
    fn error_names_the_invalid_quantity() {
        for text in [
            "", "m", "much", "1mm", "1i", "1kI", "--1", "1e", "1.1.1", "1K", ".", "1e400",
        ] {
            assert_eq!(
                total(&format!("1 {text}")),
                Err(InvalidQuantity(text.to_owned())),
                "{text}"
            );
        }
    }

    proptest! {
        /// A sum parses as a quantity with the same value.
        #[test]
        fn sum_round_trips(amounts in proptest::collection::vec((0_u32..5_000_000, 0_usize..17), 1..6)) {
            let suffixes: Vec<_> = DECIMAL.iter().chain(&BINARY).collect();
            let written = amounts.iter().map(|(number, suffix)| format!("{number}{}", suffixes[*suffix]));
            let texts = written.collect::<Vec<_>>().join(" ");
            let once = total(&texts).expect("valid quantities");
            let nanos = |text: &str| Amount::parse(text).expect("valid quantity").nanos;
            prop_assert_eq!(nanos(&once), texts.split(' ').map(nanos).sum::<i128>());
            prop_assert_eq!(nanos(&total(&once).expect("valid quantity")), nanos(&once));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,24}") {
            let _sum = sum([&Quantity(text)]);
        }
    }
}
