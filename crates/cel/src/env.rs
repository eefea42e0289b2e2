//! The environment of an expression: its variables, object types and functions.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use crate::{
    CompileBudget, Program, Schema, Type, ast::Source, check, deep, function::Function, issue::Issues,
    library, parse, plan, schema::ObjectSchema,
};

/// What expressions can use: variables, the types of objects, and the functions of Kubernetes.
///
/// ```
/// use windlass_cel::{Env, Type, Value};
///
/// let mut env = Env::kubernetes();
/// env.declare("name", Type::String);
/// let program = env.compile("name.startsWith('web-')").unwrap();
/// assert_eq!(*program.result_type(), Type::Bool);
/// let variables = [Value::text("web-1")];
/// let result = program.evaluate(&variables);
/// assert!(matches!(result.value, Ok(Value::Bool(true))));
/// ```
#[derive(Clone, Debug)]
pub struct Env {
    functions: &'static Functions,
    pub(crate) variables: Vec<Variable>,
    /// Shared, because the environments of a schema's rules differ in their variables only.
    objects: Arc<HashMap<Arc<str>, ObjectType>>,
    /// Whether the functions and types of mutations are there.
    mutations: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    pub(crate) type_: Type,
    /// For the sizes of its parts.
    pub(crate) schema: Option<Schema>,
}

/// The fields of an object type.
#[derive(Clone, Debug)]
enum ObjectType {
    Schema(Arc<ObjectSchema>),
    Fields(Arc<HashMap<String, Type>>),
}

/// Functions by name.
#[derive(Debug)]
pub(crate) struct Functions(HashMap<&'static str, Function>);

static KUBERNETES: LazyLock<Functions> = LazyLock::new(|| {
    let mut functions = HashMap::new();
    for spec in library::all() {
        let function = functions
            .entry(spec.name)
            .or_insert_with(|| Function::new(spec.name, spec.eval));
        function.extend(spec);
    }
    Functions(functions)
});

impl Env {
    /// Returns the environment of Kubernetes 1.36, as validation rules and admission policies have it, without variables.
    ///
    /// Literals of lists and maps are homogeneous, numbers of different types are ordered, times are UTC by default,
    /// and the libraries are those that the version enables.
    pub fn kubernetes() -> Self {
        Self {
            functions: &KUBERNETES,
            variables: Vec::new(),
            objects: Arc::default(),
            mutations: false,
        }
    }

    /// Adds what only mutating admission policies have: `jsonpatch.escapeKey` and the constructors `JSONPatch{…}` and
    /// `Object{…}`, whose fields depend on the mutated object and are not checked.
    pub fn enable_mutations(&mut self) {
        self.mutations = true;
    }

    /// Declares a variable, and returns the index of its value in [`Program::evaluate`]. A variable of the same name is
    /// replaced.
    pub fn declare(&mut self, name: impl Into<Arc<str>>, type_: Type) -> usize {
        self.add(Variable {
            name: name.into(),
            type_,
            schema: None,
        })
    }

    /// Declares a variable with the type of a schema, whose bounds are used to estimate costs.
    pub fn declare_schema(&mut self, name: impl Into<Arc<str>>, schema: &Schema) -> usize {
        self.declare_objects(schema);
        self.add(Variable {
            name: name.into(),
            type_: schema.to_type(),
            schema: Some(schema.clone()),
        })
    }

    /// Declares a variable that is an optional value with the type of a schema, such as `oldSelf` with
    /// `optionalOldSelf`.
    pub fn declare_optional_schema(&mut self, name: impl Into<Arc<str>>, schema: &Schema) -> usize {
        self.declare_objects(schema);
        self.add(Variable {
            name: name.into(),
            type_: Type::optional(schema.to_type()),
            schema: Some(schema.clone()),
        })
    }

    /// Declares an object type with fields of given types, such as the `variables` of an admission policy.
    pub fn declare_object(
        &mut self,
        name: impl Into<Arc<str>>,
        fields: impl IntoIterator<Item = (String, Type)>,
    ) {
        let fields = ObjectType::Fields(Arc::new(fields.into_iter().collect()));
        Arc::make_mut(&mut self.objects).insert(name.into(), fields);
    }

    /// Adds a field to an object type that [`Self::declare_object`] declared, or replaces it.
    pub fn declare_field(&mut self, object: &str, field: impl Into<String>, type_: Type) {
        if let Some(ObjectType::Fields(fields)) = Arc::make_mut(&mut self.objects).get_mut(object) {
            Arc::make_mut(fields).insert(field.into(), type_);
        }
    }

    /// Compiles an expression: parses, checks and plans it. It may take the memory of a default [`CompileBudget`].
    pub fn compile(&self, text: &str) -> Result<Program, Issues> {
        self.compile_within(text, &mut CompileBudget::default())
    }

    /// Compiles one of several expressions that have a budget together, such as those of a policy. A program takes
    /// [`Program::memory`] from it; if that is not left, the expression fails to be instantiated, and nothing is left.
    pub fn compile_within(&self, text: &str, budget: &mut CompileBudget) -> Result<Program, Issues> {
        if budget.left() == 0 {
            return Err(Issues::instantiation(&Source::new(""), budget.exhausted()));
        }
        let is_deep = parse::measure(text)?;
        let compiled = deep::run(is_deep, || {
            let (expr, source) = parse::parse(text)?;
            let checked = check::check(self, expr, source)?;
            plan::plan(self, &checked, budget)
        });
        compiled.unwrap_or_else(|error| {
            let message = format!("cannot start a thread to compile the expression: {error}");
            Err(Issues::without_place(text, message))
        })
    }

    fn add(&mut self, variable: Variable) -> usize {
        let known = self
            .variables
            .iter()
            .position(|known| known.name == variable.name);
        match known {
            Some(index) => {
                self.variables[index] = variable;
                index
            }
            None => {
                self.variables.push(variable);
                self.variables.len() - 1
            }
        }
    }

    /// Declares `self` or `oldSelf` with a part of a schema whose objects are declared.
    pub(crate) fn declare_part(&mut self, name: &'static str, schema: &Schema, is_optional: bool) -> usize {
        let type_ = schema.to_type();
        self.add(Variable {
            name: name.into(),
            type_: if is_optional { Type::optional(type_) } else { type_ },
            schema: Some(schema.clone()),
        })
    }

    pub(crate) fn declare_objects(&mut self, schema: &Schema) {
        let objects = Arc::make_mut(&mut self.objects);
        schema.objects(&mut |object| {
            objects.insert(Arc::clone(&object.name), ObjectType::Schema(Arc::clone(object)));
        });
    }

    pub(crate) fn variable(&self, name: &str) -> Option<(usize, &Variable)> {
        self.variables
            .iter()
            .enumerate()
            .find(|(_, variable)| &*variable.name == name)
    }

    pub(crate) fn function(&self, name: &str) -> Option<&'static Function> {
        let name = name.strip_prefix('.').unwrap_or(name);
        let function = self.functions.0.get(name)?;
        (!function.is_mutation() || self.mutations).then_some(function)
    }

    pub(crate) fn has_object(&self, name: &str) -> bool {
        self.objects.contains_key(name)
    }

    pub(crate) fn has_mutations(&self) -> bool {
        self.mutations
    }

    /// The type of a field of an object type.
    pub(crate) fn field(&self, object: &str, field: &str) -> Option<Type> {
        match self.objects.get(object)? {
            ObjectType::Schema(schema) => schema.field(field).map(|(_, schema)| schema.to_type()),
            ObjectType::Fields(fields) => fields.get(field).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value as Json;

    use super::*;
    use crate::function::Overload;

    /// Compares with the recording of kube-apiserver's environment, if `WINDLASS_CEL_CASES` names its folder.
    #[test]
    fn tables_have_the_overloads_and_macros_of_the_server() {
        let ours: BTreeSet<String> = KUBERNETES
            .0
            .values()
            .filter(|function| !function.is_mutation())
            .flat_map(|function| {
                function
                    .overloads
                    .iter()
                    .map(|overload| signature(function.name, overload))
            })
            .collect();
        assert_eq!(ours.len(), 344);
        let Some(folder) = std::env::var_os("WINDLASS_CEL_CASES") else {
            return;
        };
        let path = std::path::Path::new(&folder).join("environment.json");
        let recorded: Json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let theirs: BTreeSet<String> = recorded["overloads"]
            .as_array()
            .unwrap()
            .iter()
            // Hidden from expressions.
            .filter(|overload| overload["id"] != "__not_strictly_false__")
            .map(|overload| {
                let args: Vec<_> = overload["arguments"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(type_text)
                    .collect();
                format!(
                    "{} {} {} ({}) -> {}",
                    text(&overload["function"]),
                    text(&overload["id"]),
                    overload["member"],
                    args.join(", "),
                    type_text(&overload["result"])
                )
            })
            .collect();
        let missing: Vec<_> = theirs.difference(&ours).collect();
        let extra: Vec<_> = ours.difference(&theirs).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "missing {missing:#?}, extra {extra:#?}"
        );
        let macros: BTreeSet<String> = recorded["macros"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                format!(
                    "{}:{}:{}",
                    text(&one["function"]),
                    one["arguments"],
                    one["receiver"]
                )
            })
            .collect();
        assert_eq!(
            macros,
            crate::macros::KEYS.iter().map(|key| (*key).to_owned()).collect()
        );
    }

    fn text(json: &Json) -> String {
        json.as_str().unwrap().to_owned()
    }

    /// A type as error messages write it.
    fn type_text(json: &Json) -> String {
        text(json)
            .replace("google.protobuf.Duration", "duration")
            .replace("google.protobuf.Timestamp", "timestamp")
            .replace(['<', '>'], "")
    }

    fn signature(function: &str, overload: &Overload) -> String {
        let args: Vec<_> = overload.args.iter().map(ToString::to_string).collect();
        format!(
            "{function} {} {} ({}) -> {}",
            overload.id,
            overload.is_member,
            args.join(", "),
            overload.result
        )
    }
}
