//! Options from a request's query or body.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::{
    auth::Caller,
    environment::Environment,
    patch::PatchKind,
    request::Query,
    schema::{FieldError, Problem},
    status::Status,
    storage::Revision,
    webhook::RequestEnvironment,
};

/// How unknown and duplicate fields are handled. The default is to drop them with a warning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// The options of create, update and patch.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// The user who writes; none for the server's own writes.
    pub(crate) caller: Option<Arc<Caller>>,
    /// The field manager: `fieldManager`, or the first word of the user agent.
    pub(crate) field_manager: Box<str>,
    /// Whether an apply takes over fields that others own.
    pub(crate) force: bool,
}

impl WriteOptions {
    /// The time and randomness of the request.
    pub(crate) fn environment<'a>(&'a self, environment: &'a Environment) -> RequestEnvironment<'a> {
        RequestEnvironment::new(environment, self.caller.as_deref())
    }

    /// Options for the server's own writes.
    pub(crate) fn internal() -> Self {
        Self {
            field_manager: "kube-apiserver".into(),
            ..Self::default()
        }
    }

    /// Reads the options from a request. `kind` is their name in error messages: `CreateOptions`, `UpdateOptions`,
    /// `PatchOptions`.
    pub(crate) fn from_request(query: &Query, headers: &HeaderMap, kind: &str) -> Result<Self, Status> {
        let field_validation = match query.text("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"].map(Value::from).into();
                let problem = Problem::NotSupported(other.into(), supported);
                return Err(invalid_option(kind, "fieldValidation", problem));
            }
        };
        let is_apply = kind == "PatchOptions" && PatchKind::is_apply(headers);
        let force = query.optional_flag("force");
        let manager = query.text("fieldManager");
        check_field_manager(manager, is_apply, force, kind)?;
        let agent = || {
            let agent = headers.get(http::header::USER_AGENT)?.to_str().ok();
            agent.map(manager_from_user_agent)
        };
        Ok(Self {
            dry_run: dry_run(query.all("dryRun"), kind)?,
            field_validation,
            caller: None,
            field_manager: manager.map(Into::into).or_else(agent).unwrap_or_default(),
            force: force.unwrap_or(false),
        })
    }
}

/// The maximum length of a field manager's name, in bytes.
const MAX_MANAGER_LENGTH: usize = 128;

fn check_field_manager(
    manager: Option<&str>,
    is_apply: bool,
    force: Option<bool>,
    kind: &str,
) -> Result<(), Status> {
    let mut errors = Vec::new();
    if kind == "PatchOptions" {
        if !is_apply && force.is_some() {
            let why = "may not be specified for non-apply patch".to_owned();
            errors.push(FieldError::new("force", Problem::Forbidden(why)));
        }
        if is_apply && manager.is_none() {
            let why = "is required for apply patch".to_owned();
            errors.push(FieldError::new("fieldManager", Problem::Required(why)));
        }
    }
    let name = manager.unwrap_or_default();
    if name.len() > MAX_MANAGER_LENGTH {
        errors.push(FieldError::new(
            "fieldManager",
            Problem::TooLong(MAX_MANAGER_LENGTH as u64),
        ));
    }
    if let Some(found) = name.char_indices().find(|(_, letter)| !is_printable(*letter)) {
        let why = format!(
            "invalid character U+{:04X} (at position {})",
            u32::from(found.1),
            found.0
        );
        let problem = Problem::Invalid(name.into(), why);
        errors.push(FieldError::new("fieldManager", problem));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", kind, "", &errors))
}

/// Visible characters and the space.
fn is_printable(letter: char) -> bool {
    !letter.is_control() && (letter == ' ' || !letter.is_whitespace())
}

/// The printable characters of a user agent's first word.
fn manager_from_user_agent(agent: &str) -> Box<str> {
    let word = agent.split('/').next().unwrap_or_default();
    let mut name = String::with_capacity(word.len());
    for letter in word.chars().filter(|letter| is_printable(*letter)) {
        if name.len() + letter.len_utf8() > MAX_MANAGER_LENGTH {
            break;
        }
        name.push(letter);
    }
    name.into()
}

fn dry_run(values: &[String], kind: &str) -> Result<bool, Status> {
    if values.iter().all(|value| *value == "All") {
        return Ok(!values.is_empty());
    }
    Err(invalid_option(
        kind,
        "dryRun",
        Problem::NotSupported(json!(values), vec!["All".into()]),
    ))
}

fn invalid_option(kind: &str, field: &str, problem: Problem) -> Status {
    Status::invalid("meta.k8s.io", kind, "", &[FieldError::new(field, problem)])
}

/// How a deletion affects an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a deletion, from the body if there is one, else from the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// The user who deletes; none for the server's own deletions.
    pub(crate) caller: Option<Arc<Caller>>,
}

impl DeleteOptions {
    /// The time of the request.
    pub(crate) fn environment<'a>(&'a self, environment: &'a Environment) -> RequestEnvironment<'a> {
        RequestEnvironment::new(environment, self.caller.as_deref())
    }

    /// The options as admission shows them.
    pub(crate) fn to_json(&self) -> Value {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                options[key] = value;
            }
        };
        set("gracePeriodSeconds", self.grace_seconds.map(Value::from));
        set(
            "propagationPolicy",
            self.propagation.map(|policy| format!("{policy:?}").into()),
        );
        set("dryRun", self.dry_run.then(|| json!(["All"])));
        if self.uid.is_some() || self.resource_version.is_some() {
            let mut preconditions = json!({});
            for (key, text) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
                if let Some(text) = text {
                    preconditions[key] = (**text).into();
                }
            }
            set("preconditions", Some(preconditions));
        }
        options
    }

    pub(crate) fn from_request(query: &Query, body: Option<&Value>) -> Result<Self, Status> {
        const KIND: &str = "DeleteOptions";
        let null = Value::Null;
        let body = body.unwrap_or(&null);
        let text = |key: &str| body[key].as_str().or_else(|| query.text(key)).map(str::to_owned);
        let orphan = body["orphanDependents"]
            .as_bool()
            .or_else(|| query.optional_flag("orphanDependents"));
        if let (Some(policy), Some(_)) = (text("propagationPolicy"), orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set".to_owned();
            return Err(invalid_option(
                KIND,
                "propagationPolicy",
                Problem::Invalid(policy.into(), why),
            ));
        }
        let propagation = match (text("propagationPolicy").as_deref(), orphan) {
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, None) => None,
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"]
                    .map(Value::from)
                    .into();
                return Err(invalid_option(
                    KIND,
                    "propagationPolicy",
                    Problem::NotSupported(other.into(), supported),
                ));
            }
        };
        let grace_seconds = match body["gracePeriodSeconds"].as_i64() {
            Some(seconds) => Some(seconds),
            None => query.number("gracePeriodSeconds")?,
        };
        let in_body: Vec<String> = serde_json::from_value(body["dryRun"].clone()).unwrap_or_default();
        let preconditions = &body["preconditions"];
        Ok(Self {
            dry_run: dry_run(&in_body, KIND)? || dry_run(query.all("dryRun"), KIND)?,
            grace_seconds,
            propagation,
            uid: preconditions["uid"].as_str().map(str::to_owned),
            resource_version: preconditions["resourceVersion"].as_str().map(str::to_owned),
            caller: None,
        })
    }
}

/// How a list's or watch's `resourceVersion` and `resourceVersionMatch` select a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceVersionMatch {
    /// The newest state.
    MostRecent,
    /// Any state (`0`).
    Any,
    /// A state at least as new.
    NotOlderThan(Revision),
    /// Exactly this state.
    Exact(Revision),
}

/// The options of list and watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) version_match: ResourceVersionMatch,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: Option<String>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn from_query(query: &Query, watch: bool) -> Result<Self, Status> {
        const KIND: &str = "ListOptions";
        let problems = validate_version_match(query, watch);
        if !problems.is_empty() {
            return Err(Status::invalid("meta.k8s.io", KIND, "", &problems));
        }
        let send_initial_events = query.optional_flag("sendInitialEvents");
        let matching = query.text("resourceVersionMatch");
        let revision = query
            .text("resourceVersion")
            .map(parse_resource_version)
            .transpose()
            .map_err(|why| {
                // The real server rejects it for a list in the API machinery, for a watch in the storage.
                if watch {
                    Status::without_reason(why)
                } else {
                    Status::bad_request(format!("invalid resource version: {why}"))
                }
            })?;
        let continue_token = query.text("continue").map(str::to_owned);
        if continue_token.is_some() && revision.is_some_and(|r| r.0 != 0) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let at = match (revision, matching) {
            (None, _) => ResourceVersionMatch::MostRecent,
            (Some(Revision(0)), _) => ResourceVersionMatch::Any,
            (Some(revision), Some("Exact")) => ResourceVersionMatch::Exact(revision),
            (Some(revision), _) => ResourceVersionMatch::NotOlderThan(revision),
        };
        let limit = query
            .number("limit")?
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n > 0);
        // The first page of a paged list is of an exact revision.
        let version_match = match (at, limit, watch, matching) {
            (ResourceVersionMatch::NotOlderThan(revision), Some(_), false, None) => {
                ResourceVersionMatch::Exact(revision)
            }
            (at, ..) => at,
        };
        Ok(Self {
            version_match,
            // Lists of any state come from the watch cache, which does not page.
            limit: limit.filter(|_| version_match != ResourceVersionMatch::Any),
            continue_token,
            timeout_seconds: query
                .number("timeoutSeconds")?
                .and_then(|n| u64::try_from(n).ok())
                .filter(|n| *n > 0),
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
        })
    }
}

/// Validates `resourceVersionMatch` and `sendInitialEvents` against the other options.
fn validate_version_match(query: &Query, watch: bool) -> Vec<FieldError> {
    const FIELD: &str = "resourceVersionMatch";
    let mut problems = Vec::new();
    let mut forbid = |field: &str, why: &str| {
        problems.push(FieldError::new(field, Problem::Forbidden(why.to_owned())));
    };
    let matching = query.text(FIELD).filter(|matching| !matching.is_empty());
    let initial = query.optional_flag("sendInitialEvents").is_some();
    let revision = query.text("resourceVersion").unwrap_or_default();
    if watch && initial && matching != Some("NotOlderThan") {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        forbid(FIELD, why);
    }
    if let Some(matching) = matching {
        if watch && !initial {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            forbid(FIELD, why);
        }
        if !watch && revision.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            forbid(FIELD, why);
        }
        let supported: &[&str] = if watch {
            &["NotOlderThan"]
        } else {
            &["Exact", "NotOlderThan", ""]
        };
        let unsupported = (!supported.contains(&matching)).then(|| {
            let supported = supported.iter().map(|choice| Value::from(*choice)).collect();
            FieldError::new(FIELD, Problem::NotSupported(matching.into(), supported))
        });
        let continues = query.text("continue").is_some_and(|token| !token.is_empty());
        let why = "resourceVersionMatch is forbidden when continue is provided";
        // Watch and list report these in different order.
        if watch {
            problems.extend(unsupported);
            if continues {
                problems.push(FieldError::new(FIELD, Problem::Forbidden(why.to_owned())));
            }
        } else {
            if continues {
                forbid(FIELD, why);
            }
            problems.extend(unsupported);
            if matching == "Exact" && revision == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                problems.push(FieldError::new(FIELD, Problem::Forbidden(why.to_owned())));
            }
        }
    }
    if !watch && initial {
        let why = "sendInitialEvents is forbidden for list".to_owned();
        problems.push(FieldError::new("sendInitialEvents", Problem::Forbidden(why)));
    }
    problems
}

/// Parses a `resourceVersion`.
pub(crate) fn parse_resource_version(text: &str) -> Result<Revision, String> {
    text.parse().map(Revision).map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}
