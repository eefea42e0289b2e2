//! `fieldPath` of a rule: a path of fields and entries, relative to the rule's schema.

use serde_json::Value as Json;

/// Returns the path as messages show it, or `None` if it does not lead to a field of the schema.
pub(super) fn resolve(path: &str, schema: &Json) -> Option<String> {
    let mut shown = String::new();
    let mut place = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let delimiter = token(&mut rest)?;
        let name = match delimiter {
            "." => token(&mut rest)?.to_owned(),
            "[" => {
                let quoted = token(&mut rest)?;
                let inner = quoted.strip_prefix('\'')?.strip_suffix('\'')?;
                if quoted.len() < 2 {
                    return None;
                }
                let name = unescape(inner)?;
                if token(&mut rest)? != "]" {
                    return None;
                }
                name
            }
            _ => return None,
        };
        let properties = place.get("properties").and_then(Json::as_object);
        match properties.filter(|properties| !properties.is_empty()) {
            Some(properties) => {
                place = properties.get(&name)?;
                if !shown.is_empty() {
                    shown.push('.');
                }
                shown.push_str(&name);
            }
            None => {
                place = place.get("additionalProperties")?;
                shown.push('[');
                shown.push_str(&name);
                shown.push(']');
            }
        }
    }
    Some(shown)
}

/// The next delimiter, quoted text or name.
fn token<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let end = match rest.chars().next()? {
        '.' | '[' | ']' => 1,
        '\'' => {
            let bytes = rest.as_bytes();
            let closing = (1..bytes.len()).find(|index| bytes[*index] == b'\'' && bytes[*index - 1] != b'\\');
            closing.map_or(rest.len(), |index| index + 1)
        }
        _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
    };
    let (token, after) = rest.split_at(end);
    *rest = after;
    Some(token)
}

fn unescape(text: &str) -> Option<String> {
    let mut unescaped = String::with_capacity(text.len());
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        unescaped.push(match sign {
            '\\' => match signs.next() {
                // A backslash at the end is itself.
                None => '\\',
                Some('a') => '\u{7}',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\u{b}',
                Some(same @ ('\'' | '\\')) => same,
                Some(_) => return None,
            },
            sign => sign,
        });
    }
    Some(unescaped)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_paths_lead_to_fields_of_the_schema() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"n": {"type": "integer"}, "a.b": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "list": {"type": "array", "items": {"type": "string"}},
        }});
        for (path, shown) in [
            (".spec", Some("spec")),
            (".spec.n", Some("spec.n")),
            ("['spec']['n']", Some("spec.n")),
            (".spec['a.b']", Some("spec.a.b")),
            (".map.k", Some("map[k]")),
            (".map['k\\'s'].x", Some("map[k's].x")),
            ("spec", None),
            (".", None),
            (".spec.zz", None),
            (".list[0]", None),
            (".list['a']", None),
            (".spec['n'", None),
            (".spec['", None),
            (".spec['\\x']", None),
            ("]", None),
            (".spec.n.a", None),
        ] {
            assert_eq!(resolve(path, &schema).as_deref(), shown, "{path}");
        }
    }
}
