//! From a checked expression to a plan that is cheap to evaluate.
//!
//! Names become slots, calls have their function and the rule of their cost, constants are folded, and constant patterns
//! are compiled. What is folded is what cel-go folds: a folded part costs nothing, so the cost depends on it.

use std::{collections::HashSet, sync::Arc};

use crate::{
    CompileBudget, Env, EvalError, Type, Value,
    ast::{Call as CallExpr, Comprehension, Expr, Id, Kind, Literal},
    budget::{DEFAULT_STEPS, Work},
    check::{Checked, Reference},
    cost::CostRule,
    function::{Args, Function},
    issue::Issues,
    map::{Entries, Map},
    program::Program,
    re2::{self, Pattern},
    value::Text,
};

/// A step of a plan.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Value<'static>),
    /// A variable with selections and indexes; costs 1, and 1 for each of them.
    Attribute(Box<Attribute>),
    /// `has(a.b)`: an attribute whose last qualifier is tested.
    Test(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    /// `==`, or `!=` if negated.
    Equals(Box<[Node; 2]>, bool),
    Call(Box<Call>),
    /// `x in [constants]`
    InSet(Box<Node>, Box<Set>),
    /// `a.or(b)` and `a.orValue(b)`; the latter if true.
    OptionalOr(Box<[Node; 2]>, bool),
    List(Box<[Element]>),
    Map(Box<[MapEntry]>),
    Object(Arc<str>, Box<[ObjectField]>),
    Fold(Box<Fold>),
}

#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) root: Root,
    pub(crate) qualifiers: Vec<Qualifier>,
}

#[derive(Debug)]
pub(crate) enum Root {
    /// A variable of the environment.
    Variable(usize),
    /// A variable of a loop.
    Local(usize),
    /// The value of any expression.
    Node(Node),
    /// `a ? b : c`, which has no cost of its own.
    Conditional(Box<[Node; 3]>),
}

#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: Key,
    /// From `a.?b` and `a[?b]`.
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) enum Key {
    Field(Arc<str>),
    Const(Value<'static>),
    Node(Node),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    pub(crate) args: Box<[Node]>,
    pub(crate) cost: CostRule,
    /// The id of the overload; empty if several fit.
    pub(crate) overload: &'static str,
    /// The first argument is the accumulator of this slot, which the call replaces. It is taken and not shared, so that
    /// it can be changed in place.
    pub(crate) takes: Option<usize>,
    /// Whether the first failing argument ends the call, before others are evaluated.
    pub(crate) stops_early: bool,
    pub(crate) regex: Option<Pattern>,
}

/// The members of a constant list of numbers, bools or strings.
#[derive(Debug, Default)]
pub(crate) struct Set {
    pub(crate) texts: HashSet<Arc<str>>,
    pub(crate) others: Vec<Value<'static>>,
}

#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) node: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct ObjectField {
    pub(crate) name: Arc<str>,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    /// The slot of the accumulator. The variables of the loop have the next ones.
    pub(crate) slot: usize,
    pub(crate) two_variables: bool,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

/// What a node of the tree takes in a plan, in bytes, with what is allocated for it.
const NODE_BYTES: usize = size_of::<Node>() + size_of::<Call>();

/// Plans an expression. Its memory is taken from the budget before it is used.
pub(crate) fn plan(env: &Env, checked: &Checked, budget: &mut CompileBudget) -> Result<Program, Issues> {
    let nodes = checked.references.len().saturating_mul(NODE_BYTES);
    let bytes = nodes.saturating_add(checked.source.text.len());
    let failed = |error: String| Issues::instantiation(&checked.source, error);
    budget.take(bytes).map_err(failed)?;
    let before = budget.left();
    let mut planner = Planner {
        checked,
        locals: Vec::new(),
        slots: 0,
        budget,
    };
    let root = planner.plan(&checked.expr);
    let Planner { slots, budget, .. } = planner;
    match root {
        Ok(node) => {
            let bytes = bytes.saturating_add(before - budget.left());
            Ok(Program::new(env, node, slots, bytes, checked))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

struct Planner<'c, 'b> {
    checked: &'c Checked,
    /// Names of the slots in scope.
    locals: Vec<Arc<str>>,
    /// The greatest number of slots in use.
    slots: usize,
    /// For the compiled patterns.
    budget: &'b mut CompileBudget,
}

type Planned = Result<Node, EvalError>;

impl Planner<'_, '_> {
    fn plan(&mut self, expr: &Expr) -> Planned {
        match &expr.kind {
            Kind::Literal(literal) => Ok(Node::Const(constant(literal))),
            Kind::Ident(name) => Ok(self.name(expr.id, name)),
            Kind::Select(select) => {
                if matches!(
                    self.checked.reference(expr.id),
                    Reference::Variable(_) | Reference::Type(_)
                ) {
                    return Ok(self.name(expr.id, ""));
                }
                let mut attribute = into_attribute(self.plan(&select.operand)?);
                attribute.qualifiers.push(Qualifier {
                    key: Key::Field(Arc::clone(&select.field)),
                    optional: false,
                });
                Ok(if select.test {
                    Node::Test(attribute)
                } else {
                    Node::Attribute(attribute)
                })
            }
            Kind::Call(call) => self.call(expr.id, call),
            Kind::List(list) => {
                let mut elements = Vec::with_capacity(list.elements.len());
                for (index, element) in list.elements.iter().enumerate() {
                    elements.push(Element {
                        node: self.plan(element)?,
                        optional: list.optional.contains(&index),
                    });
                }
                if elements
                    .iter()
                    .all(|element| matches!(element.node, Node::Const(_)) && !element.optional)
                {
                    let values = elements
                        .into_iter()
                        .map(|element| into_constant(element.node))
                        .collect();
                    return Ok(Node::Const(Value::list(values)));
                }
                Ok(Node::List(elements.into()))
            }
            Kind::Map(entries) => {
                let mut planned = Vec::with_capacity(entries.len());
                for entry in entries {
                    planned.push(MapEntry {
                        key: self.plan(&entry.key)?,
                        value: self.plan(&entry.value)?,
                        optional: entry.optional,
                    });
                }
                let is_constant = |entry: &MapEntry| {
                    matches!((&entry.key, &entry.value), (Node::Const(_), Node::Const(_))) && !entry.optional
                };
                if planned.iter().all(is_constant) {
                    let mut work = Work::of_constant(DEFAULT_STEPS);
                    let mut constant = Entries::default();
                    for entry in planned {
                        constant.insert(into_constant(entry.key), into_constant(entry.value), &mut work)?;
                    }
                    return Ok(Node::Const(Value::Map(Map::from(constant))));
                }
                Ok(Node::Map(planned.into()))
            }
            Kind::Struct(object) => {
                let mut fields = Vec::with_capacity(object.fields.len());
                for field in &object.fields {
                    fields.push(ObjectField {
                        name: Arc::clone(&field.name),
                        value: self.plan(&field.value)?,
                        optional: field.optional,
                    });
                }
                Ok(Node::Object(Arc::clone(&object.name), fields.into()))
            }
            Kind::Comprehension(fold) => self.fold(fold),
        }
    }

    fn name(&self, id: Id, name: &str) -> Node {
        let root = match self.checked.reference(id) {
            Reference::Type(type_) => return Node::Const(Value::Type(Arc::new(type_.clone()))),
            Reference::Variable(index) => Root::Variable(*index),
            _ => {
                let slot = self.locals.iter().rposition(|local| &**local == name);
                Root::Local(slot.expect("the checker knows the name"))
            }
        };
        Node::Attribute(Box::new(Attribute {
            root,
            qualifiers: Vec::new(),
        }))
    }

    fn call(&mut self, id: Id, call: &CallExpr) -> Planned {
        let Reference::Call(function, overloads) = self.checked.reference(id) else {
            unreachable!("the checker resolves each call");
        };
        let is_member = overloads.first().is_some_and(|overload| overload.is_member);
        let mut args = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = call.target.as_ref().filter(|_| is_member) {
            args.push(self.plan(target)?);
        }
        for arg in &call.args {
            args.push(self.plan(arg)?);
        }
        let overload = match &overloads[..] {
            [overload] => overload.id,
            _ => "",
        };
        match (function.name, &mut args[..]) {
            ("_&&_" | "_||_" | "_==_" | "_!=_" | "or" | "orValue", [_, _]) => {
                let args = pair(args);
                return Ok(match function.name {
                    "_&&_" => Node::And(args),
                    "_||_" => Node::Or(args),
                    "_==_" => Node::Equals(args, false),
                    "_!=_" => Node::Equals(args, true),
                    name => Node::OptionalOr(args, name == "orValue"),
                });
            }
            ("_?_:_", [_, _, _]) => {
                let [condition, truthy, falsy]: [Node; 3] = args.try_into().expect("three arguments");
                return Ok(Node::Attribute(Box::new(Attribute {
                    root: Root::Conditional(Box::new([condition, truthy, falsy])),
                    qualifiers: Vec::new(),
                })));
            }
            ("_[_]" | "_[?_]" | "_?._", [_, _]) => {
                let optional = function.name != "_[_]";
                let [operand, index] = *pair(args);
                let mut attribute = into_attribute(operand);
                let key = match index {
                    Node::Const(Value::String(Text::Shared(text))) => Key::Field(text),
                    Node::Const(
                        value @ (Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_)),
                    ) => Key::Const(value),
                    Node::Const(value) => {
                        let kind = crate::display::go_type(&value);
                        return Err(EvalError::new(format!("invalid qualifier type: {kind}")));
                    }
                    node => Key::Node(node),
                };
                attribute.qualifiers.push(Qualifier { key, optional });
                return Ok(Node::Attribute(attribute));
            }
            ("@in", [_, Node::Const(Value::List(_))]) if overload == "in_list" => {
                let [element, list] = *pair(args);
                return Ok(in_constant(element, list, function));
            }
            (
                "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type"
                | "uint",
                [Node::Const(value)],
            ) => {
                let mut values = [value.clone()];
                return (function.eval)(Args {
                    values: &mut values,
                    work: &mut Work::of_constant(DEFAULT_STEPS),
                    overload,
                    regex: None,
                })
                .map(Node::Const);
            }
            _ => {}
        }
        let mut regex = None;
        if let ("matches" | "find" | "findAll", [_, Node::Const(Value::String(pattern)), ..]) =
            (function.name, &args[..])
        {
            regex = Some(re2::compile_within(pattern, self.budget)?);
        }
        Ok(Node::Call(Box::new(Call {
            function,
            cost: CostRule::new(function.name, overload, args.len()),
            overload,
            takes: accumulator(function.name, &args, &self.locals),
            stops_early: args.len() > 2 || regex.is_some(),
            args: args.into(),
            regex,
        })))
    }

    fn fold(&mut self, fold: &Comprehension) -> Planned {
        let range = self.plan(&fold.range)?;
        let init = self.plan(&fold.init)?;
        let slot = self.locals.len();
        self.locals.push(Arc::clone(&fold.accumulator));
        self.locals.push(Arc::clone(&fold.var));
        self.locals.extend(fold.var2.clone());
        self.slots = self.slots.max(self.locals.len());
        let condition = self.plan(&fold.condition)?;
        let step = self.plan(&fold.step)?;
        self.locals.truncate(slot + 1);
        let result = self.plan(&fold.result)?;
        self.locals.truncate(slot);
        Ok(Node::Fold(Box::new(Fold {
            range,
            slot,
            two_variables: fold.var2.is_some(),
            init,
            condition,
            step,
            result,
        })))
    }
}

/// The slot of the accumulator that a call of `+` or an insertion changes.
fn accumulator(function: &str, args: &[Node], locals: &[Arc<str>]) -> Option<usize> {
    match (function, args.first()) {
        ("_+_" | "cel.@mapInsert", Some(Node::Attribute(attribute))) if attribute.qualifiers.is_empty() => {
            match attribute.root {
                Root::Local(slot) if &*locals[slot] == crate::ast::ACCUMULATOR => Some(slot),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A node as the start of an attribute. Selections of the same variable are one attribute.
#[allow(clippy::unnecessary_box_returns)] // It is in a box already, and goes into one again.
fn into_attribute(node: Node) -> Box<Attribute> {
    match node {
        Node::Attribute(attribute) => attribute,
        other => Box::new(Attribute {
            root: Root::Node(other),
            qualifiers: Vec::new(),
        }),
    }
}

fn into_constant(node: Node) -> Value<'static> {
    match node {
        Node::Const(value) => value,
        _ => unreachable!("checked by the caller"),
    }
}

#[allow(clippy::unnecessary_box_returns)] // A plan has its parts in boxes.
fn pair(args: Vec<Node>) -> Box<[Node; 2]> {
    Box::new(args.try_into().expect("two arguments"))
}

/// `element in list`, of a constant list. A list of numbers, bools and strings becomes a set.
fn in_constant(element: Node, list: Node, function: &'static Function) -> Node {
    let Node::Const(Value::List(values)) = &list else {
        unreachable!("checked by the caller");
    };
    if values.is_empty() {
        return Node::Const(Value::Bool(false));
    }
    let mut set = Set::default();
    for value in values {
        match value {
            Ok(Value::String(text)) => {
                set.texts.insert(Arc::from(&*text));
            }
            Ok(value @ (Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_))) => {
                set.others.push(value);
            }
            _ => {
                return Node::Call(Box::new(Call {
                    function,
                    args: Box::new([element, list]),
                    cost: CostRule::new("@in", "in_list", 2),
                    overload: "in_list",
                    takes: None,
                    stops_early: false,
                    regex: None,
                }));
            }
        }
    }
    Node::InSet(Box::new(element), Box::new(set))
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Shared(Arc::clone(text))),
        Literal::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
    }
}

/// The type of the whole expression.
pub(crate) fn result_type(checked: &Checked) -> Type {
    checked.type_of(checked.expr.id).clone()
}
