//! Label and field selectors.

use std::fmt;

use serde_json::Value;
use windlass_api::naming;
use windlass_rights::FieldTerm;

use crate::{conversion, object::Encoded, registry::Resource, status::Status};

/// Selects the objects of a list or watch, by labels and fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

/// One requirement on labels; an object must match all.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    DoesNotExist(String),
    In(String, Vec<String>),
    /// Also matches if the label is absent.
    NotIn(String, Vec<String>),
    /// The label is an integer greater than this.
    GreaterThan(String, i64),
    /// The label is an integer less than this.
    LessThan(String, i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    /// The index in the resource's list of selectable fields.
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

    /// Also requires a name.
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
        let label_holds = |requirement: &Requirement| requirement.matches(object.label(requirement.key()));
        let field_holds = |r: &FieldRequirement| (object.field(r.field) == r.value) == r.equal;
        self.labels.iter().all(label_holds) && self.fields.iter().all(field_holds)
    }
}

/// A label selector of an object: `matchLabels` and `matchExpressions`.
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
                _ => Requirement::DoesNotExist(key),
            }
        });
        let mut requirements: Vec<_> = equal.chain(others).collect();
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Self(requirements)
    }

    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.matches(label(requirement.key())))
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
                Requirement::DoesNotExist(key) => write!(f, "!{key}")?,
                Requirement::In(key, values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Requirement::In(key, values) => write!(f, "{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
                Requirement::GreaterThan(key, bound) => write!(f, "{key}>{bound}")?,
                Requirement::LessThan(key, bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

impl Requirement {
    fn key(&self) -> &str {
        match self {
            Self::Exists(key)
            | Self::DoesNotExist(key)
            | Self::In(key, _)
            | Self::NotIn(key, _)
            | Self::GreaterThan(key, _)
            | Self::LessThan(key, _) => key,
        }
    }

    fn matches(&self, label: Option<&str>) -> bool {
        match self {
            Self::Exists(_) => label.is_some(),
            Self::DoesNotExist(_) => label.is_none(),
            Self::In(_, values) => label.is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(_, values) => label.is_none_or(|v| !values.iter().any(|x| x == v)),
            Self::GreaterThan(_, bound) => label
                .and_then(|v| v.parse::<i64>().ok())
                .is_some_and(|v| v > *bound),
            Self::LessThan(_, bound) => label
                .and_then(|v| v.parse::<i64>().ok())
                .is_some_and(|v| v < *bound),
        }
    }
}

/// Parses a label selector, with the real server's error messages.
fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser {
        tokens: tokens(text),
        next: 0,
    };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Symbol("!") => {}
            Token::End => return Ok(requirements),
            other @ Token::Symbol(_) => {
                return Err(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.text()
                ));
            }
        }
        requirements.push(
            parser
                .requirement()
                .map_err(|why| format!("unable to parse requirement: {why}"))?,
        );
        match parser.next_token() {
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
    /// The last one is `End`.
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn next_token(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = *self.peek() == Token::Symbol("!");
        if absent {
            self.next_token();
        }
        let key = match self.next_token() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(why) = naming::qualified(&key).into_iter().next() {
            return Err(format!("<nil>: Invalid value: {key:?}: {why}"));
        }
        if absent {
            return Ok(Requirement::DoesNotExist(key));
        }
        let requirement = match self.peek().clone() {
            Token::End | Token::Symbol(",") => return Ok(Requirement::Exists(key)),
            Token::Symbol("=" | "==") => {
                self.next_token();
                Requirement::In(key, vec![self.value()?])
            }
            Token::Symbol("!=") => {
                self.next_token();
                Requirement::NotIn(key, vec![self.value()?])
            }
            Token::Symbol(sign @ ("<" | ">")) => {
                self.next_token();
                let value = self.value()?;
                let bound = value.parse().map_err(|_| {
                    format!(
                        "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                })?;
                return Ok(if sign == ">" {
                    Requirement::GreaterThan(key, bound)
                } else {
                    Requirement::LessThan(key, bound)
                });
            }
            Token::Word(word) if word == "in" || word == "notin" => {
                self.next_token();
                let values = self.values()?;
                if word == "in" {
                    Requirement::In(key, values)
                } else {
                    Requirement::NotIn(key, values)
                }
            }
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
            }
        };
        if let Requirement::In(key, values) | Requirement::NotIn(key, values) = &requirement {
            for (index, value) in values.iter().enumerate() {
                if let Some(why) = naming::label_value(value).into_iter().next() {
                    return Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {why}"));
                }
            }
        }
        Ok(requirement)
    }

    /// The value of `key=value`, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        match self.peek().clone() {
            Token::Word(value) => {
                self.next_token();
                Ok(value)
            }
            Token::End | Token::Symbol(",") => Ok(String::new()),
            other @ Token::Symbol(_) => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// Parses `(a, b)`. Values may be empty: `(,a)`.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next_token();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        let mut expects_value = true;
        loop {
            match self.next_token() {
                Token::Word(value) if expects_value => {
                    values.push(value);
                    expects_value = false;
                }
                Token::Symbol(",") => {
                    if expects_value {
                        values.push(String::new());
                    }
                    expects_value = true;
                }
                Token::Symbol(")") => {
                    if expects_value {
                        values.push(String::new());
                    }
                    values.sort_unstable();
                    values.dedup();
                    return Ok(values);
                }
                other if expects_value => {
                    return Err(format!("found '{}', expected: ',', or identifier", other.text()));
                }
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

/// Whether a text is a valid label selector.
pub(crate) fn is_label_selector(text: &str) -> bool {
    parse_labels(text).is_ok()
}

/// Whether a text is a valid field selector, regardless of the fields.
pub(crate) fn is_field_selector(text: &str) -> bool {
    FieldTerm::parse_all(text).is_ok()
}

fn parse_fields(text: &str, resource: &Resource) -> Result<Vec<FieldRequirement>, Status> {
    let mut requirements = Vec::new();
    for FieldTerm { field, value, equal } in FieldTerm::parse_all(text).map_err(Status::bad_request)? {
        let stored = conversion::stored_field(resource, &field);
        let place = stored.and_then(|stored| {
            resource
                .selectable_fields
                .iter()
                .position(|known| **known == *stored)
        });
        let field = place.ok_or_else(|| unknown_field(&field, resource))?;
        requirements.push(FieldRequirement { field, value, equal });
    }
    Ok(requirements)
}

/// The real server has two messages: one for kinds with further selectable fields, one for the rest.
fn unknown_field(field: &str, resource: &Resource) -> Status {
    Status::bad_request(if resource.is_custom || resource.selectable_fields.len() > 2 {
        format!("field label not supported: {field}")
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{object::Object, registry::Registry, storage::Revision};

    #[test]
    fn label_selectors_match() {
        let mut object = Object::new(
            json!({"kind": "Pod", "metadata": {"name": "a", "labels": {"app": "web", "tier": "b", "n": "2", "e": ""}}}),
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
            ("e in (,x)", true),
            ("n>1,n<3", true),
            ("n>2", false),
            ("app>2", false),
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
    fn invalid_label_selectors_are_rejected() {
        assert_eq!(
            parse_labels("=x").expect_err("bad"),
            "found '=', expected: !, identifier, or 'end of string'"
        );
        for text in ["a in", "a in (", "a in x", "a b", "a,,b", "a=b c", "!", "a,"] {
            assert!(parse_labels(text).is_err(), "{text}");
        }
    }

    #[test]
    fn field_selectors_accept_only_selectable_fields() {
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

    fn requirement() -> impl Strategy<Value = Requirement> {
        let key = || {
            "(in|notin|[a-z]{1,6}(\\.io/[a-z]{1,4})?)"
                .prop_filter("not an operator", |key| key != "in" && key != "notin")
        };
        let value = || "[a-zA-Z0-9]([a-z0-9._-]{0,5}[a-z0-9])?";
        // Sorted and without duplicates, like the parser's.
        let values = move || {
            prop::collection::btree_set(value(), 1..4)
                .prop_map(|values| values.into_iter().collect::<Vec<_>>())
        };
        prop_oneof![
            key().prop_map(Requirement::Exists),
            key().prop_map(Requirement::DoesNotExist),
            (key(), values()).prop_map(|(key, values)| Requirement::In(key, values)),
            (key(), values()).prop_map(|(key, values)| Requirement::NotIn(key, values)),
            (key(), 0..i64::MAX).prop_map(|(key, bound)| Requirement::GreaterThan(key, bound)),
            (key(), 0..i64::MAX).prop_map(|(key, bound)| Requirement::LessThan(key, bound)),
        ]
    }

    proptest! {
        #[test]
        fn label_selector_round_trips_through_text(requirements in prop::collection::vec(requirement(), 0..5)) {
            let text = LabelSelector(requirements.clone()).to_string();
            prop_assert_eq!(parse_labels(&text), Ok(requirements), "{}", text);
        }

        #[test]
        fn parser_accepts_any_text(text in "[a-c0-9=!,()<> \\PC]{0,24}", any in ".{0,24}") {
            let catalogue = Registry::new().catalogue();
            let pods = catalogue.find("", "v1", "pods").expect("served");
            for text in [text, any] {
                if let Ok(requirements) = parse_labels(&text) {
                    // A parsed selector round-trips.
                    let formatted = LabelSelector(requirements.clone()).to_string();
                    prop_assert_eq!(parse_labels(&formatted), Ok(requirements), "{:?} as {:?}", text, formatted);
                }
                let _ = parse_fields(&text, pods);
            }
        }
    }
}
