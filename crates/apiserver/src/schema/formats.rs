//! String formats in CRD schemas. The real server checks these and ignores all others.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use regex::Regex;
use windlass_api::naming;

/// The checked formats, without dashes.
const STRING_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Whether a format is checked for values of a type; an empty type means any.
pub(crate) fn is_known(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => STRING_FORMATS.contains(&&*format.replace('-', "")),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Whether a string has a format. `None` if the format does not apply to strings.
pub(super) fn check(format: &str, text: &str) -> Option<bool> {
    Some(match &*format.replace('-', "") {
        "bsonobjectid" => text.len() == 24 && is_hex(text),
        "byte" => BYTES.is_match(text),
        "cidr" => is_cidr(text),
        "creditcard" => is_credit_card(text),
        "date" => is_date(text),
        "datetime" => is_datetime(text),
        "duration" => is_duration(text),
        "email" => is_email(text),
        "hexcolor" => HEX_COLOR.is_match(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && is_ip(text),
        "ipv6" => text.contains(':') && is_strict_ip(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8slongname" => naming::is_dns_subdomain(text),
        "k8sshortname" => naming::is_dns_label(text),
        "mac" => is_mac(text),
        "password" => true,
        "rgbcolor" => RGB_COLOR.is_match(text),
        "ssn" => text.len() == 11 && SSN.is_match(text),
        "uri" => is_uri(text),
        "uuid" => UUID.is_match(text),
        "uuid3" => UUID3.is_match(text),
        "uuid4" => UUID4.is_match(text),
        "uuid5" => UUID5.is_match(text),
        _ => return None,
    })
}

macro_rules! pattern {
    ($name:ident, $text:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("a constant"));
    };
}

pattern!(
    BYTES,
    "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
);
pattern!(
    CREDIT_CARD,
    "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
);
pattern!(DURATION_PART, "(?i)([0-9]+)[\t\n\x0C\r ]*([A-Za-zµ]+)");
pattern!(HEX_COLOR, "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(
    HOST,
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
);
pattern!(
    RGB_COLOR,
    r"^rgb\([\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*,[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*,[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*\)$"
);
pattern!(SSN, "^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$");
pattern!(
    TIME,
    r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"
);
pattern!(
    UUID,
    "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
);
pattern!(
    UUID3,
    "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
);
pattern!(
    UUID4,
    "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"
);
pattern!(
    UUID5,
    "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"
);

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// An IPv4 or IPv6 address; IPv4 parts may have leading zeros.
fn is_ip(text: &str) -> bool {
    is_lenient_ipv4(text) || is_strict_ip(text)
}

fn is_lenient_ipv4(text: &str) -> bool {
    let parts: Vec<_> = text.split('.').collect();
    parts.len() == 4
        && parts.iter().all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && part.parse::<u32>().is_ok_and(|number| number <= 255)
        })
}

fn is_strict_ip(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok() || (!text.contains(':') && text.parse::<Ipv4Addr>().is_ok())
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let most = if is_lenient_ipv4(address) {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    !length.is_empty()
        && length.bytes().all(|byte| byte.is_ascii_digit())
        && length.parse::<u32>().is_ok_and(|length| length <= most)
}

/// Groups of two digits separated by `:` or `-`, or of four by `.`; six, eight or twenty bytes.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize| {
        let parts: Vec<_> = text.split(separator).collect();
        let bytes = parts.len() * digits / 2;
        matches!(bytes, 6 | 8 | 20) && parts.iter().all(|part| part.len() == digits && is_hex(part))
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    CREDIT_CARD.is_match(&digits) && {
        let sum: u32 = digits
            .bytes()
            .rev()
            .enumerate()
            .map(|(place, digit)| {
                let digit = u32::from(digit - b'0') * if place % 2 == 1 { 2 } else { 1 };
                digit / 10 + digit % 10
            })
            .sum();
        sum.is_multiple_of(10)
    }
}

/// Strips blanks and dashes.
fn isbn_digits(text: &str) -> Vec<u8> {
    text.bytes()
        .filter(|byte| !matches!(byte, b'-' | b' ' | b'\t' | b'\n' | b'\r' | 0x0c))
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    let [first @ .., last] = &digits[..] else {
        return false;
    };
    if first.len() != 9 || !first.iter().all(u8::is_ascii_digit) || !(last.is_ascii_digit() || *last == b'X')
    {
        return false;
    }
    let last = if *last == b'X' { 10 } else { u32::from(last - b'0') };
    let first = first
        .iter()
        .zip(1..)
        .map(|(digit, place)| place * u32::from(digit - b'0'));
    (first.sum::<u32>() + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = isbn_digits(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weights = [1, 3].iter().cycle();
    let sum: u32 = digits
        .iter()
        .zip(weights)
        .map(|(digit, weight)| weight * u32::from(digit - b'0'))
        .sum();
    sum.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| bytes[from..to].iter().all(u8::is_ascii_digit);
    bytes.len() == 10
        && (bytes[4], bytes[7]) == (b'-', b'-')
        && digits(0, 4)
        && digits(5, 7)
        && digits(8, 10)
        // jiff's calendar has no year 0; Go's has one, and it is a leap year.
        && text.replacen("0000", "2000", 1).parse::<jiff::civil::Date>().is_ok()
}

fn is_datetime(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date)
        && TIME
            .captures(time)
            .is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

/// Unit names in durations; the last of each is a prefix.
const UNITS: [&[&str]; 8] = [
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

/// A duration as Go parses it (`1h30m`), or any text with numbers and units (`2 weeks`).
fn is_duration(text: &str) -> bool {
    if is_go_duration(text) {
        return true;
    }
    let mut found = false;
    for part in DURATION_PART.captures_iter(text) {
        if part[1].parse::<i64>().is_err() {
            return false;
        }
        let unit = part[2].to_lowercase();
        found |= UNITS.iter().any(|names| {
            let last = names[names.len() - 1];
            names.contains(&&*unit) || unit.starts_with(last)
        });
    }
    found
}

fn is_go_duration(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut rest = rest;
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let (digits, more) = rest.split_at(number);
        if !digits.bytes().any(|byte| byte.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return false;
        }
        let unit = more
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(more.len());
        if !matches!(&more[..unit], "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h") {
            return false;
        }
        rest = &more[unit..];
    }
    true
}

/// An email address, optionally with a display name.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let bare = match text.split_once('<') {
        Some((name, rest)) => {
            let quoted = name.trim();
            let fits = quoted.is_empty()
                || (quoted.starts_with('"') && quoted.ends_with('"') && quoted.len() > 1)
                || quoted
                    .chars()
                    .all(|c| c.is_alphanumeric() || " !#$%&'*+-/=?^_`{|}~.".contains(c));
            match rest.strip_suffix('>') {
                Some(address) if fits => address,
                _ => return false,
            }
        }
        None => text,
    };
    let Some((local, domain)) = bare.rsplit_once('@') else {
        return false;
    };
    let atom = |text: &str| {
        !text.is_empty()
            && text.split('.').all(|part| {
                !part.is_empty()
                    && part.chars().all(|c| {
                        !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c)
                    })
            })
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (atom(local) || quoted) && atom(domain)
}

fn is_hostname(text: &str) -> bool {
    HOST.is_match(text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

/// A request URI: absolute, or a path from the root.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let scheme = text.find(':').map(|end| &text[..end]).filter(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    if text.starts_with(':') {
        return false;
    }
    let rest = match scheme {
        Some(scheme) => &text[scheme.len() + 1..],
        None if text.starts_with('/') => text,
        None => return false,
    };
    if !escapes_are_whole(rest.split('?').next().unwrap_or_default()) {
        return false;
    }
    let Some(authority) = rest
        .strip_prefix("//")
        .filter(|_| scheme.is_some() || !rest.starts_with("///"))
    else {
        return true;
    };
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    is_authority(host)
}

fn escapes_are_whole(text: &str) -> bool {
    text.split('%').skip(1).all(|part| {
        let bytes = part.as_bytes();
        bytes.len() >= 2 && bytes[..2].iter().all(u8::is_ascii_hexdigit)
    })
}

/// A host with an optional port.
fn is_authority(host: &str) -> bool {
    let is_port = |port: &str| {
        port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()))
    };
    if let Some(inner) = host.strip_prefix('[') {
        return inner.rfind(']').is_some_and(|end| is_port(&inner[end + 1..]));
    }
    let port = host.rfind(':').map_or("", |at| &host[at..]);
    is_port(port)
        && !host[..host.len() - port.len()].contains([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_valid_and_reject_invalid_strings() {
        for (format, good, bad) in [
            (
                "date-time",
                vec!["2020-01-02T03:04:05Z", "2020-02-29t00:00:00.5+01:00"],
                vec!["2020-01-02", "2021-02-29T00:00:00Z", "2020-01-02T24:00:00Z"],
            ),
            ("date", vec!["2020-02-29"], vec!["2021-02-29", "20-1-1"]),
            (
                "duration",
                vec!["1h30m", "-1.5s", "2 weeks", "0", "3d"],
                vec!["", "long", "1x"],
            ),
            (
                "ipv4",
                vec!["1.2.3.4", "010.0.0.1"],
                vec!["1.2.3", "::1", "1.2.3.256"],
            ),
            ("ipv6", vec!["::1", "fe80::1"], vec!["1.2.3.4", ":::"]),
            (
                "cidr",
                vec!["10.0.0.0/8", "::/0"],
                vec!["10.0.0.0", "10.0.0.0/33"],
            ),
            (
                "mac",
                vec!["00:00:5e:00:53:01", "0000.5e00.5301"],
                vec!["00:00", "00-00:5e-00-53-01"],
            ),
            (
                "uri",
                vec!["http://a.b/c?d", "/path", "mailto:x@y"],
                vec!["", "::", "path", "http://a b/"],
            ),
            ("email", vec!["a@b.c", "A <a@b.c>"], vec!["a", "@b", "a@"]),
            ("byte", vec!["aGk=", "aGkK"], vec!["?", "", "aGk"]),
            ("uuid", vec!["00000000-0000-0000-0000-000000000000"], vec!["0"]),
            ("isbn", vec!["0321751043", "978-0321751041"], vec!["0321751044"]),
            (
                "creditcard",
                vec!["4111 1111 1111 1111"],
                vec!["4111 1111 1111 1112"],
            ),
            ("hostname", vec!["a", "a.example.com"], vec!["-a", "a_b", ""]),
            ("hexcolor", vec!["#fff", "00aaFF"], vec!["#ff"]),
            ("rgbcolor", vec!["rgb(0, 10,255)"], vec!["rgb(0,0,256)"]),
            ("ssn", vec!["123-45-6789"], vec!["123456789"]),
            ("k8s-short-name", vec!["a-b"], vec!["a.b", "A"]),
            ("k8s-long-name", vec!["a.b-c"], vec!["a..b"]),
            ("bsonobjectid", vec!["507f1f77bcf86cd799439011"], vec!["507f"]),
        ] {
            for text in good {
                assert_eq!(check(format, text), Some(true), "{format} {text:?}");
            }
            for text in bad {
                assert_eq!(check(format, text), Some(false), "{format} {text:?}");
            }
        }
        assert_eq!(check("int32", "x"), None);
        assert!(is_known("string", "date-time") && is_known("", "uri") && !is_known("string", "int32"));
    }
}
