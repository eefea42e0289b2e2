//! Validates a `clientConfig`: of an admission webhook, and of a CRD's conversion webhook.

use serde_json::Value;
use windlass_api::naming;

use super::url::Url;
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

fn url_problems(text: &str) -> Vec<Problem> {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => {
            let why = format!("url must be a valid URL: {error}{FORM}");
            return vec![Problem::Required(why)];
        }
    };
    let mut problems = Vec::new();
    let mut refuse = |value: &str, why: &str| {
        problems.push(Problem::Invalid(value.into(), why.to_owned()));
    };
    if url.scheme != "https" {
        refuse(
            &url.scheme,
            &format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    if url.host.is_empty() {
        refuse("", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = &url.user {
        refuse(user, "user information is not permitted in the URL");
    }
    for (text, why) in [
        (&url.fragment, "fragments are not permitted in the URL"),
        (&url.query, "query parameters are not permitted in the URL"),
    ] {
        if !text.is_empty() {
            refuse(text, why);
        }
    }
    problems
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
