//! A duration as it is written in a policy: `10m`, `1h30m`, `0s`.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use windlass::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A duration in whole seconds that is a string in the API: one or more numbers with units, as in `1h30m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(Duration);

/// The string is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration `{0}`: expected numbers with units, for example `30s`, `10m` or `1h30m`")]
pub struct InvalidDuration(String);

impl GoDuration {
    /// Creates a duration from seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Creates a duration from minutes.
    pub const fn from_mins(minutes: u64) -> Self {
        Self(Duration::from_secs(minutes * 60))
    }

    /// Returns the standard library's `Duration`.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Returns whether the duration is zero.
    pub const fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

impl From<GoDuration> for Duration {
    fn from(span: GoDuration) -> Self {
        span.0
    }
}

impl From<Duration> for GoDuration {
    /// Rounds down to whole seconds.
    fn from(time: Duration) -> Self {
        Self::from_secs(time.as_secs())
    }
}

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let read = text.parse::<SignedDuration>().ok();
        read.and_then(|signed| Duration::try_from(signed).ok())
            // Times in objects have no fractions.
            .filter(|time| time.subsec_nanos() == 0)
            .map(Self)
            .ok_or_else(|| InvalidDuration(text.to_owned()))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts = [
            (seconds / 3600, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
        ];
        if seconds == 0 {
            return f.write_str("0s");
        }
        for (number, unit) in parts.into_iter().filter(|(number, _)| *number > 0) {
            write!(f, "{number}{unit}")?;
        }
        Ok(())
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9]+(h|m|s))+$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip_and_invalid_text_is_rejected() {
        for (text, seconds) in [
            ("0s", 0),
            ("30s", 30),
            ("10m", 600),
            ("1h30m", 5400),
            ("26h1s", 93601),
        ] {
            let span: GoDuration = text.parse().expect(text);
            assert_eq!(
                (span, span.to_string().as_str()),
                (GoDuration::from_secs(seconds), text)
            );
        }
        assert_eq!(
            "90s"
                .parse::<GoDuration>()
                .map(|span| span.to_string())
                .as_deref(),
            Ok("1m30s")
        );
        for wrong in ["", "10", "-1s", "1.5s", "500ms", "soon"] {
            let rendered = wrong.parse::<GoDuration>().expect_err(wrong).to_string();
            assert!(rendered.contains("`1h30m`"), "{rendered}");
        }
    }
}
