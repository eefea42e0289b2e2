//! The type check of a ValidatingAdmissionPolicy against the kinds that it applies to.
//!
//! Policies are evaluated with objects of any type. The type check only warns, in the policy's status: it compiles the
//! expressions once more for each kind, with the types of its schema.

use serde_json::{Map, Value, json};
use windlass_cel::{Env, Schema};

use super::expressions::{Features, declare_variable, environment, items, text};

/// The kinds whose types a policy is checked with.
///
/// ```
/// use serde_json::json;
/// use windlass_apiserver::PolicyTypes;
///
/// let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}});
/// let mut types = PolicyTypes::default();
/// types.add_kind("apps/v1, Kind=Deployment", "Deployment", &schema);
/// let policy = json!({"validations": [{"expression": "object.spec.replicas > 'a'"}]});
/// let warnings = types.check(&policy);
/// assert_eq!(warnings[0].field_ref, "spec.validations[0].expression");
/// assert!(warnings[0].warning.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload"));
/// ```
#[derive(Debug, Default)]
pub struct PolicyTypes {
    kinds: Vec<(String, Option<Schema>)>,
    params: Params,
}

#[derive(Debug, Default)]
enum Params {
    #[default]
    None,
    Untyped,
    Typed(Schema),
}

/// What the type check of an expression found: an item of `status.typeChecking.expressionWarnings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// The path of the expression.
    pub field_ref: String,
    /// The errors for each kind.
    pub warning: String,
}

impl PolicyTypes {
    /// Adds a kind that the policy applies to. `name` is how warnings call it, such as `apps/v1, Kind=Deployment`; `kind` is the
    /// name of its type in errors; `schema` is its OpenAPI schema without references.
    pub fn add_kind(&mut self, name: impl Into<String>, kind: &str, schema: &Value) {
        let schema = Schema::from_openapi_root(schema, kind);
        self.kinds.push((name.into(), schema));
    }

    /// Says that the policy has parameters. Without the schema of their kind, their type is not checked.
    pub fn set_params(&mut self, kind: &str, schema: Option<&Value>) {
        // Another name than that of an object of the same kind.
        let schema = schema.and_then(|schema| Schema::from_openapi_root(schema, &format!("params.{kind}")));
        self.params = schema.map_or(Params::Untyped, Params::Typed);
    }

    /// Checks the expressions of a policy with this spec.
    pub fn check(&self, spec: &Value) -> Vec<ExpressionWarning> {
        let kinds: Vec<(&str, Env)> = self
            .kinds
            .iter()
            .map(|(name, schema)| (&**name, self.environment(spec, schema.as_ref())))
            .collect();
        let check = |expression: &str| -> Vec<String> {
            let errors = kinds.iter().filter_map(|(name, env)| {
                let issues = env.compile(expression).err()?;
                // A constant that fails is well-typed.
                (!issues.is_instantiation()).then(|| format!("{name}: {issues}\n"))
            });
            errors.collect()
        };
        let mut warnings = Vec::new();
        for (index, validation) in items(spec, "validations").enumerate() {
            for field in ["expression", "messageExpression"] {
                let expression = text(&validation[field]);
                if field == "messageExpression" && expression.is_empty() {
                    continue;
                }
                let errors = check(expression);
                if !errors.is_empty() {
                    warnings.push(ExpressionWarning {
                        field_ref: format!("spec.validations[{index}].{field}"),
                        warning: errors.join("\n"),
                    });
                }
            }
        }
        warnings
    }

    /// The environment for one kind, with the policy's variables.
    fn environment(&self, spec: &Value, object: Option<&Schema>) -> Env {
        let mut env = environment(Features {
            params: !matches!(self.params, Params::None),
            variables: true,
            authorizer: true,
            mutations: false,
        });
        if let Some(schema) = object {
            env.declare_schema("object", schema);
            env.declare_schema("oldObject", schema);
        }
        if let Params::Typed(schema) = &self.params {
            env.declare_schema("params", schema);
        }
        for variable in items(spec, "variables") {
            let program = env.compile(text(&variable["expression"])).ok();
            declare_variable(&mut env, text(&variable["name"]), program.as_ref());
        }
        env
    }
}

/// Finds the schema of a kind, given by group, version and kind, in an OpenAPI v3 document, and replaces the references in it.
///
/// A type inside of itself becomes an object without fields. Returns `None` if the document has no such kind, or a
/// reference leads nowhere.
pub fn schema_of_kind(document: &Value, kind: [&str; 3]) -> Option<Value> {
    let components = document["components"]["schemas"].as_object()?;
    let describes = |schema: &Value| {
        items(schema, "x-kubernetes-group-version-kind")
            .any(|described| ["group", "version", "kind"].map(|field| text(&described[field])) == kind)
    };
    let (name, schema) = components.iter().find(|(_, schema)| describes(schema))?;
    resolve(components, &mut vec![name], schema)
}

const PREFIX: &str = "#/components/schemas/";

fn resolve<'a>(
    components: &'a Map<String, Value>,
    open: &mut Vec<&'a str>,
    schema: &'a Value,
) -> Option<Value> {
    if let Some(name) = reference(schema) {
        if open.contains(&name) {
            return Some(json!({"type": "object"}));
        }
        open.push(name);
        let resolved = resolve(components, open, components.get(name)?);
        open.pop();
        return resolved;
    }
    let Value::Object(fields) = schema else {
        return Some(schema.clone());
    };
    let mut result = Map::new();
    for (key, value) in fields {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let mut resolved = Map::new();
                for (name, property) in properties {
                    resolved.insert(name.clone(), resolve(components, open, property)?);
                }
                Value::Object(resolved)
            }
            ("items" | "additionalProperties", Value::Object(_)) => resolve(components, open, value)?,
            // They would be most of the copy.
            ("description", _) => continue,
            _ => value.clone(),
        };
        result.insert(key.clone(), value);
    }
    if fields
        .get("format")
        .is_some_and(|format| format == "int-or-string")
    {
        result.insert("x-kubernetes-int-or-string".to_owned(), true.into());
    }
    Some(Value::Object(result))
}

/// What a schema refers to. A reference with a description or a default is wrapped in `allOf`.
fn reference(schema: &Value) -> Option<&str> {
    own_reference(schema).or_else(|| schema.get("allOf")?.as_array()?.iter().find_map(own_reference))
}

fn own_reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix(PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_circles_are_cut() {
        let kind = |kind: &str| json!([{"group": "g", "version": "v", "kind": kind}]);
        let document = json!({"components": {"schemas": {
            "a": {"x-kubernetes-group-version-kind": kind("A"), "type": "object", "description": "long", "properties": {
                "b": {"$ref": "#/components/schemas/b"},
                "wrapped": {"allOf": [{"$ref": "#/components/schemas/b"}], "default": {}},
                "list": {"type": "array", "items": {"$ref": "#/components/schemas/a"}},
                "map": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/b"}},
            }},
            "b": {"type": "string"},
            "c": {"x-kubernetes-group-version-kind": kind("C"), "items": {"$ref": "#/components/schemas/nowhere"}},
        }}});
        assert_eq!(
            schema_of_kind(&document, ["g", "v", "A"]).unwrap(),
            json!({"x-kubernetes-group-version-kind": kind("A"), "type": "object", "properties": {
                "b": {"type": "string"},
                "wrapped": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object"}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
            }})
        );
        assert_eq!(schema_of_kind(&document, ["g", "v", "C"]), None);
        assert_eq!(schema_of_kind(&document, ["g", "v2", "A"]), None);
    }

    #[test]
    fn each_kind_is_checked_with_its_own_type() {
        let schema = |type_: &str| json!({"type": "object", "properties": {"x": {"type": type_}}});
        let mut types = PolicyTypes::default();
        types.add_kind("a", "A", &schema("integer"));
        types.add_kind("b", "B", &schema("string"));
        types.set_params("A", Some(&schema("string")));
        let spec = json!({
            "variables": [{"name": "v", "expression": "object.x"}, {"name": "bad", "expression": "object.zz"}],
            "validations": [
                {"expression": "object.x == 1", "messageExpression": "params.x + object.x"},
                {"expression": "variables.v == 'a'"},
                {"expression": "variables.bad == 1 && int('a') == 1 && object.metadata.name == oldObject.kind"},
            ],
        });
        let found: Vec<_> = types
            .check(&spec)
            .into_iter()
            .map(|warning| {
                let kinds: Vec<_> = warning.warning.matches(": ERROR").collect();
                (warning.field_ref, warning.warning[..1].to_owned(), kinds.len())
            })
            .collect();
        let expected = [
            ("0].expression", "b"),
            ("0].messageExpression", "a"),
            ("1].expression", "a"),
        ];
        let expected = expected.map(|(path, kind)| (format!("spec.validations[{path}"), kind.to_owned(), 1));
        assert_eq!(found, expected);
    }
}
