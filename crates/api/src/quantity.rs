//! Exact amounts of Kubernetes quantities such as `250m` or `1Gi`.
//!
//! An [`Amount`] is a whole number of nano units, the smallest unit of Kubernetes, and a suffix format (`1Gi` or `1G`).
//! There is no floating point, and only digits below nano are rounded.
//!
//! ```
//! use windlass_api::quantity::Amount;
//!
//! let requests = ["250m", "1.25"].map(|text| text.parse::<Amount>());
//! let mut total = Amount::ZERO;
//! for request in requests {
//!     total = total.checked_add(request?).expect("small amounts");
//! }
//! assert_eq!(total.to_string(), "1500m");
//! # Ok::<_, windlass_api::quantity::InvalidQuantity>(())
//! ```

use std::{cmp::Ordering, fmt, str::FromStr};

use serde_json::Value;

/// The API server's message about a quantity that does not parse.
pub const FORMAT_MESSAGE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A quantity that does not parse or is too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid quantity {0:?}: write a number with an optional suffix, as in `250m`, `1.5` or `64Mi`")]
pub struct InvalidQuantity(String);

/// The exact amount of a quantity.
///
/// Amounts are compared by value: `1Ki` equals `1024`. `Display` writes Kubernetes' canonical form: without a fraction,
/// with the largest suffix of the amount's format that fits.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    nanos: i128,
    format: Format,
}

/// The suffix format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
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

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = NANOS_PER_UNIT / 1000;

impl Amount {
    /// No amount, in decimal format.
    pub const ZERO: Self = Self::from_nanos(0);

    /// The greatest number of whole units that Kubernetes can represent. Binary quantities are capped at it.
    pub const MAX: Self = Self::from_nanos(i64::MAX as i128 * NANOS_PER_UNIT);

    /// Returns an amount in decimal format.
    pub const fn from_nanos(nanos: i128) -> Self {
        Self {
            nanos,
            format: Format::Decimal,
        }
    }

    /// Parses the JSON form of a quantity: a string or a number. Returns `None` if it is invalid. An amount that is too
    /// large becomes [`Amount::MAX`], because a server has to accept it.
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Parsed::from_text(text).map(Parsed::capped),
            Value::Number(number) => Parsed::from_text(&number.to_string()).map(Parsed::capped),
            _ => None,
        }
    }

    /// Returns the amount in billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// Returns the amount in thousandths, rounded up; saturates.
    pub fn milli_value(self) -> i64 {
        saturate(div_ceil(self.nanos, NANOS_PER_MILLI))
    }

    /// Returns the amount in whole units, rounded up; saturates.
    pub fn value(self) -> i64 {
        saturate(div_ceil(self.nanos, NANOS_PER_UNIT))
    }

    /// Whether the amount is a whole number of units.
    pub const fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Rounds to thousandths, away from zero: the precision of resource lists.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        let rest = self.nanos % NANOS_PER_MILLI;
        let missing = if rest == 0 {
            0
        } else {
            NANOS_PER_MILLI * self.nanos.signum() - rest
        };
        Self {
            nanos: self.nanos.saturating_add(missing),
            ..self
        }
    }

    /// Returns the sum, or `None` if it is too large. It has the format of the first amount, or of the second if the
    /// first is zero, as in Kubernetes.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            nanos: self.nanos.checked_add(other.nanos)?,
            format: if self.nanos == 0 {
                other.format
            } else {
                self.format
            },
        })
    }
}

/// Whether a text is a quantity in canonical form. Fast, for the usual ones: `false` for unusual texts that are canonical.
pub fn is_usual_canonical(text: &str) -> bool {
    parse_usual(text).is_some_and(|(number, format, _)| {
        let step = if format == Format::Binary { 1024 } else { 1000 };
        number % step != 0
    })
}

impl FromStr for Amount {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        Parsed::from_text(text)
            .and_then(Parsed::exact)
            .ok_or_else(|| InvalidQuantity(text.to_owned()))
    }
}

/// Parses a usual quantity, of up to nine digits and a suffix: the number, the format, and the nanos per unit.
fn parse_usual(text: &str) -> Option<(u32, Format, i128)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, suffix) = text.split_at(length);
    if !(1..=9).contains(&length) || digits.starts_with('0') {
        return None;
    }
    let (format, unit) = match suffix {
        "m" => (Format::Decimal, NANOS_PER_MILLI),
        "" => (Format::Decimal, NANOS_PER_UNIT),
        "k" => (Format::Decimal, NANOS_PER_UNIT * 1000),
        "M" => (Format::Decimal, NANOS_PER_UNIT * 1_000_000),
        "Ki" => (Format::Binary, NANOS_PER_UNIT << 10),
        "Mi" => (Format::Binary, NANOS_PER_UNIT << 20),
        "Gi" => (Format::Binary, NANOS_PER_UNIT << 30),
        _ => return None,
    };
    let digits = digits.bytes().map(|digit| u32::from(digit - b'0'));
    Some((digits.fold(0, |number, digit| number * 10 + digit), format, unit))
}

/// A quantity with valid syntax.
struct Parsed {
    negative: bool,
    /// Without the sign; `None` if it is too large.
    nanos: Option<i128>,
    format: Format,
}

impl Parsed {
    fn from_text(text: &str) -> Option<Self> {
        if let Some((number, format, unit)) = parse_usual(text) {
            return Some(Self {
                negative: false,
                nanos: Some(i128::from(number) * unit),
                format,
            });
        }
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = text.find(|sign: char| !sign.is_ascii_digit() && sign != '.');
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // A dot alone is zero for Kubernetes.
        if fraction.contains('.') || number.is_empty() {
            return None;
        }
        let (format, factor, exponent) = parse_suffix(suffix)?;
        let mut digits = Digits::default();
        for digit in whole.bytes() {
            digits.push(digit);
        }
        for digit in fraction.bytes() {
            digits.push(digit);
            digits.exponent -= 1;
        }
        Some(Self {
            negative,
            nanos: digits.nanos(factor, exponent),
            format,
        })
    }

    fn exact(self) -> Option<Amount> {
        match self.format {
            Format::Binary => Some(self.capped()),
            Format::Decimal | Format::Exponent => Some(self.amount(self.nanos?)),
        }
    }

    fn capped(self) -> Amount {
        let max = Amount::MAX.nanos;
        self.amount(match (self.nanos, self.format) {
            (Some(nanos), Format::Binary) => nanos.min(max),
            (nanos, _) => nanos.unwrap_or(max),
        })
    }

    fn amount(&self, nanos: i128) -> Amount {
        Amount {
            nanos: if self.negative { -nanos } else { nanos },
            format: self.format,
        }
    }
}

/// Parses a suffix into its format, a factor, and a power of ten.
fn parse_suffix(suffix: &str) -> Option<(Format, i128, i32)> {
    let position = |suffixes: &[&str]| {
        let found = suffixes.iter().position(|known| *known == suffix)?;
        i32::try_from(found).ok()
    };
    if let Some(thousands) = position(&DECIMAL) {
        return Some((Format::Decimal, 1, 3 * thousands - 9));
    }
    if let Some(times) = position(&BINARY) {
        return Some((Format::Binary, 1 << (10 * times), 0));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Format::Exponent, 1, exponent.parse().ok()?))
}

/// Digits and their power of ten.
#[derive(Default)]
struct Digits {
    value: i128,
    exponent: i32,
    /// Whether non-zero digits were cut off, which rounds up.
    truncated: bool,
}

impl Digits {
    fn push(&mut self, digit: u8) {
        let digit = i128::from(digit - b'0');
        // Thirty digits reach from the nanos far beyond the cap.
        if self.value >= 10_i128.pow(30) {
            self.truncated |= digit > 0;
            self.exponent += 1;
        } else {
            self.value = self.value * 10 + digit;
        }
    }

    /// Returns the digits times `factor` and ten to the power of `exponent` in nanos, rounded up; `None` if too large.
    fn nanos(&self, factor: i128, exponent: i32) -> Option<i128> {
        if self.value == 0 {
            return Some(0);
        }
        let value = self.value.checked_mul(factor)?;
        // Scales to nanos in one step, so that no intermediate value overflows if the result fits.
        let shift = self.exponent.checked_add(exponent)?.checked_add(9)?;
        let power = 10_i128.checked_pow(shift.unsigned_abs());
        if shift >= 0 {
            return value.checked_mul(power?);
        }
        Some(power.map_or(1, |power| {
            value / power + i128::from(value % power > 0 || self.truncated)
        }))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            // Below one Ki, or with a fraction, there is no binary suffix.
            Format::Binary if self.is_whole() && self.nanos.abs() >= 1024 * NANOS_PER_UNIT => {
                let (number, times) = divide_out(self.nanos / NANOS_PER_UNIT, 1024, BINARY.len());
                write!(f, "{number}{}", BINARY[times])
            }
            Format::Decimal | Format::Binary => match divide_out(self.nanos, 1000, DECIMAL.len()) {
                (0, _) => f.write_str("0"),
                (number, times) => write!(f, "{number}{}", DECIMAL[times]),
            },
            Format::Exponent => match divide_out(self.nanos, 1000, usize::MAX) {
                (0, _) => f.write_str("0"),
                (number, 3) => write!(f, "{number}"),
                (number, times @ 0..3) => write!(f, "{number}e-{}", 9 - 3 * times),
                (number, times) => write!(f, "{number}e{}", 3 * times - 9),
            },
        }
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
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

fn div_ceil(number: i128, divisor: i128) -> i128 {
    number / divisor + i128::from(number % divisor > 0)
}

fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(feature = "kube")]
mod typed {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::{Amount, InvalidQuantity};

    impl TryFrom<&Quantity> for Amount {
        type Error = InvalidQuantity;

        fn try_from(quantity: &Quantity) -> Result<Self, InvalidQuantity> {
            quantity.0.parse()
        }
    }

    impl From<Amount> for Quantity {
        fn from(amount: Amount) -> Self {
            Self(amount.to_string())
        }
    }

    /// Returns the exact sum in Kubernetes' canonical form, in the format of the first quantity that is not zero. Returns
    /// `0` for no quantities.
    ///
    /// ```
    /// use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    /// use windlass_api::quantity::sum;
    ///
    /// let requests = ["250m", "250m"].map(|text| Quantity(text.into()));
    /// assert_eq!(sum(&requests)?, Quantity("500m".into()));
    /// # Ok::<_, windlass_api::quantity::InvalidQuantity>(())
    /// ```
    pub fn sum<'a>(quantities: impl IntoIterator<Item = &'a Quantity>) -> Result<Quantity, InvalidQuantity> {
        let mut total = Amount::ZERO;
        for quantity in quantities {
            total = total
                .checked_add(quantity.try_into()?)
                .ok_or_else(|| InvalidQuantity(quantity.0.clone()))?;
        }
        Ok(total.into())
    }
}

#[cfg(feature = "kube")]
pub use typed::sum;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().expect(text)
    }

    /// The sum of quantities that are separated by spaces.
    fn total(texts: &str) -> Result<String, InvalidQuantity> {
        let mut total = Amount::ZERO;
        for text in texts.split(' ') {
            total = total
                .checked_add(text.parse()?)
                .ok_or_else(|| InvalidQuantity(text.to_owned()))?;
        }
        Ok(total.to_string())
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
        assert_eq!(Amount::ZERO.to_string(), "0");
    }

    /// Kubernetes' own library returns 1 here.
    #[test]
    fn sum_beyond_the_largest_suffix_is_right() {
        assert_eq!(total("900E 100E").as_deref(), Ok("1000E"));
    }

    #[test]
    fn error_names_the_invalid_quantity() {
        for text in [
            "",
            "m",
            "much",
            "1mm",
            "1i",
            "1kI",
            "--1",
            "1e",
            "1.1.1",
            "1K",
            "1e400",
            "x",
            "1x",
            "1.2.3",
            "1 ",
            "100000000000000000000E",
        ] {
            assert_eq!(text.parse::<Amount>(), Err(InvalidQuantity(text.to_owned())));
        }
        assert!(total("1e29 1e29").is_err(), "too large");
    }

    #[test]
    fn quantities_have_canonical_forms() {
        for (given, canonical) in [
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
            (json!("1.0001Ki"), "1024102400u"),
            (json!("1e3"), "1e3"),
            (json!("1500e3"), "1500e3"),
            (json!("1e21"), "1e21"),
            (json!("0.1n"), "1n"),
            (json!("-1.5"), "-1500m"),
            (json!("900E"), "900E"),
            (json!("9Ei"), "9223372036854775807"),
            (json!("9223372036854775807Ki"), "9223372036854775807"),
            (json!("0"), "0"),
            (json!("1."), "1"),
            (json!(".5"), "500m"),
            (json!("0500m"), "500m"),
            (json!("999999999Gi"), "999999999Gi"),
        ] {
            let amount = Amount::from_json(&given).expect("a quantity");
            assert_eq!(amount.to_string(), canonical, "{given}");
            let is_usual = given.as_str().is_some_and(is_usual_canonical);
            assert!(!is_usual || given == canonical, "{given}");
        }
        assert_eq!(Amount::from_json(&json!(true)), None);
        // Kubernetes keeps any number of digits.
        let too_large = json!("100000000000000000000E");
        assert_eq!(Amount::from_json(&too_large), Some(Amount::MAX));
    }

    #[test]
    fn rounded_to_milli_rounds_away_from_zero() {
        for (given, rounded) in [
            ("0.0001", "1m"),
            ("100u", "1m"),
            ("1.0005", "1001m"),
            ("1500m", "1500m"),
            ("-0.0001", "-1m"),
        ] {
            assert_eq!(amount(given).rounded_to_milli().to_string(), rounded, "{given}");
        }
    }

    #[test]
    fn values_are_integers_rounded_up() {
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
        ] {
            let amount = amount(text);
            assert_eq!(
                (amount.milli_value(), amount.value()),
                (in_thousandths, in_units),
                "{text}"
            );
        }
    }

    #[test]
    fn amounts_compare_by_value() {
        assert_eq!(amount("1Ki"), amount("1024"));
        assert!(amount("1G") < amount("1Gi"));
        assert!(amount("-1") < amount("1m"));
    }

    proptest! {
        /// A sum parses as a quantity with the same value.
        #[test]
        fn sum_round_trips(amounts in proptest::collection::vec((0_u32..5_000_000, 0_usize..17), 1..6)) {
            let suffixes: Vec<_> = DECIMAL.iter().chain(&BINARY).collect();
            let written = amounts.iter().map(|(number, suffix)| format!("{number}{}", suffixes[*suffix]));
            let texts = written.collect::<Vec<_>>().join(" ");
            let once = total(&texts).expect("valid quantities");
            let nanos = |text: &str| amount(text).nanos();
            // Above the cap, a binary sum does not parse back.
            prop_assume!(nanos(&once) < Amount::MAX.nanos);
            prop_assert_eq!(nanos(&once), texts.split(' ').map(nanos).sum::<i128>());
            prop_assert_eq!(nanos(&total(&once).expect("valid quantity")), nanos(&once));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,24}") {
            let _amount = text.parse::<Amount>();
        }

        #[test]
        fn fast_canonical_check_is_correct(text in "[0-9]{1,10}(m|k|M|Ki|Mi|Gi|)") {
            prop_assert_eq!(is_usual_canonical(&text) && amount(&text).to_string() != text, false);
            // The sign makes it take the slow path.
            prop_assert_eq!(amount(&text).nanos(), amount(&format!("+{text}")).nanos());
        }

        #[test]
        fn canonical_form_is_stable_and_equal(text in "-?[0-9]{1,6}(\\.[0-9]{1,4})?(n|u|m|k|M|G|Ki|Mi|Gi|e[0-9]|)") {
            let canonical = amount(&text).to_string();
            prop_assert_eq!(amount(&text), amount(&canonical));
            prop_assert_eq!(amount(&canonical).to_string(), canonical);
        }
    }
}
