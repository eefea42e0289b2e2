//! Parses the `--sink` flag.
//!
//! ```text
//!   webhook:https://example.com/hook,rate=10/s,retries=8
//!   └─────┘ └──────────────────────┘ └─────┘ └───────┘
//!     kind         location               options
//! ```

use std::{fmt, num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use http::Uri;
use windlass::{kube::Client, runtime::Clock};

use super::{
    File, FileError, InsecureToken, KubernetesEvents, LineFormat, Rotation, Sink, Stream, TemplateSource,
    Webhook, WebhookError, WebhookSettings,
};
use crate::delivery::{Limits, Rate};

/// The `--help` text about sinks.
pub const SINK_HELP: &str = "\
stdout                 a line of text for each notice
stdout:diff            the same, with the changed fields
stdout:json            a line of JSON for each notice
file:PATH              lines of JSON, appended to a file; a new file is readable by its owner only (mode 0600)
webhook:URL            CloudEvents, sent with POST to an http:// or https:// URL; with template=, messages for a chat
otlp:URL               log records, sent to an OpenTelemetry collector by OTLP/HTTP in JSON, as in otlp:http://collector:4318
events                 a Kubernetes Event about each object; needs the right to create events

Options, each after a comma:
  name=NAME            name in logs, metrics and the state file [default: kind and location]
  rate=N/s             maximum notices per second (/m: per minute) [default: 1000/s for webhook and otlp, 1/s with template=,
                       5/s for events, else no limit]
  queue=N              maximum number of waiting objects [default: 1000]; with --every-change, of waiting notices
                       [default: 10000]
  retries=N            maximum number of retries of a notice [default: unlimited]
  rotate=SIZE, keep=N  file: rotate at this size, as in 100MB, and keep N old files [default: never, 3]
  template=TEMPLATE    webhook: slack, teams, or a file with JSON, as in {\"text\": \"{{kind}} {{key}} was {{event}}\"}
  concurrency=N        webhook, otlp, events: maximum number of concurrent requests, each about another object
                       [default: 16, 4 for events]
  timeout=TIME         webhook, otlp: response timeout [default: 10s]
  source=TEXT          webhook: the source attribute of the events [default: /podwatch]; otlp: the service name
                       [default: podwatch]
  token-file=PATH      webhook, otlp: file with a bearer token; rejected for http:// URLs
  insecure-token=allow webhook, otlp: sends the token to an http:// URL nevertheless
  ca=PATH              webhook, otlp: file with the CA certificates to trust [default: the system's]

Write a comma in a path or URL as `,,`.";

/// The default limit of waiting notices with `--every-change`.
const EVERY_CHANGE_QUEUE: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// Enough for a thousand notices a second at a receiver that takes 16 ms.
const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// The lines that are written at a time.
const FILE_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

/// Each request is a write to the cluster's storage.
const EVENTS_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(4).expect("not zero");

/// One parsed `--sink`.
#[derive(Clone, Debug)]
pub struct SinkSpec {
    /// The name in logs, metrics and the journal. Of a URL it contains the host only, since paths may hold secrets.
    pub name: String,
    /// The destination.
    pub address: Address,
    /// Rate, queue and retry limits.
    pub limits: Limits,
}

/// The destination of a sink.
#[derive(Clone)]
pub enum Address {
    /// Standard output.
    Stdout(LineFormat),
    /// A file of JSON lines.
    File(PathBuf, Option<Rotation>),
    /// A receiver of `CloudEvents`, or of messages by a template.
    Webhook(Uri, WebhookSettings),
    /// A receiver of logs in OTLP.
    Otlp(Uri, WebhookSettings),
    /// Kubernetes Events.
    Events,
}

/// Why a `--sink` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The kind of sink is unknown.
    #[error(
        "unknown sink `{0}`: use `stdout`, `stdout:json`, `file:PATH`, `webhook:URL`, `otlp:URL` or `events`; for a chat, \
         `webhook:URL,template=slack` or `template=teams`"
    )]
    Kind(String),
    /// The location is missing or invalid.
    #[error("`{kind}` needs {needs}, as in `{example}`")]
    Location {
        /// The kind as given.
        kind: String,
        /// What is missing or wrong.
        needs: String,
        /// A valid example.
        example: &'static str,
    },
    /// The option is unknown for this kind.
    #[error("unknown option `{option}` of `{kind}`: use {known} (write a comma in a path or URL as `,,`)")]
    Option {
        /// The kind of sink.
        kind: &'static str,
        /// The option as given.
        option: String,
        /// The valid options.
        known: String,
    },
    /// The token would be sent unencrypted.
    #[error(transparent)]
    InsecureToken(#[from] InsecureToken),
    /// The option's value is invalid.
    #[error("invalid option `{option}={value}`: expected {expected}")]
    Value {
        /// The option.
        option: String,
        /// The value as given.
        value: String,
        /// What is expected.
        expected: &'static str,
    },
}

/// Why a sink cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// The webhook cannot be set up.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// There is no client for Events.
    #[error("it needs a client of the cluster")]
    NoClient,
}

impl SinkSpec {
    /// Opens the sink. Does not call a webhook yet. `client` is for Kubernetes Events.
    pub fn open(&self, clock: Clock, client: Option<&Client>) -> Result<Box<dyn Sink>, OpenError> {
        Ok(match &self.address {
            Address::Stdout(shape) => Box::new(Stream::stdout(*shape)),
            Address::File(path, rotation) => Box::new(File::open(path, *rotation)?),
            Address::Webhook(url, settings) => Box::new(Webhook::new(url.clone(), settings.clone(), clock)?),
            Address::Otlp(url, settings) => {
                Box::new(Webhook::otlp_logs(url.clone(), settings.clone(), clock)?)
            }
            Address::Events => {
                let client = client.ok_or(OpenError::NoClient)?;
                Box::new(KubernetesEvents::new(client.clone()))
            }
        })
    }
}

impl SinkSpec {
    /// Shows the changed fields too, if the format is text.
    #[must_use]
    pub fn with_diff(mut self) -> Self {
        if let Address::Stdout(shape @ LineFormat::Text) = &mut self.address {
            *shape = LineFormat::Diff;
        }
        self
    }
}

impl SinkSpec {
    /// Lets every change wait, instead of the latest state of each object. The default limit of waiting notices is then higher.
    #[must_use]
    pub fn with_every_change(mut self) -> Self {
        self.limits.every_change = true;
        if self.limits.queue == Limits::default().queue {
            self.limits.queue = EVERY_CHANGE_QUEUE;
        }
        self
    }
}

impl FromStr for SinkSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = split(text).into_iter();
        let head = parts.next().unwrap_or_default();
        let (kind, place) = match head.split_once(':') {
            None => (&*head, ""),
            Some((kind, place)) => (kind, place),
        };
        let (kind, mut spec) = match kind {
            "stdout" => ("stdout", stdout(place)?),
            "file" => ("file", file(place)?),
            "webhook" => ("webhook", webhook(place)?),
            "otlp" => ("otlp", otlp(place)?),
            "events" if place.is_empty() => ("events", events()),
            _ => return Err(SpecError::Kind(head.clone())),
        };
        let (mut keep, mut is_rate_given) = (None, false);
        for part in parts {
            let (option, value) = part.split_once('=').unwrap_or((&part, ""));
            match (option, &mut spec.address) {
                ("name", _) => {
                    spec.name = parse_value(option, value, "a name of 1 to 100 visible characters", name)?;
                }
                ("rate", _) => {
                    let expected = "a positive number per second or minute, as in `10/s` or `30/m`";
                    spec.limits.rate = Some(parse_value(option, value, expected, rate)?);
                    is_rate_given = true;
                }
                ("queue", _) => {
                    let parse = |text: &str| text.parse::<NonZeroUsize>().ok();
                    spec.limits.queue = parse_value(option, value, "a positive number", parse)?;
                }
                ("retries", _) => {
                    spec.limits.retries =
                        Some(parse_value(option, value, "a number", |text| text.parse().ok())?);
                }
                ("concurrency", Address::Webhook(..) | Address::Otlp(..) | Address::Events) => {
                    let expected = "a number from 1 to 256";
                    let parse = |text: &str| text.parse().ok().filter(|n: &NonZeroUsize| n.get() <= 256);
                    spec.limits.concurrency = parse_value(option, value, expected, parse)?;
                }
                ("rotate", Address::File(_, rotation)) => {
                    let size = parse_value(option, value, "a size, as in `100MB` or `1GiB`", size)?;
                    *rotation = Some(Rotation { size, keep: 3 });
                }
                ("keep", Address::File(..)) => {
                    keep = Some(parse_value(option, value, "a number up to 1000", |text| {
                        text.parse().ok().filter(|keep| *keep <= 1000)
                    })?);
                }
                ("template", Address::Webhook(_, settings)) => {
                    let expected = "`slack`, `teams` or the path of a file";
                    settings.template = Some(parse_value(option, value, expected, TemplateSource::parse)?);
                }
                ("timeout", Address::Webhook(_, settings) | Address::Otlp(_, settings)) => {
                    settings.timeout = parse_value(
                        option,
                        value,
                        "a duration, as in `500ms`, `10s` or `2m`",
                        duration,
                    )?;
                }
                ("source", Address::Webhook(_, settings) | Address::Otlp(_, settings)) => {
                    let expected = "a URL or path without spaces";
                    let parse = |text: &str| text.parse::<Uri>().is_ok().then(|| text.to_owned());
                    settings.source = parse_value(option, value, expected, parse)?;
                }
                ("token-file", Address::Webhook(_, settings) | Address::Otlp(_, settings)) => {
                    settings.token_file = Some(parse_value(option, value, "the path of a file", path)?);
                }
                ("insecure-token", Address::Webhook(_, settings) | Address::Otlp(_, settings)) => {
                    let parse = |text: &str| (text == "allow").then_some(true);
                    settings.insecure_token = parse_value(option, value, "`allow`", parse)?;
                }
                ("ca", Address::Webhook(_, settings) | Address::Otlp(_, settings)) => {
                    settings.ca = Some(parse_value(option, value, "the path of a file", path)?);
                }
                _ => {
                    return Err(SpecError::Option {
                        kind,
                        option: option.to_owned(),
                        known: known_options(kind),
                    });
                }
            }
        }
        if let (Some(keep), Address::File(_, Some(rotation))) = (keep, &mut spec.address) {
            rotation.keep = keep;
        }
        if let Address::Webhook(url, settings) | Address::Otlp(url, settings) = &spec.address {
            settings.check_token(url)?;
            if settings.template.is_some() && !is_rate_given {
                spec.limits.rate = Some(per_second(1));
            }
        }
        Ok(spec)
    }
}

/// Splits at commas; `,,` is an escaped comma.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == ',' && characters.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("never empty").push(character);
        }
    }
    parts
}

fn stdout(shape: &str) -> Result<SinkSpec, SpecError> {
    let shape = match shape {
        "" | "text" => LineFormat::Text,
        "diff" => LineFormat::Diff,
        "json" => LineFormat::Json,
        _ => return Err(SpecError::Kind(format!("stdout:{shape}"))),
    };
    Ok(spec("stdout".to_owned(), Address::Stdout(shape), None))
}

fn file(place: &str) -> Result<SinkSpec, SpecError> {
    if place.is_empty() {
        return Err(SpecError::Location {
            kind: "file:".to_owned(),
            needs: "a path".to_owned(),
            example: "file:/var/log/podwatch.jsonl",
        });
    }
    let mut spec = spec(format!("file:{place}"), Address::File(place.into(), None), None);
    spec.limits.concurrency = FILE_CONCURRENCY;
    Ok(spec)
}

fn webhook(place: &str) -> Result<SinkSpec, SpecError> {
    let (url, host) = url("webhook:", place, "webhook:https://example.com/hook")?;
    let address = Address::Webhook(url, WebhookSettings::default());
    let mut spec = spec(format!("webhook:{host}"), address, Some(per_second(1000)));
    spec.limits.concurrency = DEFAULT_CONCURRENCY;
    Ok(spec)
}

fn otlp(place: &str) -> Result<SinkSpec, SpecError> {
    let (url, host) = url("otlp:", place, "otlp:http://collector:4318")?;
    let settings = WebhookSettings {
        source: "podwatch".to_owned(),
        ..WebhookSettings::default()
    };
    let address = Address::Otlp(url, settings);
    let mut spec = spec(format!("otlp:{host}"), address, Some(per_second(1000)));
    spec.limits.concurrency = DEFAULT_CONCURRENCY;
    Ok(spec)
}

fn events() -> SinkSpec {
    let mut spec = spec("events".to_owned(), Address::Events, Some(per_second(5)));
    spec.limits.concurrency = EVENTS_CONCURRENCY;
    spec
}

/// Parses a URL; returns it with its host and port.
fn url(kind: &str, place: &str, example: &'static str) -> Result<(Uri, String), SpecError> {
    let wrong = |needs: &str| SpecError::Location {
        kind: kind.to_owned(),
        needs: needs.to_owned(),
        example,
    };
    // Errors do not quote the URL: it may hold a secret.
    let url: Uri = place.parse().map_err(|_| wrong("a URL"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(wrong("a URL that starts with http:// or https://"));
    }
    let authority = url.authority().filter(|it| !it.host().is_empty());
    let authority = authority.ok_or_else(|| wrong("a URL with a host"))?.to_string();
    if authority.contains('@') {
        return Err(wrong(
            "a URL without user information (pass a token with `token-file=`)",
        ));
    }
    Ok((url, authority))
}

fn per_second(notices: u32) -> Rate {
    Rate {
        notices,
        period: Duration::from_secs(1),
    }
}

fn spec(name: String, address: Address, rate: Option<Rate>) -> SinkSpec {
    SinkSpec {
        name,
        address,
        limits: Limits {
            rate,
            ..Limits::default()
        },
    }
}

fn known_options(kind: &str) -> String {
    let own = match kind {
        "file" => ", `rotate`, `keep`",
        "webhook" => ", `template`, `concurrency`, `timeout`, `source`, `token-file`, `insecure-token`, `ca`",
        "otlp" => ", `concurrency`, `timeout`, `source`, `token-file`, `insecure-token`, `ca`",
        "events" => ", `concurrency`",
        _ => "",
    };
    format!("`name`, `rate`, `queue`, `retries`{own}")
}

fn parse_value<T>(
    option: &str,
    value: &str,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, SpecError> {
    parse(value).ok_or_else(|| SpecError::Value {
        option: option.to_owned(),
        value: value.to_owned(),
        expected,
    })
}

fn name(text: &str) -> Option<String> {
    let is_fit = (1..=100).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic());
    is_fit.then(|| text.to_owned())
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

fn rate(text: &str) -> Option<Rate> {
    let (notices, unit) = text.split_once('/')?;
    let every = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    Some(Rate {
        notices: notices.parse().ok().filter(|notices| *notices > 0)?,
        period: Duration::from_secs(every),
    })
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return None,
    };
    let duration = Duration::from_millis(number.checked_mul(milliseconds)?);
    (Duration::from_millis(1)..=Duration::from_hours(1))
        .contains(&duration)
        .then_some(duration)
}

fn size(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let bytes = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(bytes).filter(|size| *size > 0)
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout(shape) => f.debug_tuple("Stdout").field(shape).finish(),
            Self::File(path, rotation) => f.debug_tuple("File").field(path).field(rotation).finish(),
            // A webhook's path is often its password.
            Self::Webhook(url, _) => write!(f, "Webhook({:?}, ..)", url.host()),
            Self::Otlp(url, _) => write!(f, "Otlp({:?}, ..)", url.host()),
            Self::Events => f.write_str("Events"),
        }
    }
}

#[cfg(test)]
mod tests;
