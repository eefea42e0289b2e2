//! Validates a `clientConfig`: of an admission webhook, and of a CRD's conversion webhook.

use serde_json::Value;
use windlass_api::naming;

use crate::schema::Problem;

/// What a valid URL looks like.
const FORM: &str = "; desired format: https://host[/path]";

/// The problems of a client configuration, with the path of each below it.
pub(crate) fn client_config_problems(config: &Value) -> Vec<(&'static str, Problem)> {
    match (config["url"].as_str(), config["service"].is_object()) {
        (Some(_), true) | (None, false) => {
            let why = "exactly one of url or service is required".to_owned();
            vec![("", Problem::Required(why))]
        }
        (Some(url), false) => url_problems(url)
            .into_iter()
            .map(|problem| (".url", problem))
            .collect(),
        (None, true) => service_problems(&config["service"]),
    }
}

fn url_problems(url: &str) -> Vec<Problem> {
    let invalid = |value: &str, why: &str| Problem::Invalid(value.into(), why.to_owned());
    if let Some(why) = parse_problem(url) {
        let why = format!("url must be a valid URL: parse {url:?}: {why}{FORM}");
        return vec![Problem::Required(why)];
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = if scheme.is_empty() {
        ""
    } else {
        rest.split('/').next().unwrap_or_default()
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut problems = Vec::new();
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        problems.push(invalid(scheme, &why));
    }
    if host.is_empty() {
        problems.push(invalid("", &format!("host must be specified{FORM}")));
    }
    for (text, why) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !text.is_empty() {
            problems.push(invalid(text, why));
        }
    }
    problems
}

/// Why Go cannot parse a URL at all.
pub(super) fn parse_problem(url: &str) -> Option<String> {
    let mut rest = url;
    while let Some(start) = rest.find('%') {
        let escape = &rest.as_bytes()[start + 1..rest.len().min(start + 3)];
        if escape.len() < 2 || !escape.iter().all(u8::is_ascii_hexdigit) {
            let end = rest.floor_char_boundary(rest.len().min(start + 3));
            return Some(format!(
                "invalid URL escape {:?}",
                &rest[start..end.max(start + 1)]
            ));
        }
        rest = &rest[start + 3..];
    }
    if url.chars().any(char::is_control) {
        return Some("net/url: invalid control character in URL".to_owned());
    }
    let first = url.split('/').next().unwrap_or_default();
    let is_scheme = |text: &str| {
        text.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && text
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    };
    match first.split_once(':') {
        Some(("", _)) => Some("missing protocol scheme".to_owned()),
        Some((scheme, _)) if !is_scheme(scheme) => {
            Some("first path segment in URL cannot contain colon".to_owned())
        }
        _ => None,
    }
}

fn service_problems(service: &Value) -> Vec<(&'static str, Problem)> {
    let text = |key: &str| service[key].as_str().unwrap_or_default();
    let mut problems = Vec::new();
    for (key, path) in [("name", ".service.name"), ("namespace", ".service.namespace")] {
        if text(key).is_empty() {
            problems.push((path, Problem::Required(String::new())));
        }
    }
    // Without one, the default is valid.
    let port = service["port"].as_i64().unwrap_or(443);
    if !(1..=65535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive".to_owned();
        problems.push((".service.port", Problem::Invalid(port.into(), why)));
    }
    let path = text("path");
    let mut refuse = |why: String| problems.push((".service.path", Problem::Invalid(path.into(), why)));
    if matches!(path, "" | "/") {
        return problems;
    }
    if path == "//" {
        refuse("segment[0] may not be empty".to_owned());
        return problems;
    }
    if !path.starts_with('/') {
        refuse("must start with a '/'".to_owned());
    }
    // Like the real server, which removes the first letter in any case.
    let mut letters = path.chars();
    letters.next();
    let steps = letters.as_str();
    for (index, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            refuse(format!("segment[{index}] may not be empty"));
        }
        for why in naming::subdomain(step).into_iter().filter(|_| !step.is_empty()) {
            refuse(format!("segment[{index}]: {why}"));
        }
    }
    problems
}
