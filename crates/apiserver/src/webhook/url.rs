//! URLs of webhooks, read and written as Go's `net/url` and client-go do.
//!
//! What a real server requests is not the text of a configuration: the path is decoded, cleaned and encoded again. envtest
//! relies on that, whose URLs have paths such as `//mutate`.

use std::{fmt, fmt::Write};

use super::client_config::parse_problem;

/// Where a request of a webhook is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WebhookUrl {
    /// In lower case.
    scheme: Box<str>,
    /// `host` or `host:port`
    authority: Box<str>,
    /// Encoded, with a slash at the beginning.
    path: Box<str>,
    /// With its question mark; may be empty.
    query: Box<str>,
    /// With its `#`: never sent, but in messages.
    fragment: Box<str>,
}

impl WebhookUrl {
    /// The URL of a client configuration. Its path is cleaned, and it has no query: none is permitted there.
    pub(super) fn configured(text: &str) -> Self {
        let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        Self {
            scheme: scheme.to_lowercase().into(),
            authority: authority.into(),
            path: encode(&clean(&decode(path))).into(),
            query: "".into(),
            fragment: "".into(),
        }
    }

    /// The same with this query.
    pub(super) fn with_query(&self, query: &str) -> Self {
        Self {
            query: format!("?{query}").into(),
            ..self.clone()
        }
    }

    /// The URL that a `Location` in a response from this one leads to.
    pub(super) fn join(&self, location: &str) -> Result<Self, String> {
        if let Some(why) = parse_problem(location) {
            return Err(format!("parse {location:?}: {why}"));
        }
        let (rest, fragment) = location.split_at(location.find('#').unwrap_or(location.len()));
        let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let colon = rest.find(':').filter(|colon| !rest[..*colon].contains('/'));
        let (scheme, rest) = colon.map_or((&*self.scheme, rest), |colon| {
            (&rest[..colon], &rest[colon + 1..])
        });
        let behind = rest.strip_prefix("//");
        let (authority, path) = behind.map_or((&*self.authority, rest), |behind| {
            behind.split_at(behind.find('/').unwrap_or(behind.len()))
        });
        let is_other = colon.is_some() || behind.is_some();
        let (path, query) = match path {
            "" if is_other => ("/".to_owned(), query),
            "" if query.is_empty() => (self.path.to_string(), &*self.query),
            "" => (self.path.to_string(), query),
            absolute if absolute.starts_with('/') || is_other => (absolute.to_owned(), query),
            relative => {
                let folder = self.path.rfind('/').map_or("/", |end| &self.path[..=end]);
                (format!("{folder}{relative}"), query)
            }
        };
        Ok(Self {
            scheme: scheme.to_lowercase().into(),
            authority: authority.into(),
            path: encode(&without_dots(&decode(&path))).into(),
            query: query.into(),
            fragment: fragment.into(),
        })
    }

    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// `host:port`, as it stands in the URL.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// What a request line has: the path and the query.
    pub(super) fn target(&self) -> String {
        format!("{}{}", self.path, self.query)
    }

    /// The host, without the brackets of an IPv6 address.
    pub(super) fn host(&self) -> &str {
        let host = self.host_and_port().0;
        host.trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) fn port(&self) -> Option<u16> {
        self.host_and_port().1.parse().ok()
    }

    fn host_and_port(&self) -> (&str, &str) {
        let split = self.authority.rsplit_once(':');
        split
            .filter(|(_, port)| !port.ends_with(']'))
            .unwrap_or((&self.authority, ""))
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scheme,
            authority,
            path,
            query,
            fragment,
        } = self;
        write!(f, "{scheme}://{authority}{path}{query}{fragment}")
    }
}

/// Replaces percent escapes by their bytes.
fn decode(path: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let escaped = behind.first_chunk().filter(|_| *byte == b'%');
        let value = escaped.and_then(|digits: &[u8; 2]| {
            let text = str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 16).ok()
        });
        decoded.push(value.unwrap_or(*byte));
        rest = if value.is_some() { &behind[2..] } else { behind };
    }
    decoded
}

/// Escapes what Go escapes in a path.
fn encode(path: &[u8]) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The shortest path that leads to the same: Go's `path.Join("/", path)`.
fn clean(path: &[u8]) -> Vec<u8> {
    let steps = path.split(|byte| *byte == b'/').filter(|step| !step.is_empty());
    let mut cleaned = join_steps(steps);
    if cleaned.is_empty() {
        cleaned.push(b'/');
    }
    cleaned
}

/// The path without its steps `.` and `..`; a slash at the end remains.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let steps: Vec<_> = path.split(|byte| *byte == b'/').collect();
    let (first, rest) = steps.split_first().expect("a split has at least one part");
    let steps = if first.is_empty() { rest } else { &steps[..] };
    let mut path = join_steps(steps.iter().copied());
    if matches!(steps.last(), Some(&b"." | &b"..")) || path.is_empty() {
        path.push(b'/');
    }
    path
}

/// Joins steps with a slash before each, and follows `.` and `..`.
fn join_steps<'a>(steps: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut kept = Vec::new();
    for step in steps {
        match step {
            b"." => {}
            b".." => {
                kept.pop();
            }
            step => kept.push(step),
        }
    }
    kept.iter()
        .flat_map(|step| [b"/", *step])
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a real server requested for each path of a configuration.
    #[test]
    fn configured_path_is_cleaned_and_encoded_as_by_a_real_server() {
        for (path, requested) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("//a", "/a"),
            ("/a//b", "/a/b"),
            ("/a/../b", "/b"),
            ("/../b", "/b"),
            ("/a/./b", "/a/b"),
            ("/a/", "/a"),
            ("/a//", "/a"),
            ("/a%20b", "/a%20b"),
            ("/a%2F%2Fb", "/a/b"),
            ("/%2e%2e/b", "/b"),
            ("/a;b=c", "/a;b=c"),
            ("/ä", "/%C3%A4"),
            ("/a b", "/a%20b"),
            ("/a+b:c@d$e&f=g", "/a+b:c@d$e&f=g"),
            ("/a?", "/a"),
            ("/a!*'()", "/a%21%2A%27%28%29"),
            ("/%7Ea~%41", "/~a~A"),
            ("/a\\b|c\"d<e>{f}[g]", "/a%5Cb%7Cc%22d%3Ce%3E%7Bf%7D%5Bg%5D"),
        ] {
            let url = WebhookUrl::configured(&format!("https://127.0.0.1:9443{path}"));
            assert_eq!(url.target(), requested, "{path}");
            assert_eq!(url.to_string(), format!("https://127.0.0.1:9443{requested}"));
        }
    }

    #[test]
    fn host_and_port_are_those_of_the_authority() {
        for (url, host, port) in [
            ("https://hooks.io", "hooks.io", None),
            ("https://hooks.io:8443/a:1", "hooks.io", Some(8443)),
            ("https://[::1]/x", "::1", None),
            ("https://[::1]:9/x", "::1", Some(9)),
        ] {
            let url = WebhookUrl::configured(url);
            assert_eq!((url.host(), url.port()), (host, port), "{url}");
        }
    }

    #[test]
    fn location_is_resolved_against_the_url_of_the_request() {
        let base = WebhookUrl::configured("https://h:1/a/b").with_query("timeout=10s");
        for (location, url) in [
            ("/target", "https://h:1/target"),
            ("target", "https://h:1/a/target"),
            ("../target/", "https://h:1/target/"),
            ("?q", "https://h:1/a/b?q"),
            ("#f", "https://h:1/a/b?timeout=10s#f"),
            ("/x//y?q#f", "https://h:1/x//y?q#f"),
            ("//other:2/x", "https://other:2/x"),
            ("//other", "https://other/"),
            ("HTTP://other/x/./y/..", "http://other/x/"),
            ("ftp://h/x", "ftp://h/x"),
            ("/a b", "https://h:1/a%20b"),
        ] {
            assert_eq!(base.join(location).unwrap().to_string(), url, "{location}");
        }
        let why = base.join("::bad").unwrap_err();
        assert_eq!(why, "parse \"::bad\": missing protocol scheme");
    }
}
