//! Validates numbers. Go's validation library compares in the type of the number: an integer is compared with bounds
//! truncated to integers, and a bound that does not fit the schema's type is an error of its own.

use serde_json::{Number, Value};

use super::{
    SchemaView, ValueLimits,
    result::{Place, ValidationResult},
};
use crate::golang;

/// Whether the library treats a float as an integer: it is exact, or off by a rounding error.
pub(super) fn is_whole(number: f64) -> bool {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    let whole = number.trunc();
    let off = (number - whole).abs();
    number.abs() <= EXACT && (off == 0.0 || (whole != 0.0 && off / (number.abs() + whole.abs()) < 1e-9))
}

/// Validates a number.
pub(super) fn check(schema: SchemaView<'_>, given: &Number, place: Place<'_>) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    let facts = schema.node();
    let range = Range {
        types: schema.types(),
        format: facts.format.as_deref(),
        place,
    };
    range.check(
        given.as_i64(),
        given.as_f64().unwrap_or_default(),
        "Checked",
        &mut outcome,
    );
    let Some(limits) = &facts.limits else {
        return outcome;
    };
    // If the type cannot hold the bound, floats are compared.
    let as_float = || serde_json::Number::from_f64(given.as_f64().unwrap_or_default());
    let compared = |fits: bool| if fits { Some(given.clone()) } else { as_float() };
    if let Some(factor) = limits.multiple_of {
        let fits = range.check(None, factor, "MultipleOf", &mut outcome);
        if let Some(given) = compared(fits) {
            check_multiple(&given, factor, place, &mut outcome);
        }
    }
    for end in [Bound::minimum(limits), Bound::maximum(limits)]
        .into_iter()
        .flatten()
    {
        let fits = range.check(None, end.value, end.name, &mut outcome);
        if let Some(given) = compared(fits) {
            end.check(&given, place, &mut outcome);
        }
    }
    outcome
}

/// The range of a schema's numeric type.
struct Range<'a> {
    types: &'a [&'static str],
    format: Option<&'a str>,
    place: Place<'a>,
}

impl Range<'_> {
    /// Whether a number is within the range; adds an error if not.
    fn check(&self, integer: Option<i64>, number: f64, what: &str, outcome: &mut ValidationResult) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "the bounds are exact in both types")]
        let whole = || {
            integer.is_some()
                || (number.fract() == 0.0 && number >= i64::MIN as f64 && number < i64::MAX as f64)
        };
        let small = |most: f64| number >= -most - 1.0 && number <= most;
        let (fits, kind) = match (self.types, self.format) {
            (["integer"], Some("int32")) => (whole() && small(f64::from(i32::MAX)), "integer"),
            (["integer"], _) => (whole(), "integer"),
            (["number"], Some("float")) => (number.abs() <= f64::from(f32::MAX), "number"),
            _ => return true,
        };
        if !fits {
            outcome.invalid_without_field(self.place, || {
                let form = match self.format {
                    Some(format) => format!("with format {format}"),
                    None => "(default format)".to_owned(),
                };
                format!("{what} value must be of type {kind} {form} in {}", self.place)
            });
        }
        fits
    }
}

fn check_multiple(given: &Number, factor: f64, place: Place<'_>, outcome: &mut ValidationResult) {
    let must_be_positive = |shown: Value, outcome: &mut ValidationResult| {
        let text = golang::format_value(&shown);
        outcome.invalid(place, shown, || {
            format!("factor MultipleOf declared for {place} must be positive: {text}")
        });
    };
    let shown = |factor: Value| {
        format!(
            "{place} in body should be a multiple of {}",
            golang::format_value(&factor)
        )
    };
    if let Some(given) = given.as_i64() {
        #[expect(clippy::cast_possible_truncation, reason = "as Go converts it")]
        let factor = factor as i64;
        if factor <= 0 {
            must_be_positive(factor.into(), outcome);
        } else if given % factor != 0 {
            outcome.invalid(place, given, || shown(factor.into()));
        }
        return;
    }
    let given = given.as_f64().unwrap_or_default();
    if factor <= 0.0 {
        must_be_positive(factor.into(), outcome);
        return;
    }
    let times = if factor < 1.0 {
        1.0 / factor * given
    } else {
        given / factor
    };
    if !is_whole(times) {
        outcome.invalid(place, given, || shown(factor.into()));
    }
}

/// The minimum or maximum of a number.
struct Bound {
    value: f64,
    exclusive: bool,
    name: &'static str,
    is_minimum: bool,
}

impl Bound {
    fn minimum(limits: &ValueLimits) -> Option<Self> {
        limits.minimum.map(|value| Self {
            value,
            exclusive: limits.exclusive_minimum,
            name: "Minimum boundary",
            is_minimum: true,
        })
    }

    fn maximum(limits: &ValueLimits) -> Option<Self> {
        limits.maximum.map(|value| Self {
            value,
            exclusive: limits.exclusive_maximum,
            name: "Maximum boundary",
            is_minimum: false,
        })
    }

    fn check(&self, given: &Number, place: Place<'_>, outcome: &mut ValidationResult) {
        let words = match (self.is_minimum, self.exclusive) {
            (true, false) => "greater than or equal to",
            (true, true) => "greater than",
            (false, false) => "less than or equal to",
            (false, true) => "less than",
        };
        let text = |bound: Value| {
            format!(
                "{place} in body should be {words} {}",
                golang::format_value(&bound)
            )
        };
        if let Some(given) = given.as_i64() {
            #[expect(clippy::cast_possible_truncation, reason = "as Go converts it")]
            let bound = self.value as i64;
            if self.is_beyond(given, bound) {
                outcome.invalid(place, given, || text(bound.into()));
            }
        } else {
            let given = given.as_f64().unwrap_or_default();
            if self.is_beyond(given, self.value) {
                outcome.invalid(place, given, || text(self.value.into()));
            }
        }
    }

    fn is_beyond<T: PartialOrd + Copy>(&self, given: T, bound: T) -> bool {
        let beyond = if self.is_minimum {
            given < bound
        } else {
            given > bound
        };
        beyond || (self.exclusive && given == bound)
    }
}
