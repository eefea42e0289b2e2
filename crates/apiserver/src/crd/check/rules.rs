//! Checks the validation rules of a schema: that they compile, and that their estimated costs are within the limits.

use serde_json::Value;
use windlass_cel::rules::{Part, Rule};

use super::{
    super::{list, text},
    ErrorList, go_json,
};
use crate::schema::Problem;

/// The greatest estimated cost of one expression.
const EXPRESSION_LIMIT: u64 = 10_000_000;

/// The greatest estimated cost of all expressions of a schema.
const SCHEMA_LIMIT: u64 = 100_000_000;

/// The number of expressions that the error about a schema's costs names.
const MAX_NAMED: usize = 4;

/// The greatest size of the errors of a schema, each of which quotes its rule.
const MAX_ERROR_BYTES: usize = 4 << 20;

/// The errors and costs of a schema's rules.
#[derive(Default)]
pub(super) struct RuleErrors {
    errors: ErrorList,
    error_bytes: usize,
    total_cost: u64,
    /// The most expensive expressions, with their costs, the most expensive first.
    expensive: Vec<(u64, String)>,
}

/// What is known about the rules at a position of a schema.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    /// The compiled rules; `None` if there are none here and below.
    part: Option<Part<'a>>,
    /// How often the position can occur in an object at most; `None` if it is unbounded.
    cardinality: Option<u64>,
    /// The costs of single expressions are not limited: the schema is the stored one.
    is_unchanged: bool,
}

impl<'a> Scope<'a> {
    pub(super) const fn root(part: Option<Part<'a>>, is_unchanged: bool) -> Self {
        Self {
            part,
            cardinality: Some(1),
            is_unchanged,
        }
    }

    /// The scope of a part below; `schema` is the one of this position.
    pub(super) fn child(&self, schema: &Value, step: impl FnOnce(Part<'a>) -> Option<Part<'a>>) -> Self {
        let bound = |key: &str| Some(u64::try_from(schema[key].as_i64()?).unwrap_or(0));
        let factor = match text(&schema["type"]) {
            "object" if !schema["additionalProperties"].is_null() => bound("maxProperties"),
            "array" => bound("maxItems"),
            _ => Some(1),
        };
        Self {
            part: self.part.and_then(step),
            cardinality: self
                .cardinality
                .zip(factor)
                .map(|(outer, factor)| outer.saturating_mul(factor)),
            ..*self
        }
    }
}

impl RuleErrors {
    /// Checks the rules at a position. `uncorrelatable` is the path of a list above whose items have no old values.
    pub(super) fn check(
        &mut self,
        schema: &Value,
        path: &str,
        scope: &Scope<'_>,
        uncorrelatable: Option<&str>,
    ) {
        let rules = list(&schema["x-kubernetes-validations"]);
        if rules.is_empty() || self.error_bytes > MAX_ERROR_BYTES {
            return;
        }
        let path = format!("{path}.x-kubernetes-validations");
        let Some(part) = scope.part else {
            let why = "internal error: failed to retrieve type information for x-kubernetes-validations";
            return self.add(path, Problem::Internal(why.to_owned()));
        };
        if let Some(why) = part.type_error() {
            let why = format!(
                "internal error: failed to construct type information for x-kubernetes-validations rules: {why}"
            );
            return self.add(path, Problem::Internal(why));
        }
        let cardinality = scope.cardinality.unwrap_or_else(|| part.max_cardinality());
        for (index, (given, rule)) in rules.iter().zip(part.rules()).enumerate() {
            self.check_rule(given, rule, &format!("{path}[{index}]"), scope, cardinality);
            if rule.uses_old_self() {
                if let Some(outer) = uncorrelatable {
                    let why = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {outer}"
                    );
                    let problem = Problem::Invalid(given["rule"].clone(), why);
                    self.add(format!("{path}[{index}].rule"), problem);
                }
            } else if !given["optionalOldSelf"].is_null() {
                let why = "may not be set if oldSelf is not used in rule".to_owned();
                let problem = Problem::Invalid(given["optionalOldSelf"].clone(), why);
                self.add(format!("{path}[{index}].optionalOldSelf"), problem);
            }
        }
    }

    fn check_rule(&mut self, given: &Value, rule: &Rule, path: &str, scope: &Scope<'_>, cardinality: u64) {
        let cost = rule.max_cost().saturating_mul(cardinality);
        self.add_cost(format!("{path}.rule"), cost, "estimated rule cost", scope);
        if let Some(why) = rule.error() {
            let problem = Problem::InvalidText(go_json::rule(given), why.to_owned());
            self.add(format!("{path}.rule"), problem);
        }
        let field = || format!("{path}.messageExpression");
        if let Some(why) = rule.message_error() {
            let problem = Problem::InvalidText(go_json::rule(given), why.to_owned());
            self.add(field(), problem);
        } else if let Some(cost) = rule.message_max_cost() {
            self.add_cost(field(), cost, "estimated messageExpression cost", scope);
        }
    }

    fn add_cost(&mut self, field: String, cost: u64, name: &str, scope: &Scope<'_>) {
        if cost > EXPRESSION_LIMIT && !scope.is_unchanged {
            let why = exceeded(name, cost, EXPRESSION_LIMIT);
            self.add(field.clone(), Problem::Forbidden(why));
        }
        self.total_cost = self.total_cost.saturating_add(cost);
        if cost < SCHEMA_LIMIT / 100 {
            return;
        }
        let place = self.expensive.partition_point(|(other, _)| *other >= cost);
        self.expensive.insert(place, (cost, field));
        self.expensive.truncate(MAX_NAMED);
    }

    fn add(&mut self, field: String, problem: Problem) {
        let bytes = match &problem {
            Problem::InvalidText(value, why) => value.len() + why.len(),
            _ => field.len(),
        };
        self.error_bytes = self.error_bytes.saturating_add(bytes);
        self.errors.add(field, problem);
    }

    /// Adds the errors to those of the schema, and then those about the cost of all rules.
    pub(super) fn finish(self, path: &str, errors: &mut ErrorList) {
        errors.0.extend(self.errors.0);
        if self.total_cost <= SCHEMA_LIMIT {
            return;
        }
        for (_, field) in self.expensive {
            errors.forbidden(
                field,
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            );
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(path, exceeded(name, self.total_cost, SCHEMA_LIMIT));
    }
}

fn exceeded(name: &str, cost: u64, limit: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "as kube-apiserver computes it")]
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
