//! Which notices are wanted: an expression in CEL over what happened.
//!
//! It is compiled, and checked as far as that can be done without an object, before anything starts. On an object it can
//! still fail, most often because a field is not there; then the notice is told, since what cannot be judged must not be lost.

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

/// So many kinds of failure are told apart in the log.
const MOST_FAILURES: usize = 32;

/// What an expression may look at.
const VARIABLES: [(&str, &str); 7] = [
    ("object", "the object; of a deletion, its last known state"),
    ("old", "the object before, or null"),
    ("what", "\"synced\", \"added\", \"updated\" or \"deleted\""),
    ("changes", "a list of {path, old, new}"),
    ("kind", "the object's kind"),
    ("key", "its namespace and name, as in \"shop/web\""),
    ("name", "its name"),
];

/// An expression that says of a notice whether it is wanted.
///
/// ```
/// use windlass_podwatch::Filter;
///
/// let filter: Filter = "what == 'deleted' || object.spec.replicas > 3".parse()?;
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
    /// Whether it asks for what was before: what is inferred after a restart cannot say.
    compares: bool,
    failures: AtomicU64,
    /// The kinds of failure that were logged.
    logged: Mutex<BTreeSet<String>>,
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(source: &str) -> Result<Self, FilterError> {
        let mut env = Env::stdlib();
        env.add_extension(cel::extensions::strings)
            .expect("the standard library has none of its names");
        let env = Arc::new(env);
        let program = check::compile(&env, source, &VARIABLES)?;
        let references = program.references();
        let compares = references.has_variable("old") || references.has_variable("changes");
        Ok(Self(Arc::new(Compiled {
            source: source.to_owned(),
            program,
            env,
            compares,
            failures: AtomicU64::new(0),
            logged: Mutex::default(),
        })))
    }
}

impl Filter {
    /// Whether the notice is wanted; `old` is the state before, if it is known.
    pub fn wants(&self, notice: &Notice, old: Option<&Value>) -> bool {
        let Compiled {
            program,
            env,
            compares,
            ..
        } = &*self.0;
        if *compares && old.is_none() && notice.inferred && notice.what == crate::What::Updated {
            return true;
        }
        let mut context = Context::with_env(Arc::clone(env));
        let mut put = |name: &str, value: cel::Value| context.add_variable_from_value(name, value);
        put(
            "object",
            notice.object.as_deref().map_or(cel::Value::Null, to_cel),
        );
        put("old", old.map_or(cel::Value::Null, to_cel));
        put("what", text(notice.what.name()));
        put(
            "changes",
            cel::Value::List(Arc::new(notice.changes.iter().map(change).collect())),
        );
        put("kind", text(&notice.kind.kind));
        put("key", text(&notice.key.to_string()));
        put("name", text(notice.key.name()));
        match program.execute(&context) {
            Ok(cel::Value::Bool(wanted)) => wanted,
            Ok(other) => self.failed(&format!("it is a {}, not true or false", other.type_of()), notice),
            Err(error) => self.failed(&told(&error), notice),
        }
    }

    /// On how many notices it failed.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Counts, and logs the first of a kind. The notice is wanted.
    fn failed(&self, why: &str, notice: &Notice) -> bool {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
        let mut logged = self.0.logged.lock();
        if logged.len() < MOST_FAILURES && logged.insert(why.to_owned()) {
            tracing::warn!(
                filter = self.0.source,
                why,
                kind = notice.kind.kind,
                object = %notice.key,
                "the filter fails on an object, which is told; `has(…)` says whether a field is there"
            );
        }
        true
    }
}

/// What went wrong, without the values that were at hand.
fn told(error: &ExecutionError) -> String {
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
            "it divides by zero".to_owned()
        }
        ExecutionError::Overflow(..) => "a number is too large".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "a list is not that long".to_owned(),
        _ => "its types do not fit".to_owned(),
    }
}

fn change(change: &FieldChange) -> cel::Value {
    let value = |value: &Option<Value>| value.as_ref().map_or(cel::Value::Null, to_cel);
    map([
        ("path", text(&change.path)),
        ("old", value(&change.old)),
        ("new", value(&change.new)),
    ])
}

/// Whole numbers are `int`s, as people write them; CEL does not calculate with `uint` and `int` together.
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
