//! JSON patch (RFC 6902), as lenient as the real server's library: `replace` may set an absent field, an absent value is
//! `null`, and negative indexes count from the end.

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
    pub(super) fn touches_managed_fields(&self) -> bool {
        let sees = |pointer: &String| {
            matches!(&**pointer, "" | "/metadata") || pointer.starts_with("/metadata/managedFields")
        };
        self.path.as_ref().is_some_and(sees) || self.from.as_ref().is_some_and(sees)
    }
}

/// The patch cannot be applied to the document. The real server does not say why either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoesNotApply;

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
            return Err(DoesNotApply);
        }
        let path = operation.path.as_deref().ok_or(DoesNotApply);
        let from = operation.from.as_deref().ok_or(DoesNotApply);
        let value = &operation.value;
        let op = operation.op.as_deref().unwrap_or_default();
        match op {
            "add" => {
                check_depth(path?, depth::of_value(value), &mut deepest)?;
                add(document, path?, value.clone(), &mut moved)?;
            }
            "remove" => drop(remove(document, path?, &mut moved)?),
            "replace" => {
                check_depth(path?, depth::of_value(value), &mut deepest)?;
                replace(document, path?, value.clone())?;
            }
            "test" => test(document, path?, value)?,
            "move" => {
                let inwards = segments(path?).saturating_sub(segments(from?));
                let known = match inwards {
                    0 => 0,
                    _ => *deepest.get_or_insert_with(|| depth::of_value(document)),
                };
                let value = remove(document, from?, &mut moved)?;
                if known + inwards > depth::limit() {
                    let depth = depth::measure(&value, &mut left).ok_or(DoesNotApply)?;
                    check_depth(path?, depth, &mut deepest)?;
                } else if inwards > 0 {
                    deepest = Some(known + inwards);
                }
                add(document, path?, value, &mut moved)?;
            }
            "copy" => {
                let value = get(document, from?)?.cloned().unwrap_or_default();
                copied += value.to_string().len();
                if copied > COPY_LIMIT {
                    return Err(DoesNotApply);
                }
                check_depth(path?, depth::of_value(&value), &mut deepest)?;
                add(document, path?, value, &mut moved)?;
            }
            _ => return Err(DoesNotApply),
        }
    }
    Ok(())
}

/// The number of levels of a pointer.
fn segments(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// Rejects a value whose depth at this path would be too deep for this thread.
fn check_depth(path: &str, depth: usize, deepest: &mut Option<usize>) -> Result<(), DoesNotApply> {
    let depth = segments(path) + depth;
    depth::check(depth).map_err(|_| DoesNotApply)?;
    *deepest = deepest.map(|deepest| deepest.max(depth));
    Ok(())
}

/// The parent object or array of a pointer's target, and the target's key in it.
fn parent<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), DoesNotApply> {
    let mut parts = path.split('/').skip(1).map(unescaped);
    let mut key = parts.next().ok_or(DoesNotApply)?;
    let mut container = document;
    for next in parts {
        container = match container {
            Value::Object(fields) => fields.get_mut(&key).ok_or(DoesNotApply)?,
            Value::Array(items) => {
                let index = index(&key, items.len())?;
                items.get_mut(index).ok_or(DoesNotApply)?
            }
            _ => return Err(DoesNotApply),
        };
        key = next;
    }
    Ok((container, key))
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Parses a key as an index into a list of `count` items.
fn index(key: &str, count: usize) -> Result<usize, DoesNotApply> {
    let index: isize = key.parse().map_err(|_| DoesNotApply)?;
    let position = if index < 0 {
        count.checked_add_signed(index).ok_or(DoesNotApply)?
    } else {
        index.unsigned_abs()
    };
    (position < count).then_some(position).ok_or(DoesNotApply)
}

/// The value at a path. An absent field of an object is none, not an error.
fn get<'a>(document: &'a mut Value, path: &str) -> Result<Option<&'a Value>, DoesNotApply> {
    match parent(document, path)? {
        (Value::Object(fields), key) => Ok(fields.get(&key)),
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            Ok(items.get(index))
        }
        _ => Err(DoesNotApply),
    }
}

fn add(document: &mut Value, path: &str, value: Value, moved: &mut usize) -> Result<(), DoesNotApply> {
    match parent(document, path)? {
        (Value::Object(fields), key) => drop(fields.insert(key, value)),
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let index = index(&key, items.len() + 1)?;
            *moved += items.len() - index;
            items.insert(index, value);
        }
        _ => return Err(DoesNotApply),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str, moved: &mut usize) -> Result<Value, DoesNotApply> {
    match parent(document, path)? {
        (Value::Object(fields), key) => fields.remove(&key).ok_or(DoesNotApply),
        (Value::Array(items), key) => {
            let index = index(&key, items.len())?;
            *moved += items.len() - index;
            Ok(items.remove(index))
        }
        _ => Err(DoesNotApply),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), DoesNotApply> {
    if path.is_empty() {
        if !(value.is_object() || value.is_array()) {
            return Err(DoesNotApply);
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
        _ => return Err(DoesNotApply),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, value: &Value) -> Result<(), DoesNotApply> {
    let found = if path.is_empty() {
        Some(&*document)
    } else {
        get(document, path)?
    };
    let passes = match found {
        Some(found) => found == value,
        None => value.is_null(),
    };
    passes.then_some(()).ok_or(DoesNotApply)
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
            assert_eq!(patched(json!([operation])), Err(DoesNotApply), "{operation}");
        }
    }

    #[test]
    fn copies_are_limited_in_size() {
        let twice = |n| json!({"op": "copy", "from": "/data", "path": format!("/data/{n}")});
        assert_eq!(patched((0..40).map(twice).collect()), Err(DoesNotApply));
    }
}
