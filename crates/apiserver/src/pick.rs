//! Looks up several fields of an object at once.
//!
//! A validation rule reads many fields, most of which are absent. One by one, each is a search in the map. Together they
//! take one walk over both, because both are sorted.

use std::cmp::Ordering;

use serde_json::Value;

static NULL: Value = Value::Null;

/// The values of these fields, whose names must be sorted; null for absent ones, like indexing.
pub(crate) fn pick<'v, const N: usize>(value: &'v Value, names: [&str; N]) -> [&'v Value; N] {
    debug_assert!(names.is_sorted(), "{names:?}");
    let mut found = [&NULL; N];
    let Value::Object(fields) = value else {
        return found;
    };
    let mut fields = fields.iter();
    let mut field = fields.next();
    for (name, slot) in names.iter().zip(&mut found) {
        while let Some((key, value)) = field {
            match key.as_str().cmp(name) {
                Ordering::Less => field = fields.next(),
                Ordering::Equal => {
                    *slot = value;
                    break;
                }
                Ordering::Greater => break,
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pick_equals_indexing() {
        let value = json!({"a": 1, "c": 2, "cc": 3, "e": null, "g": [4]});
        for names in [["a", "c", "g"], ["", "b", "d"], ["c", "cc", "z"], ["e", "e", "f"]] {
            assert_eq!(pick(&value, names), names.map(|name| &value[name]), "{names:?}");
        }
        assert_eq!(pick(&json!("text"), ["a"]), [&Value::Null]);
    }
}
