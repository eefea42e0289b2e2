//! URLs, as Go's `net/url` reads them.

use std::{any::Any, collections::HashMap, fmt::Write};

use super::{Result, no_overload};
use crate::{
    EvalError, Type, Value,
    budget::{TEXT_BYTES, Work},
    function::{Args, FunctionSpec},
    go_format::quote,
    map::{Entries, Map},
    value::Opaque,
};

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// Returns the text that it was parsed from.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Opaque for Url {
    fn type_of(&self) -> Type {
        Type::parse("URL")
    }

    fn equals(&self, other: &dyn Opaque) -> Option<bool> {
        other.as_any().downcast_ref().map(|other: &Self| other == self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "url",
        overloads: &[("string_to_url", "(string) -> URL")],
        eval: |args| match &args.values[0] {
            Value::String(text) => parse(text).map(Value::opaque).map_err(|why| {
                EvalError::new(format!("URL parse error during conversion from string: {why}"))
            }),
            _ => no_overload("url", args.values),
        },
    },
    FunctionSpec {
        name: "isURL",
        overloads: &[("is_url_string", "(string) -> bool")],
        eval: |args| match &args.values[0] {
            Value::String(text) => Ok(Value::Bool(parse(text).is_ok())),
            _ => no_overload("isURL", args.values),
        },
    },
    FunctionSpec {
        name: "getScheme",
        overloads: &[("url_get_scheme", "URL.() -> string")],
        eval: |mut args| part(&mut args, "getScheme", |url| url.scheme.clone()),
    },
    FunctionSpec {
        name: "getHost",
        overloads: &[("url_get_host", "URL.() -> string")],
        eval: |mut args| part(&mut args, "getHost", |url| url.host.clone()),
    },
    FunctionSpec {
        name: "getHostname",
        overloads: &[("url_get_hostname", "URL.() -> string")],
        eval: |mut args| part(&mut args, "getHostname", |url| split_host(&url.host).0.to_owned()),
    },
    FunctionSpec {
        name: "getPort",
        overloads: &[("url_get_port", "URL.() -> string")],
        eval: |mut args| part(&mut args, "getPort", |url| split_host(&url.host).1.to_owned()),
    },
    FunctionSpec {
        name: "getEscapedPath",
        overloads: &[("url_get_escaped_path", "URL.() -> string")],
        eval: |mut args| part(&mut args, "getEscapedPath", |url| escaped_path(&url.path)),
    },
    FunctionSpec {
        name: "getQuery",
        overloads: &[("url_get_query", "URL.() -> map(string, list(string))")],
        eval: |args| match args.values[0].downcast::<Url>() {
            Some(url) => query(&url.query, args.work),
            None => no_overload("getQuery", args.values),
        },
    },
];

fn part<'a>(args: &mut Args<'_, 'a>, name: &str, part: impl Fn(&Url) -> String) -> Result<'a> {
    match args.values[0].downcast::<Url>() {
        Some(url) => {
            args.work.build(url.text.len())?;
            Ok(Value::string(part(url)))
        }
        None => no_overload(name, args.values),
    }
}

/// The host without a port and without brackets, and the port.
fn split_host(host: &str) -> (&str, &str) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name_is_open(name) => {
            (name, port)
        }
        _ => (host, ""),
    };
    let name = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    (name, port)
}

/// Whether the part before the last colon is inside of brackets.
fn name_is_open(name: &str) -> bool {
    name.starts_with('[') && !name.ends_with(']')
}

/// Parses an absolute URL or path; the error is Go's message.
fn parse(text: &str) -> std::result::Result<Url, String> {
    let failed = |why: String| format!("parse {}: {why}", quote(text));
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err(failed("net/url: invalid control character in URL".to_owned()));
    }
    if text.is_empty() {
        return Err(failed("empty url".to_owned()));
    }
    let (scheme, rest) = split_scheme(text).map_err(|why| failed(why.to_owned()))?;
    if scheme.is_empty() && !rest.starts_with('/') {
        return Err(failed("invalid URI for request".to_owned()));
    }
    if !scheme.is_empty() && !rest.starts_with('/') {
        // An opaque URL such as `mailto:a` has no host and no path.
        let (rest, _) = rest.split_once('#').unwrap_or((rest, ""));
        return Ok(Url {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            host: String::new(),
            path: String::new(),
            query: rest
                .split_once('?')
                .map_or(String::new(), |(_, query)| query.to_owned()),
        });
    }
    let (rest, _fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut host = String::new();
    let mut path = rest;
    let has_authority = !scheme.is_empty() || !rest.starts_with("///");
    if let Some(after) = rest.strip_prefix("//").filter(|_| has_authority) {
        let (authority, after_path) = match after.find('/') {
            Some(index) => after.split_at(index),
            None => (after, ""),
        };
        path = after_path;
        let host_text = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let is_user =
                    |sign: char| sign.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(sign);
                if !user.chars().all(is_user) {
                    return Err(failed("net/url: invalid userinfo".to_owned()));
                }
                check_escapes(user).map_err(failed)?;
                host
            }
            None => authority,
        };
        host = parse_host(host_text).map_err(failed)?;
    }
    check_escapes(path).map_err(failed)?;
    Ok(Url {
        text: text.to_owned(),
        scheme: scheme.to_ascii_lowercase(),
        host,
        path: path.to_owned(),
        query: query.to_owned(),
    })
}

fn split_scheme(text: &str) -> std::result::Result<(&str, &str), &'static str> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme"),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_escapes(text: &str) -> std::result::Result<(), String> {
    let mut rest = text;
    while let Some(index) = rest.find('%') {
        let escape = &rest.as_bytes()[index..];
        let is_valid = escape.len() >= 3 && escape[1].is_ascii_hexdigit() && escape[2].is_ascii_hexdigit();
        if !is_valid {
            let mut end = (index + 3).min(rest.len());
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            return Err(format!("invalid URL escape {}", quote(&rest[index..end])));
        }
        rest = &rest[index + 3..];
    }
    Ok(())
}

fn parse_host(text: &str) -> std::result::Result<String, String> {
    let invalid_port = |port: &str| format!("invalid port {} after host", quote(port));
    if text.starts_with('[') {
        let Some(end) = text.rfind(']') else {
            return Err("missing ']' in host".to_owned());
        };
        let port = &text[end + 1..];
        if !is_port(port) {
            return Err(invalid_port(port));
        }
    } else if let Some(index) = text.rfind(':')
        && !is_port(&text[index..])
    {
        return Err(invalid_port(&text[index..]));
    }
    if let Some(index) = text.find('%') {
        // Only bytes outside of ASCII may be escaped in a host, and `%25` before a zone.
        let escape = &text.as_bytes()[index..];
        let hex = escape.get(1..3).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let is_zone = text.starts_with('[') && byte == Some(b'%');
        if !is_zone && byte.is_none_or(|byte| byte < 0x80) {
            let end = (index + 3).min(text.len());
            return Err(format!("invalid URL escape {}", quote(&text[index..end])));
        }
    }
    let allowed = |sign: char| {
        !sign.is_ascii() || sign.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(sign)
    };
    if let Some(bad) = text.chars().find(|sign| !allowed(*sign)) {
        return Err(format!(
            "invalid character {} in host name",
            quote(&bad.to_string())
        ));
    }
    // The zone of an address is unescaped.
    Ok(match text.split_once("%25") {
        Some((address, zone)) if text.starts_with('[') => format!("{address}%{zone}"),
        _ => text.to_owned(),
    })
}

fn is_port(text: &str) -> bool {
    match text.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => text.is_empty(),
    }
}

/// The path, with the characters escaped that have to be.
fn escaped_path(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte);
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn query<'a>(query: &str, work: &mut Work) -> Result<'a> {
    work.build(query.len())?;
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut parameters: Vec<(String, Vec<Value<'a>>)> = Vec::new();
    for pair in query.split('&') {
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (unescape(key), unescape(value)) else {
            continue;
        };
        work.build(2 * TEXT_BYTES)?;
        match places.get(&key) {
            Some(place) => parameters[*place].1.push(Value::string(value)),
            None => {
                places.insert(key.clone(), parameters.len());
                parameters.push((key, vec![Value::string(value)]));
            }
        }
    }
    let mut entries = Entries::default();
    for (key, values) in parameters {
        entries.insert(Value::string(key), Value::list(values), work)?;
    }
    Ok(Value::Map(Map::from(entries)))
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = &rest[2..];
                u8::from_str_radix(hex, 16).ok()?
            }
            other => *other,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Why a text is no URL, for the format `uri`.
pub(super) fn problem(text: &str) -> Option<String> {
    parse(text).err()
}
