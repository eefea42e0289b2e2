//! How refusals quote objects: as the JSON of the structs that kube-apiserver keeps them in.
//!
//! ```text
//!   {"nodeName": "n"} ─► the struct's fields, in its order, set or not ─► {"Volumes":null,…,"NodeName":"n",…}
//!                                                                     ─► or what two of them differ in
//! ```
//!
//! The structs are data (`data/internal-types.txt`, reduced from Go's sources by `hack/internal-types/reduce`), read when
//! the first refusal needs them.

mod diff;

use std::{collections::HashMap, fmt::Write, sync::LazyLock};

use serde_json::Value;

/// A field: its name in Go, its name in the API, and its type.
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

/// A value of the API as the JSON of the struct of this name.
pub(crate) fn shown(name: &str, value: &Value) -> String {
    let mut writer = Writer::new(Layout::Compact);
    writer.value(name, value);
    writer.text
}

/// A template of pods, whose metadata is that of the API.
pub(crate) fn shown_template(template: &Value) -> String {
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
    let spec = shown("PodSpec", &template["spec"]);
    format!("{{{}\"Spec\":{spec}}}", metadata.concat())
}

/// What differs between two values, line by line.
pub(crate) fn difference(name: &str, old: &Value, new: &Value) -> String {
    let lines = |value: &Value| {
        let mut writer = Writer::new(Layout::Lines);
        writer.value(name, value);
        writer.text
    };
    diff::unified(&lines(old), &lines(new))
}

/// How the JSON is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Compact,
    /// Each value on a line of its own, indented by one blank for each level.
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

    /// `kind`: `?` may be absent, `[` a list, `{` a map, then a letter or the name of a struct.
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
            // What the API has a form of its own for is shown in it.
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

/// What a pod shares with its node stands in its security context inside, and beside it in the API.
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

/// Go's JSON can stand in a web page.
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
    fn a_struct_shows_what_is_not_set() {
        assert_eq!(
            shown("Toleration", &json!({"key": "a<b"})),
            r#"{"Key":"a\u003cb","Operator":"","Value":"","Effect":"","TolerationSeconds":null}"#
        );
    }

    #[test]
    fn every_type_is_known() {
        for (_, _, kind) in STRUCTS.values().flatten() {
            let leaf = kind.trim_start_matches(['?', '[', '{']);
            assert!("sbiqx=".contains(leaf) || STRUCTS.contains_key(leaf), "{kind}");
        }
        assert!(STRUCTS.len() > 100);
    }

    #[test]
    fn a_pod_shares_with_its_node_what_its_context_says() {
        let spec = json!({"hostPID": true, "securityContext": {}});
        assert!(
            shown("PodSpec", &spec).contains(r#""SecurityContext":{"HostNetwork":false,"HostPID":true,"#)
        );
    }
}
