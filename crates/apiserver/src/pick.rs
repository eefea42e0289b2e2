//! Several fields of an object at once.
//!
//! A rule asks for many fields, most of which are not there. Each question alone is a search through the names that are; all
//! of them together are one walk over both, because both are in order.

use std::cmp::Ordering;

use serde_json::Value;

static NULL: Value = Value::Null;

/// What stands under these names, which must be in their order; null where nothing does, as indexing has it.
pub(crate) fn pick<'v, const N: usize>(value: &'v Value, names: [&str; N]) -> [&'v Value; N] {
    debug_assert!(names.is_sorted(), "{names:?}");
    let mut found = [&NULL; N];
    let Value::Object(fields) = value else {
        return found;
    };
    let mut fields = fields.iter();
    let mut field = fields.next();
    for (name, place) in names.iter().zip(&mut found) {
        while let Some((key, value)) = field {
            match key.as_str().cmp(name) {
                Ordering::Less => field = fields.next(),
                Ordering::Equal => {
                    *place = value;
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
    fn it_finds_what_indexing_finds() {
        let value = json!({"a": 1, "c": 2, "cc": 3, "e": null, "g": [4]});
        for names in [["a", "c", "g"], ["", "b", "d"], ["c", "cc", "z"], ["e", "e", "f"]] {
            assert_eq!(pick(&value, names), names.map(|name| &value[name]), "{names:?}");
        }
        assert_eq!(pick(&json!("text"), ["a"]), [&Value::Null]);
    }
}
