//! Behaviour that users rely on, without recordings.

use serde_json::json;
use windlass_cel::{Env, EvalErrorKind, HostObject, LazyFields, Limits, Map, Schema, Type, Value};

fn check(schema: &Schema, rule: &str, object: &serde_json::Value) -> Result<bool, String> {
    let mut env = Env::kubernetes();
    env.declare_schema("self", schema);
    let program = env.compile(rule).map_err(|issues| issues.to_string())?;
    let variables = [schema.value(object).map_err(|error| error.to_string())?];
    match program.evaluate(&variables).value {
        Ok(Value::Bool(value)) => Ok(value),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

fn schema() -> Schema {
    let schema = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"},
        "max": {"type": "integer"},
        "my-field": {"type": "string"},
        "namespace": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "data": {"type": "string", "format": "byte"},
        "port": {"x-kubernetes-int-or-string": true},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
    }});
    Schema::from_openapi(&schema, "selfType").unwrap()
}

#[test]
fn schema_gives_values_their_types() {
    let object = json!({
        "replicas": 3, "max": 5, "my-field": "x", "namespace": "n", "at": "2026-01-02T03:04:05Z", "data": "aGk=",
        "port": "http", "set": ["a", "b"], "map": [{"k": "a", "v": 1}, {"k": "b", "v": 2}],
    });
    for rule in [
        "self.replicas <= self.max",
        "self.my__dash__field == 'x'",
        "self.__namespace__ == 'n' && self.namespace == 'n'",
        "self.at.getFullYear() == 2026",
        "self.data == b'hi'",
        "type(self.port) == string && self.port == 'http'",
        "self.set == ['b', 'a']",
        "self.set + ['a', 'c'] == ['c', 'b', 'a']",
        "self.map.exists(m, m.k == 'b' && m.v == 2)",
        "!has(self.absent) || true",
    ] {
        let expected = if rule.contains("absent") {
            Err(())
        } else {
            Ok(true)
        };
        assert_eq!(
            check(&schema(), rule, &object).map_err(|_| ()),
            expected,
            "{rule}"
        );
    }
}

#[test]
fn list_of_type_map_is_equal_in_any_order() {
    let mut env = Env::kubernetes();
    let schema = schema();
    env.declare_schema("self", &schema);
    env.declare_schema("oldSelf", &schema);
    let program = env.compile("self.map == oldSelf.map").unwrap();
    let (one, other) = (
        json!({"map": [{"k": "a", "v": 1}, {"k": "b", "v": 2}]}),
        json!({"map": [{"k": "b", "v": 2}, {"k": "a", "v": 1}]}),
    );
    let variables = [schema.value(&one).unwrap(), schema.value(&other).unwrap()];
    assert!(matches!(
        program.evaluate(&variables).value,
        Ok(Value::Bool(true))
    ));
}

#[test]
fn errors_have_the_words_of_the_server() {
    for (rule, error) in [
        (
            "self.zz == 1",
            "ERROR: <input>:1:5: undefined field 'zz'\n | self.zz == 1\n | ....^",
        ),
        (
            "foo",
            "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^",
        ),
        ("self.replicas > 1", "no such key: replicas"),
        ("1 / 0 == 1", "division by zero"),
        ("[1][5] == 1", "index out of bounds: 5"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
    ] {
        assert_eq!(
            check(&schema(), rule, &json!({})),
            Err(error.to_owned()),
            "{rule}"
        );
    }
}

#[test]
fn or_absorbs_errors_but_not_the_cost_limit() {
    let env = Env::kubernetes();
    let program = env.compile("1 / 0 == 1 || true").unwrap();
    assert!(matches!(program.evaluate(&[]).value, Ok(Value::Bool(true))));
    let program = env.compile("[1, 2, 3].all(x, x > 0) || true").unwrap();
    let limits = Limits {
        cost: 5,
        ..Limits::default()
    };
    let error = program.evaluate_with(&[], &limits).value.unwrap_err();
    assert_eq!(error.kind(), EvalErrorKind::CostLimit);
    assert_eq!(
        error.to_string(),
        "operation cancelled: actual cost limit exceeded"
    );
}

struct Variables;

impl HostObject for Variables {
    fn field(&self, name: &str) -> Option<Result<Value<'_>, windlass_cel::EvalError>> {
        (name == "answer").then_some(Ok(Value::Int(42)))
    }

    fn names(&self) -> Vec<&str> {
        vec!["answer"]
    }
}

#[test]
fn host_computes_fields_on_demand() {
    let mut env = Env::kubernetes();
    env.declare_object("Variables", [("answer".to_owned(), Type::Int)]);
    env.declare("variables", Type::object("Variables"));
    assert!(env.compile("variables.question == 1").is_err());
    let program = env.compile("variables.answer == 42").unwrap();
    let host = Variables;
    let variables = [Value::Map(Map::host(&host))];
    assert!(matches!(
        program.evaluate(&variables).value,
        Ok(Value::Bool(true))
    ));
}

#[test]
fn cancelled_evaluation_ends() {
    let mut env = Env::kubernetes();
    env.declare("l", Type::list(Type::Int));
    let program = env
        .compile("l.all(x, l.all(y, l.all(z, x + y + z >= 0)))")
        .unwrap();
    let limits = Limits {
        cost: u64::MAX,
        cancel: Some(std::sync::Arc::new(true.into())),
        ..Limits::default()
    };
    let variables = [Value::list((0..1000).map(Value::Int).collect())];
    let error = program.evaluate_with(&variables, &limits).value.unwrap_err();
    assert_eq!(error.kind(), EvalErrorKind::Interrupted);
}

/// Two fields: `n`, which counts how often it is computed, and `broken`.
struct Lazy(std::sync::Mutex<(usize, Option<Value<'static>>)>);

impl LazyFields<'static> for Lazy {
    fn field(&self, name: &str) -> Option<Result<Value<'static>, windlass_cel::EvalError>> {
        match name {
            "n" => {
                let mut state = self.0.lock().unwrap();
                if state.1.is_none() {
                    *state = (state.0 + 1, Some(Value::Int(2)));
                }
                state.1.clone().map(Ok)
            }
            "broken" => Some(Err(windlass_cel::EvalError::new("broken"))),
            _ => None,
        }
    }

    fn names(&self) -> Vec<&str> {
        vec!["n", "broken"]
    }
}

#[test]
fn lazy_fields_are_computed_when_they_are_read() {
    let mut env = Env::kubernetes();
    env.declare_object("lazy", []);
    env.declare_field("lazy", "n", Type::Int);
    env.declare_field("lazy", "broken", Type::Dyn);
    let slot = env.declare("variables", Type::object("lazy"));
    let lazy = Lazy(std::sync::Mutex::default());
    let evaluate = |text: &str| {
        let program = Box::leak(Box::new(env.compile(text).unwrap()));
        let result = program.evaluate_lazily(&[Value::Null], (slot, &lazy), &Limits::default());
        let value = result.value.map(|value| matches!(value, Value::Bool(true)));
        (value.map_err(|error| error.to_string()), result.cost)
    };
    assert_eq!(evaluate("has(variables.n)"), (Ok(true), 1));
    assert_eq!(lazy.0.lock().unwrap().0, 0, "a test computes nothing");
    assert_eq!(
        evaluate("variables.n == 2 && variables.n + 1 == 3"),
        (Ok(true), 7)
    );
    assert_eq!(lazy.0.lock().unwrap().0, 1);
    assert_eq!(evaluate("variables.?n.orValue(0) == 2").0, Ok(true));
    assert_eq!(evaluate("variables.n == 2 || variables.broken").0, Ok(true));
    assert_eq!(evaluate("variables.broken == 1").0, Err("broken".to_owned()));
    assert_eq!(evaluate("variables == variables").0, Err("broken".to_owned()));
    let program = env.compile("variables.n > 1 || has(variables.broken)").unwrap();
    let mut fields = Vec::new();
    program.visit_fields_of(slot, &mut |field| fields.push(field.map(str::to_owned)));
    assert_eq!(fields, [Some("broken".to_owned()), Some("n".to_owned())]);
}

#[test]
fn loop_in_a_variable_that_another_loop_reads_first_is_evaluated() {
    let env = Env::kubernetes();
    let text =
        "optional.of([1, 2].map(x, x * 2)).optMap(v, [10, 20].map(y, y + v[1])) == optional.of([14, 24])";
    let program = env.compile(text).unwrap();
    assert!(matches!(program.evaluate(&[]).value, Ok(Value::Bool(true))));
}

#[test]
fn evaluation_ends_at_the_limit_of_steps() {
    let mut env = Env::kubernetes();
    env.declare("l", Type::list(Type::Int));
    let program = env.compile("l == l").unwrap();
    let limits = Limits {
        steps: 5000,
        ..Limits::default()
    };
    let variables = [Value::list((0..4000).map(Value::Int).collect())];
    let evaluation = program.evaluate_with(&variables, &limits);
    assert!(matches!(evaluation.value, Ok(Value::Bool(true))));
    assert!(evaluation.steps >= 4000);
    let variables = [Value::list((0..9000).map(Value::Int).collect())];
    let error = program.evaluate_with(&variables, &limits).value.unwrap_err();
    assert_eq!(error.kind(), EvalErrorKind::Interrupted);
}

/// The cost that Kubernetes charges depends only on the length of the pattern.
#[test]
fn large_pattern_that_is_not_a_constant_costs_its_size() {
    let mut env = Env::kubernetes();
    env.declare("l", Type::list(Type::String));
    let limits = Limits {
        cost: 1_000_000,
        ..Limits::default()
    };
    for rule in ["l.all(x, !'1'.matches(x))", "l.all(x, '1'.find(x) == '')"] {
        let program = env.compile(rule).unwrap();
        let evaluate = |pattern: &str| {
            let patterns = (0..40).map(|index| Value::string(format!("{pattern}{index}")));
            let variables = [Value::list(patterns.collect())];
            program
                .evaluate_with(&variables, &limits)
                .value
                .map(|_| ())
                .map_err(|error| error.kind())
        };
        assert_eq!(evaluate("^[a-z]+"), Ok(()), "{rule}");
        assert_eq!(evaluate(r"\pL{30}"), Err(EvalErrorKind::CostLimit), "{rule}");
    }
}
