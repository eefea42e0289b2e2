//! Reads the validity of a certificate.
//!
//! `Certificate ::= SEQUENCE { tbs, … }`, `tbs ::= SEQUENCE { [0] version, serial, algorithm, issuer, validity, … }`
//! (RFC 5280 §4.1). The certificate may come from anywhere: nothing here panics, and nothing is believed beyond its bounds.

use super::Seconds;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When a certificate is valid, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: Seconds,
    pub(crate) not_after: Seconds,
}

impl Validity {
    /// Reads that of a certificate in DER.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let (tag, certificate, _) = element(certificate)?;
        let (tbs_tag, mut fields, _) = element(certificate)?;
        if tag != SEQUENCE || tbs_tag != SEQUENCE {
            return None;
        }
        if fields.first() == Some(&VERSION) {
            fields = element(fields)?.2;
        }
        for _serial_algorithm_issuer in 0..3 {
            fields = element(fields)?.2;
        }
        let (_, validity, _) = element(fields)?;
        let (tag, from, rest) = element(validity)?;
        let not_before = time(tag, from)?;
        let (tag, until, _) = element(rest)?;
        Some(Self {
            not_before,
            not_after: time(tag, until)?,
        })
    }

    /// Whether it includes this time.
    pub(crate) fn includes(self, now: Seconds) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// When two thirds of it have passed.
    pub(crate) fn renewal(self) -> Seconds {
        self.not_before
            .saturating_add(self.not_after.saturating_sub(self.not_before) / 3 * 2)
    }
}

/// The tag and the content of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 {
            return None;
        }
        let (bytes, after) = rest.split_at_checked(count)?;
        length = bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &[u8]) -> Option<Seconds> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2]);
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let part = |index: usize| number(&rest[2 * index..2 * index + 2]);
    let (month, day) = (part(0), part(1));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + part(2) * 3_600 + part(3) * 60 + part(4))
}

/// Days in the Gregorian calendar. The year begins in March, so that a leap day is its last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*};

    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "261119060000Z", Some(1_795_068_000)),
            (GENERALIZED_TIME, "20000229235959Z", Some(951_868_799)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "20000229235959Z", None),
            (GENERALIZED_TIME, "2000022923595Z", None),
            (GENERALIZED_TIME, "20001329235959Z", None),
        ] {
            assert_eq!(time(tag, text.as_bytes()), seconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in collection::vec(any::<u8>(), 0..200)) {
            Validity::of(&bytes);
            let mut nested = vec![SEQUENCE, 120, SEQUENCE, 118];
            nested.extend(bytes);
            Validity::of(&nested);
        }
    }
}
