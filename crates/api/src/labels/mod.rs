//! Label selectors, as in apimachinery's package `labels`.
//!
//! A [`Selector`] comes from the text of a query (`app=web,tier in (a,b)`), from a `LabelSelector` in an object, or with
//! the feature `kube` from kube's own `Selector`. It matches anything that has labels, without copying them.
//!
//! ```
//! use windlass_api::labels::Selector;
//!
//! let selector: Selector = "app=web,!canary".parse()?;
//! let labels = [("app", "web"), ("tier", "front")];
//! let label = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
//! assert!(selector.matches(label));
//! # Ok::<_, windlass_api::labels::InvalidSelector>(())
//! ```

mod matcher;
mod parse;

pub use matcher::Matcher;

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde_json::Value;

/// A selector that does not parse; displays kube-apiserver's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSelector(String);

/// Selects objects by their labels. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// A requirement on one label; an object must meet all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted. Empty for `Exists` and `DoesNotExist`, one integer for `Gt` and `Lt`.
    values: Vec<String>,
}

/// The operator of a requirement, also of those in node affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is absent.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer greater than the value (`Gt`).
    GreaterThan,
    /// The label is an integer less than the value (`Lt`).
    LessThan,
}

impl Operator {
    /// Returns the operator with this name in the API, such as `NotIn` or `Gt`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::GreaterThan,
            "Lt" => Self::LessThan,
            _ => return None,
        })
    }

    /// Whether a label with this value, or an absent one, meets the requirement.
    pub fn matches(self, values: &[String], label: Option<&str>) -> bool {
        let is_listed = || label.is_some_and(|label| values.iter().any(|value| value == label));
        let compare = || {
            let label = label?.parse::<i64>().ok()?;
            Some(label.cmp(&values.first()?.parse().ok()?))
        };
        match self {
            Self::In => is_listed(),
            Self::NotIn => !is_listed(),
            Self::Exists => label.is_some(),
            Self::DoesNotExist => label.is_none(),
            Self::GreaterThan => compare().is_some_and(std::cmp::Ordering::is_gt),
            Self::LessThan => compare().is_some_and(std::cmp::Ordering::is_lt),
        }
    }
}

impl Selector {
    /// Returns the selector of a `LabelSelector` in JSON, which the server has validated: an unknown operator counts as
    /// `DoesNotExist`.
    pub fn from_json(selector: &Value) -> Self {
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let equal = labels.map(|(key, value)| {
            Requirement::new(
                key.clone(),
                Operator::In,
                vec![value.as_str().unwrap_or_default().to_owned()],
            )
        });
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
        let others = expressions.map(|expression| {
            let values = expression["values"].as_array().into_iter().flatten();
            let name = expression["operator"].as_str().unwrap_or_default();
            Requirement::new(
                expression["key"].as_str().unwrap_or_default().to_owned(),
                Operator::from_name(name).unwrap_or(Operator::DoesNotExist),
                values.filter_map(Value::as_str).map(str::to_owned).collect(),
            )
        });
        Self::from_requirements(equal.chain(others))
    }

    /// Sorts by key, like Kubernetes.
    fn from_requirements(requirements: impl Iterator<Item = Requirement>) -> Self {
        let mut requirements: Vec<_> = requirements.collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self(requirements)
    }

    /// Whether the selector has no requirements, and so selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the labels meet all requirements. `label` returns the value of the label with this key.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.matches(label(&requirement.key)))
    }

    /// Like [`Selector::matches`], for the labels of typed metadata.
    pub fn matches_map(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches(|key| labels.get(key).map(String::as_str))
    }
}

impl Requirement {
    /// Sorts the values; the order does not matter.
    fn new(key: String, operator: Operator, mut values: Vec<String>) -> Self {
        values.sort_unstable();
        Self {
            key,
            operator,
            values,
        }
    }

    /// Like [`Operator::matches`], with sorted values.
    fn matches(&self, label: Option<&str>) -> bool {
        let is_listed = |label: &str| self.values.binary_search_by(|value| (**value).cmp(label)).is_ok();
        match self.operator {
            Operator::In => label.is_some_and(is_listed),
            Operator::NotIn => !label.is_some_and(is_listed),
            operator => operator.matches(&self.values, label),
        }
    }
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        parse::requirements(text).map(Self).map_err(InvalidSelector)
    }
}

/// Writes the text form: `a=b,c in (d,e),!f`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (
            index,
            Requirement {
                key,
                operator,
                values,
            },
        ) in self.0.iter().enumerate()
        {
            if index > 0 {
                f.write_str(",")?;
            }
            match (operator, &values[..]) {
                (Operator::Exists, _) => write!(f, "{key}")?,
                (Operator::DoesNotExist, _) => write!(f, "!{key}")?,
                (Operator::In, [value]) => write!(f, "{key}={value}")?,
                (Operator::In, values) => write!(f, "{key} in ({})", values.join(","))?,
                (Operator::NotIn, values) => write!(f, "{key} notin ({})", values.join(","))?,
                (Operator::GreaterThan, values) => write!(f, "{key}>{}", values.join(","))?,
                (Operator::LessThan, values) => write!(f, "{key}<{}", values.join(","))?,
            }
        }
        Ok(())
    }
}

#[cfg(feature = "kube")]
mod typed {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use kube::core::Expression;

    use super::{InvalidSelector, Operator, Requirement, Selector};

    impl TryFrom<&LabelSelector> for Selector {
        type Error = InvalidSelector;

        /// Fails for an unknown operator, and for `In` and `NotIn` without values.
        fn try_from(selector: &LabelSelector) -> Result<Self, InvalidSelector> {
            let labels = selector.match_labels.iter().flatten();
            let equal = labels
                .map(|(key, value)| Ok(Requirement::new(key.clone(), Operator::In, vec![value.clone()])));
            let expressions = selector.match_expressions.iter().flatten();
            let others = expressions.map(|expression| {
                let values = expression.values.clone().unwrap_or_default();
                let operator = match Operator::from_name(&expression.operator) {
                    Some(Operator::In | Operator::NotIn) if values.is_empty() => {
                        let why = "for 'in', 'notin' operators, values set can't be empty";
                        return Err(InvalidSelector(format!("values: Invalid value: []: {why}")));
                    }
                    Some(
                        operator @ (Operator::In
                        | Operator::NotIn
                        | Operator::Exists
                        | Operator::DoesNotExist),
                    ) => operator,
                    _ => {
                        let name = &expression.operator;
                        return Err(InvalidSelector(format!(
                            "{name:?} is not a valid label selector operator"
                        )));
                    }
                };
                Ok(Requirement::new(expression.key.clone(), operator, values))
            });
            let requirements = equal.chain(others).collect::<Result<Vec<_>, _>>()?;
            Ok(Self::from_requirements(requirements.into_iter()))
        }
    }

    impl From<kube::core::Selector> for Selector {
        fn from(selector: kube::core::Selector) -> Self {
            Self::from_requirements(selector.into_iter().map(Requirement::from))
        }
    }

    impl From<Expression> for Selector {
        fn from(expression: Expression) -> Self {
            Self(vec![expression.into()])
        }
    }

    impl From<Expression> for Requirement {
        fn from(expression: Expression) -> Self {
            match expression {
                Expression::In(key, values) => Self::new(key, Operator::In, values.into_iter().collect()),
                Expression::NotIn(key, values) => {
                    Self::new(key, Operator::NotIn, values.into_iter().collect())
                }
                Expression::Equal(key, value) => Self::new(key, Operator::In, vec![value]),
                Expression::NotEqual(key, value) => Self::new(key, Operator::NotIn, vec![value]),
                Expression::Exists(key) => Self::new(key, Operator::Exists, Vec::new()),
                Expression::DoesNotExist(key) => Self::new(key, Operator::DoesNotExist, Vec::new()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
