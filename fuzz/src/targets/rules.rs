//! Validation rules: a schema with rules, an object and its old state, as `{"schema": …, "object": …, "old": …}`.

use fastrand::Rng;
use serde_json::{Value, json};
use windlass_cel::rules::{Rules, Validation};

use super::digest;
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
    mutate::{dictionary, tree},
};

pub(super) struct SchemaRules;

impl Target for SchemaRules {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let rule = |text: &str| json!([{"rule": text, "messageExpression": "'was ' + string(self)", "fieldPath": ".x"}]);
        let map = json!({"type": "array", "maxItems": 9, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v"}],
                "properties": {"k": {"type": "string"}, "v": {"type": "integer", "x-kubernetes-validations": rule("self > 3")}}}});
        let schema = json!({"type": "object", "x-kubernetes-validations": [
            {"rule": "self.list.all(x, x.v < 9) && self.metadata.name != ''", "reason": "FieldValueForbidden", "fieldPath": ".list"},
            {"rule": "oldSelf.hasValue() || self.n > 1", "optionalOldSelf": true, "message": "new"},
        ], "properties": {
            "list": map,
            "n": {"type": "integer", "nullable": true, "default": 3, "x-kubernetes-validations": rule("self != 5")},
            "entries": {"type": "object", "maxProperties": 9, "additionalProperties": {"type": "string", "x-kubernetes-validations": rule("self.matches('^a+$')")}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}, "x-kubernetes-validations": rule("self == oldSelf")},
            "any": {"x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {"type": "string", "x-kubernetes-validations": rule("self == 'x'")}}},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-validations": rule("self.kind == 'Pod'")},
            "either": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": rule("self == 1 || self == '1'")},
        }});
        let object = json!({"metadata": {"name": "a"}, "n": 5, "list": [{"k": "a", "v": 1}, {"k": "b", "v": 7}],
            "entries": {"x": "aa", "y": "b"}, "set": ["a", "b"], "any": {"x": "y"}, "pod": {"kind": "Pod"}, "either": "2"});
        let old = json!({"metadata": {"name": "a"}, "n": 5, "list": [{"k": "b", "v": 8}, {"k": "a", "v": 1}], "set": ["b", "a"]});
        let seed = |object: &Value, old: &Value| {
            json!({"schema": schema, "object": object, "old": old})
                .to_string()
                .into_bytes()
        };
        vec![
            seed(&object, &Value::Null),
            seed(&object, &old),
            seed(&object, &object),
        ]
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let Ok(mut case) = serde_json::from_slice::<Value>(input) else {
            return input.to_vec();
        };
        let donor = serde_json::from_slice(donor).unwrap_or_else(|_| dictionary::value(rng));
        tree::mutate(&mut case, &donor, rng);
        tree::text(&case, rng).into_bytes()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let Ok(case) = serde_json::from_slice::<Value>(input) else {
            return Ok(Outcome::default());
        };
        let meter = Meter::start();
        let Some(rules) = Rules::compile(&case["schema"]) else {
            return Ok(Outcome::default());
        };
        let old = Some(&case["old"]).filter(|old| !old.is_null());
        let validation = Validation {
            old,
            ratchet: true,
            ..Validation::create(&case["object"])
        };
        let outcome = rules.root().validate(&validation);
        let again = rules.root().validate(&validation);
        if outcome.violations != again.violations || outcome.remaining_budget != again.remaining_budget {
            return Err(Invariant::ReadableAgain.violated("two evaluations differ"));
        }
        let texts: Vec<_> = outcome
            .violations
            .iter()
            .chain(&outcome.warnings)
            .map(ToString::to_string)
            .collect();
        Ok(Outcome {
            accepted: outcome.violations.is_empty(),
            fingerprint: digest(&texts.join("\n")),
            allocated: meter.check(input.len())?,
        })
    }
}
