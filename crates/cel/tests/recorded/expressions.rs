//! Expressions: types, estimates, values, errors and costs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value as Json;
use windlass_cel::{Env, Schema, Type, Value};

use libtest_mimic::Failed;

use super::{
    differences::Differences,
    json_values::{describe, parse, same},
    lines,
};

pub(super) fn compare_all(folder: &Path) -> Result<(), Failed> {
    let environments = load_environments(folder);
    let mut differences = Differences::of("expressions")?;
    for line in lines(&folder.join("expressions.jsonl"))? {
        let name = line["environment"].as_str().unwrap_or_default();
        let Some(environment) = environments.get(name) else {
            panic!("unknown environment {name}");
        };
        let group = line["group"].as_str().unwrap_or_default();
        compare(&mut differences, group, environment, &line, &line);
    }
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines(&folder.join("spec.jsonl"))? {
        // Kubernetes checks every expression, in no container, and without other functions.
        let other = ["disableCheck", "container", "functions"];
        if let Some(why) = other.into_iter().find(|key| line.get(key).is_some()) {
            *skipped.entry(why).or_default() += 1;
            continue;
        }
        let Some(environment) = spec_environment(&line) else {
            *skipped
                .entry("variables of types that Kubernetes lacks")
                .or_default() += 1;
            continue;
        };
        let group = format!("spec {}", line["file"].as_str().unwrap_or_default());
        compare(&mut differences, &group, &environment, &line, &line["kubernetes"]);
    }
    for (why, count) in skipped {
        eprintln!("cases of cel-spec        {count:5} skipped: {why}");
    }
    differences.finish()
}

/// An environment of cases, with its data.
struct Environment {
    env: Env,
    schema: Option<Schema>,
    self_json: Json,
    old_json: Json,
    optional_old: bool,
    values: Vec<Value<'static>>,
}

impl Environment {
    fn new() -> Self {
        Self {
            env: Env::kubernetes(),
            schema: None,
            self_json: Json::Null,
            old_json: Json::Null,
            optional_old: false,
            values: Vec::new(),
        }
    }

    fn variables(&self) -> Vec<Value<'_>> {
        let mut variables: Vec<Value<'_>> = self.values.clone();
        if let Some(schema) = &self.schema {
            variables.push(schema.value(&self.self_json).expect("self matches the schema"));
            if !self.old_json.is_null() {
                let old = schema.value(&self.old_json).expect("oldSelf matches the schema");
                variables.push(if self.optional_old { Value::some(old) } else { old });
            } else if self.optional_old {
                variables.push(Value::Optional(None));
            }
        }
        variables
    }
}

fn load_environments(folder: &Path) -> BTreeMap<String, Environment> {
    let mut place = folder.join("environments");
    if !place.is_dir() {
        place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/cel/expressions/environments");
    }
    if let Some(other) = std::env::var_os("WINDLASS_CEL_ENVIRONMENTS") {
        place = PathBuf::from(other);
    }
    let mut environments = BTreeMap::new();
    for entry in fs::read_dir(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display())) {
        let path = entry.expect("a file").path();
        let file: Json = serde_json::from_str(&fs::read_to_string(&path).expect("a file")).expect("JSON");
        let mut environment = Environment::new();
        for (name, variable) in file
            .get("variables")
            .and_then(Json::as_object)
            .into_iter()
            .flatten()
        {
            let type_ = parse_type(variable["type"].as_str().unwrap_or_default()).expect("a type");
            environment.env.declare(name.as_str(), type_);
            environment
                .values
                .push(parse(&variable["value"]).unwrap_or_else(|| panic!("{name}: {variable}")));
        }
        if let Some(schema) = file.get("schema") {
            let is_root = file.get("root").and_then(Json::as_bool).unwrap_or_default();
            let schema = if is_root {
                Schema::from_openapi_root(schema, "selfType1")
            } else {
                Schema::from_openapi(schema, "selfType1")
            };
            let schema = schema.expect("a visible schema");
            environment.env.declare_schema("self", &schema);
            environment.optional_old = file
                .get("optionalOldSelf")
                .and_then(Json::as_bool)
                .unwrap_or_default();
            if environment.optional_old {
                environment.env.declare_optional_schema("oldSelf", &schema);
            } else {
                environment.env.declare_schema("oldSelf", &schema);
            }
            environment.schema = Some(schema);
            environment.self_json = file.get("self").cloned().unwrap_or_default();
            environment.old_json = file.get("oldSelf").cloned().unwrap_or_default();
        }
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        environments.insert(name, environment);
    }
    environments
}

fn spec_environment(line: &Json) -> Option<Environment> {
    let mut environment = Environment::new();
    for (name, type_) in line
        .get("variables")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
    {
        environment
            .env
            .declare(name.as_str(), parse_type(type_.as_str()?)?);
        let value = line.get("bindings").and_then(|bindings| bindings.get(name));
        environment.values.push(match value {
            Some(value) => parse(value)?,
            None => Value::Null,
        });
    }
    Some(environment)
}

fn parse_type(text: &str) -> Option<Type> {
    let text = text.trim();
    if let Some((name, rest)) = text.split_once('(') {
        let inner = rest.strip_suffix(')')?;
        return match name {
            "list" => Some(Type::list(parse_type(inner)?)),
            "optional_type" => Some(Type::optional(parse_type(inner)?)),
            "map" => {
                let (key, value) = inner.split_once(',')?;
                Some(Type::map(parse_type(key)?, parse_type(value)?))
            }
            _ => None,
        };
    }
    Some(match text {
        "dyn" => Type::Dyn,
        "null" | "null_type" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" | "google.protobuf.Duration" => Type::Duration,
        "timestamp" | "google.protobuf.Timestamp" => Type::Timestamp,
        _ => return None,
    })
}

fn compare(
    differences: &mut Differences,
    group: &str,
    environment: &Environment,
    line: &Json,
    expected: &Json,
) {
    let expression = line["expression"].as_str().unwrap_or_default();
    let case = format!("{group}: {expression}");
    differences.add(&case, difference(environment, expression, expected));
}

/// The first part that differs, and how.
fn difference(
    environment: &Environment,
    expression: &str,
    expected: &Json,
) -> Option<(&'static str, String)> {
    let differ =
        |part, ours: String, theirs: String| Some((part, format!("   ours: {ours}\n theirs: {theirs}")));
    let text = |key: &str| expected.get(key).and_then(Json::as_str);
    let program = match environment.env.compile(expression) {
        Ok(program) => program,
        Err(issues) => {
            let key = if issues.is_instantiation() {
                "programError"
            } else {
                "checkError"
            };
            let theirs = text("parseError").or(text("checkError")).or(text("programError"));
            return match theirs {
                None => differ("refused", issues.to_string(), expected.to_string()),
                Some(theirs) if theirs != issues.to_string() => differ(
                    if text("parseError").is_some() {
                        "syntax error text"
                    } else {
                        "error text"
                    },
                    issues.to_string(),
                    theirs.to_owned(),
                ),
                Some(_) if text(key).is_none() && text("parseError").is_none() => {
                    differ("kind of error", key.to_owned(), expected.to_string())
                }
                Some(_) => None,
            };
        }
    };
    if let Some(theirs) = text("parseError").or(text("checkError")).or(text("programError")) {
        return differ(
            "accepted",
            format!("{}", program.result_type()),
            theirs.to_owned(),
        );
    }
    if let Some(theirs) = text("type")
        && program.result_type().to_string() != display_type(theirs)
    {
        return differ("type", program.result_type().to_string(), theirs.to_owned());
    }
    let variables = environment.variables();
    let result = program.evaluate(&variables);
    let runs: Vec<&Json> = match expected.get("varies").and_then(Json::as_array) {
        Some(runs) => runs.iter().collect(),
        None => vec![expected],
    };
    let ours = match &result.value {
        Ok(value) => describe(value).to_string(),
        Err(error) => format!("error: {error}"),
    };
    let theirs = || {
        runs.iter()
            .map(|run| run.get("value").unwrap_or(&run["error"]).to_string())
            .collect::<Vec<_>>()
            .join(" or ")
    };
    let matches = |run: &&&Json| match &result.value {
        Ok(value) => run
            .get("value")
            .is_some_and(|theirs| same(&describe(value), theirs)),
        Err(error) => run.get("error").and_then(Json::as_str) == Some(&error.to_string()),
    };
    let matching: Vec<_> = runs.iter().filter(matches).collect();
    if matching.is_empty()
        && expected.get("checkOnly").is_none()
        && (expected.get("value").is_some()
            || expected.get("error").is_some()
            || expected.get("varies").is_some())
    {
        let both_fail = result.value.is_err() && runs.iter().any(|run| run.get("error").is_some());
        return differ(if both_fail { "run error text" } else { "value" }, ours, theirs());
    }
    if let Some(estimate) = expected.get("estimate") {
        let ours = program.estimated_cost();
        if (Some(ours.min), Some(ours.max)) != (estimate["min"].as_u64(), estimate["max"].as_u64()) {
            return differ("estimate", format!("{ours:?}"), estimate.to_string());
        }
    }
    let costs: Vec<u64> = matching
        .iter()
        .filter_map(|run| run.get("cost").and_then(Json::as_u64))
        .collect();
    if !costs.is_empty() && !costs.contains(&result.cost) {
        return differ("cost", result.cost.to_string(), format!("{costs:?}"));
    }
    None
}

/// The recordings have cel-go's names of types.
fn display_type(text: &str) -> String {
    text.replace("google.protobuf.Duration", "duration")
        .replace("google.protobuf.Timestamp", "timestamp")
        .replace("null_type", "null")
}
