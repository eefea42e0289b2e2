//! Measures compilation and evaluation: `cargo run --release -p windlass-cel --example speed`.

use std::time::Instant;

use serde_json::json;
use windlass_cel::{
    Env, Schema, Value,
    rules::{Rules, Validation},
};

fn main() {
    let mut properties = serde_json::Map::new();
    let mut object = serde_json::Map::new();
    for index in 0..120 {
        properties.insert(
            format!("field{index}"),
            json!({"type": "string", "maxLength": 64}),
        );
        object.insert(format!("field{index}"), json!("some text of the object"));
    }
    properties.insert("replicas".to_owned(), json!({"type": "integer"}));
    properties.insert("max".to_owned(), json!({"type": "integer"}));
    properties.insert(
        "list".to_owned(),
        json!({"type": "array", "maxItems": 20, "items": {"type": "integer"}}),
    );
    object.insert("replicas".to_owned(), json!(3));
    object.insert("max".to_owned(), json!(5));
    object.insert("list".to_owned(), json!((0..20).collect::<Vec<_>>()));
    let object = serde_json::Value::Object(object);
    println!("object of {} bytes", object.to_string().len());
    for count in [1, 100, 200] {
        measure_rules(count, &properties, &object);
    }
    let schema = Schema::from_openapi(&json!({"type": "object", "properties": properties}), "selfType")
        .expect("a schema");
    let mut env = Env::kubernetes();
    env.declare_schema("self", &schema);
    for rule in [
        "self.replicas <= self.max",
        "self.list.all(x, x >= 0)",
        "self.list.all(x, self.list.exists(y, y == x))",
        "self.field1.matches('^[a-z ]+$') && self.field2.startsWith('some')",
    ] {
        measure(rule, &env, &schema, &object);
    }
}

/// Measures the rules of a schema: compilation, and the validation of an object.
fn measure_rules(
    count: usize,
    properties: &serde_json::Map<String, serde_json::Value>,
    object: &serde_json::Value,
) {
    let rules: Vec<_> = (0..count)
        .map(|index| match index {
            0 => json!({"rule": "self.replicas <= self.max"}),
            _ => json!({"rule": format!("self.field{} != 'x{index}'", index % 120)}),
        })
        .collect();
    let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
    let started = Instant::now();
    let rules = Rules::compile(&schema).expect("it has rules");
    let compile = started.elapsed();
    let rounds = 5_000;
    let started = Instant::now();
    for _ in 0..rounds {
        assert!(
            rules
                .root()
                .validate(&Validation::create(object))
                .violations
                .is_empty()
        );
    }
    println!(
        "schema with {count} rules: compile {compile:?}, validate {:?}",
        started.elapsed() / rounds
    );
}

fn measure(rule: &str, env: &Env, schema: &Schema, object: &serde_json::Value) {
    let rounds = 200;
    let started = Instant::now();
    for _ in 0..rounds {
        assert!(env.compile(rule).is_ok());
    }
    let compile = started.elapsed() / rounds;
    let program = env.compile(rule).expect("compiles");
    let rounds = 20_000;
    let started = Instant::now();
    for _ in 0..rounds {
        let variables = [schema.value(object).expect("matches the schema")];
        assert!(matches!(
            program.evaluate(&variables).value,
            Ok(Value::Bool(true))
        ));
    }
    println!(
        "{rule}: compile {compile:?}, evaluate {:?}",
        started.elapsed() / rounds
    );
}
