//! JSON patch (RFC 6902), as lenient as the real server's library: `replace` may set an absent field, an absent value is
//! `null`, and negative indexes count from the end.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::depth;

/// The maximum number of bytes that all copies add, as in the real server.
const COPY_LIMIT: usize = 3 * 1024 * 1024;

/// The maximum number of values that are visited to measure the depth of moved values. Only a patch that repeatedly moves
/// most of a large and very deep object reaches it.
const MEASURE_LIMIT: usize = 3 * 1024 * 1024;

/// The maximum number of list items that insertions and removals shift. The real server has no such limit: ten thousand
/// operations on a list of a million items keep it busy for half a minute.
const MOVE_LIMIT: usize = 100_000_000;

/// One operation. Missing fields are reported when it is applied.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Operation {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

impl Operation {
    /// Whether it reads or writes the whole metadata, or its `managedFields`.
    pub(crate) fn touches_managed_fields(&self) -> bool {
        let sees = |pointer: &String| {
            matches!(&**pointer, "" | "/metadata") || pointer.starts_with("/metadata/managedFields")
        };
        self.path.as_ref().is_some_and(sees) || self.from.as_ref().is_some_and(sees)
    }
}

/// Why a patch cannot be applied to a document, in the words of the real server's library. Responses to patches do not say
/// it, those about mutations by admission do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DoesNotApply {
    /// A `test` operation failed.
    TestFailed(String),
    Other(String),
}

impl fmt::Display for DoesNotApply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TestFailed(path) => write!(f, "testing value {path} failed: test failed"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

/// Why an operation does not apply at its path.
enum Mismatch {
    /// There is nothing that could contain the path.
    NoParent,
    /// What contains it has no such place.
    NoPlace(String),
}

impl Mismatch {
    /// The error of an operation: `missing` and `mismatch` begin the message.
    fn of(self, missing: impl FnOnce() -> String, mismatch: impl FnOnce() -> String) -> DoesNotApply {
        DoesNotApply::Other(match self {
            Self::NoParent => format!("{}: missing value", missing()),
            Self::NoPlace(why) => format!("{}: {why}", mismatch()),
        })
    }
}

fn too_large() -> DoesNotApply {
    DoesNotApply::Other("the patch does more than this server allows".to_owned())
}

impl Operation {
    /// An operation of a mutation.
    pub(crate) fn new(op: String, path: String, from: Option<String>, value: Value) -> Self {
        Self {
            op: Some(op),
            path: Some(path),
            from,
            value,
        }
    }
}

/// Applies all operations. After an error the document must not be used.
///
/// No operation makes the document deeper than [`depth::limit`], so the next one may recurse over it.
pub(crate) fn apply(operations: &[Operation], document: &mut Value) -> Result<(), DoesNotApply> {
    let (mut copied, mut moved) = (0, 0);
    // An upper bound of the document's depth, computed when an operation first needs it.
    let mut deepest = None;
    let mut left = MEASURE_LIMIT;
    for operation in operations {
        if moved > MOVE_LIMIT {
            return Err(too_large());
        }
        let op = operation.op.as_deref().unwrap_or_default();
        let undecodable = |part: &str| {
            DoesNotApply::Other(format!("{op} operation failed to decode {part}: missing value"))
        };
        let path = operation.path.as_deref().ok_or_else(|| undecodable("path"));
        let from = operation.from.as_deref().ok_or_else(|| undecodable("from"));
        let value = &operation.value;
        match op {
            "add" => {
                let path = path?;
                check_depth(path, depth::of_value(value), &mut deepest)?;
                add(document, path, value.clone(), &mut moved).map_err(|why| add_error(why, path))?;
            }
            "remove" => {
                let path = path?;
                remove(document, path, &mut moved).map_err(|why| {
                    why.of(
                        || format!("remove operation does not apply: doc is missing path: \"{path}\""),
                        || format!("error in remove for path: '{path}'"),
                    )
                })?;
            }
            "replace" => {
                let path = path?;
                if path.is_empty() && !matches!(value, Value::Object(_) | Value::Array(_)) {
                    // A wrapped error that is none.
                    let why = "replace operation value must be object or array: %!w(<nil>)";
                    return Err(DoesNotApply::Other(why.to_owned()));
                }
                check_depth(path, depth::of_value(value), &mut deepest)?;
                replace(document, path, value.clone()).map_err(|why| {
                    why.of(
                        || format!("replace operation does not apply: doc is missing path: {path}"),
                        || format!("replace operation does not apply: doc is missing key: {path}"),
                    )
                })?;
            }
            "test" => test(document, path?, value)?,
            "move" => {
                let (path, from) = (path?, from?);
                let inwards = segments(path).saturating_sub(segments(from));
                let known = match inwards {
                    0 => 0,
                    _ => *deepest.get_or_insert_with(|| depth::of_value(document)),
                };
                let value = remove(document, from, &mut moved).map_err(|why| {
                    why.of(
                        || format!("move operation does not apply: doc is missing from path: {from}"),
                        // Only the last part, unlike other operations.
                        || format!("error in move for path: '{}'", last_key(from)),
                    )
                })?;
                if known + inwards > depth::limit() {
                    let depth = depth::measure(&value, &mut left).ok_or_else(too_large)?;
                    check_depth(path, depth, &mut deepest)?;
                } else if inwards > 0 {
                    deepest = Some(known + inwards);
                }
                add(document, path, value, &mut moved).map_err(|why| {
                    why.of(
                        || format!("move operation does not apply: doc is missing destination path: {path}"),
                        || format!("error in move for path: '{path}'"),
                    )
                })?;
            }
            "copy" => {
                let (path, from) = (path?, from?);
                let found = get(document, from).map_err(|why| {
                    why.of(
                        || format!("copy operation does not apply: doc is missing from path: {from}"),
                        || format!("error in copy for from: '{from}'"),
                    )
                })?;
                let value = found.cloned().unwrap_or_default();
                copied += value.to_string().len();
                if copied > COPY_LIMIT {
                    return Err(too_large());
                }
                check_depth(path, depth::of_value(&value), &mut deepest)?;
                add(document, path, value, &mut moved).map_err(|why| {
                    why.of(
                        || format!("copy operation does not apply: doc is missing destination path: {path}"),
                        || format!("error while adding value during copy for path: '{path}'"),
                    )
                })?;
            }
            other => return Err(DoesNotApply::Other(format!("Unexpected kind: {other}"))),
        }
    }
    Ok(())
}

fn add_error(why: Mismatch, path: &str) -> DoesNotApply {
    why.of(
        || format!("add operation does not apply: doc is missing path: \"{path}\""),
        || format!("error in add for path: '{path}'"),
    )
}

/// The number of levels of a pointer.
fn segments(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// Rejects a value whose depth at this path would be too deep for this thread.
fn check_depth(path: &str, depth: usize, deepest: &mut Option<usize>) -> Result<(), DoesNotApply> {
    let depth = segments(path) + depth;
    depth::check(depth).map_err(|_| too_large())?;
    *deepest = deepest.map(|deepest| deepest.max(depth));
    Ok(())
}

/// The parent object or array of a pointer's target, and the target's key in it.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), Mismatch> {
    let mut parts = path.split('/').skip(1).map(unescaped);
    let mut key = parts.next().ok_or(Mismatch::NoParent)?;
    let mut container = document;
    for next in parts {
        container = match container {
            Value::Object(fields) => fields.get_mut(&key).ok_or(Mismatch::NoParent)?,
            Value::Array(items) => {
                let index = index(&key, items.len()).map_err(|_| Mismatch::NoParent)?;
                items.get_mut(index).ok_or(Mismatch::NoParent)?
            }
            _ => return Err(Mismatch::NoParent),
        };
        key = next;
    }
    Ok((container, key))
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Parses a key as an index into a list of `count` items.
fn index(key: &str, count: usize) -> Result<usize, Mismatch> {
    let not_a_number = || {
        Mismatch::NoPlace(format!(
            "value was not a proper array index: '{key}': strconv.Atoi: parsing {key:?}: invalid syntax"
        ))
    };
    let index: isize = key.parse().map_err(|_| not_a_number())?;
    let outside = || {
        Mismatch::NoPlace(format!(
            "Unable to access invalid index: {index}: invalid index referenced"
        ))
    };
    let position = if index < 0 {
        count.checked_add_signed(index).ok_or_else(outside)?
    } else {
        index.unsigned_abs()
    };
    (position < count).then_some(position).ok_or_else(outside)
}

/// The value at a path. An absent field of an object is none, not an error.
fn get<'a>(document: &'a mut Value, path: &str) -> Result<Option<&'a Value>, Mismatch> {
    match parent(document, path)? {
        (Value::Object(fields), key) => Ok(fields.get(&key)),
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            Ok(items.get(index))
        }
        _ => Err(Mismatch::NoParent),
    }
}

fn add(document: &mut Value, path: &str, value: Value, moved: &mut usize) -> Result<(), Mismatch> {
    match parent(document, path)? {
        (Value::Object(fields), key) => drop(fields.insert(key, value)),
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let index = index(&key, items.len() + 1)?;
            *moved += items.len() - index;
            items.insert(index, value);
        }
        _ => return Err(Mismatch::NoParent),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str, moved: &mut usize) -> Result<Value, Mismatch> {
    match parent(document, path)? {
        (Value::Object(fields), key) => fields.remove(&key).ok_or_else(|| {
            Mismatch::NoPlace(format!("Unable to remove nonexistent key: {key}: missing value"))
        }),
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            *moved += items.len() - index;
            Ok(items.remove(index))
        }
        _ => Err(Mismatch::NoParent),
    }
}

/// The last key of a path.
fn last_key(path: &str) -> String {
    let key = path.rsplit('/').next().unwrap_or_default();
    key.replace("~1", "/").replace("~0", "~")
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), Mismatch> {
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err(Mismatch::NoParent);
        }
        *document = value;
        return Ok(());
    }
    match parent(document, path)? {
        (Value::Object(fields), key) => drop(fields.insert(key, value)),
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            items[index] = value;
        }
        _ => return Err(Mismatch::NoParent),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, value: &Value) -> Result<(), DoesNotApply> {
    let found = if path.is_empty() {
        Some(&*document)
    } else {
        get(document, path).map_err(|why| {
            why.of(
                || format!("test operation does not apply: is missing path: {path}"),
                || format!("error in test for path: '{path}'"),
            )
        })?
    };
    let passes = match found {
        Some(found) => found == value,
        None => value.is_null(),
    };
    if passes {
        Ok(())
    } else {
        Err(DoesNotApply::TestFailed(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(operations: Value) -> Result<Value, DoesNotApply> {
        let operations: Vec<Operation> = serde_json::from_value(operations).expect("operations");
        let mut document = json!({"data": {"a": "1", "x/y": "2"}, "list": [1, 2]});
        apply(&operations, &mut document).map(|()| document)
    }

    #[test]
    fn operations_change_their_target() {
        for (operation, path, result) in [
            (
                json!({"op": "add", "path": "/data/b", "value": "2"}),
                "/data/b",
                json!("2"),
            ),
            (
                json!({"op": "add", "path": "/list/-", "value": 3}),
                "/list",
                json!([1, 2, 3]),
            ),
            (
                json!({"op": "add", "path": "/list/0", "value": 0}),
                "/list",
                json!([0, 1, 2]),
            ),
            (
                json!({"op": "add", "path": "/list/-1", "value": 3}),
                "/list",
                json!([1, 2, 3]),
            ),
            (json!({"op": "add", "path": "/data/b"}), "/data/b", json!(null)),
            (json!({"op": "remove", "path": "/list/-1"}), "/list", json!([1])),
            (
                json!({"op": "replace", "path": "/data/zz", "value": "2"}),
                "/data/zz",
                json!("2"),
            ),
            (
                json!({"op": "replace", "path": "/list/1", "value": 5}),
                "/list",
                json!([1, 5]),
            ),
            (
                json!({"op": "replace", "path": "", "value": {"a": 1}}),
                "",
                json!({"a": 1}),
            ),
            (
                json!({"op": "move", "from": "/data/a", "path": "/data/m"}),
                "/data",
                json!({"m": "1", "x/y": "2"}),
            ),
            (
                json!({"op": "copy", "from": "/data/a", "path": "/list/0"}),
                "/list",
                json!(["1", 1, 2]),
            ),
            (
                json!({"op": "test", "path": "/data/x~1y", "value": "2"}),
                "/list",
                json!([1, 2]),
            ),
            (
                json!({"op": "test", "path": "/data/zz", "value": null}),
                "/list",
                json!([1, 2]),
            ),
        ] {
            let document = patched(json!([operation])).unwrap_or_else(|_| panic!("{operation}"));
            assert_eq!(document.pointer(path), Some(&result), "{operation}");
        }
    }

    #[test]
    fn operations_with_invalid_target_do_not_apply() {
        for operation in [
            json!({"op": "remove", "path": "/data/zz"}),
            json!({"op": "replace", "path": "/nope/x", "value": 1}),
            json!({"op": "replace", "path": "/list/2", "value": 1}),
            json!({"op": "add", "path": "/list/4", "value": 1}),
            json!({"op": "add", "path": "data", "value": 1}),
            json!({"op": "add", "value": 1}),
            json!({"op": "test", "path": "/data/a", "value": "2"}),
            json!({"op": "move", "path": "/data/m"}),
            json!({"op": "bogus", "path": "/data/a"}),
            json!({"path": "/data/a"}),
        ] {
            assert!(patched(json!([operation])).is_err(), "{operation}");
        }
    }

    #[test]
    fn copies_are_limited_in_size() {
        let twice = |n| json!({"op": "copy", "from": "/data", "path": format!("/data/{n}")});
        assert_eq!(patched((0..40).map(twice).collect()), Err(too_large()));
    }

    #[test]
    fn errors_are_those_of_the_real_servers_library() {
        for (operation, message) in [
            (
                json!({"op": "replace", "path": "/nope/x", "value": 1}),
                "replace operation does not apply: doc is missing path: /nope/x: missing value",
            ),
            (
                json!({"op": "remove", "path": "/nope/x"}),
                "remove operation does not apply: doc is missing path: \"/nope/x\": missing value",
            ),
            (
                json!({"op": "test", "path": "/data/a", "value": "2"}),
                "testing value /data/a failed: test failed",
            ),
            (json!({"op": "frob", "path": "/data/a"}), "Unexpected kind: frob"),
        ] {
            let error = patched(json!([operation])).expect_err("does not apply");
            assert_eq!(error.to_string(), message, "{operation}");
        }
    }
}
