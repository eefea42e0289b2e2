//! Rules that hold for the metadata of every object.

use serde_json::Value;

use crate::{
    object::Object,
    registry::NameRule,
    schema::{FieldError, Problem},
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// All annotations of an object together may be this long.
const ANNOTATIONS: usize = 256 * 1024;

/// What is wrong with the name of a new object.
pub(crate) fn name(object: &Object, rule: NameRule) -> Vec<FieldError> {
    let name = object.name();
    if name.is_empty() {
        let why = "name or generateName is required".to_owned();
        return vec![FieldError::new("metadata.name", Problem::Required(why))];
    }
    let problem = match rule {
        NameRule::Subdomain => (!is_subdomain(name))
            .then_some((SUBDOMAIN, 253))
            .or_else(|| too_long(name, 253)),
        NameRule::Label => (!is_label(name))
            .then_some((LABEL, 63))
            .or_else(|| too_long(name, 63)),
        NameRule::PathSegment => {
            let bad = matches!(name, "." | "..") || name.contains(['/', '%']);
            bad.then_some(("may not be '.' or '..' and may not contain '/' or '%'", 0))
        }
    };
    problem
        .map(|(why, limit)| {
            let why = if why.is_empty() {
                format!("must be no more than {limit} bytes")
            } else {
                why.to_owned()
            };
            FieldError::new("metadata.name", Problem::Invalid(name.into(), why))
        })
        .into_iter()
        .collect()
}

fn too_long(name: &str, limit: usize) -> Option<(&'static str, usize)> {
    (name.len() > limit).then_some(("", limit))
}

/// What is wrong with an object's labels, annotations, finalizers and owners.
pub(crate) fn metadata(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in object.labels() {
        qualified_name(key, "metadata.labels", &mut errors);
        if value.len() > 63 {
            let why = "must be no more than 63 bytes".to_owned();
            errors.push(FieldError::new(
                "metadata.labels",
                Problem::Invalid(value.into(), why),
            ));
        }
        if !value.is_empty() && !is_word(value) {
            errors.push(FieldError::new(
                "metadata.labels",
                Problem::Invalid(value.into(), LABEL_VALUE.into()),
            ));
        }
    }
    let annotations = object.metadata().get("annotations").and_then(Value::as_object);
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        qualified_name(&key.to_lowercase(), "metadata.annotations", &mut errors);
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS {
        errors.push(FieldError::new(
            "metadata.annotations",
            Problem::TooLong(ANNOTATIONS as u64),
        ));
    }
    let owners = object.metadata().get("ownerReferences").and_then(Value::as_array);
    let owners = owners.map_or(&[][..], Vec::as_slice);
    for (index, owner) in owners.iter().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if owner[key].as_str().is_none_or(str::is_empty) {
                let problem = if key == "apiVersion" {
                    Problem::Invalid(owner[key].clone(), "version must not be empty".into())
                } else {
                    Problem::Invalid(
                        owner[key].as_str().unwrap_or_default().into(),
                        format!("{key} must not be empty"),
                    )
                };
                errors.push(FieldError::new(
                    format!("metadata.ownerReferences[{index}].{key}"),
                    problem,
                ));
            }
        }
    }
    if owners.iter().filter(|owner| owner["controller"] == true).count() > 1 {
        let why = "Only one reference can have Controller set to true".to_owned();
        let value = Value::from(owners.to_vec());
        errors.push(FieldError::new(
            "metadata.ownerReferences",
            Problem::Invalid(value, why),
        ));
    }
    errors
}

fn qualified_name(key: &str, field: &str, errors: &mut Vec<FieldError>) {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let mut complain = |why: String| errors.push(FieldError::new(field, Problem::Invalid(key.into(), why)));
    match prefix {
        Some("") => complain("prefix part must be non-empty".into()),
        Some(prefix) if !is_subdomain(prefix) => complain(format!("prefix part {SUBDOMAIN}")),
        _ => {}
    }
    if name.is_empty() {
        complain("name part must be non-empty".into());
    } else if name.len() > 63 {
        complain("name part must be no more than 63 bytes".into());
    }
    if !is_word(name) {
        complain(QUALIFIED.into());
    }
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_word(text: &str) -> bool {
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    end(text.chars().next())
        && end(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_label(text: &str) -> bool {
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    end(text.chars().next())
        && end(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_what_the_kind_allows() {
        let good = |text: &str, rule| {
            let object = Object::new(json!({"metadata": {"name": text}})).expect("an object");
            name(&object, rule).is_empty()
        };
        for (text, subdomain, label, path) in [
            ("a", true, true, true),
            ("a.b-c.9", true, false, true),
            ("A", false, false, true),
            ("-a", false, false, true),
            ("a..b", false, false, true),
            ("system:node", false, false, true),
            ("a/b", false, false, false),
            ("", false, false, false),
        ] {
            assert_eq!(good(text, NameRule::Subdomain), subdomain, "{text}");
            assert_eq!(good(text, NameRule::Label), label, "{text}");
            assert_eq!(good(text, NameRule::PathSegment), path, "{text}");
        }
        assert!(good(&"a".repeat(253), NameRule::Subdomain));
        assert!(!good(&"a".repeat(254), NameRule::Subdomain));
    }

    #[test]
    fn labels_and_owners_are_checked() {
        let count =
            |value: Value| metadata(&Object::new(json!({"metadata": value})).expect("an object")).len();
        assert_eq!(count(json!({"labels": {"a.b/c_D": "x-Y.z", "e": ""}})), 0);
        assert_eq!(count(json!({"labels": {"a": "-x"}})), 1);
        assert_eq!(count(json!({"labels": {"/a": "x"}})), 1);
        assert_eq!(count(json!({"annotations": {"a b": "x"}})), 1);
        assert_eq!(
            count(json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]})),
            1
        );
    }
}
