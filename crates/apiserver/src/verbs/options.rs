//! The options that ride on a request's query or body.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::{
    auth::Caller,
    patch::PatchKind,
    request::Query,
    schema::{FieldError, Problem},
    status::Status,
    storage::Revision,
};

/// What happens to fields that no schema knows. The default is to drop them with a warning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// The options of create, update and patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// Whose write it is; the server's own have none.
    pub(crate) caller: Option<Arc<Caller>>,
    /// Who writes: what the client calls itself for this, or the first word of its user agent.
    pub(crate) manager: Box<str>,
    /// Whether the client said who it is.
    pub(crate) named: bool,
    /// Whether an apply takes what others own.
    pub(crate) force: bool,
}

impl WriteOptions {
    /// The options of what the server does itself.
    pub(crate) fn own() -> Self {
        Self {
            manager: "kube-apiserver".into(),
            ..Self::default()
        }
    }

    /// `kind` is what the real server calls them in a refusal: `CreateOptions`, `UpdateOptions`, `PatchOptions`.
    pub(crate) fn of(query: &Query, headers: &HeaderMap, kind: &str) -> Result<Self, Status> {
        let field_validation = match query.text("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"].map(Value::from).into();
                let problem = Problem::NotSupported(other.into(), supported);
                return Err(refused(kind, "fieldValidation", problem));
            }
        };
        let is_apply = kind == "PatchOptions" && PatchKind::is_apply(headers);
        let force = query.optional_flag("force");
        let manager = query.text("fieldManager");
        check_manager(manager, is_apply, force, kind)?;
        let agent = || {
            let agent = headers.get(http::header::USER_AGENT)?.to_str().ok();
            agent.map(manager_of_agent)
        };
        Ok(Self {
            dry_run: dry_run(query.all("dryRun"), kind)?,
            field_validation,
            caller: None,
            manager: manager.map(Into::into).or_else(agent).unwrap_or_default(),
            named: manager.is_some(),
            force: force.unwrap_or(false),
        })
    }
}

/// The longest name that a manager may have, in bytes.
const MANAGER: usize = 128;

fn check_manager(
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
    if name.len() > MANAGER {
        errors.push(FieldError::new("fieldManager", Problem::TooLong(MANAGER as u64)));
    }
    if let Some(place) = name.char_indices().find(|(_, letter)| !is_printable(*letter)) {
        let why = format!(
            "invalid character U+{:04X} (at position {})",
            u32::from(place.1),
            place.0
        );
        let problem = Problem::Invalid(name.into(), why);
        errors.push(FieldError::new("fieldManager", problem));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", kind, "", &errors))
}

/// What can be seen, and the space.
fn is_printable(letter: char) -> bool {
    !letter.is_control() && (letter == ' ' || !letter.is_whitespace())
}

/// The first word of a user agent, as far as it can be printed.
fn manager_of_agent(agent: &str) -> Box<str> {
    let word = agent.split('/').next().unwrap_or_default();
    let mut name = String::with_capacity(word.len());
    for letter in word.chars().filter(|letter| is_printable(*letter)) {
        if name.len() + letter.len_utf8() > MANAGER {
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
    Err(refused(
        kind,
        "dryRun",
        Problem::NotSupported(json!(values), vec!["All".into()]),
    ))
}

fn refused(kind: &str, field: &str, problem: Problem) -> Status {
    Status::invalid("meta.k8s.io", kind, "", &[FieldError::new(field, problem)])
}

/// What becomes of an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a deletion, from the query or, where there is one, from the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    pub(crate) fn of(query: &Query, body: Option<&Value>) -> Result<Self, Status> {
        const KIND: &str = "DeleteOptions";
        let null = Value::Null;
        let body = body.unwrap_or(&null);
        let text = |key: &str| body[key].as_str().or_else(|| query.text(key)).map(str::to_owned);
        let orphan = body["orphanDependents"]
            .as_bool()
            .or_else(|| query.optional_flag("orphanDependents"));
        if let (Some(policy), Some(_)) = (text("propagationPolicy"), orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set".to_owned();
            return Err(refused(
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
                return Err(refused(
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
        })
    }
}

/// How a list's or watch's `resourceVersion` is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The newest state there is.
    MostRecent,
    /// Any state will do (`0`).
    Any,
    /// A state at least as new.
    NotOlderThan(Revision),
    /// That very state.
    Exact(Revision),
}

/// The options of list and watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListOptions {
    pub(crate) at: At,
    pub(crate) limit: Option<usize>,
    pub(crate) continue_token: Option<String>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn of(query: &Query, watch: bool) -> Result<Self, Status> {
        const KIND: &str = "ListOptions";
        let problems = matching_problems(query, watch);
        if !problems.is_empty() {
            return Err(Status::invalid("meta.k8s.io", KIND, "", &problems));
        }
        let send_initial_events = query.optional_flag("sendInitialEvents");
        let matching = query.text("resourceVersionMatch");
        let revision = query
            .text("resourceVersion")
            .map(parse_revision)
            .transpose()
            .map_err(|why| {
                // A list's is refused by the API machinery, a watch's by its storage.
                if watch {
                    Status::unexplained(why)
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
            (None, _) => At::MostRecent,
            (Some(Revision(0)), _) => At::Any,
            (Some(revision), Some("Exact")) => At::Exact(revision),
            (Some(revision), _) => At::NotOlderThan(revision),
        };
        let limit = query
            .number("limit")?
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n > 0);
        // A page of an exact revision is what the first page of a paged list is.
        let at = match (at, limit, watch, matching) {
            (At::NotOlderThan(revision), Some(_), false, None) => At::Exact(revision),
            (at, ..) => at,
        };
        Ok(Self {
            at,
            // Lists of any state come from a cache that does not page.
            limit: limit.filter(|_| at != At::Any),
            continue_token,
            timeout_seconds: query
                .number("timeoutSeconds")?
                .and_then(|n| u64::try_from(n).ok())
                .filter(|n| *n > 0),
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
        })
    }
}

/// What is wrong with how `resourceVersionMatch` and `sendInitialEvents` go together with the rest.
fn matching_problems(query: &Query, watch: bool) -> Vec<FieldError> {
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
        // A watch and a list are asked in another order.
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

/// A `resourceVersion`, or what is wrong with it.
pub(crate) fn parse_revision(text: &str) -> Result<Revision, String> {
    text.parse().map(Revision).map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}
