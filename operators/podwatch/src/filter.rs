//! The `--filter` flag: a CEL expression over an event and its object.
//!
//! It is compiled and checked, as far as possible without an object, before anything starts. It can still fail on an object, most
//! often because a field is absent; then the notice is reported, so that nothing is lost.

mod check;

use std::{
    collections::BTreeSet,
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use windlass::serde_json::Value;
use windlass_cel::{EvalError, EvalErrorKind, Limits, Map, PER_CALL_LIMIT, Program};

use crate::notice::{FieldChange, Notice};

pub use check::FilterError;

/// How many distinct failures are logged.
const MAX_LOGGED_FAILURES: usize = 32;

/// The greatest cost of a filter on one object. An object is filtered by one expression, so it may cost more than a
/// validation rule.
const COST_LIMIT: u64 = 10 * PER_CALL_LIMIT;

/// The variables of an expression, with their descriptions.
const VARIABLES: [(&str, &str); 7] = [
    ("object", "the object; for a deletion, its last known state"),
    ("old", "the object before the change, or null"),
    ("event", "\"synced\", \"added\", \"updated\" or \"deleted\""),
    ("changes", "a list of {path, old, new}"),
    ("kind", "the object's kind"),
    ("key", "the object's namespace and name, as in \"shop/web\""),
    ("name", "the object's name"),
];

/// A CEL expression that selects the notices to report.
///
/// ```
/// use windlass_podwatch::Filter;
///
/// let filter: Filter = "event == 'deleted' || object.spec.replicas > 3".parse()?;
/// let error = "object.spec.replicas >".parse::<Filter>().unwrap_err();
/// assert!(error.to_string().contains("object.spec.replicas >"));
/// # Ok::<_, windlass_podwatch::FilterError>(())
/// ```
#[derive(Clone)]
pub struct Filter(Arc<Compiled>);

struct Compiled {
    source: String,
    program: Program,
    /// Whether the expression uses `old` or `changes`, which are unknown for an update inferred after a restart.
    uses_old_state: bool,
    failures: AtomicU64,
    /// The distinct failures that were logged.
    logged: Mutex<BTreeSet<String>>,
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(source: &str) -> Result<Self, FilterError> {
        let program = check::compile(source, &VARIABLES)?;
        let uses = |name| {
            let index = VARIABLES.iter().position(|(known, _)| *known == name);
            index.is_some_and(|index| program.uses_variable(index))
        };
        let uses_old_state = uses("old") || uses("changes");
        Ok(Self(Arc::new(Compiled {
            source: source.to_owned(),
            program,
            uses_old_state,
            failures: AtomicU64::new(0),
            logged: Mutex::default(),
        })))
    }
}

impl Filter {
    /// Whether to report the notice; `old` is the state before the change, if known.
    pub fn matches(&self, notice: &Notice, old: Option<&Value>) -> bool {
        let Compiled {
            program,
            uses_old_state,
            ..
        } = &*self.0;
        if *uses_old_state && old.is_none() && notice.inferred && notice.event == crate::EventType::Updated {
            return true;
        }
        // In the order of `VARIABLES`.
        let variables = [
            json_to_cel(notice.object.as_deref()),
            json_to_cel(old),
            windlass_cel::Value::text(notice.event.name()),
            windlass_cel::Value::list(notice.changes.iter().map(change_to_cel).collect()),
            windlass_cel::Value::text(&notice.kind.kind),
            windlass_cel::Value::string(notice.key.to_string()),
            windlass_cel::Value::text(notice.key.name()),
        ];
        let limits = Limits {
            cost: COST_LIMIT,
            ..Limits::default()
        };
        match program.evaluate_with(&variables, &limits).value {
            Ok(windlass_cel::Value::Bool(wanted)) => wanted,
            Ok(other) => {
                self.record_failure(&format!("it returns a {}, not a bool", other.type_name()), notice)
            }
            Err(error) => self.record_failure(&describe(&error), notice),
        }
    }

    /// The number of notices on which it failed.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Counts a failure, and logs it if it is new. Returns true: the notice is reported.
    fn record_failure(&self, reason: &str, notice: &Notice) -> bool {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
        let mut logged = self.0.logged.lock();
        if logged.len() < MAX_LOGGED_FAILURES && logged.insert(reason.to_owned()) {
            tracing::warn!(
                filter = self.0.source,
                reason,
                kind = notice.kind.kind,
                object = %notice.key,
                "the filter fails on an object, which is reported anyway; test optional fields with `has(…)`"
            );
        }
        true
    }
}

/// Describes an error without the values involved, which may be sensitive.
fn describe(error: &EvalError) -> String {
    let text = error.to_string();
    let is_plain = [
        "no such key",
        "index out of bounds",
        "division by zero",
        "modulus by zero",
        "integer overflow",
    ];
    match error.kind() {
        EvalErrorKind::Failed if is_plain.iter().any(|plain| text.starts_with(plain)) => text,
        EvalErrorKind::Failed => "a function failed".to_owned(),
        // These name types and limits only.
        _ => text,
    }
}

fn json_to_cel(value: Option<&Value>) -> windlass_cel::Value<'_> {
    value.map_or(windlass_cel::Value::Null, windlass_cel::Value::from_json)
}

fn change_to_cel(change: &FieldChange) -> windlass_cel::Value<'_> {
    use windlass_cel::Value as Cel;
    let entries = [
        ("path", Cel::text(&change.path)),
        ("old", json_to_cel(change.old.as_ref())),
        ("new", json_to_cel(change.new.as_ref())),
    ];
    Cel::Map(Map::from_entries(
        entries.map(|(key, value)| (Cel::text(key), value)),
    ))
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.0.source).finish()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.source)
    }
}

#[cfg(test)]
mod tests;
