//! CEL expressions: compiled and evaluated as podwatch's filters, and as validation rules over a schema.

use std::sync::Arc;

use serde_json::json;
use windlass_cache::ObjectKey;
use windlass_cel::{Env, Schema};
use windlass_podwatch::{EventType, FieldChange, Filter, Notice};

use super::digest;
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
};

const EXPRESSIONS: &[&str] = &[
    "event == 'deleted' || object.spec.replicas > 3",
    "has(object.spec.replicas) && object.spec.replicas % 2 == 0",
    "changes.exists(c, c.path.startsWith('spec') && c.new != c.old)",
    "object.metadata.labels['a'] in ['b', 'c']",
    "name.matches('^(a+)+$') ? key.size() > 3 : false",
    "[1, 2, 3].map(x, x * 2).filter(x, x > 2).all(x, x < 10)",
    "kind + '/' + name == 'Deployment/web'",
    "old == null || type(old.spec) == map",
    "duration('1h') < duration('90m') && timestamp('2026-01-01T00:00:00Z') > timestamp('2025-01-01T00:00:00Z')",
    "string(1.5) + string(2u) != string(b'abc')",
    "int('9223372036854775807') - 1 > 0",
    "{'a': {'b': [1, 2.0, 3u, null, true]}}.a.b[4]",
    "'%s'.format(['x']) == 'x' && 'abc'.charAt(1) == 'b' && 'a,b'.split(',').size() == 2",
    "[[1, 2], [3]].map(x, x.map(y, y + 1)) == [[2, 3], [4]]",
    "!(-1 < 0) || 1 / 0 > 2 || 5 % 0 == 1",
    "object.missing.field == 1",
    "self.replicas <= 5 && self.list == ['b', 'a'] && self.at.getFullYear() == 2026",
    "self.list.map(x, x + self.name).join(',').split(',').exists_one(x, x.matches('a.*'))",
    "'\\u00e9\\n\\x41' == r'raw\\n'",
];

pub(super) struct Cel {
    notices: Vec<Notice>,
    schema: Schema,
    object: serde_json::Value,
}

impl Cel {
    pub(super) fn new() -> Self {
        let object = Arc::new(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"a": "b"}},
            "spec": {"replicas": 3, "ratio": 0.5, "big": u64::MAX, "list": [1, "two", null, {"three": 3}]},
        }));
        let notice = |event| Notice {
            event,
            inferred: false,
            coalesced: 0,
            kind: Arc::new(kube::core::ApiResource {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
                plural: "deployments".to_owned(),
            }),
            key: ObjectKey::namespaced("shop", "web"),
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            time: jiff::Timestamp::UNIX_EPOCH,
            object: Some(Arc::clone(&object)),
            changes: vec![FieldChange {
                path: "spec.replicas".to_owned(),
                old: Some(json!(2)),
                new: Some(json!(3)),
            }],
        };
        let schema = json!({"type": "object", "properties": {
            "name": {"type": "string"},
            "replicas": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        }});
        Self {
            notices: EventType::ALL.map(notice).into(),
            schema: Schema::from_openapi(&schema, "selfType").expect("a visible schema"),
            object: json!({"name": "web", "replicas": 3, "at": "2026-01-01T00:00:00Z", "list": ["a", "b"]}),
        }
    }

    /// Compiles and evaluates a validation rule. Returns what became of it.
    fn rule(&self, text: &str) -> String {
        let mut env = Env::kubernetes();
        env.declare_schema("self", &self.schema);
        match env.compile(text) {
            Ok(program) => {
                let variables = [self.schema.value(&self.object).expect("it matches the schema")];
                let result = program.evaluate(&variables);
                format!("{} {:?} {}", program.result_type(), result.value, result.cost)
            }
            Err(issues) => issues.to_string(),
        }
    }
}

impl Target for Cel {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        EXPRESSIONS.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let Ok(text) = std::str::from_utf8(input) else {
            return Ok(Outcome::default());
        };
        let meter = Meter::start();
        let rule = self.rule(text);
        let filter = match text.parse::<Filter>() {
            Ok(filter) => filter,
            Err(error) => {
                return Ok(Outcome {
                    fingerprint: digest(&format!("{error} {rule}")),
                    allocated: meter.check(input.len())?,
                    ..Outcome::default()
                });
            }
        };
        let wanted: Vec<bool> = self
            .notices
            .iter()
            .map(|notice| filter.matches(notice, None))
            .collect();
        let allocated = meter.check(input.len())?;
        if let Err(error) = filter.to_string().parse::<Filter>() {
            return Err(Invariant::ReadableAgain.violated(error.to_string()));
        }
        Ok(Outcome {
            accepted: true,
            fingerprint: format!("{wanted:?} {}", digest(&rule)),
            allocated,
        })
    }
}
