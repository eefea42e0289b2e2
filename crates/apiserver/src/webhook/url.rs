//! URLs as Go's `net/url` reads and writes them, with its messages.

use std::{fmt::Write, net::Ipv6Addr};

use crate::golang;

/// A parsed URL. Texts are without escapes where Go decodes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Url {
    /// In lower case; empty for a relative URL.
    pub(super) scheme: String,
    /// The user information, as Go shows it; `None` without an `@`.
    pub(super) user: Option<String>,
    /// The host and the port, with the brackets of an IPv6 address.
    pub(super) host: String,
    /// The decoded path.
    path: Vec<u8>,
    /// The path as it was written, if it is not the usual way to write it.
    raw_path: Option<String>,
    pub(super) query: String,
    /// The decoded fragment.
    pub(super) fragment: String,
}

/// Parts of a URL, which need different escapes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Fragment,
}

impl Url {
    /// Parses a URL. An error is the message of Go's parser, without the URL.
    pub(super) fn parse(text: &str) -> Result<Self, ParseError> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::parse_without_fragment(rest).map_err(|why| ParseError::new(rest, why))?;
        let fragment = unescaped(fragment, Part::Fragment).map_err(|why| ParseError::new(text, why))?;
        url.fragment = String::from_utf8_lossy(&fragment).into_owned();
        Ok(url)
    }

    fn parse_without_fragment(text: &str) -> Result<Self, String> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (scheme, rest) = scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            query: query.to_owned(),
            ..Self::default()
        };
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let mut path = rest;
        let has_authority = !scheme.is_empty() || !rest.starts_with("///");
        if let Some(behind) = rest.strip_prefix("//").filter(|_| has_authority) {
            let end = behind.find('/').unwrap_or(behind.len());
            let authority = &behind[..end];
            path = &behind[end..];
            let (user, host) = match authority.rsplit_once('@') {
                Some((user, host)) => (Some(user), host),
                None => (None, authority),
            };
            url.host = parse_host(&url.scheme, host)?;
            url.user = user.map(shown_user).transpose()?;
        }
        url.path = unescaped(path, Part::Path)?;
        url.raw_path = Some(path.to_owned()).filter(|raw| *raw != escaped(&url.path, Part::Path));
        Ok(url)
    }

    /// The host without its port and brackets.
    pub(super) fn hostname(&self) -> &str {
        let host = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.host,
        };
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// The text of the port; empty without one.
    pub(super) fn port(&self) -> &str {
        match self.host.rsplit_once(':') {
            Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => "",
        }
    }

    /// Host and port, as they are sent: an empty port is none.
    pub(super) fn authority(&self) -> String {
        let host = self.host.strip_suffix(':').unwrap_or(&self.host);
        escaped(host.as_bytes(), Part::Host)
    }

    /// The path, as it is sent.
    pub(super) fn escaped_path(&self) -> String {
        match &self.raw_path {
            Some(raw) if is_valid_escape(raw) => raw.clone(),
            _ => escaped(&self.path, Part::Path),
        }
    }

    /// Path and query, as they are sent.
    pub(super) fn request_target(&self) -> String {
        let path = self.escaped_path();
        let path = if path.is_empty() { "/" } else { &path };
        if self.query.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{}", self.query)
        }
    }

    /// Shortens the path as `path.Join` does, without empty steps, `.` and `..`.
    pub(super) fn clean_path(&mut self) {
        let mut steps: Vec<&[u8]> = Vec::new();
        for step in self.path.split(|byte| *byte == b'/') {
            match step {
                b"" | b"." => {}
                b".." => drop(steps.pop()),
                step => steps.push(step),
            }
        }
        self.path = [b"/", &*steps.join(&b'/')].concat();
        self.raw_path = None;
    }

    /// The URL that a reference in a document at this URL leads to.
    pub(super) fn join(&self, reference: &str) -> Result<Self, ParseError> {
        let mut url = Self::parse(reference)?;
        if !url.scheme.is_empty() {
            return Ok(url);
        }
        url.scheme.clone_from(&self.scheme);
        if !url.host.is_empty() || url.user.is_some() {
            return Ok(url);
        }
        url.host.clone_from(&self.host);
        url.user.clone_from(&self.user);
        let written = url.escaped_path();
        if written.is_empty() {
            url.path.clone_from(&self.path);
            url.raw_path.clone_from(&self.raw_path);
            if url.query.is_empty() {
                url.query.clone_from(&self.query);
            }
            return Ok(url);
        }
        let base = self.escaped_path();
        let base = base.rfind('/').map_or("", |end| &base[..=end]);
        let whole = if written.starts_with('/') {
            written
        } else {
            format!("{base}{written}")
        };
        let mut steps: Vec<&str> = Vec::new();
        for step in whole.split('/').skip(1) {
            match step {
                "." => {}
                ".." => drop(steps.pop()),
                step => steps.push(step),
            }
        }
        let ends_in_folder = whole.ends_with("/.") || whole.ends_with("/..");
        let end = if ends_in_folder && !steps.is_empty() {
            "/"
        } else {
            ""
        };
        let path = format!("/{}{end}", steps.join("/"));
        url.path = unescaped(&path, Part::Path).map_err(|why| ParseError::new(reference, why))?;
        url.raw_path = Some(path).filter(|raw| *raw != escaped(&url.path, Part::Path));
        Ok(url)
    }
}

/// The URL as messages show it, without its user information.
impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority(), self.escaped_path())?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        Ok(())
    }
}

/// Why a text is no URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParseError {
    url: String,
    why: String,
}

impl ParseError {
    fn new(url: &str, why: String) -> Self {
        Self {
            url: url.to_owned(),
            why,
        }
    }
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "parse {}: {}", golang::quoted(&self.url), self.why)
    }
}

/// The scheme, and what follows it.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if position > 0 => {}
            b':' if position == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..position], &text[position + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    let decoded = |text: &str, part| {
        let bytes = unescaped(text, part)?;
        Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
    };
    match host.rfind('[') {
        Some(0) => {}
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {
            if let Some(first) = host.find(':') {
                let strict = matches!(scheme, "http" | "https");
                let colon = if strict {
                    first
                } else {
                    host.rfind(':').unwrap_or(first)
                };
                check_port(&host[colon..])?;
            }
            return decoded(host, Part::Host);
        }
    }
    let end = host.rfind(']').ok_or("missing ']' in host")?;
    let port = &host[end + 1..];
    check_port(port)?;
    let name = &host[1..end];
    let zone = name.find("%25").unwrap_or(name.len());
    let address = decoded(&name[..zone], Part::Host)?;
    let zone = decoded(&name[zone..], Part::Zone)?;
    let whole = format!("{address}{zone}");
    if address.parse::<std::net::Ipv4Addr>().is_ok() && zone.is_empty() {
        return Err("invalid IP-literal".to_owned());
    }
    if address.parse::<Ipv6Addr>().is_err() || zone == "%" {
        return Err(format!(
            "invalid host: ParseAddr({}): unable to parse IP",
            golang::quoted(&whole)
        ));
    }
    Ok(format!("[{whole}]{port}"))
}

fn check_port(port: &str) -> Result<(), String> {
    let digits = port.strip_prefix(':');
    if port.is_empty() || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", golang::quoted(port)))
}

/// Checks user information, and writes it like Go.
fn shown_user(text: &str) -> Result<String, String> {
    let is_valid = |letter: char| letter.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(letter);
    if !text.chars().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let again = |text: &str| Ok::<_, String>(escaped(&unescaped(text, Part::User)?, Part::User));
    match text.split_once(':') {
        Some((name, password)) => Ok(format!("{}:{}", again(name)?, again(password)?)),
        None => again(text),
    }
}

/// Replaces escapes, if this part of a URL may have them.
fn unescaped(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let invalid = |escape: &[u8]| {
        let escape = String::from_utf8_lossy(escape);
        Err(format!("invalid URL escape {}", golang::quoted(&escape)))
    };
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while let Some(byte) = bytes.get(position) {
        if *byte == b'%' {
            let escape = &bytes[position..bytes.len().min(position + 3)];
            let digits = escape
                .get(1..3)
                .and_then(|digits| std::str::from_utf8(digits).ok());
            let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            let Some(value) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
                return invalid(escape);
            };
            let is_allowed = match part {
                Part::Host => value >= 0x80 || value == b'%',
                Part::Zone => matches!(value, b'%' | b' ') || !needs_escape(value, Part::Host),
                Part::Path | Part::User | Part::Fragment => true,
            };
            if !is_allowed {
                return invalid(escape);
            }
            decoded.push(value);
            position += 3;
            continue;
        }
        if matches!(part, Part::Host | Part::Zone) && *byte < 0x80 && needs_escape(*byte, part) {
            let letter = golang::quoted(&char::from(*byte).to_string());
            return Err(format!("invalid character {letter} in host name"));
        }
        decoded.push(*byte);
        position += 1;
    }
    Ok(decoded)
}

fn escaped(bytes: &[u8], part: Part) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if needs_escape(*byte, part) {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "%{byte:02X}");
        } else {
            text.push(char::from(*byte));
        }
    }
    text
}

fn needs_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    !match part {
        Part::Path => b"$&+,/:;=@".contains(&byte),
        Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"".contains(&byte),
        Part::User => b"$&+,;=".contains(&byte),
        Part::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
    }
}

/// Whether a path may be sent as it was written.
fn is_valid_escape(path: &str) -> bool {
    path.bytes()
        .all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !needs_escape(byte, Part::Path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn url_is_shown_as_it_is_sent() {
        for (text, shown, target) in [
            ("HTTPS://Host:1/x", "https://Host:1/x", "/x"),
            ("https://127.0.0.1:/x", "https://127.0.0.1/x", "/x"),
            ("https://a", "https://a", "/"),
            ("https://a?", "https://a", "/"),
            (
                "https://a/b c/%C3%A9/é?d=e#f",
                "https://a/b%20c/%C3%A9/%C3%A9?d=e",
                "/b%20c/%C3%A9/%C3%A9?d=e",
            ),
            ("https://a/%2f", "https://a/%2f", "/%2f"),
            ("https://[::1%25eth0]:8/", "https://[::1%eth0]:8/", "/"),
        ] {
            let url = Url::parse(text).expect(text);
            assert_eq!(
                (url.to_string(), url.request_target()),
                (shown.replace("%eth0", "%25eth0"), target.to_owned())
            );
        }
    }

    #[test]
    fn reference_is_resolved_like_in_a_document() {
        let base = Url::parse("https://a:1/b/c?d").expect("a URL");
        for (reference, target) in [
            ("/x/../y", "https://a:1/y"),
            ("x", "https://a:1/b/x"),
            ("../..", "https://a:1/"),
            ("../../x/", "https://a:1/x/"),
            (".", "https://a:1/b/"),
            ("x/..", "https://a:1/b/"),
            ("/x/..", "https://a:1/"),
            ("a//b", "https://a:1/b/a//b"),
            ("/.//x", "https://a:1//x"),
            ("?e", "https://a:1/b/c?e"),
            ("", "https://a:1/b/c?d"),
            ("//z/y", "https://z/y"),
            ("http://z", "http://z"),
        ] {
            assert_eq!(
                base.join(reference).expect(reference).to_string(),
                target,
                "{reference}"
            );
        }
    }

    proptest! {
        #[test]
        fn shown_url_is_the_same_url(text in "(https://)?[a-z0-9.:@%\\[\\]]{0,12}(/[ -~é]{0,12})?") {
            if let Ok(url) = Url::parse(&text) {
                let shown = url.to_string();
                if !url.scheme.is_empty() && !url.host.is_empty() && !url.authority().contains('%') {
                    let again = Url::parse(&shown).expect("it was shown");
                    prop_assert_eq!(again.to_string(), shown);
                }
                let mut clean = url;
                clean.clean_path();
                let _ = clean.join(&text);
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".*", base in ".*") {
            if let Ok(base) = Url::parse(&base) {
                let _ = base.join(&text);
            }
        }
    }
}
