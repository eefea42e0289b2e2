//! A sink as it is named on the command line.
//!
//! ```text
//!   webhook:https://example.com/hook,rate=10/s,retries=8
//!   └─────┘ └──────────────────────┘ └─────┘ └───────┘
//!     kind          place                options
//! ```

use std::{fmt, num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use http::Uri;
use windlass::runtime::Clock;

use super::{
    File, FileError, InsecureToken, Rotation, Shape, Sink, Stream, Webhook, WebhookError, WebhookSettings,
};
use crate::delivery::{Limits, Rate};

/// What `--help` says about sinks.
pub const SINK_HELP: &str = "\
stdout                 a line of text for each notice
stdout:diff            the same, and what changed
stdout:json            a line of JSON for each notice
file:PATH              lines of JSON, appended to a file; a new one is readable by its owner alone (mode 0600)
webhook:URL            CloudEvents, sent with POST to an address with http:// or https://

Options follow, each after a comma:
  name=NAME            what logs, metrics and the state file call it [default: its kind and place]
  rate=N/s             the most notices in a second (/m: in a minute) [default: 50/s for a webhook, else no limit]
  queue=N              the most notices that wait [default: 1000]
  retries=N            give a notice up after so many retries [default: never]
  rotate=SIZE, keep=N  file: begin a new one at this size, as in 100MB, and keep so many old ones [default: never, 3]
  timeout=TIME         webhook: how long an answer may take [default: 10s]
  source=TEXT          webhook: the events' source [default: /podwatch]
  token-file=PATH      webhook: a file with a bearer token; refused for http:// addresses
  insecure-token=allow webhook: sends the token to an http:// address all the same
  ca=PATH              webhook: a file with the certificates to trust [default: the system's]

A comma in a path or address is written as `,,`.";

/// One `--sink`.
#[derive(Clone, Debug)]
pub struct SinkSpec {
    /// What logs, metrics and the journal call it. It says nothing of an address but its host, since paths may hold secrets.
    pub name: String,
    /// Where it is.
    pub address: Address,
    /// How fast and how much.
    pub limits: Limits,
}

/// Where a sink is.
#[derive(Clone)]
pub enum Address {
    /// Standard output.
    Stdout(Shape),
    /// A file of JSON lines.
    File(PathBuf, Option<Rotation>),
    /// A receiver of `CloudEvents`.
    Webhook(Uri, WebhookSettings),
}

/// Why a text names no sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The kind of sink is not known.
    #[error("no sink is called `{0}`: use `stdout`, `stdout:json`, `file:PATH` or `webhook:URL`")]
    Kind(String),
    /// The kind needs a place, or another one.
    #[error("`{kind}` needs {needs}, as in `{example}`")]
    Place {
        /// As it was written.
        kind: String,
        /// What is missing or wrong.
        needs: String,
        /// One that is right.
        example: &'static str,
    },
    /// The option is not known here.
    #[error(
        "`{kind}` has no option `{option}`: it has {known} (a comma in a path or address is written as `,,`)"
    )]
    Option {
        /// The kind of sink.
        kind: &'static str,
        /// As it was written.
        option: String,
        /// Those that there are.
        known: String,
    },
    /// The token would be sent unencrypted.
    #[error(transparent)]
    InsecureToken(#[from] InsecureToken),
    /// The option's value makes no sense.
    #[error("`{option}={value}` is not {expected}")]
    Value {
        /// Which option.
        option: String,
        /// As it was written.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
}

/// Why a sink cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The webhook.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
}

impl SinkSpec {
    /// Opens it; a webhook is not called yet.
    pub fn open(&self, clock: Clock) -> Result<Box<dyn Sink>, OpenError> {
        Ok(match &self.address {
            Address::Stdout(shape) => Box::new(Stream::stdout(*shape)),
            Address::File(path, rotation) => Box::new(File::open(path, *rotation)?),
            Address::Webhook(url, settings) => Box::new(Webhook::new(url.clone(), settings.clone(), clock)?),
        })
    }
}

impl SinkSpec {
    /// What changed is shown too, if it is text for people.
    #[must_use]
    pub fn with_diff(mut self) -> Self {
        if let Address::Stdout(shape @ Shape::Text) = &mut self.address {
            *shape = Shape::Diff;
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
            _ => return Err(SpecError::Kind(head.clone())),
        };
        let mut keep = None;
        for part in parts {
            let (option, value) = part.split_once('=').unwrap_or((&part, ""));
            match (option, &mut spec.address) {
                ("name", _) => {
                    spec.name = value_of(option, value, "a name of 1 to 100 visible characters", name)?;
                }
                ("rate", _) => {
                    let expected = "a number above 0 in a second or minute, as in `10/s` or `30/m`";
                    spec.limits.rate = Some(value_of(option, value, expected, rate)?);
                }
                ("queue", _) => {
                    let parse = |text: &str| text.parse::<NonZeroUsize>().ok();
                    spec.limits.queue = value_of(option, value, "a number from 1 on", parse)?;
                }
                ("retries", _) => {
                    spec.limits.retries =
                        Some(value_of(option, value, "a number", |text| text.parse().ok())?);
                }
                ("rotate", Address::File(_, rotation)) => {
                    let size = value_of(option, value, "a size, as in `100MB` or `1GiB`", size)?;
                    *rotation = Some(Rotation { size, keep: 3 });
                }
                ("keep", Address::File(..)) => {
                    keep = Some(value_of(option, value, "a number up to 1000", |text| {
                        text.parse().ok().filter(|keep| *keep <= 1000)
                    })?);
                }
                ("timeout", Address::Webhook(_, settings)) => {
                    settings.timeout =
                        value_of(option, value, "a time, as in `500ms`, `10s` or `2m`", duration)?;
                }
                ("source", Address::Webhook(_, settings)) => {
                    let expected = "an address or path without spaces";
                    let parse = |text: &str| text.parse::<Uri>().is_ok().then(|| text.to_owned());
                    settings.source = value_of(option, value, expected, parse)?;
                }
                ("token-file", Address::Webhook(_, settings)) => {
                    settings.token_file = Some(value_of(option, value, "the path of a file", path)?);
                }
                ("insecure-token", Address::Webhook(_, settings)) => {
                    let parse = |text: &str| (text == "allow").then_some(true);
                    settings.insecure_token = value_of(option, value, "`allow`", parse)?;
                }
                ("ca", Address::Webhook(_, settings)) => {
                    settings.ca = Some(value_of(option, value, "the path of a file", path)?);
                }
                _ => {
                    return Err(SpecError::Option {
                        kind,
                        option: option.to_owned(),
                        known: options(kind),
                    });
                }
            }
        }
        if let (Some(keep), Address::File(_, Some(rotation))) = (keep, &mut spec.address) {
            rotation.keep = keep;
        }
        if let Address::Webhook(url, settings) = &spec.address {
            settings.check_token(url)?;
        }
        Ok(spec)
    }
}

/// At commas; two of them are one that belongs to the text.
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
        "" | "text" => Shape::Text,
        "diff" => Shape::Diff,
        "json" => Shape::Json,
        _ => return Err(SpecError::Kind(format!("stdout:{shape}"))),
    };
    Ok(spec("stdout".to_owned(), Address::Stdout(shape), None))
}

fn file(place: &str) -> Result<SinkSpec, SpecError> {
    if place.is_empty() {
        return Err(SpecError::Place {
            kind: "file:".to_owned(),
            needs: "a path".to_owned(),
            example: "file:/var/log/podwatch.jsonl",
        });
    }
    Ok(spec(
        format!("file:{place}"),
        Address::File(place.into(), None),
        None,
    ))
}

fn webhook(place: &str) -> Result<SinkSpec, SpecError> {
    let wrong = |needs: &str| SpecError::Place {
        kind: "webhook:".to_owned(),
        needs: needs.to_owned(),
        example: "webhook:https://example.com/hook",
    };
    // What is wrong with an address is not quoted: it may hold a secret.
    let url: Uri = place.parse().map_err(|_| wrong("an address"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(wrong("an address that begins with http:// or https://"));
    }
    let authority = url.authority().filter(|it| !it.host().is_empty());
    let authority = authority.ok_or_else(|| wrong("an address with a host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong(
            "an address without a user (give a token with `token-file=`)",
        ));
    }
    let rate = Rate {
        notices: 50,
        every: Duration::from_secs(1),
    };
    let name = format!("webhook:{authority}");
    Ok(spec(
        name,
        Address::Webhook(url, WebhookSettings::default()),
        Some(rate),
    ))
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

fn options(kind: &str) -> String {
    let own = match kind {
        "file" => ", `rotate`, `keep`",
        "webhook" => ", `timeout`, `source`, `token-file`, `insecure-token`, `ca`",
        _ => "",
    };
    format!("`name`, `rate`, `queue`, `retries`{own}")
}

fn value_of<T>(
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
        every: Duration::from_secs(every),
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
            // The path of a webhook is often its password.
            Self::Webhook(url, _) => write!(f, "Webhook({:?}, ..)", url.host()),
        }
    }
}

#[cfg(test)]
mod tests;
