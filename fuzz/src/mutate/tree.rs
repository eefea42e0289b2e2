//! Mutations of JSON trees.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::dictionary;
use crate::invariants::MAX_DEPTH;

/// How often a mutation repeats an element at most: enough to expose quadratic growth.
const MAX_COPIES: usize = 400;

/// Maximum depth of trees in the fuzzer. Deeper values are built as text, because the code here is recursive and must
/// not overflow the stack itself.
const MAX_TREE_DEPTH: usize = 100;

/// Placeholder for a deep value until the tree is printed.
const DEEP: &str = "\u{1}deep";

/// Mutates one node of the tree, possibly with parts of `donor`.
pub(crate) fn mutate(tree: &mut Value, donor: &Value, rng: &mut Rng) {
    let position = rng.usize(..count(tree));
    let Some(node) = node(tree, &mut { position }) else {
        return;
    };
    match rng.u8(..12) {
        0 | 1 => *node = dictionary::value(rng),
        2 => remove(node, rng),
        3 | 4 => add(node, dictionary::key(rng), dictionary::value(rng)),
        5 => {
            let part = rng.usize(..count(donor));
            let part = self::find(donor, &mut { part }).cloned().unwrap_or_default();
            *node = part;
        }
        6 => {
            let part = rng.usize(..count(donor));
            let part = self::find(donor, &mut { part }).cloned().unwrap_or_default();
            add(node, dictionary::key(rng), part);
        }
        7 => repeat(node, rng),
        8 if rng.bool() => *node = DEEP.into(),
        8 => {
            let levels = rng.usize(..MAX_DEPTH.min(MAX_TREE_DEPTH) / 2);
            let inner = node.take();
            *node = wrap(inner, levels, rng);
        }
        9 => rename(node, rng),
        _ => change(node, rng),
    }
}

/// Prints a tree, sometimes with what a tree cannot represent: duplicate fields, odd white space, escapes.
pub(crate) fn text(tree: &Value, rng: &mut Rng) -> String {
    let mut text = tree.to_string();
    let placeholder = Value::from(DEEP).to_string();
    while text.contains(&placeholder) {
        let levels = rng.usize(..MAX_DEPTH);
        let (open, close) = if rng.bool() { ("[", "]") } else { ("{\"a\":", "}") };
        let deep = format!("{}1{}", open.repeat(levels), close.repeat(levels));
        text = text.replacen(&placeholder, &deep, 1);
    }
    if rng.u8(..8) == 0 {
        let braces: Vec<usize> = text.match_indices("{\"").map(|(position, _)| position).collect();
        if let Some(position) = rng.choice(&braces) {
            let field = json!({ dictionary::key(rng): dictionary::value(rng) }).to_string();
            let field = field[1..field.len() - 1].to_owned() + ",";
            text.insert_str(position + 1, &field.repeat(1 + rng.usize(..3)));
        }
    }
    if rng.u8(..16) == 0 {
        text = text.replace(',', " ,\n\t");
    }
    if rng.u8(..16) == 0 {
        text = text.replace('a', "\\u0061");
    }
    text
}

/// Counts the nodes.
fn count(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

fn node<'a>(tree: &'a mut Value, position: &mut usize) -> Option<&'a mut Value> {
    if *position == 0 {
        return Some(tree);
    }
    *position -= 1;
    match tree {
        Value::Array(items) => items.iter_mut().find_map(|item| node(item, position)),
        Value::Object(fields) => fields.values_mut().find_map(|field| node(field, position)),
        _ => None,
    }
}

fn find<'a>(tree: &'a Value, position: &mut usize) -> Option<&'a Value> {
    if *position == 0 {
        return Some(tree);
    }
    *position -= 1;
    match tree {
        Value::Array(items) => items.iter().find_map(|item| find(item, position)),
        Value::Object(fields) => fields.values().find_map(|field| find(field, position)),
        _ => None,
    }
}

fn remove(node: &mut Value, rng: &mut Rng) {
    match node {
        Value::Array(items) if !items.is_empty() => {
            items.remove(rng.usize(..items.len()));
        }
        Value::Object(fields) if !fields.is_empty() => {
            let key = fields.keys().nth(rng.usize(..fields.len())).cloned();
            key.and_then(|key| fields.remove(&key));
        }
        other => *other = Value::Null,
    }
}

fn add(node: &mut Value, key: String, value: Value) {
    match node {
        Value::Array(items) => items.push(value),
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        other => *other = value,
    }
}

/// Repeats an element many times, either equal or with distinct names.
fn repeat(node: &mut Value, rng: &mut Rng) {
    let copies = if rng.u8(..4) == 0 {
        rng.usize(..MAX_COPIES)
    } else {
        rng.usize(..4)
    };
    let distinct = rng.bool();
    let numbered = |value: &Value, number: usize| {
        let mut value = value.clone();
        match &mut value {
            Value::Object(fields) if distinct => {
                if let Some(Value::String(name)) = fields.get_mut("name") {
                    name.push_str(&number.to_string());
                }
                if let Some(port) = fields.get_mut("port") {
                    *port = json!(1 + number);
                }
            }
            Value::String(text) if distinct => text.push_str(&number.to_string()),
            _ => {}
        }
        value
    };
    match node {
        Value::Array(items) if !items.is_empty() => {
            let first = items[rng.usize(..items.len())].clone();
            items.extend((0..copies).map(|number| numbered(&first, number)));
        }
        Value::Object(fields) if !fields.is_empty() => {
            let chosen = fields.iter().nth(rng.usize(..fields.len()));
            let Some((key, value)) = chosen.map(|(key, value)| (key.clone(), value.clone())) else {
                return;
            };
            fields.extend((0..copies).map(|number| (format!("{key}{number}"), numbered(&value, number))));
        }
        Value::String(text) => *text = text.repeat(1 + copies),
        other => *other = Value::Array(vec![other.clone(); copies]),
    }
}

fn wrap(mut inner: Value, levels: usize, rng: &mut Rng) -> Value {
    let key = dictionary::key(rng);
    for _ in 0..levels {
        inner = if rng.bool() {
            Value::Array(vec![inner])
        } else {
            Value::Object(Map::from_iter([(key.clone(), inner)]))
        };
    }
    inner
}

fn rename(node: &mut Value, rng: &mut Rng) {
    if let Value::Object(fields) = node
        && !fields.is_empty()
        && let Some(key) = fields.keys().nth(rng.usize(..fields.len())).cloned()
        && let Some(value) = fields.remove(&key)
    {
        fields.insert(dictionary::key(rng), value);
    }
}

/// Replaces a value with a slightly different one of the same type.
fn change(node: &mut Value, rng: &mut Rng) {
    match node {
        Value::Null => *node = dictionary::value(rng),
        Value::Bool(value) => *value = !*value,
        Value::Number(_) => {
            *node = match rng.u8(..4) {
                0 => json!(rng.i32(-2..100)),
                1 => json!(rng.i64(..)),
                2 => json!(rng.f64() * 1e9),
                _ => json!([0, -1, i64::from(i32::MAX) + 1, i64::MIN, 65_536][rng.usize(..5)]),
            };
        }
        Value::String(text) => {
            let word = dictionary::text(rng);
            let positions: Vec<usize> = text.char_indices().map(|(position, _)| position).collect();
            let position = rng.choice(&positions).copied().unwrap_or_default();
            match rng.u8(..4) {
                0 => text.insert_str(position, &word),
                1 => text.truncate(position),
                2 => *text = word,
                _ => *text = text.to_uppercase(),
            }
        }
        Value::Array(items) => {
            if rng.bool() {
                items.reverse();
            } else {
                items.clear();
            }
        }
        Value::Object(fields) => {
            if rng.u8(..4) == 0 {
                fields.clear();
            } else {
                fields.insert(dictionary::key(rng), dictionary::value(rng));
            }
        }
    }
}
