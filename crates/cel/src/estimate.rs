//! Estimates the cost of an expression from the bounds of its variables' schemas.
//!
//! It walks the tree as cel-go's estimator does, with its quirks, because the result decides whether a rule is accepted.

use std::sync::Arc;

use crate::{
    Env, Schema, Type,
    ast::{Call, Comprehension, Expr, Id, Kind, Literal},
    bounds::{CostEstimate, Size},
    check::{Checked, Reference},
    estimate_call,
    schema::Step,
    value::code_points,
};

/// Estimates the cost of an expression.
pub(crate) fn estimate(env: &Env, checked: &Checked) -> CostEstimate {
    let count = checked.source.len();
    let mut estimator = Estimator {
        checked,
        root: env.variables.iter().find_map(|variable| variable.schema.as_ref()),
        places: vec![Place::Empty; count],
        sizes: vec![None; count],
        entries: vec![None; count],
        locals: Vec::new(),
    };
    estimator.cost(&checked.expr)
}

/// The part of the root schema that a node refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'s> {
    /// The node has no path.
    Empty,
    Schema(&'s Schema),
    /// The keys of a map, for which no sizes are known.
    Key,
    /// The node has a path that leads to no schema.
    Nowhere,
}

/// Sizes of the entries of a list or a map.
#[derive(Clone, Copy, Debug)]
struct Entries {
    is_list: bool,
    key: Size,
    value: Size,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

struct Local<'s> {
    name: Arc<str>,
    place: Place<'s>,
    size: Option<Size>,
    entries: Option<Entries>,
}

struct Estimator<'s> {
    checked: &'s Checked,
    root: Option<&'s Schema>,
    places: Vec<Place<'s>>,
    sizes: Vec<Option<Size>>,
    entries: Vec<Option<Entries>>,
    locals: Vec<Local<'s>>,
}

/// What is known about an argument of a call.
#[derive(Clone, Copy)]
pub(crate) struct Arg<'s> {
    pub(crate) place: Place<'s>,
    pub(crate) type_: &'s Type,
    pub(crate) literal: Option<&'s Literal>,
    pub(crate) size: Option<Size>,
}

impl Arg<'_> {
    pub(crate) fn size(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }
}

/// The estimate of a call, without its arguments.
pub(crate) struct CallEstimate {
    pub(crate) cost: CostEstimate,
    pub(crate) result: Option<Size>,
}

impl<'s> Estimator<'s> {
    fn cost(&mut self, expr: &'s Expr) -> CostEstimate {
        match &expr.kind {
            Kind::Literal(_) => CostEstimate::fixed(0),
            Kind::Ident(name) => {
                self.places[expr.id as usize] = match self.local(name) {
                    Some(local) => local.place,
                    None => self.root_place(),
                };
                CostEstimate::fixed(1)
            }
            Kind::Select(select) => {
                if matches!(
                    self.checked.reference(expr.id),
                    Reference::Variable(_) | Reference::Type(_)
                ) {
                    self.places[expr.id as usize] = self.root_place();
                    return CostEstimate::fixed(1);
                }
                let operand = self.cost(&select.operand);
                if select.test {
                    return operand;
                }
                self.places[expr.id as usize] = self.step(self.place(&select.operand), &select.field);
                match self.checked.type_of(select.operand.id) {
                    Type::Map(_) | Type::Object(_) | Type::Var(_) => operand.plus(CostEstimate::fixed(1)),
                    _ => operand,
                }
            }
            Kind::Call(call) => self.call(expr, call),
            Kind::List(list) => {
                let mut cost = CostEstimate::fixed(10);
                let mut size = if list.elements.is_empty() {
                    Size { min: 0, max: 0 }
                } else {
                    Size::NOTHING
                };
                for element in &list.elements {
                    cost = cost.plus(self.cost(element));
                    size = size.union(self.size_or_unknown(element));
                }
                self.entries[expr.id as usize] = Some(Entries {
                    is_list: true,
                    key: Size::fixed(1),
                    value: size,
                });
                cost
            }
            Kind::Map(entries) => {
                let mut cost = CostEstimate::fixed(30);
                let start = if entries.is_empty() {
                    Size { min: 0, max: 0 }
                } else {
                    Size::NOTHING
                };
                let (mut keys, mut values) = (start, start);
                for entry in entries {
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    keys = keys.union(self.size_or_unknown(&entry.key));
                    values = values.union(self.size_or_unknown(&entry.value));
                }
                self.entries[expr.id as usize] = Some(Entries {
                    is_list: false,
                    key: keys,
                    value: values,
                });
                cost
            }
            Kind::Struct(object) => {
                let fields = object.fields.iter().map(|field| self.cost(&field.value));
                fields.fold(CostEstimate::fixed(40), CostEstimate::plus)
            }
            Kind::Comprehension(fold) if is_bind(fold) => self.bind(expr.id, fold),
            Kind::Comprehension(fold) => self.fold(expr.id, fold),
        }
    }

    /// The place of a variable. Kubernetes' estimator takes each for the root.
    fn root_place(&self) -> Place<'s> {
        self.root.map_or(Place::Nowhere, Place::Schema)
    }

    fn step(&self, place: Place<'s>, step: &str) -> Place<'s> {
        match place {
            // A path without a variable: the step itself is taken for one.
            Place::Empty => self.root_place(),
            Place::Schema(schema) => match schema.step(step) {
                Some(Step::Schema(schema)) => Place::Schema(schema),
                Some(Step::Key) => Place::Key,
                None => Place::Nowhere,
            },
            Place::Key | Place::Nowhere => Place::Nowhere,
        }
    }

    fn local(&self, name: &str) -> Option<&Local<'s>> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn place(&self, expr: &Expr) -> Place<'s> {
        match &expr.kind {
            Kind::Ident(name) if self.local(name).is_some() => {
                self.local(name).map_or(Place::Empty, |local| local.place)
            }
            _ => self.places[expr.id as usize],
        }
    }

    fn size_or_unknown(&mut self, expr: &'s Expr) -> Size {
        self.size(expr).unwrap_or(Size::UNKNOWN)
    }

    fn size(&mut self, expr: &'s Expr) -> Option<Size> {
        if let Some(size) = self.sizes[expr.id as usize] {
            return Some(size);
        }
        match &expr.kind {
            Kind::Literal(literal) => return Some(Size::fixed(literal_size(literal))),
            Kind::List(list) => return Some(Size::fixed(list.elements.len() as u64)),
            Kind::Map(entries) => return Some(Size::fixed(entries.len() as u64)),
            _ => {}
        }
        if let Some(size) = estimate_call::place_size(self.place(expr)) {
            self.sizes[expr.id as usize] = Some(size);
            return Some(size);
        }
        if is_scalar(self.checked.type_of(expr.id)) {
            return Some(Size::fixed(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn entries(&self, expr: &Expr) -> Option<Entries> {
        self.entries[expr.id as usize].or_else(|| match &expr.kind {
            Kind::Ident(name) => self.local(name)?.entries,
            _ => None,
        })
    }

    fn arg(&mut self, expr: &'s Expr) -> Arg<'s> {
        Arg {
            place: self.place(expr),
            type_: self.checked.type_of(expr.id),
            literal: expr.as_literal(),
            size: self.size(expr),
        }
    }

    fn call(&mut self, expr: &'s Expr, call: &'s Call) -> CostEstimate {
        let id = expr.id as usize;
        if &*call.function == "dyn"
            && let [arg] = &call.args[..]
        {
            let cost = self.cost(arg).plus(CostEstimate::fixed(1));
            if let Some(size) = self.size(arg) {
                self.sizes[id] = Some(size);
            }
            if let Some(entries) = self.entries(arg) {
                self.entries[id] = Some(entries);
            }
            return cost;
        }
        let mut costs = Vec::with_capacity(call.args.len());
        let mut args = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            costs.push(self.cost(arg));
            args.push(self.arg(arg));
        }
        let Reference::Call(function, overloads) = self.checked.reference(expr.id) else {
            return CostEstimate::default();
        };
        let is_member = overloads.first().is_some_and(|overload| overload.is_member);
        let mut sum = CostEstimate::default();
        let mut target = None;
        if let Some(receiver) = call.target.as_ref().filter(|_| is_member) {
            sum = self.cost(receiver);
            target = Some(self.arg(receiver));
        }
        let mut total = CostEstimate {
            min: u64::MAX,
            max: 0,
        };
        let mut result: Option<Size> = None;
        for overload in overloads {
            let estimate = self.overload(expr, call, function.name, overload.id, target, &args, &costs);
            total = total.union(estimate.cost);
            result = match (result, estimate.result) {
                (Some(one), Some(other)) => Some(one.union(other)),
                (one, other) => one.or(other),
            };
            if let ("index_list" | "index_map", Some(container)) = (overload.id, call.args.first()) {
                result = self.entries(container).map(|entries| entries.value);
                let step = if overload.id == "index_list" {
                    "@items"
                } else {
                    "@values"
                };
                self.places[id] = self.step(self.place(container), step);
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        if let Some(result) = result {
            self.sizes[id] = Some(result);
        }
        sum.plus(total)
    }

    /// The estimate of a call with one of its overloads, with its arguments.
    #[allow(clippy::too_many_arguments)]
    fn overload(
        &mut self,
        expr: &'s Expr,
        call: &'s Call,
        function: &str,
        overload: &str,
        target: Option<Arg<'s>>,
        args: &[Arg<'s>],
        costs: &[CostEstimate],
    ) -> CallEstimate {
        let id = expr.id as usize;
        if let Some(estimate) = estimate_call::library(function, overload, target.as_ref(), args, &|place| {
            self.step(place, "@items")
        }) {
            return CallEstimate {
                cost: costs.iter().fold(estimate.cost, |sum, cost| sum.plus(*cost)),
                result: estimate.result,
            };
        }
        match overload {
            "logical_and" | "logical_or" => {
                return CallEstimate {
                    cost: CostEstimate {
                        min: costs[0].min,
                        max: costs[0].max.saturating_add(costs[1].max),
                    },
                    result: None,
                };
            }
            "conditional" => {
                if let (Some(one), Some(other)) = (self.entries(&call.args[1]), self.entries(&call.args[2])) {
                    self.entries[id] = Some(one.union(other));
                }
                return CallEstimate {
                    cost: costs[0].plus(costs[1].union(costs[2])),
                    result: Some(args[1].size().union(args[2].size())),
                };
            }
            "add_string" | "add_bytes" | "add_list" => {
                if let (Some(one), Some(other)) = (self.entries(&call.args[0]), self.entries(&call.args[1])) {
                    self.entries[id] = Some(one.union(other));
                }
            }
            _ => {}
        }
        let estimate = estimate_call::standard(overload, target.as_ref(), args);
        CallEstimate {
            cost: costs.iter().fold(estimate.cost, |sum, cost| sum.plus(*cost)),
            result: estimate.result,
        }
    }

    fn fold(&mut self, id: Id, fold: &'s Comprehension) -> CostEstimate {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        let depth = self.locals.len();
        self.push_value(&fold.accumulator, &fold.init);
        self.push_iteration(fold);
        let each = self.cost(&fold.condition).plus(self.cost(&fold.step));
        self.locals.truncate(depth + 1);
        sum = sum.plus(self.cost(&fold.result));
        self.locals.truncate(depth);
        let count = self.size_or_unknown(&fold.range);
        sum = sum.plus(count.times_cost(each));
        match fold.init.kind {
            Kind::Literal(_) => self.sizes[id as usize] = self.size(&fold.init),
            Kind::List(_) | Kind::Map(_) => {
                self.sizes[id as usize] = Some(count);
                if let Some(entries) = self.entries(&fold.step) {
                    self.entries[id as usize] = Some(entries);
                }
            }
            _ => {}
        }
        sum
    }

    /// A variable, from `optMap` or `sortBy`.
    fn bind(&mut self, id: Id, fold: &'s Comprehension) -> CostEstimate {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        let depth = self.locals.len();
        self.push_value(&fold.accumulator, &fold.init);
        sum = sum.plus(self.cost(&fold.result));
        self.locals.truncate(depth);
        if let Some(size) = self.size(&fold.result) {
            self.sizes[id as usize] = Some(size);
        }
        if let Some(entries) = self.entries(&fold.result) {
            self.entries[id as usize] = Some(entries);
        }
        sum
    }

    fn push_value(&mut self, name: &Arc<str>, value: &'s Expr) {
        let local = Local {
            name: Arc::clone(name),
            place: self.place(value),
            size: self.size(value),
            entries: self.entries(value),
        };
        self.locals.push(local);
    }

    /// The variables of a loop.
    fn push_iteration(&mut self, fold: &'s Comprehension) {
        let entries = self.entries(&fold.range);
        let place = self.place(&fold.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.type_of(fold.range.id), Type::List(_)),
        };
        let key = (
            if is_list { "@indices" } else { "@keys" },
            entries.map(|entries| entries.key),
        );
        let value = (
            if is_list { "@items" } else { "@values" },
            entries.map(|entries| entries.value),
        );
        let variables = match &fold.var2 {
            Some(second) => vec![(&fold.var, key), (second, value)],
            None if is_list => vec![(&fold.var, value)],
            None => vec![(&fold.var, key)],
        };
        for (name, (step, size)) in variables {
            let local = Local {
                name: Arc::clone(name),
                place: self.step(place, step),
                size,
                entries: None,
            };
            self.locals.push(local);
        }
    }
}

fn is_bind(fold: &Comprehension) -> bool {
    matches!(&fold.range.kind, Kind::List(list) if list.elements.is_empty())
        && matches!(fold.condition.as_literal(), Some(Literal::Bool(false)))
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::String(text) => code_points(text),
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    }
}

fn is_scalar(type_: &Type) -> bool {
    match type_ {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        other => other.as_optional().is_some_and(is_scalar),
    }
}
