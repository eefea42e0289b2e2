//! JSON paths of printer columns: `.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`.
//!
//! Kubernetes has its own dialect; this is the part that columns use.

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// A negative index counts from the end.
    Index(i64),
    /// From an index to before another; negative ones count from the end.
    Slice(Option<i64>, Option<i64>),
    All,
    /// The items whose field at this path equals the value.
    Filter(Vec<String>, Value),
}

impl JsonPath {
    /// Parses a path; `None` if it is invalid or not supported.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = text
            .trim()
            .trim_start_matches('{')
            .trim_end_matches('}')
            .trim_start_matches('$');
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let end = closing(inner)?;
                steps.push(bracket(&inner[..end])?);
                rest = &inner[end + 1..];
            } else {
                rest = rest.strip_prefix('.').unwrap_or(rest);
                let end = name_end(rest);
                if end == 0 {
                    return None;
                }
                steps.push(match &rest[..end] {
                    "*" => Step::All,
                    name => Step::Field(name.replace("\\.", ".")),
                });
                rest = &rest[end..];
            }
        }
        Some(Self(steps))
    }

    /// The values at the path.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.0.iter().fold(vec![value], |values, step| {
            values.into_iter().flat_map(|v| step.apply(v)).collect()
        })
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
                let position = if *index < 0 {
                    items.len().checked_sub(distance)
                } else {
                    Some(distance)
                };
                position
                    .and_then(|position| items.get(position))
                    .into_iter()
                    .collect()
            }
            Self::Slice(from, to) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let position = |at: i64| if at < 0 { at + length } else { at }.clamp(0, length);
                let (from, to) = (position(from.unwrap_or(0)), position(to.unwrap_or(length)));
                let count = usize::try_from(to - from).unwrap_or(0);
                items
                    .iter()
                    .skip(usize::try_from(from).unwrap_or(0))
                    .take(count)
                    .collect()
            }
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Self::Filter(path, wanted) => {
                let holds = |item: &&Value| {
                    path.iter()
                        .try_fold(*item, |value, name| value.get(name))
                        .is_some_and(|v| v == wanted)
                };
                value.as_array().into_iter().flatten().filter(holds).collect()
            }
        }
    }
}

/// The offset of the bracket that closes the one before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (position, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some(position),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

fn name_end(text: &str) -> usize {
    let mut escaped = false;
    for (position, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '.' | '[' => return position,
            _ => {}
        }
    }
    text.len()
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some((from, to)) = text
        .split_once(':')
        .filter(|_| !text.starts_with(['?', '\'', '"']))
    {
        let position = |text: &str| match text.trim() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        };
        return Some(Step::Slice(position(from)?, position(to)?));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        let (path, wanted) = filter.split_once("==")?;
        let path = path.trim().strip_prefix("@.")?;
        return Some(Step::Filter(
            path.split('.').map(str::to_owned).collect(),
            literal(wanted.trim())?,
        ));
    }
    if let Some(Value::String(name)) = literal(text).filter(|_| text.starts_with(['\'', '"'])) {
        return Some(Step::Field(name));
    }
    text.parse().ok().map(Step::Index)
}

fn literal(text: &str) -> Option<Value> {
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
    match quoted('"').or_else(|| quoted('\'')) {
        Some(inner) => Some(Value::String(inner.to_owned())),
        None => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_values() {
        let value = json!({
            "spec": {"replicas": 3, "list": ["a", "b"], "a.b": 1},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]},
        });
        for (path, found) in [
            (".spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            (".spec.list[0]", json!(["a"])),
            (".spec.list[-1]", json!(["b"])),
            (".spec.list[*]", json!(["a", "b"])),
            (".spec['a.b']", json!([1])),
            (".spec.a\\.b", json!([1])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type=='X')].status", json!(["False"])),
            (".nope.deep", json!([])),
        ] {
            let parsed = JsonPath::parse(path).expect(path);
            assert_eq!(json!(parsed.find(&value)), found, "{path}");
        }
        for path in ["..", ".a[", ".a[?(@.b<1)]"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }
}
