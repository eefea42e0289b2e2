//! The alert gate: no slot is granted while a Prometheus query returns something.
//!
//! ```text
//!   --prometheus-url ─┐
//!   spec.alerts.query ┴─► GET /api/v1/query ──► AlertState: clear · firing (names) · unknown (why)
//! ```
//!
//! The address is a flag of the controller and not part of a policy: who may write policies cannot make the controller
//! send requests elsewhere. An answer is limited in size and time, and used for a few seconds. Only new slots wait: a
//! node that has one is finished, since its own drain may cause alerts.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper_util::client::legacy::connect::Connect;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use windlass::{
    api_type,
    runtime::http_client::{HttpClient, HttpClientError, bearer_token, read_body},
};

use crate::{progress::ProgressReason, state::truncate};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Largest answer that is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Maximum number of alerts in a message.
const MAX_NAMES: usize = 5;

/// Longest name of an alert in a message, in characters.
const MAX_NAME_CHARS: usize = 100;

/// How long an answer is used: a policy is reconciled with every change of a node.
const MAX_AGE: Duration = Duration::from_secs(10);

/// When alerts that block a policy are checked again.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(30);

/// Which alerts block reboots. The controller needs `--prometheus-url`.
#[api_type]
#[serde(default)]
pub struct AlertSpec {
    /// No new reboot starts while this query (`PromQL`) returns a time series. Default: every firing alert except
    /// `Watchdog`, which always fires.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// What happens while Prometheus cannot be asked, or does not understand the query. Default: Block.
    pub on_error: OnAlertError,
}

impl Default for AlertSpec {
    fn default() -> Self {
        Self {
            query: r#"ALERTS{alertstate="firing",alertname!="Watchdog"}"#.to_owned(),
            on_error: OnAlertError::Block,
        }
    }
}

/// What happens while alerts cannot be checked.
#[api_type]
#[derive(Copy, Eq, Default)]
pub enum OnAlertError {
    /// No new reboot starts.
    #[default]
    #[serde(rename = "Block")]
    Block,
    /// Reboots start as if no alert was firing.
    #[serde(rename = "Allow")]
    Allow,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AlertState {
    /// The query returned nothing.
    Clear,
    /// The names of the alerts.
    Firing(String),
    /// Why the alerts are not known.
    Unknown(String),
}

impl AlertState {
    /// Returns what it means for a policy.
    fn decide(&self, spec: &AlertSpec) -> AlertDecision {
        let (reason, message) = match self {
            Self::Clear => return AlertDecision::Clear,
            Self::Firing(names) => (
                ProgressReason::AlertsFiring,
                format!("alerts are firing: {names}"),
            ),
            Self::Unknown(why) if spec.on_error == OnAlertError::Allow => {
                return AlertDecision::Ignored(format!(
                    "alerts cannot be checked, and reboots start nevertheless (alerts.onError is Allow): {why}"
                ));
            }
            Self::Unknown(why) => {
                let message =
                    format!("alerts cannot be checked, which blocks reboots (alerts.onError): {why}");
                (ProgressReason::AlertsUnknown, message)
            }
        };
        AlertDecision::Blocked(AlertBlock { reason, message })
    }
}

/// Whether alerts allow the next slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AlertDecision {
    /// No alert is firing, or the policy has no `alerts`.
    Clear,
    /// The alerts are not known, and the policy allows reboots all the same. For humans.
    Ignored(String),
    /// No slot is granted.
    Blocked(AlertBlock),
}

impl AlertDecision {
    /// Returns why no slot is granted, if so.
    pub(crate) fn block(&self) -> Option<&AlertBlock> {
        match self {
            Self::Blocked(block) => Some(block),
            Self::Clear | Self::Ignored(_) => None,
        }
    }
}

/// Why no slot is granted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AlertBlock {
    /// `AlertsFiring` or `AlertsUnknown`.
    pub(crate) reason: ProgressReason,
    /// For humans.
    pub(crate) message: String,
}

/// Checks the alerts of policies.
#[derive(Default)]
pub(crate) struct AlertGate {
    prometheus: Option<Prometheus>,
    /// By query: the last result, and when it was asked for.
    checked: Mutex<BTreeMap<String, (Instant, AlertState)>>,
}

impl AlertGate {
    pub(crate) fn new(prometheus: Option<Prometheus>) -> Self {
        Self {
            prometheus,
            ..Self::default()
        }
    }

    /// Checks whether alerts allow new reboots.
    pub(crate) async fn decide(&self, spec: Option<&AlertSpec>) -> AlertDecision {
        let Some(spec) = spec else {
            return AlertDecision::Clear;
        };
        let Some(prometheus) = &self.prometheus else {
            let why = "the controller runs without --prometheus-url".to_owned();
            return AlertState::Unknown(why).decide(spec);
        };
        let now = Instant::now();
        let known = {
            let mut checked = self.checked.lock();
            checked.retain(|_, (at, _)| now < *at + MAX_AGE);
            checked.get(&spec.query).map(|(_, state)| state.clone())
        };
        let state = match known {
            Some(state) => state,
            None => {
                let state = prometheus.check(&spec.query).await;
                let mut checked = self.checked.lock();
                checked.insert(spec.query.clone(), (Instant::now(), state.clone()));
                state
            }
        };
        state.decide(spec)
    }
}

/// A Prometheus server cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrometheusError {
    /// The token would be sent unencrypted.
    #[error("--prometheus-token-file needs an https:// URL: the token would be sent unencrypted")]
    InsecureToken,
    /// The client cannot be created.
    #[error("--prometheus-url: {0}; --prometheus-ca is a PEM file with the certificates to trust")]
    Client(#[from] HttpClientError),
}

/// A Prometheus server, or one with its query API such as Thanos, Mimir or `VictoriaMetrics`.
pub struct Prometheus {
    client: HttpClient,
    url: Uri,
    token_file: Option<PathBuf>,
}

impl Prometheus {
    /// The server at this URL, with the PEM file of the CAs to trust (default: the system's) and a file with a token.
    /// Sends nothing yet.
    pub fn new(url: Uri, ca: Option<&Path>, token_file: Option<PathBuf>) -> Result<Self, PrometheusError> {
        if token_file.is_some() && url.scheme_str() != Some("https") {
            return Err(PrometheusError::InsecureToken);
        }
        let client = HttpClient::new(&url, ca)?;
        Ok(Self {
            client,
            url,
            token_file,
        })
    }

    /// The same with another connector, for tests.
    pub fn with_connector(
        connector: impl Connect + Clone + Send + Sync + 'static,
        url: Uri,
        token_file: Option<PathBuf>,
    ) -> Self {
        Self {
            client: HttpClient::with_connector(connector),
            url,
            token_file,
        }
    }

    /// Runs the query.
    pub(crate) async fn check(&self, query: &str) -> AlertState {
        let asked = tokio::time::timeout(TIMEOUT, self.ask(query)).await;
        let answer = asked.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
        match answer.and_then(|body| parse_alerts(&body)) {
            Ok(names) if names.is_empty() => AlertState::Clear,
            Ok(names) => AlertState::Firing(join(&names)),
            Err(why) => AlertState::Unknown(truncate(&why)),
        }
    }

    fn request(&self, query: &str) -> Result<Request<Full<Bytes>>, String> {
        let base = self.url.to_string();
        let url = format!(
            "{}/api/v1/query?query={}",
            base.trim_end_matches('/'),
            percent_encode(query)
        );
        let mut request = Request::get(url).header(header::ACCEPT, "application/json");
        if let Some(path) = &self.token_file {
            let value = bearer_token(path).map_err(|error| format!("--prometheus-token-file: {error}"))?;
            request = request.header(header::AUTHORIZATION, value);
        }
        request.body(Full::default()).map_err(|error| error.to_string())
    }

    async fn ask(&self, query: &str) -> Result<Bytes, String> {
        let request = self.request(query)?;
        let sent = self.client.send(request).await;
        let sent = sent.map_err(|error| format!("cannot reach --prometheus-url: {error}"))?;
        let (head, body) = sent.into_parts();
        let body = read_body(body, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| format!("cannot read the answer ({MAX_ANSWER_BYTES} bytes at most): {error}"))?;
        // An invalid query is answered with 400 or 422 and an error in the body.
        if head.status.is_success() || serde_json::from_slice::<Answer>(&body).is_ok() {
            Ok(body)
        } else {
            Err(format!("the server answered {}", head.status))
        }
    }
}

/// Prometheus' answer.
#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    data: Value,
}

/// Returns the names of the alerts in an answer of Prometheus' query API.
///
/// ```
/// let answer = br#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"alertname":"DiskFull"}}]}}"#;
/// let names = windlass_reboot::parse_alerts(answer).unwrap();
/// assert!(names.contains("DiskFull"));
/// ```
pub fn parse_alerts(body: &[u8]) -> Result<BTreeSet<String>, String> {
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| format!("the answer is not Prometheus': {error}"))?;
    if answer.status != "success" {
        return Err(format!("the query failed: {}", answer.error));
    }
    let series = answer.data["result"].as_array();
    let Some(series) = series.filter(|_| answer.data["resultType"] == "vector") else {
        return Err("the query has to return a vector".to_owned());
    };
    let name = |one: &Value| {
        let metric = &one["metric"];
        let name = metric["alertname"]
            .as_str()
            .or_else(|| metric["__name__"].as_str());
        let name = name.unwrap_or("a series without alertname");
        truncate(&name.chars().take(MAX_NAME_CHARS).collect::<String>())
    };
    Ok(series.iter().map(name).collect())
}

fn join(names: &BTreeSet<String>) -> String {
    let some: Vec<_> = names.iter().take(MAX_NAMES).map(String::as_str).collect();
    match names.len() - some.len() {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

/// Encodes a query parameter.
fn percent_encode(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_or_rejected() {
        let vector = |result: &str| {
            format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#)
        };
        let series = |name: &str| format!(r#"{{"metric":{{"alertname":"{name}"}},"value":[1,"1"]}}"#);
        for (answer, names) in [
            (vector(""), Ok("")),
            (vector(&series("B")), Ok("B")),
            (
                vector(&[series("B"), series("A"), series("B")].join(",")),
                Ok("A, B"),
            ),
            (
                vector(r#"{"metric":{},"value":[1,"1"]}"#),
                Ok("a series without alertname"),
            ),
            (
                r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#.to_owned(),
                Err("vector"),
            ),
            (
                r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#.to_owned(),
                Err("parse error"),
            ),
            ("<html>".to_owned(), Err("not Prometheus'")),
            (String::new(), Err("not Prometheus'")),
        ] {
            match (parse_alerts(answer.as_bytes()).map(|names| join(&names)), names) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{answer}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{answer}: {error}"),
                (found, _) => panic!("{answer}: {found:?}"),
            }
        }
    }

    #[test]
    fn names_from_the_server_are_bounded() {
        let many: BTreeSet<_> = (0..9).map(|number| format!("alert-{number}")).collect();
        assert!(join(&many).ends_with("alert-4 and 4 more"));
        let long = "x".repeat(100_000);
        let answer = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{"alertname":"{long}"}}}}]}}}}"#
        );
        assert_eq!(
            join(&parse_alerts(answer.as_bytes()).expect("valid")).len(),
            MAX_NAME_CHARS
        );
    }

    #[test]
    fn only_unknown_alerts_depend_on_the_policy() {
        let allow = AlertSpec {
            on_error: OnAlertError::Allow,
            ..AlertSpec::default()
        };
        let unknown = AlertState::Unknown("down".to_owned());
        let reason =
            |state: &AlertState, spec: &AlertSpec| state.decide(spec).block().map(|block| block.reason);
        let closed = reason(&unknown, &AlertSpec::default());
        assert_eq!(closed, Some(ProgressReason::AlertsUnknown), "it fails closed");
        assert_eq!(reason(&unknown, &allow), None);
        let AlertDecision::Ignored(message) = unknown.decide(&allow) else {
            panic!("it is visible that alerts are ignored")
        };
        assert!(
            message.contains("onError is Allow") && message.ends_with(": down"),
            "{message}"
        );
        for spec in [&AlertSpec::default(), &allow] {
            assert_eq!(reason(&AlertState::Clear, spec), None);
            let firing = AlertState::Firing("A".to_owned());
            assert_eq!(reason(&firing, spec), Some(ProgressReason::AlertsFiring));
        }
    }

    #[test]
    fn query_is_encoded() {
        assert_eq!(
            percent_encode("a{b=\"c é\"}&d"),
            "a%7Bb%3D%22c%20%C3%A9%22%7D%26d"
        );
    }

    /// Debug output of a sensitive header hides its value, and HTTP/2 does not index it.
    #[test]
    fn token_is_marked_as_sensitive() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("token");
        let url = Uri::from_static("https://prometheus:9090");
        let connector = hyper_util::client::legacy::connect::HttpConnector::new();
        let prometheus = Prometheus::with_connector(connector, url, Some(path.clone()));
        std::fs::write(&path, "s3cret\n").expect("the file is written");
        let request = prometheus.request("up").expect("a request");
        assert_eq!(request.headers()[header::AUTHORIZATION], "Bearer s3cret");
        assert!(!format!("{request:?}").contains("s3cret"), "{request:?}");
        std::fs::write(&path, "s3cret\nsecond line").expect("the file is written");
        let error = prometheus.request("up").expect_err("two lines");
        assert!(
            error.contains("on one line") && !error.contains("s3cret"),
            "{error}"
        );
    }

    #[test]
    fn token_needs_https() {
        let url = Uri::from_static("http://prometheus:9090");
        let refused = Prometheus::new(url, None, Some("/token".into()));
        assert!(matches!(refused, Err(PrometheusError::InsecureToken)));
    }
}
