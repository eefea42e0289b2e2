//! Finds a small object with the same fault.

use serde_json::Value;

/// Attempts in all: an object of a test is small, but a conversion may be slow.
const MAX_ATTEMPTS: usize = 5_000;

/// The smallest object that can be found for which `fails` is still true.
pub(super) fn shrink(mut object: Value, fails: impl Fn(&Value) -> bool) -> Value {
    let mut attempts = 0;
    loop {
        let smaller = candidates(&object).into_iter().find(|candidate| {
            attempts += 1;
            attempts <= MAX_ATTEMPTS && fails(candidate)
        });
        match smaller {
            Some(smaller) => object = smaller,
            None => return object,
        }
    }
}

/// Values that are a little smaller, the much smaller ones first.
fn candidates(value: &Value) -> Vec<Value> {
    match value {
        Value::Object(fields) => {
            let without = fields.keys().map(|key| {
                let mut smaller = fields.clone();
                smaller.remove(key);
                Value::from(smaller)
            });
            let changed = fields.iter().flat_map(|(key, field)| {
                candidates(field).into_iter().map(|candidate| {
                    let mut smaller = fields.clone();
                    smaller.insert(key.clone(), candidate);
                    Value::from(smaller)
                })
            });
            without.chain(changed).collect()
        }
        Value::Array(items) => {
            let without = (0..items.len()).map(|index| {
                let mut smaller = items.clone();
                smaller.remove(index);
                Value::from(smaller)
            });
            let changed = items.iter().enumerate().flat_map(|(index, item)| {
                candidates(item).into_iter().map(move |candidate| {
                    let mut smaller = items.clone();
                    smaller[index] = candidate;
                    Value::from(smaller)
                })
            });
            without.chain(changed).collect()
        }
        Value::String(text) if !text.is_empty() => {
            let half = text.floor_char_boundary(text.len() / 2);
            vec![Value::from(""), Value::from("a"), Value::from(&text[..half])]
                .into_iter()
                .filter(|smaller| smaller.as_str().is_some_and(|smaller| smaller.len() < text.len()))
                .collect()
        }
        Value::Number(number) => {
            let Some(whole) = number.as_i64() else {
                return vec![Value::from(0)];
            };
            [0, 1, whole / 2]
                .into_iter()
                .filter(|smaller: &i64| smaller.unsigned_abs() < whole.unsigned_abs())
                .map(Value::from)
                .collect()
        }
        Value::Bool(true) => vec![Value::Bool(false)],
        _ => Vec::new(),
    }
}
