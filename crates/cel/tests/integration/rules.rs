//! Validation rules over schemas.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use windlass_cel::rules::{Outcome, Rules, Validation};

fn texts(outcome: &Outcome) -> Vec<String> {
    outcome.violations.iter().map(ToString::to_string).collect()
}

fn warnings(outcome: &Outcome) -> Vec<String> {
    outcome.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn schema_without_rules_has_none() {
    assert!(Rules::compile(&json!({"type": "object", "properties": {"n": {"type": "integer"}}})).is_none());
    assert!(Rules::compile(&json!({"type": "object", "x-kubernetes-validations": []})).is_none());
    assert!(Rules::compile(&json!("no schema")).is_none());
}

#[test]
fn unchanged_values_are_ratcheted_and_changed_ones_are_not() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]},
        "l": {"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]}},
    }});
    let rules = Rules::compile(&schema).unwrap();
    let old = json!({"n": 1, "l": [1, 9]});
    let outcome = rules.root().validate(&Validation::update(&old, &old));
    assert_eq!(texts(&outcome), Vec::<String>::new());
    assert_eq!(
        warnings(&outcome),
        [
            "l[0]: Invalid value: 1: failed rule: self > 5",
            "n: Invalid value: 1: failed rule: self > 5"
        ]
    );
    let new = json!({"n": 2, "l": [1, 8]});
    let outcome = rules.root().validate(&Validation::update(&new, &old));
    assert_eq!(
        texts(&outcome),
        [
            "l[0]: Invalid value: 1: failed rule: self > 5",
            "n: Invalid value: 2: failed rule: self > 5"
        ]
    );
}

#[test]
fn type_errors_name_the_type_of_the_rules_part() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {
        "b": {"type": "object", "properties": {"c": {"type": "integer"}}},
    }, "x-kubernetes-validations": [{"rule": "self.b == 1"}, {"rule": "self == 1"}]}}});
    let rules = Rules::compile(&schema).unwrap();
    let part = rules.root().property("a").unwrap();
    let errors: Vec<_> = part.rules().iter().filter_map(|rule| rule.error()).collect();
    assert!(
        errors[0].contains("'_==_' applied to '(selfType1.b, int)'"),
        "{}",
        errors[0]
    );
    assert!(
        errors[1].contains("'_==_' applied to '(selfType1, int)'"),
        "{}",
        errors[1]
    );
}

#[test]
fn validation_ends_when_the_budget_is_spent() {
    let schema = json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]}},
    }});
    let rules = Rules::compile(&schema).unwrap();
    let object = json!({"l": [9, 9, 9, 9]});
    let validation = Validation {
        budget: 6,
        ..Validation::create(&object)
    };
    let outcome = rules.root().validate(&validation);
    assert_eq!(outcome.remaining_budget, None);
    assert_eq!(
        texts(&outcome),
        [
            "l[3]: Invalid value: \"integer\": validation failed due to running out of cost budget, no further validation \
          rules will be run"
        ]
    );
}

#[test]
fn patterns_of_a_schema_are_bounded() {
    let rules: Vec<Json> = (0..40)
        .map(|index| json!({"rule": format!("self.matches('\\\\pL{{20}}{index}')")}))
        .collect();
    let schema = json!({"type": "object", "properties": {"s": {"type": "string", "maxLength": 5, "x-kubernetes-validations": rules}}});
    let rules = Rules::compile(&schema).unwrap();
    let part = rules.root().property("s").unwrap();
    assert!(part.rules()[0].error().is_none(), "{:?}", part.rules()[0].error());
    let error = part.rules()[39].error().unwrap();
    assert!(
        error.contains("the expressions and patterns together take more than 32768 KiB"),
        "{error}"
    );
}

/// Rules of a large list may fail for each item, and cost nothing.
#[test]
fn messages_and_free_steps_are_bounded() {
    let rules: Vec<Json> = (0..50)
        .map(|index| json!({"rule": "false", "message": format!("{index} {}", "x".repeat(1000))}))
        .collect();
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer",
        "x-kubernetes-validations": rules}}}});
    let rules = Rules::compile(&schema).unwrap();
    let object = json!({"l": vec![1; 10_000]});
    let outcome = rules.root().validate(&Validation::create(&object));
    let bytes: usize = outcome
        .violations
        .iter()
        .map(|violation| violation.message.len())
        .sum();
    assert!(bytes < 5 << 20, "{bytes}");
    assert_eq!(outcome.remaining_budget, None);

    let schema = json!({"type": "object", "x-kubernetes-validations": vec![json!({"rule": "self.l == self.l"}); 200],
        "properties": {"l": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}}});
    let rules = Rules::compile(&schema).unwrap();
    let object = json!({"l": (0..4000).collect::<Vec<_>>()});
    let outcome = rules.root().validate(&Validation::create(&object));
    assert_eq!(outcome.remaining_budget, None);
    assert!(
        texts(&outcome)[0].contains("validation took too long"),
        "{:?}",
        texts(&outcome)
    );
}

#[test]
fn nested_schemas_and_objects_are_walked_on_an_ordinary_stack() {
    let mut schema = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]});
    let mut object = json!(1);
    for _ in 0..90 {
        schema = json!({"type": "object", "properties": {"x": schema}, "x-kubernetes-validations": [{"rule": "has(self.x)"}]});
        object = json!({"x": object});
    }
    let rules = Rules::compile(&schema).unwrap();
    let outcome = rules.root().validate(&Validation::update(&object, &object));
    assert_eq!(warnings(&outcome).len(), 1);
    // Deeper parts of a schema have no rules; who accepts the schema sees that.
    for _ in 0..20 {
        schema = json!({"type": "object", "properties": {"x": schema}});
    }
    let rules = Rules::compile(&schema).unwrap();
    let mut part = rules.root();
    let depth = std::iter::from_fn(|| {
        part = part.property("x")?;
        Some(())
    });
    assert_eq!(depth.count(), 100);
}

fn value() -> impl Strategy<Value = Json> {
    let item = ("[ab]", 0..4_i64).prop_map(|(k, v)| json!({"k": k, "v": v}));
    let items = proptest::collection::vec(item, 0..4);
    (0..4_i64, items, proptest::option::of(0..3_i64))
        .prop_map(|(n, l, o)| json!({"n": n, "l": l, "o": o, "s": [n, n + 1]}))
}

proptest! {
    /// A rule about each part, so that violations show what is ratcheted.
    #[test]
    fn violations_and_warnings_together_do_not_depend_on_the_old_value(new in value(), old in value()) {
        let bad = json!([{"rule": "false", "message": "bad"}]);
        let schema = json!({"type": "object", "x-kubernetes-validations": bad, "properties": {
            "n": {"type": "integer", "x-kubernetes-validations": bad},
            "o": {"type": "integer", "nullable": true, "x-kubernetes-validations": bad},
            "s": {"type": "array", "items": {"type": "integer", "x-kubernetes-validations": bad}, "x-kubernetes-validations": bad},
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "x-kubernetes-validations": bad, "items": {"type": "object", "x-kubernetes-validations": bad,
                "properties": {"k": {"type": "string"}, "v": {"type": "integer", "x-kubernetes-validations": bad}}}},
        }});
        let rules = Rules::compile(&schema).unwrap();
        let created = rules.root().validate(&Validation::create(&new));
        let updated = rules.root().validate(&Validation::update(&new, &old));
        let mut all = texts(&updated);
        all.extend(warnings(&updated));
        all.sort();
        let mut expected = texts(&created);
        expected.sort();
        prop_assert_eq!(all, expected);
        prop_assert_eq!(created.warnings.len(), 0);
        prop_assert_eq!(created.remaining_budget, updated.remaining_budget);
        let is_ratcheted = |field: &str| updated.warnings.iter().any(|warning| warning.field == field);
        prop_assert_eq!(is_ratcheted("n"), new["n"] == old["n"]);
        prop_assert_eq!(is_ratcheted("s[0]"), new["s"] == old["s"]);
        for (index, item) in new["l"].as_array().unwrap().iter().enumerate() {
            let before = old["l"].as_array().unwrap().iter().find(|old| old["k"] == item["k"]);
            prop_assert_eq!(is_ratcheted(&format!("l[{index}]")), before == Some(item));
        }
    }
}
