//! Formats objects for error messages like kube-apiserver: as the JSON of its internal structs.
//!
//! ```text
//!   {"nodeName": "n"} ─► the struct's fields, in its order, set or not ─► {"Volumes":null,…,"NodeName":"n",…}
//!                                                                     ─► or the diff of two of them
//! ```
//!
//! The structs are data (`data/internal-types.txt`, reduced from Go's sources by `hack/internal-types/reduce`), read on
//! first use.

mod diff;

use std::{collections::HashMap, fmt::Write, sync::LazyLock};

use serde_json::Value;

/// A field: its Go name, its API name, and its type.
type Field = (&'static str, &'static str, &'static str);

static STRUCTS: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let mut structs = HashMap::new();
    let mut fields: &mut Vec<Field> = &mut Vec::new();
    for line in include_str!("../../data/internal-types.txt").lines() {
        let mut words = line.split_whitespace();
        let (Some(first), second, third) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        match (second, third) {
            (Some(api), Some(kind)) => fields.push((first, api, kind)),
            _ => fields = structs.entry(first).or_default(),
        }
    }
    structs
});

/// Formats an API value as the JSON of the internal struct of this name.
pub(crate) fn format_as_struct(name: &str, value: &Value) -> String {
    let mut writer = Writer::new(Layout::Compact);
    writer.value(name, value);
    writer.text
}

/// Formats a pod template, whose metadata has API names.
pub(crate) fn format_template(template: &Value) -> String {
    let keys = [
        "name",
        "generateName",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
    ];
    let metadata: Vec<_> = keys
        .iter()
        .filter_map(|key| Some(format!("\"{key}\":{},", template["metadata"].get(key)?)))
        .collect();
    let spec = format_as_struct("PodSpec", &template["spec"]);
    format!("{{{}\"Spec\":{spec}}}", metadata.concat())
}

/// The diff of two values, line by line.
pub(crate) fn difference(name: &str, old: &Value, new: &Value) -> String {
    let lines = |value: &Value| {
        let mut writer = Writer::new(Layout::Lines);
        writer.value(name, value);
        writer.text
    };
    diff::unified_diff(&lines(old), &lines(new))
}

/// The layout of the JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Compact,
    /// Each value on its own line, indented by one space per level.
    Lines,
}

struct Writer {
    text: String,
    layout: Layout,
    depth: usize,
}

impl Writer {
    fn new(layout: Layout) -> Self {
        Self {
            text: String::new(),
            layout,
            depth: 0,
        }
    }

    /// `kind`: `?` optional, `[` list, `{` map, followed by a letter or the name of a struct.
    fn value(&mut self, kind: &str, value: &Value) {
        let (head, inner) = kind.split_at(1);
        match (head, value) {
            ("?" | "[" | "{", Value::Null) => self.text.push_str("null"),
            ("?", _) => self.value(inner, value),
            ("[", Value::Array(items)) => {
                self.enclosed('[', ']', items, |writer, item| writer.value(inner, item));
            }
            ("{", Value::Object(fields)) => self.enclosed('{', '}', fields, |writer, (key, value)| {
                writer.key(key);
                writer.value(inner, value);
            }),
            _ => match STRUCTS.get(kind) {
                Some(fields) => self.fields(kind, fields, value),
                None => self.leaf(kind, value),
            },
        }
    }

    fn leaf(&mut self, kind: &str, value: &Value) {
        match (kind, value) {
            ("s", Value::Null) => self.text.push_str("\"\""),
            ("q", Value::Null) => self.text.push_str("\"0\""),
            ("b", Value::Null) => self.text.push_str("false"),
            ("i" | "x", Value::Null) => self.text.push('0'),
            // Types with their own JSON encoding are shown as in the API.
            ("=", Value::Object(fields)) => self.enclosed('{', '}', fields, |writer, (key, value)| {
                writer.key(key);
                writer.leaf("=", value);
            }),
            ("=", Value::Array(items)) => {
                self.enclosed('[', ']', items, |writer, item| writer.leaf("=", item));
            }
            (_, value) => self.text.push_str(&escaped(value)),
        }
    }

    fn fields(&mut self, name: &str, fields: &[Field], value: &Value) {
        self.enclosed('{', '}', fields, |writer, (go, api, kind)| {
            writer.key(go);
            if (name, *go) == ("PodSpec", "SecurityContext") {
                writer.value(kind, &with_host_fields(value));
            } else {
                writer.value(kind, &value[*api]);
            }
        });
    }

    fn key(&mut self, key: &str) {
        let blank = if self.layout == Layout::Lines { " " } else { "" };
        let _ = write!(self.text, "{}:{blank}", escaped(&key.into()));
    }

    fn enclosed<T>(
        &mut self,
        open: char,
        close: char,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.text.push(open);
        self.depth += 1;
        let mut any = false;
        for item in items {
            if any {
                self.text.push(',');
            }
            any = true;
            self.new_line();
            write(self, item);
        }
        self.depth -= 1;
        if any {
            self.new_line();
        }
        self.text.push(close);
    }

    fn new_line(&mut self) {
        if self.layout == Layout::Lines {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', self.depth));
        }
    }
}

/// Internally, the host namespaces are part of the security context; in the API they are beside it.
fn with_host_fields(spec: &Value) -> Value {
    let mut context = spec["securityContext"].clone();
    for key in [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostUsers",
    ] {
        if let Some(value) = spec.get(key)
            && context.is_object()
        {
            context[key] = value.clone();
        }
    }
    context
}

/// Escapes HTML characters like Go's JSON encoder.
fn escaped(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn struct_shows_unset_fields() {
        assert_eq!(
            format_as_struct("Toleration", &json!({"key": "a<b"})),
            r#"{"Key":"a\u003cb","Operator":"","Value":"","Effect":"","TolerationSeconds":null}"#
        );
    }

    #[test]
    fn every_field_type_is_known() {
        for (_, _, kind) in STRUCTS.values().flatten() {
            let leaf = kind.trim_start_matches(['?', '[', '{']);
            assert!("sbiqx=".contains(leaf) || STRUCTS.contains_key(leaf), "{kind}");
        }
        assert!(STRUCTS.len() > 100);
    }

    #[test]
    fn host_namespaces_are_shown_in_the_security_context() {
        let spec = json!({"hostPID": true, "securityContext": {}});
        assert!(
            format_as_struct("PodSpec", &spec)
                .contains(r#""SecurityContext":{"HostNetwork":false,"HostPID":true,"#)
        );
    }
}
