//! A scenario as it is written down.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

/// A sequence of steps on a namespace of its own.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its extension; also the name of the namespace.
    pub name: String,
    /// The file's text: what it says itself is not prose of the server's.
    pub text: String,
    /// Whether `metadata.managedFields` take part. Elsewhere they would drown what a scenario is about.
    pub managed: bool,
    /// Names for what is written often.
    pub variables: BTreeMap<String, String>,
    /// Whether the built-in controllers of a real cluster are at work.
    pub controllers: bool,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// One step, under a name that is unique in its scenario.
#[derive(Clone, Debug)]
pub struct Step {
    /// What recordings and [differences](crate::compare::Differences) call it.
    pub name: String,
    /// The value of `{{each}}`.
    pub each: Option<String>,
    /// What is done.
    pub action: Action,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Action {
    /// A request, and its answer.
    Request(Request),
    /// A request, again and again until its answer is as wished; only the last answer is recorded.
    Until(Request, Wish),
    /// Opens a stream that goes on until the end of the scenario; its events are recorded here.
    Watch {
        /// What later waits call it.
        stream: String,
        /// How it is opened.
        request: Request,
        /// Whether bookmarks are recorded. On a real server they come when they come, so only by wish.
        bookmarks: bool,
    },
    /// Waits until a stream has got so far.
    Wait {
        /// Which stream.
        stream: String,
        /// How many recorded events it has in all.
        events: usize,
        /// Whether the server has ended it.
        closed: bool,
    },
    /// A kubectl command line; the exchanges it makes are recorded.
    Kubectl {
        /// Without the program's name.
        arguments: Vec<String>,
        /// Its standard input.
        stdin: Option<String>,
        /// Ends it after so many lines of output, for a command that watches.
        lines: Option<usize>,
    },
}

/// An HTTP request with placeholders.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, and so on.
    pub method: String,
    /// With the query, if it needs no encoding.
    pub path: String,
    /// Parameters to be encoded and appended.
    pub query: Vec<(String, String)>,
    /// Beside `Content-Type`.
    pub headers: Vec<(String, String)>,
    /// Whether it is sent without the administrator's credentials.
    pub stranger: bool,
    /// The content type of the body.
    pub content_type: String,
    /// What is sent.
    pub body: Payload,
    /// Variables to be set from the answer, by JSON pointer.
    pub capture: BTreeMap<String, String>,
    /// The parts of the answer that are recorded, by JSON pointer. Default: all of it.
    pub pick: Vec<String>,
}

/// What is sent.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Nothing.
    Empty,
    /// A JSON value, in whose strings placeholders are filled in.
    Json(Value),
    /// Text, as it is but for the placeholders.
    Text(String),
}

/// The answer that is waited for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// Its status code. Default: 200.
    #[serde(default = "ok")]
    pub status: u16,
    /// Where to look in it. Default: nowhere.
    #[serde(default)]
    pub pointer: Option<String>,
    /// What must be there.
    #[serde(default)]
    pub equals: Value,
}

fn ok() -> u16 {
    200
}

/// The content type of what is applied.
const APPLY: &str = "application/apply-patch+yaml";

/// The file's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// For the reader only.
    #[serde(rename = "about")]
    _about: String,
    #[serde(default)]
    managed: bool,
    #[serde(default, rename = "let")]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    controllers: bool,
    steps: Vec<Line>,
}

/// A step's form: exactly one of `get` … `options`, `wait`, `kubectl` and `define` says what it is.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    step: String,
    /// Carries the step out once for each of these.
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
    /// The applier.
    by: Option<String>,
    /// A CRD to be created; two more steps wait until it is served.
    define: Option<Value>,
    wait: Option<String>,
    kubectl: Option<Vec<String>>,

    #[serde(default)]
    query: BTreeMap<String, String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Whom the administrator impersonates.
    #[serde(rename = "as")]
    acting: Option<Acting>,
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
    until: Option<Wish>,
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

/// Somebody to act as.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Acting {
    Named(String),
    Described {
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

impl Acting {
    fn headers(self) -> Vec<(String, String)> {
        let (user, groups, uid, extra) = match self {
            Self::Named(user) => (user, Vec::new(), String::new(), BTreeMap::new()),
            Self::Described {
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
    /// Reads one file.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, text).with_context(|| format!("{} is not a scenario", path.display()))
    }

    /// Understands a file's text.
    pub fn parse(name: &str, text: String) -> Result<Self> {
        let file: File = serde_yaml_ng::from_str(&text)?;
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
            bail!("two steps are called `{name}`");
        }
        Ok(Self {
            name: name.to_owned(),
            managed: file.managed,
            text,
            variables: file.variables,
            controllers: file.controllers,
            steps,
        })
    }

    /// Whether it needs a kubectl.
    pub fn needs_kubectl(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step.action, Action::Kubectl { .. }))
    }
}

impl Line {
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
            for (suffix, action) in definition_steps(&definition)? {
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
                "it must have exactly one of get, head, options, post, put, patch, apply, delete, define, wait, kubectl"
            );
        };
        let mut headers: Vec<_> = self.headers.into_iter().collect();
        headers.extend(self.acting.into_iter().flat_map(Acting::headers));
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
            stranger: self.token.is_some(),
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
                (Some(_), Some(_)) => bail!("it has both `body` and `raw`"),
            },
            capture: self.capture,
            pick: self.pick,
        };
        Ok(match (self.until, self.watch) {
            (None, None) => Action::Request(request),
            (Some(wish), None) => Action::Until(request, wish),
            (None, Some(stream)) => Action::Watch {
                stream,
                request,
                bookmarks: self.bookmarks,
            },
            (Some(_), Some(_)) => bail!("it has both `until` and `watch`"),
        })
    }
}

/// Creates a CRD, waits until it is established, and until its first served version is served.
fn definition_steps(definition: &Value) -> Result<[(&'static str, Action); 3]> {
    let text = |pointer: &str| {
        definition
            .pointer(pointer)
            .and_then(Value::as_str)
            .with_context(|| format!("the definition has no {pointer}"))
    };
    let version = definition["spec"]["versions"]
        .as_array()
        .and_then(|versions| versions.iter().find(|version| version["served"] == true))
        .and_then(|version| version["name"].as_str())
        .context("the definition serves no version")?;
    let served = format!(
        "/apis/{}/{version}/{}",
        text("/spec/group")?,
        text("/spec/names/plural")?
    );
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let one = format!("{all}/{}", text("/metadata/name")?);
    let get = |path: String| Request {
        method: "GET".to_owned(),
        path,
        query: Vec::new(),
        headers: Vec::new(),
        stranger: false,
        content_type: "application/json".to_owned(),
        body: Payload::Empty,
        capture: BTreeMap::new(),
        pick: Vec::new(),
    };
    let wish = |pointer: Option<&str>, equals: Value| Wish {
        status: 200,
        pointer: pointer.map(str::to_owned),
        equals,
    };
    let create = Request {
        method: "POST".to_owned(),
        body: Payload::Json(definition.clone()),
        ..get(all.to_owned())
    };
    Ok([
        ("", Action::Request(create)),
        (
            " established",
            Action::Until(get(one), wish(Some("/status/conditions/1/status"), "True".into())),
        ),
        (" served", Action::Until(get(served), wish(None, Value::Null))),
    ])
}
