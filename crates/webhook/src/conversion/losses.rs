//! What a version cannot express, in an annotation.
//!
//! After a conversion the object is converted back. Where that differs from the original, the original's value is a loss:
//!
//! ```text
//!   v2 ─► v1 ─► v2'      a loss: path, value in v2, hash of the value in v2'
//! ```
//!
//! When the object is converted to v2 again, and the hash still matches, what v1 shows of that field was not changed, and
//! the value is restored. Otherwise the change wins, and the loss is dropped.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::overlay::NOT_CONTENT;

/// The prefix of annotations with losses; the version that can express them follows.
const ANNOTATION_PREFIX: &str = "conversion.windlass.dev/";

/// The largest annotation, in bytes. All annotations of an object may have 256 KiB together.
const MAX_BYTES: usize = 128 * 1024;

/// A field that the other version cannot express.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Loss {
    /// A JSON pointer.
    path: String,
    /// The value; `None` if there is none, but a conversion back makes one up.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Value>,
    /// Hash of what a conversion back yields instead.
    seen: String,
}

/// What is lost if `known` becomes `back`.
pub(super) fn between(known: &Value, back: &Value) -> Vec<Loss> {
    let mut losses = Vec::new();
    compare(known, back, &mut String::new(), &mut losses);
    losses
}

fn compare(known: &Value, back: &Value, path: &mut String, losses: &mut Vec<Loss>) {
    let (Value::Object(known), Value::Object(back)) = (known, back) else {
        if known != back {
            losses.push(loss(path, Some(known), Some(back)));
        }
        return;
    };
    let keys: BTreeSet<&String> = known.keys().chain(back.keys()).collect();
    for key in keys {
        if path.is_empty() && NOT_CONTENT.contains(&key.as_str()) {
            continue;
        }
        let length = path.len();
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        match (known.get(key), back.get(key)) {
            (Some(known), Some(back)) => compare(known, back, path, losses),
            (known, back) => losses.push(loss(path, known, back)),
        }
        path.truncate(length);
    }
}

fn loss(path: &str, known: Option<&Value>, back: Option<&Value>) -> Loss {
    Loss {
        path: path.to_owned(),
        lost: known.cloned(),
        seen: hash(back),
    }
}

/// A hash of a value, independent of the order of keys.
fn hash(value: Option<&Value>) -> String {
    let mut text = String::new();
    if let Some(value) = value {
        write_sorted(value, &mut text);
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let [first, ..] = digest.as_ref().as_chunks::<8>().0 else {
        return String::new();
    };
    format!("{:016x}", u64::from_be_bytes(*first))
}

fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            text.push('{');
            let sorted: BTreeSet<&String> = fields.keys().collect();
            for key in sorted {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_sorted(&fields[key], text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_sorted(item, text);
                text.push(',');
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// The object, with the values that were lost and have not been changed since.
pub(super) fn restore(converted: &Value, losses: &[Loss]) -> Value {
    let mut restored = converted.clone();
    for loss in losses {
        if NOT_CONTENT.iter().any(|field| is_within(&loss.path, field))
            || hash(converted.pointer(&loss.path)) != loss.seen
        {
            continue;
        }
        let Some((parent, key)) = loss.path.rsplit_once('/') else {
            continue;
        };
        let Some(parent) = restored.pointer_mut(parent).and_then(Value::as_object_mut) else {
            continue;
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        match &loss.lost {
            Some(value) => parent.insert(key, value.clone()),
            None => parent.remove(&key),
        };
    }
    restored
}

/// Whether a path is that of a top level field, or below it.
fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix('/')
        .and_then(|path| path.strip_prefix(field))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Removes the annotation with the losses of a version from the metadata, and returns them.
pub(super) fn take(metadata: &mut Value, api_version: &str) -> Option<Vec<Loss>> {
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(&annotation(api_version))?;
    if annotations.is_empty() {
        metadata.as_object_mut()?.remove("annotations");
    }
    let losses: Vec<Loss> = serde_json::from_str(text.as_str()?).ok()?;
    are_separate(&losses).then_some(losses)
}

/// Whether no path is another one, or within another one, as [`between`] finds them. Users can write the annotation, and each
/// path costs as much as what it points to.
fn are_separate(losses: &[Loss]) -> bool {
    let key = |part: &str| part.replace("~1", "/").replace("~0", "~");
    let mut paths: Vec<Vec<String>> = losses
        .iter()
        .map(|loss| loss.path.split('/').map(key).collect())
        .collect();
    paths.sort_unstable();
    // A path sorts right before those within it.
    paths.is_sorted_by(|path, next| !next.starts_with(path))
}

/// Writes the losses of a version to the metadata; without losses, removes old ones.
pub(super) fn put(metadata: &mut Value, api_version: &str, losses: &[Loss]) -> Result<(), String> {
    if losses.is_empty() {
        take(metadata, api_version);
        return Ok(());
    }
    let text = serde_json::to_string(losses).map_err(|error| error.to_string())?;
    if text.len() > MAX_BYTES {
        return Err(format!(
            "what the other version cannot express of {} has {} bytes, and an annotation has room for {MAX_BYTES}",
            losses[0].path,
            text.len()
        ));
    }
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    if !metadata["annotations"].is_object() {
        metadata["annotations"] = Value::Object(Map::new());
    }
    metadata["annotations"][annotation(api_version)] = text.into();
    Ok(())
}

/// The annotation for a version: `conversion.windlass.dev/v1`.
fn annotation(api_version: &str) -> String {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    format!("{ANNOTATION_PREFIX}{version}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken(paths: &[String]) -> Option<Vec<Loss>> {
        let losses: Vec<_> = paths
            .iter()
            .map(|path| json!({"path": path, "seen": "x"}))
            .collect();
        let text = Value::from(losses).to_string();
        let mut metadata = json!({"annotations": {annotation("v1"): text}});
        take(&mut metadata, "v1")
    }

    #[test]
    fn annotation_with_overlapping_paths_is_ignored() {
        for (paths, is_read) in [
            (&["/spec/a", "/spec/b"][..], true),
            (&["/spec/b", "/spec/a-b", "/spec/a"], true),
            (&["/spec", "/spec"], false),
            (&["/spec", "/specs"], true),
            (&["/spec/a/b", "/spec/c", "/spec/a"], false),
            (&["/spec/a~", "/spec/a~0"], false),
            (&["", "/spec"], false),
        ] {
            let paths: Vec<_> = paths.iter().map(|&path| path.to_owned()).collect();
            assert_eq!(taken(&paths).is_some(), is_read, "{paths:?}");
        }
        let same = vec!["/spec".to_owned(); 9_000];
        assert_eq!(taken(&same), None, "each would hash the whole spec");
    }

    #[test]
    fn losses_that_are_found_are_separate() {
        let known = json!({"a": {"b": 1, "c": {"d": 2}}, "a-b": 3, "e~": 4, "e": {"/": 5}});
        for back in [json!({}), json!({"a": {"c": {}}}), json!({"a": 1, "e": {}})] {
            assert!(are_separate(&between(&known, &back)));
        }
    }
}
