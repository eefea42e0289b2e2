//! What a certificate says, as far as rustls does not tell it: its validity, its common name, and its usage.
//!
//! A certificate comes from a webhook, so anything may be in it: reading neither recurses nor copies what is long.

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const EXPLICIT_VERSION: u8 = 0xa0;
const EXPLICIT_EXTENSIONS: u8 = 0xa3;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Object identifiers.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
const SERVER_AUTHENTICATION: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

/// The fields of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Certificate<'a> {
    /// From when until when it is valid, in seconds since 1970.
    pub(super) validity: [i64; 2],
    subject: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> Certificate<'a> {
    /// Reads the fields; `None` if they are damaged.
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let (content, _) = element(der, SEQUENCE)?;
        let (mut fields, _) = element(content, SEQUENCE)?;
        if let Some((_, rest)) = element(fields, EXPLICIT_VERSION) {
            fields = rest;
        }
        // The serial number, the signature's algorithm and the issuer.
        for _ in 0..3 {
            (_, _, fields) = any_element(fields)?;
        }
        let (times, fields) = element(fields, SEQUENCE)?;
        let (from, text, rest) = any_element(times)?;
        let (until, last, _) = any_element(rest)?;
        let (subject, fields) = element(fields, SEQUENCE)?;
        let mut others = Elements(fields);
        let extensions = others.find(|(tag, _)| *tag == EXPLICIT_EXTENSIONS);
        let extensions = extensions.and_then(|(_, list)| element(list, SEQUENCE));
        Some(Self {
            validity: [seconds(from, text)?, seconds(until, last)?],
            subject,
            extensions: extensions.map_or(&[], |(list, _)| list),
        })
    }

    /// Whether Go would have accepted this certificate for a host before it ignored common names.
    pub(super) fn relies_on_common_name(&self, host: &str) -> bool {
        if self.extension(SUBJECT_ALTERNATIVE_NAME).is_some() {
            return false;
        }
        let sets = Elements(self.subject).filter(|(tag, _)| *tag == SET);
        let attributes = sets
            .flat_map(|(_, set)| Elements(set))
            .map(|(_, attribute)| attribute);
        let names = attributes.filter_map(|attribute| {
            let (id, rest) = element(attribute, OBJECT_ID)?;
            let (_, text, _) = any_element(rest)?;
            (id == COMMON_NAME).then_some(text)
        });
        names
            .last()
            .and_then(|name| std::str::from_utf8(name).ok())
            .is_some_and(|name| matches_host(name, host))
    }

    /// Whether it may prove the identity of a server: it says so, or nothing about its usage.
    pub(super) fn is_for_servers(&self) -> bool {
        let Some(usages) = self.extension(EXTENDED_KEY_USAGE) else {
            return true;
        };
        let Some((usages, _)) = element(usages, SEQUENCE) else {
            return false;
        };
        Elements(usages).any(|(_, usage)| matches!(usage, ANY_USAGE | SERVER_AUTHENTICATION))
    }

    /// The value of an extension.
    fn extension(&self, id: &[u8]) -> Option<&'a [u8]> {
        Elements(self.extensions).find_map(|(_, extension)| {
            let (found, rest) = element(extension, OBJECT_ID)?;
            // Between them may stand whether it is critical.
            let (_, value) = Elements(rest).find(|(tag, _)| *tag == OCTETS)?;
            (found == id).then_some(value)
        })
    }
}

/// Compares a common name, which may begin with `*.`, with a host.
fn matches_host(name: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    if name.is_empty() || host.is_empty() || name.split('.').count() != host.split('.').count() {
        return false;
    }
    let mut labels = name.split('.').zip(host.split('.')).enumerate();
    labels.all(|(index, (name, host))| (index == 0 && name == "*") || name.eq_ignore_ascii_case(host))
}

/// The elements of a list: tag and content; it ends where it is damaged.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, content, rest) = any_element(self.0)?;
        self.0 = rest;
        Some((tag, content))
    }
}

/// The content of the first element, and what follows it. `None` if it has another tag.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = any_element(der)?;
    (found == tag).then_some((content, rest))
}

fn any_element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if bytes.len() > 4 {
            return None;
        }
        let length = bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` in seconds since 1970.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let century = match tag {
        UTC_TIME if digits.len() == 12 => {
            if digits < "50" {
                "20"
            } else {
                "19"
            }
        }
        GENERALIZED_TIME => "",
        _ => return None,
    };
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", format!("{century}{digits}")).ok()?;
    Some(
        time.to_zoned(jiff::tz::TimeZone::UTC)
            .ok()?
            .timestamp()
            .as_second(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};

    use super::*;

    /// A certificate with changed parameters, valid from 2020 until 2030.
    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    fn reads_of(der: &[u8]) -> Option<([i64; 2], bool, bool)> {
        let certificate = Certificate::parse(der)?;
        Some((
            certificate.validity,
            certificate.relies_on_common_name("localhost"),
            certificate.is_for_servers(),
        ))
    }

    #[test]
    fn damaged_certificate_has_no_fields() {
        let whole = certificate(|_| {});
        assert_eq!(
            reads_of(&whole),
            Some(([1_577_836_800, 1_893_456_000], false, true))
        );
        for length in 0..whole.len() {
            assert_eq!(Certificate::parse(&whole[..length]), None);
        }
        assert_eq!(
            any_element(&[SEQUENCE, 0x88, 255, 255, 255, 255, 255, 255, 255, 255]),
            None
        );
    }

    #[test]
    fn common_name_counts_only_without_other_names() {
        for (name, host, expected) in [
            ("localhost", "localhost", true),
            ("localhost", "LocalHost.", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("*.b.c", "a.b.c", true),
            ("*", "a.b", false),
            ("other", "localhost", false),
            ("", "localhost", false),
        ] {
            let of = |names: &[&str]| {
                certificate(|params| {
                    params.distinguished_name.push(DnType::CommonName, name);
                    let names = names
                        .iter()
                        .map(|name| rcgen::SanType::DnsName((*name).try_into().expect("a name")));
                    params.subject_alt_names = names.collect();
                })
            };
            let relies = |der: &[u8]| {
                Certificate::parse(der)
                    .expect("valid")
                    .relies_on_common_name(host)
            };
            assert_eq!(relies(&of(&[])), expected, "{name} {host}");
            assert!(!relies(&of(&["other.io"])), "{name} {host}");
        }
    }

    #[test]
    fn usage_is_that_of_a_server_or_not_said() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        for (usages, expected) in [
            (vec![], true),
            (vec![ServerAuth], true),
            (vec![ClientAuth, ServerAuth], true),
            (vec![Any], true),
            (vec![ClientAuth], false),
        ] {
            let der = certificate(|params| params.extended_key_usages.clone_from(&usages));
            let certificate = Certificate::parse(&der).expect("valid");
            assert_eq!(certificate.is_for_servers(), expected, "{usages:?}");
        }
    }

    proptest! {
        /// What a webhook serves may be anything.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            reads_of(&bytes);
        }

        #[test]
        fn damaged_bytes_are_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut der = DAMAGED.with(Clone::clone);
            for (index, byte) in changes {
                let position = index.index(der.len());
                der[position] = byte;
            }
            reads_of(&der);
            reads_of(&der[..cut.index(der.len())]);
        }
    }

    thread_local! {
        /// Made once: keys take time.
        static DAMAGED: Vec<u8> = certificate(|params| {
            params.distinguished_name.push(DnType::CommonName, "localhost");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
    }
}
