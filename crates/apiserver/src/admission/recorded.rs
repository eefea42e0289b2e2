//! Compares the expressions of policies with what kube-apiserver's own tests recorded, if `WINDLASS_CEL_CASES` names the
//! folder (`hack/cel`).

use std::{cell::RefCell, collections::BTreeSet, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value as Json;
use windlass_cel::{Authorizer, Check, Decision, Value, authorizer};

use super::{
    evaluation::Evaluation,
    expressions::{CompileError, Expected, Features, PolicyPrograms, compile, environment},
    policies::PolicyKind,
};

/// The recorded cases of a file; none if there is no recording.
fn cases(file: &str) -> Vec<Json> {
    let Some(folder) = std::env::var_os("WINDLASS_CEL_CASES") else {
        return Vec::new();
    };
    let text = std::fs::read_to_string(PathBuf::from(folder).join(file)).expect("a recording");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// Expressions that were compiled in an environment of their test: an older version, or one with a function `test`.
const OTHER_ENVIRONMENTS: [&str; 4] = [
    "authorizer.group('apps').resource('deployments').fieldSelector('foo=bar').labelSelector('apple=banana')\
     .subresource('status').namespace('test').name('backend').check('create').allowed()",
    "isQuantity(\"20M\")",
    "string(test() == true)",
    "test() == true",
];

/// The error of a syntax error lists more of what was expected.
const OTHER_SYNTAX_ERROR: &str = "fail to compile test";

/// An evaluation with a limit of the test's own.
const OTHER_LIMIT: &str = "object.subsets.size() < params.spec.testSize";

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn expressions_compile_as_in_kube_apiserver() {
    let ours = [
        ("has(object.a)", Expected::Bool, Ok(())),
        ("1", Expected::Bool, Err("must evaluate to bool but got int")),
        (
            "object.x",
            Expected::Bool,
            Err("must evaluate to bool but got dyn"),
        ),
        (
            "[]",
            Expected::Patches,
            Err("must evaluate to list(JSONPatch) but got list(dyn)"),
        ),
        (
            "1",
            Expected::TextOrNull,
            Err("must evaluate to one of [string null_type] but got int"),
        ),
    ];
    let env = environment(Features {
        mutations: true,
        ..Features::default()
    });
    for (expression, expected, wanted) in ours {
        let result = compile(&env, expression, expected, &RefCell::default()).map(drop);
        let message = result.as_ref().map_err(CompileError::message);
        assert_eq!(message.copied(), wanted, "{expression}");
    }
    let (mut compared, mut different) = (0, BTreeSet::new());
    for case in cases("admission-compile.jsonl") {
        let expression = text(&case["expression"]);
        let types: Vec<&str> = case["returnTypes"]
            .as_array()
            .expect("a list")
            .iter()
            .map(text)
            .collect();
        let expected = match types[..] {
            ["bool"] => Expected::Bool,
            ["string"] => Expected::Text,
            ["string", "null_type"] => Expected::TextOrNull,
            ["Object"] => Expected::Object,
            ["list(JSONPatch)"] => Expected::Patches,
            ["any" | "dyn", ..] => Expected::Any,
            _ => continue,
        };
        // The variables of their tests are in the other file.
        let is_other = OTHER_ENVIRONMENTS.contains(&expression) || expression == OTHER_SYNTAX_ERROR;
        if expression.contains("variables") || is_other {
            continue;
        }
        let is = |key: &str| case[key] == true;
        let env = environment(Features {
            params: is("hasParams"),
            variables: false,
            authorizer: is("hasAuthorizer"),
            mutations: is("hasPatchTypes"),
        });
        compared += 1;
        let ours = compile(&env, expression, expected, &RefCell::default());
        let detail = ours.as_ref().err().map_or("", |error| error.message());
        if detail != text(&case["error"]["detail"]) {
            different.insert(format!(
                "{expression}\n  ours:   {detail}\n  theirs: {}",
                case["error"]
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {compared} differ:\n{}",
        different.len(),
        Vec::from_iter(different).join("\n")
    );
}

/// Answers the recorded checks in order.
struct RecordedAuthorizer(Mutex<Vec<Json>>);

impl Authorizer for RecordedAuthorizer {
    fn authorize(&self, _: &Check) -> Decision {
        let mut answers = self.0.lock();
        let answer = if answers.is_empty() {
            Json::Null
        } else {
            answers.remove(0)
        };
        Decision {
            allowed: answer["allowed"] == true || answer["decision"] == "allow",
            reason: text(&answer["reason"]).to_owned(),
            error: answer["error"].as_str().map(str::to_owned),
        }
    }
}

/// A value in the notation of the recordings, as far as it occurs there.
fn notation(value: &Value<'_>) -> Json {
    match value {
        Value::Null => serde_json::json!({"null": null}),
        Value::Bool(value) => serde_json::json!({"bool": value}),
        Value::Int(value) => serde_json::json!({"int": value.to_string()}),
        Value::String(text) => serde_json::json!({"string": &**text}),
        Value::List(list) => {
            let items: Vec<_> = list
                .iter()
                .map(|item| notation(&item.expect("a value")))
                .collect();
            serde_json::json!({"list": items})
        }
        other => serde_json::json!({"other": format!("{other:?}")}),
    }
}

#[test]
fn policies_evaluate_as_in_kube_apiserver() {
    let (mut compared, mut different) = (0, BTreeSet::new());
    for case in cases("admission-evaluate.jsonl") {
        let variables = case["variables"].as_object().expect("an object");
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, expression)| serde_json::json!({"name": name, "expression": expression}))
            .collect();
        let expressions = case["expressions"].as_array().expect("a list");
        let validations: Vec<_> = expressions
            .iter()
            .map(|one| serde_json::json!({"expression": one["expression"]}))
            .collect();
        let spec = serde_json::json!({"variables": variables, "validations": validations, "paramKind": {}});
        let programs = PolicyPrograms::compile(&spec, PolicyKind::Validating);
        let json = |key: &str| Value::from_json(&case[key]);
        let mut values = vec![
            json("object"),
            json("oldObject"),
            json("namespace"),
            json("request"),
        ];
        values.push(json("params"));
        values.push(Value::Null);
        if case["hasAuthorizer"] == true {
            let answers = case["authorizerChecks"].as_array().cloned().unwrap_or_default();
            let decides = Arc::new(RecordedAuthorizer(Mutex::new(answers)));
            values.push(authorizer(decides.clone(), None));
            values.push(authorizer(decides, Some(Check::default())));
        }
        let budget = case["budget"].as_u64().expect("a budget");
        let request = super::evaluation::RequestCost::default();
        let mut evaluation = Evaluation::new(&programs, &values, budget, &request);
        let mut failure = None;
        for (one, expression) in expressions.iter().zip(&programs.validations) {
            if !one["compileError"].is_null() {
                continue;
            }
            compared += 1;
            let (ours, theirs) = match evaluation.evaluate(expression) {
                Ok(Ok(value)) => (notation(&value), one["value"].clone()),
                Ok(Err(why)) => (why.into(), one["error"].clone()),
                Err(spent) => {
                    failure = Some(spent.to_string());
                    break;
                }
            };
            // After an error of the whole call there are no values.
            let is_limited = text(&one["error"]).contains("cost limit") && one["expression"] == OTHER_LIMIT;
            if ours != theirs && case["error"].is_null() && !is_limited {
                different.insert(format!(
                    "{}\n  ours:   {ours}\n  theirs: {one}",
                    text(&one["expression"])
                ));
            }
        }
        let has_all = expressions.iter().all(|one| one["compileError"].is_null());
        if has_all && failure.as_deref().unwrap_or_default() != text(&case["error"]) {
            different.insert(format!("{case}\n  ours: {failure:?}"));
        }
        let remaining = case["remainingBudget"].as_u64();
        let is_limited = expressions
            .iter()
            .any(|one| text(&one["error"]).contains("cost limit"));
        if has_all && !is_limited && failure.is_none() && remaining != Some(evaluation.remaining()) {
            different.insert(format!("{case}\n  ours: {}", evaluation.remaining()));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {compared} differ:\n{}",
        different.len(),
        Vec::from_iter(different).join("\n")
    );
}

/// Variables refer to each other in a long chain, and one refers to itself by a second variable of its name.
#[test]
fn chains_of_variables_are_evaluated_once_each() {
    let mut variables = vec![serde_json::json!({"name": "v0", "expression": "1"})];
    for index in 1..super::expressions::MAX_VARIABLES {
        let before = index - 1;
        let expression = format!("variables.v{before} + variables.v{before} * 0 + 1");
        variables.push(serde_json::json!({"name": format!("v{index}"), "expression": expression}));
    }
    let last = super::expressions::MAX_VARIABLES - 1;
    let spec = serde_json::json!({
        "variables": variables,
        "validations": [{"expression": format!("variables.v{last} == {}", last + 1)}],
    });
    let programs = PolicyPrograms::compile(&spec, PolicyKind::Validating);
    assert!(programs.is_deep);
    crate::depth::with_large_stack(|| {
        let values = [const { Value::Null }; 5];
        let request = super::evaluation::RequestCost::default();
        let mut evaluation = Evaluation::new(&programs, &values, super::evaluation::POLICY_BUDGET, &request);
        let value = evaluation
            .evaluate(&programs.validations[0])
            .expect("within the budget");
        assert!(matches!(value, Ok(Value::Bool(true))), "{value:?}");
    });
}

#[test]
fn variable_that_refers_to_its_own_name_fails() {
    let spec = serde_json::json!({
        "variables": [{"name": "a", "expression": "1"}, {"name": "a", "expression": "variables.a + 1"}],
        "validations": [{"expression": "variables.a == 2"}],
    });
    let programs = PolicyPrograms::compile(&spec, PolicyKind::Validating);
    let values = [const { Value::Null }; 5];
    let request = super::evaluation::RequestCost::default();
    let mut evaluation = Evaluation::new(&programs, &values, super::evaluation::POLICY_BUDGET, &request);
    let error = evaluation
        .evaluate(&programs.validations[0])
        .expect("within the budget");
    let error = error.expect_err("the variable refers to itself");
    assert!(error.contains("it refers to itself"), "{error}");
}
