//! The rules with kube-apiserver's messages: each function returns one for every problem of a text.

use super::{has_label_form, has_name_form, has_subdomain_form};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Lower-case letters, digits, `-` and `.`, at most 253.
pub fn subdomain(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 253);
    if !has_subdomain_form(text) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

/// Lower-case letters, digits and `-`, at most 63.
pub fn label(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 63);
    if !has_label_form(text) {
        let dots_only = has_subdomain_form(text) && text.contains('.');
        problems.push(if dots_only {
            "must not contain dots".to_owned()
        } else {
            LABEL.to_owned()
        });
    }
    problems
}

/// Like a label, but it starts with a letter: kinds, resources and versions.
pub fn label_1035(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 63);
    if !has_label_form(text) || text.starts_with(|c: char| c.is_ascii_digit()) {
        problems.push(LABEL_1035.to_owned());
    }
    problems
}

/// Anything valid as a path segment: the RBAC kinds have names such as `system:node`.
pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let bad = ["/", "%"].into_iter().filter(|part| text.contains(part));
    bad.map(|part| format!("may not contain '{part}'")).collect()
}

/// A qualified name (a key of labels, annotations and such): a name with an optional DNS subdomain prefix.
pub fn qualified(key: &str) -> Vec<String> {
    if key.matches('/').count() > 1 {
        let name = QUALIFIED.replace("name part", "a valid label key");
        return vec![format!(
            "{name} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )];
    }
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    subdomain(prefix)
                        .into_iter()
                        .map(|why| format!("prefix part {why}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !has_name_form(name) {
        problems.push(QUALIFIED.to_owned());
    }
    problems
}

/// A label value, which may be empty.
pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !has_name_form(text) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

/// The name of a port: an IANA service name.
pub fn port_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 15 {
        problems.push("must be no more than 15 characters".to_owned());
    }
    let only = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    for (bad, why) in [
        (
            !text.chars().all(only) || text.is_empty(),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !text.chars().any(|c| c.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (text.contains("--"), "must not contain consecutive hyphens"),
        (
            text.starts_with('-') || text.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ] {
        if bad {
            problems.push(why.to_owned());
        }
    }
    problems
}

/// A key of a `ConfigMap` or Secret.
pub fn config_key(key: &str) -> Vec<String> {
    let mut problems = too_long(key, 253);
    if key.is_empty()
        || !key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        problems.push(CONFIG_KEY.to_owned());
    }
    match key {
        "." | ".." => problems.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

/// A percentage: `25%`.
pub fn percent(text: &str) -> Vec<String> {
    let is_percent = text
        .strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if is_percent {
        Vec::new()
    } else {
        vec![PERCENT.to_owned()]
    }
}

/// An IP address.
pub fn ip_address(text: &str) -> Vec<String> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Vec::new();
    }
    let plain: Vec<_> = text.split('.').map(without_zeros).collect();
    let why = if plain.join(".").parse::<std::net::Ipv4Addr>().is_ok() {
        "must not have leading 0s"
    } else {
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    };
    vec![why.to_owned()]
}

/// An address and the length of its prefix, without bits beyond it: `10.0.0.0/8`.
pub fn cidr(text: &str) -> Vec<String> {
    let bits = |text: &str| -> Option<(u128, u32)> {
        Some(match text.parse::<std::net::IpAddr>().ok()? {
            std::net::IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
            std::net::IpAddr::V6(ip) => (u128::from(ip), 128),
        })
    };
    let parse = |address: &str, length: &str| -> Option<bool> {
        let ((address, bits), length) = (bits(address)?, length.parse::<u32>().ok()?);
        // Whether no bits are set beyond the prefix.
        (length <= bits).then(|| (0..bits - length).all(|bit| address >> bit & 1 == 0))
    };
    let (address, length) = text.split_once('/').unwrap_or_default();
    let padded = length.len() > 1 && length.starts_with(['0', '+']);
    let why = match parse(address, length).filter(|_| !padded) {
        Some(true) => return Vec::new(),
        Some(false) => "must not have bits set beyond the prefix length",
        None => {
            let plain: Vec<_> = address.split('.').map(without_zeros).collect();
            if parse(&plain.join("."), without_zeros(length)).is_some() {
                "must not have leading 0s in IP or prefix length"
            } else {
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            }
        }
    };
    vec![why.to_owned()]
}

/// Strips leading zeros: `07` becomes `7`.
fn without_zeros(digits: &str) -> &str {
    match digits.trim_start_matches('0') {
        "" if !digits.is_empty() => "0",
        plain => plain,
    }
}

/// A domain whose first label is a wildcard: `*.example.com`.
pub fn wildcard(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 253);
    if !text.strip_prefix("*.").is_some_and(has_subdomain_form) {
        problems.push(WILDCARD.to_owned());
    }
    problems
}

/// A domain-prefixed path: `acme.io/foo`. Reports each problem with the part that has it.
pub fn domain_path(text: &str, mut report: impl FnMut(&str, &str)) {
    const PATH: &str = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
    let Some((domain, path)) = text
        .split_once('/')
        .filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        report(text, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        return;
    };
    for why in subdomain(domain) {
        report(domain, &why);
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(allowed) {
        report(path, PATH);
    }
}

fn too_long(text: &str, limit: usize) -> Vec<String> {
    if text.len() <= limit {
        return Vec::new();
    }
    vec![format!("must be no more than {limit} characters")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_invalid_names_are_distinguished() {
        type Rule = fn(&str) -> Vec<String>;
        for (rule, good, bad) in [
            (
                subdomain as Rule,
                vec!["a", "a.b-c.9"],
                vec!["A", "-a", "a..b", ""],
            ),
            (label, vec!["a", "1a"], vec!["a.b", "A", "a_"]),
            (path_segment, vec!["system:node", "A"], vec![".", "a/b", "a%"]),
            (
                qualified,
                vec!["a", "a.b/c_D"],
                vec!["/a", "a b", "a/", "", "a/b/c"],
            ),
            (label_value, vec!["", "x-Y.z"], vec!["-x", "a b"]),
            (port_name, vec!["http", "a-1"], vec!["A", "1", "a--b", "-a", ""]),
            (
                config_key,
                vec!["a", ".a", "A_b"],
                vec!["", ".", "..", "..a", "a b"],
            ),
            (percent, vec!["1%", "200%"], vec!["x", "%", "1"]),
            (ip_address, vec!["1.2.3.4", "::1"], vec!["x", "1.2.3"]),
            (
                cidr,
                vec!["10.0.0.0/8", "::/0"],
                vec![
                    "x",
                    "10.0.0.0/33",
                    "10.0.0.0",
                    "10.0.0.1/8",
                    "010.0.0.0/8",
                    "10.0.0.0/08",
                ],
            ),
            (wildcard, vec!["*.a.b"], vec!["*", "a.*", "a.b", "*.A"]),
        ] {
            for text in good {
                assert_eq!(rule(text), Vec::<String>::new(), "{text:?}");
            }
            for text in bad {
                assert!(!rule(text).is_empty(), "{text:?}");
            }
        }
        assert_eq!(
            subdomain(&"a".repeat(254)),
            ["must be no more than 253 characters"]
        );
        assert_eq!(label("a.b"), ["must not contain dots"]);
    }
}
