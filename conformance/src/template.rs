//! Placeholders: `{{name}}` in a path, body or argument is replaced by a variable, such as a value of an earlier
//! response.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

/// Values of placeholders.
#[derive(Clone, Debug, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Returns `text` with its placeholders replaced; `{{fill N}}` is N times the letter x.
    pub fn fill(&self, text: &str) -> Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after
                .split_once("}}")
                .with_context(|| format!("unclosed placeholder in `{text}`"))?;
            filled.push_str(before);
            match name.strip_prefix("fill ") {
                Some(count) => filled.push_str(&"x".repeat(count.parse()?)),
                None => {
                    let value = self.0.get(name).with_context(|| {
                        format!(
                            "unknown placeholder `{name}`; captured or declared with `let`: {:?}",
                            self.0.keys()
                        )
                    })?;
                    // A value of `let` may contain placeholders.
                    filled.push_str(&self.fill(value)?);
                }
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Replaces the placeholders in all strings and keys of a value.
    pub fn fill_json(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) => Value::String(self.fill(text)?),
            Value::Array(items) => items
                .iter()
                .map(|item| self.fill_json(item))
                .collect::<Result<_>>()?,
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| Ok((self.fill(key)?, self.fill_json(value)?)))
                .collect::<Result<_>>()?,
            other => other.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_in_text_values_and_keys() {
        let mut variables = Variables::default();
        variables.set("ns", "a");
        variables.set("base", "/ns/{{ns}}");
        assert_eq!(variables.fill("{{base}}/pods/{{ns}}!").unwrap(), "/ns/a/pods/a!");
        assert_eq!(variables.fill("{{fill 3}}").unwrap(), "xxx");
        let value = serde_json::json!({"{{ns}}": ["{{ns}}", 1]});
        assert_eq!(
            variables.fill_json(&value).unwrap(),
            serde_json::json!({"a": ["a", 1]})
        );
        assert!(variables.fill("{{other}}").is_err());
        assert!(variables.fill("{{other").is_err());
    }
}
