//! The format of scenarios.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::{definition, webhook::Script};

/// A sequence of steps in its own namespace.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// File name without extension; also the name of the namespace.
    pub name: String,
    /// Text of the file, to distinguish its own descriptions from the server's.
    pub text: String,
    /// Whether `metadata.managedFields` are compared. In most scenarios they would obscure the rest.
    pub managed: bool,
    /// Variables declared with `let`.
    pub variables: BTreeMap<String, String>,
    /// Whether the controller manager of a real cluster runs.
    pub controllers: bool,
    /// Endpoints of the scenario's webhook server, by name. Without any, there is no server.
    pub webhooks: BTreeMap<String, Script>,
    /// Steps, in order.
    pub steps: Vec<Step>,
}

/// A step, with a name that is unique in its scenario.
#[derive(Clone, Debug)]
pub struct Step {
    /// Name in recordings and [intentional differences](crate::compare::IntentionalDifferences).
    pub name: String,
    /// Value of `{{each}}`.
    pub each: Option<String>,
    /// The action.
    pub action: Action,
}

/// Action of a step.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a request and records the response.
    Request(Request),
    /// Repeats a request until its response meets the condition; only the last response is recorded.
    Until(Request, ResponseCondition),
    /// Opens a watch that stays open until the end of the scenario; its events are recorded with this step.
    Watch {
        /// Name of the stream, for later waits.
        stream: String,
        /// The watch request.
        request: Request,
        /// Whether bookmarks are recorded. A real server sends them at unpredictable times, so the default is no.
        bookmarks: bool,
    },
    /// Waits for events of a stream.
    Wait {
        /// Name of the stream.
        stream: String,
        /// Total number of recorded events to wait for.
        events: usize,
        /// Whether to wait until the server ends the stream.
        closed: bool,
    },
    /// Changes the behaviour of webhooks.
    SetWebhooks(BTreeMap<String, Script>),
    /// Records the requests that a webhook has received since the last such step.
    Received {
        /// Name of the webhook.
        webhook: String,
        /// JSON pointers of the parts of each request to record. Default: all of it.
        pick: Vec<String>,
        /// Whether the order and number of equal requests are unpredictable: they are recorded sorted, without duplicates.
        distinct: bool,
    },
    /// Runs a kubectl command line and records its HTTP exchanges.
    Kubectl {
        /// Arguments, without the program name.
        arguments: Vec<String>,
        /// Standard input.
        stdin: Option<String>,
        /// Kills the command after this many lines of output, for commands that watch.
        lines: Option<usize>,
    },
}

/// An HTTP request with placeholders.
#[derive(Clone, Debug)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Path, with the query if it needs no encoding.
    pub path: String,
    /// Query parameters to encode and append.
    pub query: Vec<(String, String)>,
    /// Headers besides `Content-Type`.
    pub headers: Vec<(String, String)>,
    /// Whether to send it without the administrator's credentials.
    pub anonymous: bool,
    /// Content type of the body.
    pub content_type: String,
    /// The body.
    pub body: Payload,
    /// Variables to set from the response, by JSON pointer.
    pub capture: BTreeMap<String, String>,
    /// JSON pointers of the parts of the response to record. Default: all of it.
    pub pick: Vec<String>,
    /// Whether the order of the keys in a JSON response is recorded, for documents that scripts match as text.
    pub ordered: bool,
}

/// Body of a request.
#[derive(Clone, Debug)]
pub enum Payload {
    /// No body.
    Empty,
    /// JSON; placeholders in its strings are replaced.
    Json(Value),
    /// Text; placeholders are replaced.
    Text(String),
}

/// Condition on a response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseCondition {
    /// Status code. Default: 200.
    #[serde(default = "ok")]
    pub status: u16,
    /// JSON pointer into the body. Default: the body is not checked.
    #[serde(default)]
    pub pointer: Option<String>,
    /// Value required at the pointer.
    #[serde(default)]
    pub equals: Value,
    /// Texts that the body must contain.
    #[serde(default)]
    pub contains: Vec<String>,
    /// A webhook that must have been called since the step began. What all webhooks received until then is not recorded.
    #[serde(default)]
    pub called: Option<String>,
}

fn ok() -> u16 {
    200
}

/// Content type of server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    /// Description for readers.
    #[serde(rename = "about")]
    _about: String,
    #[serde(default)]
    managed: bool,
    #[serde(default, rename = "let")]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    controllers: bool,
    #[serde(default)]
    webhooks: BTreeMap<String, Script>,
    steps: Vec<StepEntry>,
}

/// A step in a file. Exactly one of `get` … `options`, `wait`, `kubectl`, `webhooks`, `received`,
/// `distinct` and `define` sets the action.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepEntry {
    step: String,
    /// Runs the step once for each of these values.
    #[serde(default)]
    each: Vec<String>,
    get: Option<String>,
    head: Option<String>,
    options: Option<String>,
    post: Option<String>,
    put: Option<String>,
    patch: Option<String>,
    delete: Option<String>,
    /// A server-side apply: a PATCH with its content type.
    apply: Option<String>,
    /// Field manager of an apply.
    by: Option<String>,
    /// A CRD to create; two more steps wait until it is served.
    define: Option<Value>,
    wait: Option<String>,
    kubectl: Option<Vec<String>>,
    /// Webhooks whose behaviour changes.
    webhooks: Option<BTreeMap<String, Script>>,
    /// A webhook whose received requests are recorded.
    received: Option<String>,
    /// The same, as a set.
    distinct: Option<String>,

    #[serde(default)]
    query: BTreeMap<String, String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The user that the administrator impersonates.
    #[serde(rename = "as")]
    impersonate: Option<Impersonation>,
    /// A bearer token instead of the administrator's credentials; empty for no credentials at all.
    token: Option<String>,
    #[serde(rename = "type")]
    content_type: Option<String>,
    body: Option<Value>,
    raw: Option<String>,
    #[serde(default)]
    capture: BTreeMap<String, String>,
    #[serde(default)]
    pick: Vec<String>,
    #[serde(default)]
    ordered: bool,
    until: Option<ResponseCondition>,
    watch: Option<String>,
    #[serde(default)]
    bookmarks: bool,
    #[serde(default)]
    events: usize,
    #[serde(default)]
    closed: bool,
    stdin: Option<String>,
    lines: Option<usize>,
}

/// An impersonated user.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Impersonation {
    User(String),
    Full {
        #[serde(default)]
        user: String,
        #[serde(default)]
        groups: Vec<String>,
        #[serde(default)]
        uid: String,
        #[serde(default)]
        extra: BTreeMap<String, Vec<String>>,
    },
}

impl Impersonation {
    fn headers(self) -> Vec<(String, String)> {
        let (user, groups, uid, extra) = match self {
            Self::User(user) => (user, Vec::new(), String::new(), BTreeMap::new()),
            Self::Full {
                user,
                groups,
                uid,
                extra,
            } => (user, groups, uid, extra),
        };
        let mut headers = vec![
            ("Impersonate-User".to_owned(), user),
            ("Impersonate-Uid".to_owned(), uid),
        ];
        headers.retain(|(_, value)| !value.is_empty());
        let groups = groups
            .into_iter()
            .map(|group| ("Impersonate-Group".to_owned(), group));
        headers.extend(groups);
        for (key, values) in extra {
            let name = format!("Impersonate-Extra-{key}");
            headers.extend(values.into_iter().map(|value| (name.clone(), value)));
        }
        headers
    }
}

impl Scenario {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, text).with_context(|| format!("invalid scenario {}", path.display()))
    }

    /// Parses a file's text.
    pub fn parse(name: &str, text: String) -> Result<Self> {
        let file: ScenarioFile = serde_yaml_ng::from_str(&text)?;
        let mut steps = Vec::new();
        for line in file.steps {
            let title = line.step.clone();
            line.expand(&mut steps)
                .with_context(|| format!("step `{title}`"))?;
        }
        let mut names: Vec<_> = steps.iter().map(|step| &step.name).collect();
        names.sort_unstable();
        if let Some(name) = names
            .iter()
            .zip(names.iter().skip(1))
            .find_map(|(a, b)| (a == b).then_some(a))
        {
            bail!("duplicate step name `{name}`");
        }
        Ok(Self {
            name: name.to_owned(),
            managed: file.managed,
            text,
            variables: file.variables,
            controllers: file.controllers,
            webhooks: file.webhooks,
            steps,
        })
    }

    /// Whether a step runs kubectl.
    pub fn needs_kubectl(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step.action, Action::Kubectl { .. }))
    }
}

impl StepEntry {
    fn expand(mut self, steps: &mut Vec<Step>) -> Result<()> {
        let each = std::mem::take(&mut self.each);
        if each.is_empty() {
            return self.push(None, steps);
        }
        for value in each {
            self.clone().push(Some(&value), steps)?;
        }
        Ok(())
    }

    fn push(mut self, each: Option<&str>, steps: &mut Vec<Step>) -> Result<()> {
        let name = match each {
            Some(value) => format!("{} {value}", self.step),
            None => self.step.clone(),
        };
        let mut add = |name: String, action| {
            let each = each.map(str::to_owned);
            steps.push(Step { name, each, action });
        };
        if let Some(definition) = self.define.take() {
            for (suffix, action) in definition::steps(&definition)? {
                add(format!("{name}{suffix}"), action);
            }
            return Ok(());
        }
        add(name, self.action()?);
        Ok(())
    }

    fn action(self) -> Result<Action> {
        if let Some(stream) = self.wait {
            ensure!(
                self.events > 0 || self.closed,
                "`wait` needs `events` or `closed`"
            );
            let (events, closed) = (self.events, self.closed);
            return Ok(Action::Wait {
                stream,
                events,
                closed,
            });
        }
        if let Some(scripts) = self.webhooks {
            return Ok(Action::SetWebhooks(scripts));
        }
        let distinct = self.distinct.is_some();
        if let Some(webhook) = self.received.or(self.distinct) {
            let pick = self.pick;
            return Ok(Action::Received {
                webhook,
                pick,
                distinct,
            });
        }
        if let Some(arguments) = self.kubectl {
            let (stdin, lines) = (self.stdin, self.lines);
            return Ok(Action::Kubectl {
                arguments,
                stdin,
                lines,
            });
        }
        let mut targets = [
            ("GET", self.get),
            ("HEAD", self.head),
            ("OPTIONS", self.options),
            ("POST", self.post),
            ("PUT", self.put),
            ("PATCH", self.patch),
            ("PATCH", self.apply.clone()),
            ("DELETE", self.delete),
        ]
        .into_iter()
        .filter_map(|(method, path)| Some((method, path?)));
        let (Some((method, path)), None) = (targets.next(), targets.next()) else {
            bail!(
                "a step must have exactly one of get, head, options, post, put, patch, apply, delete, define, wait, kubectl, webhooks, received, distinct"
            );
        };
        let mut headers: Vec<_> = self.headers.into_iter().collect();
        headers.extend(self.impersonate.into_iter().flat_map(Impersonation::headers));
        let bearer = self.token.as_deref().filter(|token| !token.is_empty());
        headers.extend(bearer.map(|token| ("Authorization".to_owned(), format!("Bearer {token}"))));
        let request = Request {
            method: method.to_owned(),
            path,
            query: {
                let manager = self.by.map(|by| ("fieldManager".to_owned(), by));
                self.query.into_iter().chain(manager).collect()
            },
            headers,
            anonymous: self.token.is_some(),
            content_type: self.content_type.unwrap_or_else(|| {
                let kind = if self.apply.is_some() {
                    APPLY
                } else {
                    "application/json"
                };
                kind.to_owned()
            }),
            body: match (self.body, self.raw) {
                (None, None) => Payload::Empty,
                (Some(json), None) => Payload::Json(json),
                (None, Some(text)) => Payload::Text(text),
                (Some(_), Some(_)) => bail!("a step cannot have both `body` and `raw`"),
            },
            capture: self.capture,
            pick: self.pick,
            ordered: self.ordered,
        };
        Ok(match (self.until, self.watch) {
            (None, None) => Action::Request(request),
            (Some(condition), None) => Action::Until(request, condition),
            (None, Some(stream)) => Action::Watch {
                stream,
                request,
                bookmarks: self.bookmarks,
            },
            (Some(_), Some(_)) => bail!("a step cannot have both `until` and `watch`"),
        })
    }
}
