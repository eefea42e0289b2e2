//! Label and field selectors.

use std::fmt;

use serde_json::Value;

use crate::{object::Encoded, registry::Resource, status::Status};

/// Which objects a list or watch shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

/// One condition on labels; all of a selector's must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    /// Also holds where the label is absent.
    NotIn(String, Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    /// The place in the resource's list of selectable fields.
    field: usize,
    value: String,
    equal: bool,
}

impl Selector {
    pub(crate) fn parse(
        labels: Option<&str>,
        fields: Option<&str>,
        resource: &Resource,
    ) -> Result<Self, Status> {
        Ok(Self {
            labels: labels.map_or(Ok(Vec::new()), |text| {
                parse_labels(text).map_err(Status::bad_request)
            })?,
            fields: fields.map_or(Ok(Vec::new()), |text| parse_fields(text, resource))?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Narrows to the object of one name.
    pub(crate) fn with_name(mut self, name: &str) -> Self {
        // `metadata.name` is the first selectable field of every resource.
        self.fields.push(FieldRequirement {
            field: 0,
            value: name.to_owned(),
            equal: true,
        });
        self
    }

    pub(crate) fn matches(&self, object: &Encoded) -> bool {
        let label_holds = |requirement: &Requirement| requirement.holds(object.label(requirement.key()));
        let field_holds = |r: &FieldRequirement| (object.field(r.field) == r.value) == r.equal;
        self.labels.iter().all(label_holds) && self.fields.iter().all(field_holds)
    }
}

/// A selector as objects carry it: `matchLabels` and `matchExpressions`.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    pub(crate) fn of(selector: &Value) -> Self {
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let equal = labels.map(|(key, value)| {
            Requirement::In(key.clone(), vec![value.as_str().unwrap_or_default().to_owned()])
        });
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
        let others = expressions.map(|expression| {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let mut values: Vec<_> = values.filter_map(Value::as_str).map(str::to_owned).collect();
            values.sort_unstable();
            match expression["operator"].as_str() {
                Some("In") => Requirement::In(key, values),
                Some("NotIn") => Requirement::NotIn(key, values),
                Some("Exists") => Requirement::Exists(key),
                _ => Requirement::Absent(key),
            }
        });
        let mut requirements: Vec<_> = equal.chain(others).collect();
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Self(requirements)
    }

    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.holds(label(requirement.key())))
    }
}

impl fmt::Display for LabelSelector {
    /// `a=b,c in (d,e),!f`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::Exists(key) => write!(f, "{key}")?,
                Requirement::Absent(key) => write!(f, "!{key}")?,
                Requirement::In(key, values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Requirement::In(key, values) => write!(f, "{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

impl Requirement {
    fn key(&self) -> &str {
        match self {
            Self::Exists(key) | Self::Absent(key) | Self::In(key, _) | Self::NotIn(key, _) => key,
        }
    }

    fn holds(&self, label: Option<&str>) -> bool {
        match self {
            Self::Exists(_) => label.is_some(),
            Self::Absent(_) => label.is_none(),
            Self::In(_, values) => label.is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(_, values) => label.is_none_or(|v| !values.iter().any(|x| x == v)),
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser {
        tokens: tokens(text),
        next: 0,
    };
    let mut requirements = Vec::new();
    match parser.peek() {
        Token::End => return Ok(requirements),
        Token::Word(_) | Token::Symbol("!") => {}
        other => {
            return Err(format!(
                "found '{}', expected: !, identifier, or 'end of string'",
                other.text()
            ));
        }
    }
    loop {
        requirements.push(parser.requirement()?);
        match parser.take() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => {
                let next = parser.peek();
                if !matches!(next, Token::Word(_) | Token::Symbol("!")) {
                    return Err(format!("found '{}', expected: identifier after ','", next.text()));
                }
            }
            other => {
                return Err(format!(
                    "found '{}', expected: ',' or 'end of string'",
                    other.text()
                ));
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
            Self::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", "<", ">"];
    let mut rest = text.trim_start();
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest
                .find(|c: char| c.is_whitespace() || "=!,()<>".contains(c))
                .unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    /// Ends in `End`.
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let fail = |what: String| Err(format!("unable to parse requirement: {what}"));
        if *self.peek() == Token::Symbol("!") {
            self.take();
            return match self.take() {
                Token::Word(key) => Ok(Requirement::Absent(key)),
                other => fail(format!("found '{}', expected: identifier", other.text())),
            };
        }
        let key = match self.take() {
            Token::Word(key) => key,
            other => return fail(format!("found '{}', expected: identifier", other.text())),
        };
        match self.peek().clone() {
            Token::End | Token::Symbol(",") => Ok(Requirement::Exists(key)),
            Token::Symbol("=" | "==") => {
                self.take();
                Ok(Requirement::In(key, vec![self.value()?]))
            }
            Token::Symbol("!=") => {
                self.take();
                Ok(Requirement::NotIn(key, vec![self.value()?]))
            }
            Token::Word(word) if word == "in" || word == "notin" => {
                self.take();
                let values = self.values()?;
                Ok(if word == "in" {
                    Requirement::In(key, values)
                } else {
                    Requirement::NotIn(key, values)
                })
            }
            other => fail(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                other.text()
            )),
        }
    }

    /// The value of `key=value`, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek().clone() {
            Token::Word(value) => {
                self.take();
                Ok(value)
            }
            Token::End | Token::Symbol(",") => Ok(String::new()),
            other @ Token::Symbol(_) => Err(format!(
                "unable to parse requirement: found '{}', expected: identifier",
                other.text()
            )),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let fail = |found: &Token, expected: &str| {
            Err(format!(
                "unable to parse requirement: found '{}', expected: {expected}",
                found.text()
            ))
        };
        let open = self.take();
        if open != Token::Symbol("(") {
            return fail(&open, "'('");
        }
        let mut values = Vec::new();
        loop {
            match self.take() {
                Token::Word(value) => values.push(value),
                Token::Symbol(",") => values.push(String::new()),
                Token::Symbol(")") => {
                    values.push(String::new());
                    return Ok(values);
                }
                other => return fail(&other, "',', ')' or identifier"),
            }
            match self.take() {
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(values),
                other => return fail(&other, "',' or ')'"),
            }
        }
    }
}

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<FieldRequirement>, Status> {
    let mut requirements = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
            (field, value, false)
        } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (field, value, true)
        } else {
            return Err(Status::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        let place = resource.selectable.iter().position(|known| **known == *field);
        let field = place.ok_or_else(|| unknown_field(field, resource))?;
        requirements.push(FieldRequirement {
            field,
            value: value.to_owned(),
            equal,
        });
    }
    Ok(requirements)
}

/// The real server has two texts: one for kinds with selectable fields of their own, one for the rest.
fn unknown_field(field: &str, resource: &Resource) -> Status {
    Status::bad_request(if resource.selectable.len() > 2 {
        format!("field label not supported: {field}")
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{object::Object, registry::Registry, storage::Revision};

    #[test]
    fn label_selectors_select_as_they_read() {
        let mut object = Object::new(
            json!({"kind": "Pod", "metadata": {"name": "a", "labels": {"app": "web", "tier": "b", "e": ""}}}),
        )
        .expect("an object");
        let object = object.encode(Revision(1), &[]);
        let cases = [
            ("app=web", true),
            ("app==web,tier=b", true),
            ("app!=web", false),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app in (web, api)", true),
            ("app notin (web,api)", false),
            ("other notin (web)", true),
            ("other!=x", true),
            ("e=", true),
            (" app = web ", true),
            ("", true),
        ];
        for (text, expected) in cases {
            let selector = Selector {
                labels: parse_labels(text).expect(text),
                fields: vec![],
            };
            assert_eq!(selector.matches(&object), expected, "{text}");
        }
    }

    #[test]
    fn bad_selectors_are_refused_in_the_servers_words() {
        assert_eq!(
            parse_labels("=x").expect_err("bad"),
            "found '=', expected: !, identifier, or 'end of string'"
        );
        for text in ["a in", "a in (", "a in x", "a b", "a,,b", "a=b c", "!", "a,"] {
            assert!(parse_labels(text).is_err(), "{text}");
        }
    }

    #[test]
    fn field_selectors_know_the_fields_of_the_kind() {
        let catalogue = Registry::new().catalogue();
        let pods = catalogue.find("", "v1", "pods").expect("served");
        let maps = catalogue.find("", "v1", "configmaps").expect("served");
        assert_eq!(
            parse_fields("spec.nodeName=n1,status.phase!=Failed", pods)
                .expect("known")
                .len(),
            2
        );
        assert_eq!(
            parse_fields("data.a=1", maps).expect_err("unknown").to_value()["message"],
            r#""data.a" is not a known field selector: only "metadata.name", "metadata.namespace""#
        );
    }
}
