//! Templates of messages for chats and other receivers of webhooks: a JSON document with placeholders in its strings.
//!
//! ```text
//!   { "text": "{{kind}} {{key}} was {{event}}" }  ──► parsed once ──► with the values of a notice ──► JSON
//! ```
//!
//! The document is parsed before anything is inserted, and written as JSON afterwards, so a value cannot leave its string, whatever
//! it contains. Values come from the notice, which is redacted. Each is cut, and their number is limited, so a message is bounded.

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
    str::FromStr,
};

use windlass::serde_json::{self, Map, Value};

use super::{event_object::EventObject, text};
use crate::notice::Notice;

/// The largest template.
const MAX_TEMPLATE_BYTES: u64 = 64 << 10;

/// The most placeholders of a template.
const MAX_PLACEHOLDERS: usize = 64;

/// The most characters of a value.
const MAX_VALUE_CHARS: usize = 1000;

/// A message for Slack's incoming webhooks, and for chats that are compatible with them (Mattermost, Rocket.Chat, Discord's `/slack`).
const SLACK: &str = r#"{ "text": "*{{event}}* {{kind|slack}} `{{key|slack}}`\n{{changes|slack}}" }"#;

/// The same about a Kubernetes Event: what happened, and not that an Event was created.
const SLACK_EVENT: &str = r#"{ "text": "*{{object.type|slack}}: {{reason|slack}}* `{{involvedObject|slack}}`\n{{message|slack}}" }"#;

/// An adaptive card, as the workflows of Microsoft Teams accept it.
const TEAMS: &str = r#"{
    "type": "message",
    "attachments": [{
        "contentType": "application/vnd.microsoft.card.adaptive",
        "content": {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
            "body": [
                { "type": "TextBlock", "weight": "bolder", "wrap": true, "text": "{{event}} {{kind|markdown}} {{key|markdown}}" },
                { "type": "TextBlock", "wrap": true, "text": "{{changes|markdown}}" }
            ]
        }
    }]
}"#;

/// The same about a Kubernetes Event.
const TEAMS_EVENT: &str = r#"{
    "type": "message",
    "attachments": [{
        "contentType": "application/vnd.microsoft.card.adaptive",
        "content": {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
            "body": [
                {
                    "type": "TextBlock", "weight": "bolder", "wrap": true,
                    "text": "{{object.type|markdown}}: {{reason|markdown}} {{involvedObject|markdown}}"
                },
                { "type": "TextBlock", "wrap": true, "text": "{{message|markdown}}" }
            ]
        }
    }]
}"#;

/// Where a template comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateSource {
    /// The built-in one for Slack.
    Slack,
    /// The built-in one for Microsoft Teams.
    Teams,
    /// A file.
    File(PathBuf),
}

impl TemplateSource {
    /// Parses `slack`, `teams`, or the path of a file.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "" => None,
            "slack" => Some(Self::Slack),
            "teams" => Some(Self::Teams),
            path => Some(Self::File(path.into())),
        }
    }

    /// Reads and parses the template.
    pub fn load(&self) -> Result<Template, TemplateError> {
        match self {
            Self::Slack => SLACK.parse::<Template>()?.with_events(SLACK_EVENT),
            Self::Teams => TEAMS.parse::<Template>()?.with_events(TEAMS_EVENT),
            Self::File(path) => read(path)?
                .parse()
                .map_err(|cause: TemplateError| TemplateError::InFile {
                    path: path.clone(),
                    cause: Box::new(cause),
                }),
        }
    }
}

fn read(path: &Path) -> Result<String, TemplateError> {
    let error = |cause| TemplateError::Io {
        path: path.to_owned(),
        cause,
    };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(error)?;
    file.take(MAX_TEMPLATE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(error)?;
    Ok(text)
}

/// Why a template cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The file cannot be read.
    #[error("cannot read the template {}: {cause}; `template=` takes a file, `slack` or `teams`", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        cause: std::io::Error,
    },
    /// The template of a file is invalid.
    #[error("invalid template {}: {cause}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: Box<TemplateError>,
    },
    /// The template is too large.
    #[error("it has more than {MAX_TEMPLATE_BYTES} bytes")]
    TooLarge,
    /// The template is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// It has no placeholder, so that all messages would be the same.
    #[error("it has no placeholder, as in `\"text\": \"{{{{kind}}}} {{{{key}}}} was {{{{event}}}}\"`")]
    NoPlaceholder,
    /// It has too many placeholders.
    #[error("it has more than {MAX_PLACEHOLDERS} placeholders")]
    TooManyPlaceholders,
    /// A placeholder does not end.
    #[error("`{{{{` without `}}}}` in {0:?}")]
    Unclosed(String),
    /// A placeholder is unknown.
    #[error("unknown placeholder `{{{{{0}}}}}`: use {known}, or a field of the object, as in `{{{{object.spec.nodeName}}}}` or \
             `{{{{object.metadata.labels[\"app\"]}}}}`", known = known_placeholders())]
    Unknown(String),
    /// A filter is unknown.
    #[error("unknown filter `{0}`: use `slack` or `markdown`, as in `{{{{key|slack}}}}`")]
    UnknownFilter(String),
}

/// A parsed template.
#[derive(Clone, Debug)]
pub struct Template {
    root: Node,
    /// What is sent about a Kubernetes Event instead.
    of_event: Option<Node>,
}

#[derive(Clone, Debug)]
enum Node {
    /// A value without placeholders.
    Fixed(Value),
    Text(Vec<Part>),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

#[derive(Clone, Debug)]
enum Part {
    Literal(String),
    Placeholder(Source, Option<Escape>),
}

/// What a placeholder stands for.
#[derive(Clone, Debug)]
enum Source {
    Field(fn(&Notice) -> String),
    /// A field of the object.
    Object(Vec<Step>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(usize),
}

/// Makes a value harmless in a markup, in which it could otherwise mention everyone or show a link.
#[derive(Clone, Copy, Debug)]
enum Escape {
    Slack,
    Markdown,
}

type Field = (&'static str, fn(&Notice) -> String);

/// The placeholders without a path.
const FIELDS: [Field; 16] = [
    ("event", |notice| notice.event.to_string()),
    ("kind", |notice| notice.kind.kind.clone()),
    ("apiVersion", |notice| notice.kind.api_version.clone()),
    ("key", |notice| notice.key.to_string()),
    ("namespace", |notice| {
        notice.key.namespace().unwrap_or_default().to_owned()
    }),
    ("name", |notice| notice.key.name().to_owned()),
    ("uid", |notice| notice.uid.clone().unwrap_or_default()),
    ("resourceVersion", |notice| {
        notice.resource_version.clone().unwrap_or_default()
    }),
    ("time", |notice| notice.time.to_string()),
    ("id", Notice::id),
    ("changes", |notice| text::changes(notice)),
    ("coalesced", |notice| notice.coalesced.to_string()),
    ("text", |notice| text::message(notice)),
    ("reason", |notice| of_event(notice, |event| event.reason)),
    ("involvedObject", |notice| {
        of_event(notice, |event| event.involved_object)
    }),
    ("message", |notice| of_event(notice, |event| event.message)),
];

/// A part of a Kubernetes Event; empty for other objects.
fn of_event(notice: &Notice, part: fn(EventObject) -> String) -> String {
    EventObject::of(notice).map(part).unwrap_or_default()
}

fn known_placeholders() -> String {
    FIELDS.map(|(name, _)| format!("`{name}`")).join(", ")
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        if text.len() as u64 > MAX_TEMPLATE_BYTES {
            return Err(TemplateError::TooLarge);
        }
        let document: Value =
            serde_json::from_str(text).map_err(|error| TemplateError::NotJson(error.to_string()))?;
        let mut placeholders = 0;
        let root = node(document, &mut placeholders)?;
        match placeholders {
            0 => Err(TemplateError::NoPlaceholder),
            1..=MAX_PLACEHOLDERS => Ok(Self { root, of_event: None }),
            _ => Err(TemplateError::TooManyPlaceholders),
        }
    }
}

impl Template {
    /// The message for a notice, as JSON.
    pub fn render(&self, notice: &Notice) -> Vec<u8> {
        let of_event = self
            .of_event
            .as_ref()
            .filter(|_| EventObject::of(notice).is_some());
        let root = of_event.unwrap_or(&self.root);
        serde_json::to_vec(&render(root, notice)).expect("string keys and JSON values encode")
    }

    /// Adds another template for Kubernetes Events.
    fn with_events(mut self, template: &str) -> Result<Self, TemplateError> {
        self.of_event = Some(template.parse::<Self>()?.root);
        Ok(self)
    }
}

fn node(value: Value, placeholders: &mut usize) -> Result<Node, TemplateError> {
    Ok(match value {
        Value::String(text) => {
            let parts = parts(&text)?;
            let found = parts.iter().filter(|part| matches!(part, Part::Placeholder(..)));
            match found.count() {
                0 => Node::Fixed(Value::String(text)),
                found => {
                    *placeholders += found;
                    Node::Text(parts)
                }
            }
        }
        Value::Array(items) => Node::List(
            items
                .into_iter()
                .map(|item| node(item, placeholders))
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(fields) => Node::Object(
            fields
                .into_iter()
                .map(|(name, value)| Ok((name, node(value, placeholders)?)))
                .collect::<Result<_, TemplateError>>()?,
        ),
        fixed => Node::Fixed(fixed),
    })
}

fn parts(text: &str) -> Result<Vec<Part>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once("{{") {
        let (inner, after) = after
            .split_once("}}")
            .ok_or_else(|| TemplateError::Unclosed(text.chars().take(80).collect()))?;
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.to_owned()));
        }
        parts.push(placeholder(inner.trim())?);
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.to_owned()));
    }
    Ok(parts)
}

fn placeholder(text: &str) -> Result<Part, TemplateError> {
    let (name, escape) = match text.split_once('|') {
        None => (text, None),
        Some((name, filter)) => match filter.trim() {
            "slack" => (name.trim(), Some(Escape::Slack)),
            "markdown" => (name.trim(), Some(Escape::Markdown)),
            unknown => return Err(TemplateError::UnknownFilter(unknown.to_owned())),
        },
    };
    let field = FIELDS.iter().find(|(field, _)| *field == name);
    let source = match field {
        Some((_, value)) => Source::Field(*value),
        None => Source::Object(
            name.strip_prefix("object")
                .and_then(path)
                .ok_or_else(|| TemplateError::Unknown(text.to_owned()))?,
        ),
    };
    Ok(Part::Placeholder(source, escape))
}

/// Parses `.spec.containers[0].image` or `.metadata.labels["a.b/c"]`.
fn path(mut text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while !text.is_empty() {
        if let Some(rest) = text.strip_prefix("[\"") {
            let (key, rest) = rest.split_once("\"]")?;
            steps.push(Step::Key(key.to_owned()));
            text = rest;
        } else if let Some(rest) = text.strip_prefix('[') {
            let (number, rest) = rest.split_once(']')?;
            steps.push(Step::Item(number.parse().ok()?));
            text = rest;
        } else {
            let rest = text.strip_prefix('.')?;
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let key = &rest[..end];
            let is_name = !key.is_empty()
                && key
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '$'));
            if !is_name {
                return None;
            }
            steps.push(Step::Key(key.to_owned()));
            text = &rest[end..];
        }
    }
    (!steps.is_empty()).then_some(steps)
}

fn render(node: &Node, notice: &Notice) -> Value {
    match node {
        Node::Fixed(value) => value.clone(),
        Node::Text(parts) => Value::String(parts.iter().map(|part| part.render(notice)).collect()),
        Node::List(items) => Value::Array(items.iter().map(|item| render(item, notice)).collect()),
        Node::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), render(value, notice)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

impl Part {
    fn render(&self, notice: &Notice) -> String {
        let (source, escape) = match self {
            Self::Literal(text) => return text.clone(),
            Self::Placeholder(source, escape) => (source, escape),
        };
        let value = match source {
            Source::Field(value) => value(notice),
            Source::Object(path) => notice
                .object
                .as_deref()
                .and_then(|object| at(object, path))
                .map_or_else(String::new, display),
        };
        let value = bounded(&value);
        match escape {
            None => value,
            Some(escape) => escape.apply(&value),
        }
    }
}

fn at<'a>(object: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Item(number) => value.get(number),
    })
}

/// A string as it is, anything else as JSON.
fn display(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Cuts a value, and replaces control characters: a value must not look like further lines of the message.
fn bounded(value: &str) -> String {
    let mut characters = value.chars();
    let mut text: String = characters
        .by_ref()
        .take(MAX_VALUE_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

impl Escape {
    fn apply(self, value: &str) -> String {
        let mut text = String::with_capacity(value.len());
        for character in value.chars() {
            match (self, character) {
                // https://docs.slack.dev/messaging/formatting-message-text: these three alone are control characters.
                (Self::Slack, '&') => text.push_str("&amp;"),
                (Self::Slack, '<') => text.push_str("&lt;"),
                (Self::Slack, '>') => text.push_str("&gt;"),
                // A backtick would end the code span around a value.
                (Self::Slack, '`') => text.push('\''),
                (Self::Markdown, c)
                    if c.is_ascii_punctuation() && !matches!(c, '.' | ',' | ':' | '/' | '-') =>
                {
                    text.push('\\');
                    text.push(c);
                }
                (_, c) => text.push(c),
            }
        }
        text
    }
}

impl fmt::Display for TemplateSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slack => f.write_str("slack"),
            Self::Teams => f.write_str("teams"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;
    use windlass::kube::core::{ApiResource, GroupVersionKind};

    use super::*;
    use crate::{
        delivery::testing::pod,
        notice::{EventType, FieldChange},
    };

    fn notice(labels: &Value) -> Notice {
        let mut notice = pod("web", "1", 7).what(EventType::Updated).build();
        notice.object = Some(Arc::new(json!({
            "metadata": { "name": "web", "labels": labels },
            "spec": { "containers": [{ "image": "nginx:1" }], "replicas": 3, "none": null },
        })));
        notice.changes = vec![FieldChange {
            path: "spec.replicas".to_owned(),
            old: Some(json!(1)),
            new: Some(json!(3)),
        }];
        notice
    }

    fn rendered(template: &str, notice: &Notice) -> Value {
        let template: Template = template
            .parse()
            .unwrap_or_else(|error| panic!("{template}: {error}"));
        serde_json::from_slice(&template.render(notice)).expect("JSON")
    }

    #[test]
    fn placeholders_are_replaced_in_strings_at_any_depth() {
        let template = r#"{
            "text": "{{ event }} {{kind}} {{key}}: {{changes}}", "n": 1,
            "list": ["{{object.spec.containers[0].image}}", "{{object.metadata.labels[\"a.b/c\"]}}", { "x": "{{object.spec.replicas}}" }],
            "absent": "<{{object.spec.absent.deep}}{{object.spec.none}}{{object.spec.containers[9]}}>",
            "{{name}}": "{{object.spec.containers}}"
        }"#;
        assert_eq!(
            rendered(template, &notice(&json!({ "a.b/c": "d" }))),
            json!({
                "text": "updated Pod default/web: spec.replicas: 1 → 3", "n": 1,
                "list": ["nginx:1", "d", { "x": "3" }],
                "absent": "<>",
                "{{name}}": "[{\"image\":\"nginx:1\"}]",
            })
        );
    }

    #[test]
    fn values_cannot_leave_their_string() {
        let evil = "\", \"channel\": \"#general\", \"x\": \"{{uid}}\n\u{1b}[2J";
        let template = r#"{ "text": "{{object.metadata.labels.evil}}" }"#;
        let message = rendered(template, &notice(&json!({ "evil": evil })));
        assert_eq!(
            message,
            json!({ "text": "\", \"channel\": \"#general\", \"x\": \"{{uid}}  [2J" })
        );
    }

    #[test]
    fn filters_make_values_harmless_in_markup() {
        let labels = json!({ "evil": "<!channel> `a` & [x](http://e.vil) *b* <https://e.vil|click>" });
        let template = r#"{ "s": "{{object.metadata.labels.evil|slack}}", "m": "{{ object.metadata.labels.evil | markdown }}" }"#;
        let message = rendered(template, &notice(&labels));
        assert_eq!(
            message["s"],
            "&lt;!channel&gt; 'a' &amp; [x](http://e.vil) *b* &lt;https://e.vil|click&gt;"
        );
        assert_eq!(
            message["m"],
            "\\<\\!channel\\> \\`a\\` \\& \\[x\\]\\(http://e.vil\\) \\*b\\* \\<https://e.vil\\|click\\>"
        );
    }

    #[test]
    fn built_in_templates_escape_what_they_insert() {
        let mut evil = notice(&json!({}));
        evil.changes[0].new = Some(json!("<!channel>"));
        let slack = TemplateSource::Slack.load().expect("valid").render(&evil);
        let slack: Value = serde_json::from_slice(&slack).expect("JSON");
        assert_eq!(
            slack,
            json!({ "text": "*updated* Pod `default/web`\nspec.replicas: 1 → \"&lt;!channel&gt;\"" })
        );
        let teams = TemplateSource::Teams.load().expect("valid").render(&evil);
        let teams: Value = serde_json::from_slice(&teams).expect("JSON");
        assert_eq!(
            teams["attachments"][0]["content"]["body"][1]["text"],
            "spec.replicas: 1 → \\\"\\<\\!channel\\>\\\""
        );
    }

    #[test]
    fn built_in_templates_say_what_an_event_says() {
        let mut event = notice(&json!({}));
        let kind = GroupVersionKind::gvk("", "v1", "Event");
        event.kind = Arc::new(ApiResource::from_gvk(&kind));
        event.object = Some(Arc::new(json!({
            "type": "Warning", "reason": "RebootFailed", "involvedObject": { "kind": "Node", "name": "n1" },
            "message": "node n1: <!channel>\nno new boot ID",
        })));
        let rendered = |source: TemplateSource, notice: &Notice| -> Value {
            let message = source.load().expect("valid").render(notice);
            serde_json::from_slice(&message).expect("JSON")
        };
        assert_eq!(
            rendered(TemplateSource::Slack, &event),
            json!({ "text": "*Warning: RebootFailed* `Node n1`\nnode n1: &lt;!channel&gt; no new boot ID" })
        );
        let teams = rendered(TemplateSource::Teams, &event);
        let body = &teams["attachments"][0]["content"]["body"];
        assert_eq!(body[0]["text"], "Warning: RebootFailed Node n1");
        assert_eq!(body[1]["text"], "node n1: \\<\\!channel\\> no new boot ID");
        event.event = EventType::Deleted;
        event.changes.clear();
        assert_eq!(
            rendered(TemplateSource::Slack, &event),
            json!({ "text": "*deleted* Event `default/web`\n" })
        );
    }

    #[test]
    fn long_values_are_cut() {
        let message = rendered(
            r#"{ "text": "{{object.metadata.labels.long}}" }"#,
            &notice(&json!({ "long": "é".repeat(5000) })),
        );
        assert_eq!(message["text"], format!("{}…", "é".repeat(MAX_VALUE_CHARS)));
    }

    #[test]
    fn invalid_template_is_rejected_with_reason() {
        let many = format!("[{}\"\"]", "\"{{name}}\",".repeat(MAX_PLACEHOLDERS + 1));
        let large = format!("[\"{}\"]", "x".repeat(64 << 10));
        for (template, expected) in [
            (
                "text: {{name}}",
                "it is not JSON: expected ident at line 1 column 2",
            ),
            (
                "{ \"text\": \"hello\" }",
                "it has no placeholder, as in `\"text\": \"{{kind}}",
            ),
            ("[\"{{name\"]", "`{{` without `}}` in \"{{name\""),
            (
                "[\"{{nam}}\"]",
                "unknown placeholder `{{nam}}`: use `event`, `kind`, ",
            ),
            ("[\"{{}}\"]", "unknown placeholder `{{}}`"),
            ("[\"{{object}}\"]", "unknown placeholder `{{object}}`"),
            (
                "[\"{{object..a}}\"]",
                "or a field of the object, as in `{{object.spec.nodeName}}`",
            ),
            ("[\"{{object.a[x]}}\"]", "unknown placeholder"),
            (
                "[\"{{name|html}}\"]",
                "unknown filter `html`: use `slack` or `markdown`",
            ),
            (&many, "it has more than 64 placeholders"),
            (&large, "it has more than 65536 bytes"),
        ] {
            let error = template.parse::<Template>().expect_err("invalid").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn template_file_error_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("card.json");
        let error = TemplateSource::File(path.clone()).load().expect_err("none");
        assert!(
            error.to_string().starts_with("cannot read the template "),
            "{error}"
        );
        fs::write(&path, "{").expect("written");
        let error = TemplateSource::File(path.clone())
            .load()
            .expect_err("broken")
            .to_string();
        assert!(
            error.starts_with(&format!("invalid template {}: it is not JSON", path.display())),
            "{error}"
        );
        fs::write(&path, "x".repeat(1 << 20)).expect("written");
        let error = TemplateSource::File(path).load().expect_err("large").to_string();
        assert!(error.ends_with("it has more than 65536 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails_without_panic(text in "(\\{\\{)?.{0,20}(\\}\\})?.{0,20}") {
            let _ = json!([text]).to_string().parse::<Template>();
            let _ = text.parse::<Template>();
        }

        #[test]
        fn any_value_gives_a_message_of_the_same_shape(value in ".{0,80}") {
            let message = rendered(
                r#"{ "a": ["{{object.metadata.labels.v|slack}}", "{{object.metadata.labels.v}}"], "b": 1 }"#,
                &notice(&json!({ "v": value })),
            );
            prop_assert_eq!(message.as_object().map(Map::len), Some(2));
            prop_assert_eq!(message["a"].as_array().map(Vec::len), Some(2));
        }
    }
}
