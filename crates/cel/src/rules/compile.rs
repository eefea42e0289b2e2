//! From a schema to its compiled rules.

use serde_json::Value as Json;

use super::{Node, Reason, Rule, field_path};
use crate::{
    CompileBudget, Env, Program, Schema, Type,
    issue::Issues,
    schema::{
        MAX_REQUEST, MAX_SCHEMA_DEPTH, SchemaKind, item_type_name, property_type_name, value_type_name,
    },
};

/// The name of the type of a schema's root. It is no identifier, so that no expression can use it.
const ROOT_TYPE: &str = "@self";

/// The name that messages show instead. kube-apiserver's ends with a number that depends on the time.
const SHOWN_TYPE: &str = "selfType1";

const NO_TYPE: &str = "unable to convert structural schema to CEL declarations";

/// The greatest size of all errors of a schema: an expression may be large, and is quoted in each of its errors.
const MAX_ERROR_BYTES: usize = 8 << 20;

/// Compiles the rules of a schema; `None` if it has none.
pub(super) fn compile(document: &Json, is_root: bool) -> Option<Node> {
    if !has_rules(document, 0) {
        return None;
    }
    let mut compiler = Compiler {
        env: Env::kubernetes(),
        roots: 0,
        error_bytes: 0,
        budget: CompileBudget::default(),
    };
    let schema = if is_root {
        Schema::from_openapi_root(document, ROOT_TYPE)
    } else {
        Schema::from_openapi(document, ROOT_TYPE)
    };
    let known = schema.map_or(Known::No, |schema| {
        compiler.env.declare_objects(&schema);
        Known::Yes(Place {
            schema,
            type_name: ROOT_TYPE.to_owned(),
        })
    });
    compiler.node(document, known, false, 0)
}

/// Whether there are rules in or below a part of a schema. Most schemas have none, and are not read further.
fn has_rules(document: &Json, depth: usize) -> bool {
    let Some(fields) = document.as_object().filter(|_| depth <= MAX_SCHEMA_DEPTH) else {
        return false;
    };
    let inner = |name: &str| fields.get(name).is_some_and(|inner| has_rules(inner, depth + 1));
    let rules = fields.get("x-kubernetes-validations").and_then(Json::as_array);
    rules.is_some_and(|rules| !rules.is_empty())
        || inner("items")
        || inner("additionalProperties")
        || fields
            .get("properties")
            .and_then(Json::as_object)
            .is_some_and(|properties| properties.values().any(|property| has_rules(property, depth + 1)))
}

/// A part of a schema that expressions can see.
struct Place {
    schema: Schema,
    /// The name of its type, or what it would be if it were an object.
    type_name: String,
}

/// What is known about the type of a part.
enum Known {
    Yes(Place),
    /// Expressions do not see it, and there are no rules above it.
    No,
    /// There are rules above it, but its parent has no type.
    Failed,
}

struct Compiler {
    /// Has the types of all objects, and no variables.
    env: Env,
    /// The number of parts that became roots of their own.
    roots: usize,
    error_bytes: usize,
    /// Of all rules together.
    budget: CompileBudget,
}

impl Compiler {
    /// Compiles a part and all below it. `in_scope`: there are rules above it.
    fn node(&mut self, document: &Json, known: Known, in_scope: bool, depth: usize) -> Option<Node> {
        if depth > MAX_SCHEMA_DEPTH || !document.is_object() {
            return None;
        }
        let rules = document.get("x-kubernetes-validations").and_then(Json::as_array);
        let rules = rules.map_or(&[][..], Vec::as_slice);
        let in_scope = in_scope || !rules.is_empty();
        let hidden = !matches!(known, Known::Yes(_));
        let known = match known {
            Known::No if in_scope => self.as_root(document),
            other => other,
        };
        let mut child = |part: Part<'_>, document: &Json| {
            let known = known.child(&part);
            self.node(document, known, in_scope, depth + 1)
        };
        let items = document.get("items").and_then(|items| child(Part::Items, items));
        let values = document
            .get("additionalProperties")
            .and_then(|values| child(Part::Values, values));
        let mut properties: Vec<(Box<str>, Node)> = document
            .get("properties")
            .and_then(Json::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(name, property)| {
                Some((name.as_str().into(), child(Part::Property(name), property)?))
            })
            .collect();
        properties.sort_by(|(one, _), (other, _)| one.cmp(other));
        if rules.is_empty() && items.is_none() && values.is_none() && properties.is_empty() {
            return None;
        }
        let place = match &known {
            Known::Yes(place) => Some(place),
            Known::No | Known::Failed => None,
        };
        let compiled = place.map(|place| self.rules(document, rules, place));
        let mut parts = properties.iter().map(|(_, part)| part);
        let mut parts = parts.by_ref().chain(items.iter()).chain(values.iter());
        Some(Node {
            type_name: document
                .get("type")
                .and_then(Json::as_str)
                .unwrap_or_default()
                .into(),
            type_error: (place.is_none() && !rules.is_empty()).then_some(NO_TYPE),
            hidden,
            max_cardinality: place.map_or(0, |place| MAX_REQUEST / (place.schema.min_serialized_size() + 1)),
            schema: place.map(|place| place.schema.clone()),
            is_deep: compiled.iter().flatten().any(Rule::is_deep) || parts.any(|part| part.is_deep),
            uses_old_self: compiled.iter().flatten().any(|rule| rule.uses_old_self),
            rules: compiled.unwrap_or_default(),
            properties,
            items: items.map(Box::new),
            values: values.map(Box::new),
        })
    }

    /// Reads a part that its parent hides as a schema of its own.
    fn as_root(&mut self, document: &Json) -> Known {
        let type_name = format!("{ROOT_TYPE}{}", self.roots);
        self.roots += 1;
        match Schema::from_openapi(document, &type_name) {
            Some(schema) => {
                self.env.declare_objects(&schema);
                Known::Yes(Place { schema, type_name })
            }
            None => Known::Failed,
        }
    }

    fn rules(&mut self, document: &Json, rules: &[Json], place: &Place) -> Vec<Rule> {
        if rules.is_empty() {
            return Vec::new();
        }
        let env = |is_optional| {
            let mut env = self.env.clone();
            env.declare_part("self", &place.schema, false);
            env.declare_part("oldSelf", &place.schema, is_optional);
            env
        };
        let (plain, optional) = (env(false), env(true));
        rules
            .iter()
            .map(|rule| {
                let is_optional = rule.get("optionalOldSelf").and_then(Json::as_bool) == Some(true);
                let env = if is_optional { &optional } else { &plain };
                self.rule(document, rule, place, env, is_optional)
            })
            .collect()
    }

    fn rule(
        &mut self,
        document: &Json,
        rule: &Json,
        place: &Place,
        env: &Env,
        optional_old_self: bool,
    ) -> Rule {
        let text = |key: &str| rule.get(key).and_then(Json::as_str).unwrap_or_default();
        let mut compiled = Rule {
            expression: text("rule").into(),
            message: text("message").into(),
            message_expression: text("messageExpression").into(),
            reason: Reason::from_name(text("reason")),
            optional_old_self,
            field_path: Box::default(),
            program: None,
            message_program: None,
            uses_old_self: false,
        };
        if text("rule").trim().is_empty() {
            return compiled;
        }
        let program = self.expression(env, text("rule"), place, &RULE);
        compiled.uses_old_self = match &program {
            Ok(program) => program.uses_variable(super::walk::OLD_SELF),
            // A constant in it fails, but its types were checked.
            Err(error) => error.starts_with(RULE.instantiation) && text("rule").contains("oldSelf"),
        };
        let is_good = program.is_ok();
        compiled.program = Some(program);
        if !is_good {
            return compiled;
        }
        let message = text("messageExpression");
        if !message.is_empty() {
            let program = self.expression(env, message, place, &MESSAGE);
            let is_good = program.is_ok();
            compiled.message_program = Some(program);
            if !is_good {
                return compiled;
            }
        }
        if !text("fieldPath").is_empty() {
            compiled.field_path = field_path::resolve(text("fieldPath"), document)
                .unwrap_or_default()
                .into();
        }
        compiled
    }

    fn expression(
        &mut self,
        env: &Env,
        text: &str,
        place: &Place,
        texts: &Texts,
    ) -> Result<Program, Box<str>> {
        let failed = match env.compile_within(text, &mut self.budget) {
            Ok(program) if *program.result_type() == texts.type_ => return Ok(program),
            Ok(_) => texts.wrong_type.to_owned(),
            Err(issues) => self.describe(issues, place, texts),
        };
        self.error_bytes = self.error_bytes.saturating_add(failed.len());
        Err(failed.into())
    }

    fn describe(&self, mut issues: Issues, place: &Place, texts: &Texts) -> String {
        if self.error_bytes > MAX_ERROR_BYTES {
            return format!(
                "{}too many errors in this schema to show this one",
                texts.compilation
            );
        }
        issues.rename_types(&place.type_name, SHOWN_TYPE);
        let kind = if issues.is_instantiation() {
            texts.instantiation
        } else {
            texts.compilation
        };
        format!("{kind}{issues}")
    }
}

/// The wanted type of an expression, and kube-apiserver's messages.
struct Texts {
    type_: Type,
    wrong_type: &'static str,
    compilation: &'static str,
    instantiation: &'static str,
}

static RULE: Texts = Texts {
    type_: Type::Bool,
    wrong_type: "cel expression must evaluate to a bool",
    compilation: "compilation failed: ",
    instantiation: "program instantiation failed: ",
};

static MESSAGE: Texts = Texts {
    type_: Type::String,
    wrong_type: "messageExpression must evaluate to a string",
    compilation: "messageExpression compilation failed: ",
    instantiation: "messageExpression instantiation failed: ",
};

/// A step down a schema.
enum Part<'a> {
    Property(&'a str),
    Items,
    Values,
}

impl Known {
    /// What is known about a part below.
    fn child(&self, part: &Part<'_>) -> Self {
        let place = match self {
            Self::Yes(place) => place,
            Self::No => return Self::No,
            Self::Failed => return Self::Failed,
        };
        let found = match (part, &place.schema.kind) {
            (Part::Property(name), SchemaKind::Object(object)) => object
                .properties
                .get(*name)
                .map(|property| (&property.schema, property_type_name(&place.type_name, name))),
            (Part::Items, SchemaKind::List(list)) => Some((&list.items, item_type_name(&place.type_name))),
            (Part::Values, SchemaKind::Map(values)) => Some((&**values, value_type_name(&place.type_name))),
            _ => None,
        };
        match found {
            Some((schema, type_name)) if !matches!(schema.kind, SchemaKind::Hidden) => Self::Yes(Place {
                schema: schema.clone(),
                type_name,
            }),
            _ => Self::No,
        }
    }
}
