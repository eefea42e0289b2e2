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

use cel::{Context, Env, ExecutionError, Program};
use parking_lot::Mutex;
use windlass::serde_json::Value;

use crate::notice::{FieldChange, Notice};

pub use check::FilterError;

/// How many distinct failures are logged.
const MAX_LOGGED_FAILURES: usize = 32;

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
    env: Arc<Env>,
    /// Whether the expression uses `old` or `changes`, which are unknown for an update inferred after a restart.
    uses_old_state: bool,
    failures: AtomicU64,
    /// The distinct failures that were logged.
    logged: Mutex<BTreeSet<String>>,
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(source: &str) -> Result<Self, FilterError> {
        let mut env = Env::stdlib();
        env.add_extension(cel::extensions::strings)
            .expect("the extension's names do not clash with the standard library's");
        let env = Arc::new(env);
        let program = check::compile(&env, source, &VARIABLES)?;
        let references = program.references();
        let uses_old_state = references.has_variable("old") || references.has_variable("changes");
        Ok(Self(Arc::new(Compiled {
            source: source.to_owned(),
            program,
            env,
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
            env,
            uses_old_state,
            ..
        } = &*self.0;
        if *uses_old_state && old.is_none() && notice.inferred && notice.event == crate::EventType::Updated {
            return true;
        }
        let mut context = Context::with_env(Arc::clone(env));
        let mut put = |name: &str, value: cel::Value| context.add_variable_from_value(name, value);
        put(
            "object",
            notice.object.as_deref().map_or(cel::Value::Null, to_cel),
        );
        put("old", old.map_or(cel::Value::Null, to_cel));
        put("event", text(notice.event.name()));
        put(
            "changes",
            cel::Value::List(Arc::new(notice.changes.iter().map(change_to_cel).collect())),
        );
        put("kind", text(&notice.kind.kind));
        put("key", text(&notice.key.to_string()));
        put("name", text(notice.key.name()));
        match program.execute(&context) {
            Ok(cel::Value::Bool(wanted)) => wanted,
            Ok(other) => {
                self.record_failure(&format!("it returns a {}, not a bool", other.type_of()), notice)
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
fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(_)
        | ExecutionError::NoSuchOverload(_)
        | ExecutionError::UndeclaredReference(_)
        | ExecutionError::InvalidArgumentCount { .. }
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::MissingArgumentOrTarget => error.to_string(),
        ExecutionError::FunctionError { function, .. } => format!("`{function}` failed"),
        ExecutionError::ValuesNotComparable(one, other) => {
            format!(
                "a {} cannot be compared with a {}",
                one.type_of(),
                other.type_of()
            )
        }
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "division by zero".to_owned()
        }
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "list index out of bounds".to_owned(),
        _ => "type mismatch".to_owned(),
    }
}

fn change_to_cel(change: &FieldChange) -> cel::Value {
    let value = |value: &Option<Value>| value.as_ref().map_or(cel::Value::Null, to_cel);
    map([
        ("path", text(&change.path)),
        ("old", value(&change.old)),
        ("new", value(&change.new)),
    ])
}

/// Whole numbers become `int`s, like the literals in an expression; CEL does not mix `uint` and `int` in arithmetic.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => cel::Value::Int(number),
            (None, Some(number)) => cel::Value::UInt(number),
            (None, None) => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(value) => text(value),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(fields) => map(fields.iter().map(|(name, value)| (name.as_str(), to_cel(value)))),
    }
}

fn text(text: &str) -> cel::Value {
    cel::Value::String(Arc::new(text.to_owned()))
}

fn map<'a>(fields: impl IntoIterator<Item = (&'a str, cel::Value)>) -> cel::Value {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
    cel::Value::Map(cel::objects::Map {
        map: Arc::new(fields.collect()),
    })
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
