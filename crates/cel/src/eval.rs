//! Evaluation of a plan.
//!
//! The cost is counted as cel-go's cost tracker does, step by step, and a step that exceeds the limit ends the evaluation.
//! An error ends it too, except in `&&`, `||` and the loops made of them, where another part may decide the result.

use std::sync::Arc;

use crate::{
    EvalError, Value,
    budget::Work,
    check, cost, display, equality,
    function::Args,
    list::List,
    map::{Entries, Map},
    plan::{Attribute, Call, Element, Fold, Key, MapEntry, Node, ObjectField, Qualifier, Root, Set},
    program::{LazyFields, Limits},
    value::Text,
};

const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
const OBJECT_COST: u64 = 40;

type Evaluated<'a> = Result<Value<'a>, EvalError>;

/// The state of an evaluation.
pub(crate) struct Evaluator<'v, 'a> {
    variables: &'v [Value<'a>],
    /// The variable whose fields are computed on demand.
    lazy: Option<(usize, &'v dyn LazyFields<'a>)>,
    locals: Vec<Local<'a>>,
    cost: u64,
    limit: u64,
    work: Work,
}

/// A variable of a loop.
enum Local<'a> {
    /// An accumulator before its first use.
    Pending(&'a Node),
    Ready(Value<'a>),
    /// An accumulator whose last step failed.
    Failed(EvalError),
    /// A call is changing the accumulator.
    Taken,
}

impl<'v, 'a> Evaluator<'v, 'a> {
    pub(crate) fn new(
        variables: &'v [Value<'a>],
        lazy: Option<(usize, &'v dyn LazyFields<'a>)>,
        slots: usize,
        limits: &Limits,
    ) -> Self {
        Self {
            variables,
            lazy,
            locals: Vec::with_capacity(slots),
            cost: 0,
            limit: limits.cost,
            work: Work::new(limits),
        }
    }

    pub(crate) const fn cost(&self) -> u64 {
        self.cost
    }

    pub(crate) const fn work(&self) -> &Work {
        &self.work
    }

    /// Ends an evaluation before it begins, if it is cancelled or a shared budget is used up.
    pub(crate) fn start(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.work.spend(1)?;
        self.work.check()?;
        self.eval(node)
    }

    fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            Err(EvalError::cost_limit())
        } else {
            Ok(())
        }
    }

    fn eval(&mut self, node: &'a Node) -> Evaluated<'a> {
        self.work.spend(1)?;
        match node {
            Node::Const(value) => Ok(borrow(value)),
            Node::Attribute(attribute) => self.attribute(attribute),
            Node::Test(attribute) => self.test(attribute),
            Node::And(args) => self.logical(args, false),
            Node::Or(args) => self.logical(args, true),
            Node::Equals(args, negated) => self.equals(args, *negated),
            Node::Call(call) => self.call(call),
            Node::InSet(element, set) => self.in_set(element, set),
            Node::OptionalOr(args, unwrap) => self.optional_or(args, *unwrap),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Object(name, fields) => self.object(name, fields),
            Node::Fold(fold) => self.fold(fold),
        }
    }

    #[inline(never)]
    fn attribute(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let value = unless_final(self.resolve(attribute))?;
        if !matches!(attribute.root, Root::Conditional(_)) {
            self.charge(1)?;
        }
        value
    }

    /// The value of an attribute, without the cost of the attribute itself.
    fn resolve(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let Attribute { root, qualifiers } = attribute;
        if let Some((first, fields, others)) = self.lazy_field(attribute) {
            let found = self.lazy_step(fields, first)?;
            return match found {
                Some(value) if others.is_empty() && first.optional => Ok(Value::some(value)),
                Some(value) if first.optional => self.qualify(Value::some(value), others),
                Some(value) => self.qualify(value, others),
                None => Ok(Value::Optional(None)),
            };
        }
        let value = self.root(root)?;
        if qualifiers.is_empty() {
            Ok(value)
        } else {
            self.qualify(value, qualifiers)
        }
    }

    /// The selection of a field that is computed on demand, and the qualifiers after it.
    fn lazy_field(
        &self,
        attribute: &'a Attribute,
    ) -> Option<(&'a Qualifier, &'v dyn LazyFields<'a>, &'a [Qualifier])> {
        let (index, fields) = self.lazy?;
        let is_lazy = matches!(attribute.root, Root::Variable(root) if root == index);
        let (first, others) = attribute.qualifiers.split_first().filter(|_| is_lazy)?;
        Some((first, fields, others))
    }

    /// Computes a field; `None` if the selection is optional and there is no such field.
    fn lazy_step(
        &mut self,
        fields: &dyn LazyFields<'a>,
        qualifier: &Qualifier,
    ) -> Result<Option<Value<'a>>, EvalError> {
        let Key::Field(name) = &qualifier.key else {
            return Err(self.charged(EvalError::no_such_overload()));
        };
        match fields.field(name) {
            Some(Ok(value)) => {
                self.charge(1)?;
                Ok(Some(value))
            }
            Some(Err(error)) => Err(self.charged(error)),
            None if qualifier.optional => Ok(None),
            None => Err(self.charged(EvalError::no_such_key(name))),
        }
    }

    fn root(&mut self, root: &'a Root) -> Evaluated<'a> {
        match root {
            Root::Variable(index) => match (self.lazy, self.variables.get(*index)) {
                (Some((lazy, fields)), _) if lazy == *index => whole(fields, &mut self.work),
                (_, Some(value)) => Ok(value.clone()),
                (_, None) => Err(EvalError::new("no such attribute(s)")),
            },
            Root::Local(slot) => self.local(*slot),
            Root::Node(node) => self.eval(node),
            Root::Conditional(parts) => self.conditional(parts),
        }
    }

    fn local(&mut self, slot: usize) -> Evaluated<'a> {
        match &self.locals[slot] {
            Local::Ready(value) => Ok(value.clone()),
            Local::Failed(error) => Err(error.clone()),
            Local::Pending(init) => {
                let init = *init;
                let value = if is_simple(init) {
                    self.eval(init)
                } else {
                    // Its own variables have the slots from this one on.
                    let above = self.locals.split_off(slot);
                    let value = self.eval(init);
                    self.locals.extend(above);
                    value
                };
                self.set_accumulator(slot, value)?;
                self.local_again(slot)
            }
            Local::Taken => unreachable!("an accumulator is taken only by the call that replaces it"),
        }
    }

    fn local_again(&self, slot: usize) -> Evaluated<'a> {
        match &self.locals[slot] {
            Local::Ready(value) => Ok(value.clone()),
            Local::Failed(error) => Err(error.clone()),
            Local::Pending(_) | Local::Taken => unreachable!("set before"),
        }
    }

    /// Stores the accumulator. Only errors that end the evaluation are returned.
    fn set_accumulator(&mut self, slot: usize, value: Evaluated<'a>) -> Result<(), EvalError> {
        self.locals[slot] = match value {
            Ok(value) => Local::Ready(value),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => Local::Failed(error),
        };
        Ok(())
    }

    fn conditional(&mut self, parts: &'a [Node; 3]) -> Evaluated<'a> {
        let [condition, truthy, falsy] = parts;
        let branch = match self.eval(condition)? {
            Value::Bool(true) => truthy,
            Value::Bool(false) => falsy,
            _ => return Err(EvalError::no_such_overload()),
        };
        match branch {
            // The branch is not observed as an attribute of its own.
            Node::Attribute(attribute) => self.resolve(attribute),
            other => self.eval(other),
        }
    }

    fn qualify(&mut self, value: Value<'a>, qualifiers: &'a [Qualifier]) -> Evaluated<'a> {
        Ok(match self.walk(value, qualifiers)? {
            Some((value, false)) => value,
            Some((value, true)) => Value::some(value),
            None => Value::Optional(None),
        })
    }

    /// The value after some qualifiers, and whether it is optional; `None` if it is optional and absent.
    fn walk(
        &mut self,
        value: Value<'a>,
        qualifiers: &'a [Qualifier],
    ) -> Result<Option<(Value<'a>, bool)>, EvalError> {
        let mut value = value;
        let mut is_optional = false;
        if let Value::Optional(inner) = &value {
            let Some(inner) = inner else {
                return Ok(None);
            };
            value = (**inner).clone();
            is_optional = true;
        }
        for qualifier in qualifiers {
            is_optional |= qualifier.optional;
            match self.step(&value, qualifier, is_optional)? {
                Some(next) => {
                    self.charge(1)?;
                    value = next;
                }
                None if is_optional => return Ok(None),
                None => {
                    self.charge(1)?;
                    return Err(missing_qualifier(&value, qualifier));
                }
            }
        }
        Ok(Some((value, is_optional)))
    }

    /// The value of one selection or index; `None` if it is absent.
    fn step(
        &mut self,
        value: &Value<'a>,
        qualifier: &'a Qualifier,
        is_optional: bool,
    ) -> Result<Option<Value<'a>>, EvalError> {
        let found = match &qualifier.key {
            Key::Field(name) => select(value, name),
            Key::Const(key) => index(value, &borrow(key), &mut self.work),
            Key::Node(node) => match unless_final(self.index_value(node))? {
                Ok(key) => match index(value, &key, &mut self.work) {
                    Ok(None) if !is_optional => Err(missing(value, &key)),
                    other => other,
                },
                Err(error) => Err(error),
            },
        };
        if let Ok(Some(value)) = &found {
            self.work.decoded(value)?;
        }
        // An optional qualifier that fails is not charged.
        found.map_err(|error| if is_optional { error } else { self.charged(error) })
    }

    /// Charges for a qualifier that failed.
    fn charged(&mut self, error: EvalError) -> EvalError {
        self.charge(1).err().unwrap_or(error)
    }

    /// The value of an index. A variable as an index costs only what its selections cost.
    fn index_value(&mut self, node: &'a Node) -> Evaluated<'a> {
        match node {
            Node::Attribute(attribute) => self.resolve(attribute),
            other => self.eval(other),
        }
    }

    #[inline(never)]
    fn test(&mut self, attribute: &'a Attribute) -> Evaluated<'a> {
        let (last, qualifiers) = attribute.qualifiers.split_last().expect("has() tests a field");
        let (value, qualifiers) = match self.lazy_field(attribute) {
            Some((
                Qualifier {
                    key: Key::Field(name),
                    ..
                },
                fields,
                [],
            )) => {
                self.charge(1)?;
                return Ok(Value::Bool(fields.names().contains(&&**name)));
            }
            Some((first, fields, _)) => match self.lazy_step(fields, first)? {
                Some(value) if first.optional => (Value::some(value), &qualifiers[1..]),
                Some(value) => (value, &qualifiers[1..]),
                None => return Ok(Value::Bool(false)),
            },
            None => (self.root(&attribute.root)?, qualifiers),
        };
        let Some((value, is_optional)) = self.walk(value, qualifiers)? else {
            return Ok(Value::Bool(false));
        };
        let found = self.step(&value, last, is_optional)?;
        if !is_optional || found.is_some() {
            self.charge(1)?;
        }
        Ok(Value::Bool(found.is_some()))
    }

    /// `&&` and `||`: `decisive` is the value that decides alone.
    #[inline(never)]
    fn logical(&mut self, args: &'a [Node; 2], decisive: bool) -> Evaluated<'a> {
        let mut failure = None;
        for arg in args {
            let error = match self.eval(arg) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => continue,
                Ok(_) => EvalError::no_such_overload(),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => error,
            };
            failure.get_or_insert(error);
        }
        failure.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    #[inline(never)]
    fn equals(&mut self, args: &'a [Node; 2], negated: bool) -> Evaluated<'a> {
        let (left, right) = self.both(args)?;
        let cost = match (&left, &right) {
            (Ok(left), Ok(right)) => equality_cost(left, right, negated, &mut self.work)?,
            // An error has the size 1.
            (Ok(value), Err(_)) | (Err(_), Ok(value)) => cost::size(value, &mut self.work)?.min(1),
            _ => 1,
        };
        self.charge(cost)?;
        let equal = equality::equals(&left?, &right?, &mut self.work);
        match equal {
            Ok(equal) => Ok(Value::Bool(equal != negated)),
            // `!=` is true if the values cannot be compared.
            Err(error) if negated && !error.is_final() => Ok(Value::Bool(true)),
            Err(error) => Err(error),
        }
    }

    /// Evaluates both arguments, also if the first fails.
    fn both(&mut self, args: &'a [Node; 2]) -> Result<(Evaluated<'a>, Evaluated<'a>), EvalError> {
        let left = unless_final(self.eval(&args[0]))?;
        let right = unless_final(self.eval(&args[1]))?;
        Ok((left, right))
    }

    #[inline(never)]
    fn call(&mut self, call: &'a Call) -> Evaluated<'a> {
        const FEW: usize = 3;
        let mut few = [const { Value::Null }; FEW];
        let mut many;
        let values: &mut [Value<'a>] = if call.args.len() <= FEW {
            &mut few[..call.args.len()]
        } else {
            many = vec![Value::Null; call.args.len()];
            &mut many
        };
        let mut failure = None;
        for (index, arg) in call.args.iter().enumerate() {
            let value = match call.takes {
                Some(slot) if index == 0 => self.take_accumulator(slot),
                _ => self.eval(arg),
            };
            match value {
                Ok(value) => values[index] = value,
                Err(error) if error.is_final() => return Err(error),
                Err(error) if is_non_strict(call) => {
                    drop(error);
                    self.charge(1)?;
                    return Ok(Value::Bool(true));
                }
                // The cost of a call is known only if all arguments were evaluated.
                Err(error) if call.stops_early && index + 1 < call.args.len() => return Err(error),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        if let Some(error) = failure {
            // A failed argument counts as a value of size 1.
            let cost = call.cost.of(values, None, &mut self.work)?;
            self.charge(cost)?;
            return Err(error);
        }
        // Whatever the call costs, it may read its arguments from end to end.
        for value in &*values {
            match value {
                Value::String(text) => self.work.read(text.len())?,
                Value::Bytes(bytes) => self.work.read(bytes.len())?,
                _ => {}
            }
        }
        if call.cost.needs_arguments_after() {
            return self.call_with_result_cost(call, values);
        }
        // Charged first: an operation that exceeds the limit is not started.
        let cost = call.cost.of(values, None, &mut self.work)?;
        self.charge(cost)?;
        let result = (call.function.eval)(Args {
            values,
            work: &mut self.work,
            overload: call.overload,
            regex: call.regex.as_ref(),
        });
        let extra = self.work.take_extra();
        self.charge(extra)?;
        result
    }

    /// A call whose cost depends on its result.
    #[inline(never)]
    fn call_with_result_cost(&mut self, call: &'a Call, values: &mut [Value<'a>]) -> Evaluated<'a> {
        let before: Vec<_> = values.to_vec();
        let result = (call.function.eval)(Args {
            values,
            work: &mut self.work,
            overload: call.overload,
            regex: call.regex.as_ref(),
        });
        let cost = call.cost.of(&before, result.as_ref().ok(), &mut self.work)?;
        let extra = self.work.take_extra();
        self.charge(cost.saturating_add(extra))?;
        result
    }

    /// Takes the accumulator that a call is about to replace.
    fn take_accumulator(&mut self, slot: usize) -> Evaluated<'a> {
        if matches!(self.locals[slot], Local::Pending(_)) {
            // The first use evaluates it.
            self.local(slot)?;
        }
        self.charge(1)?;
        match std::mem::replace(&mut self.locals[slot], Local::Taken) {
            Local::Ready(value) => Ok(value),
            Local::Failed(error) => Err(error),
            Local::Pending(_) | Local::Taken => unreachable!("evaluated above, and taken once"),
        }
    }

    fn in_set(&mut self, element: &'a Node, set: &'a Set) -> Evaluated<'a> {
        let found = match self.eval(element)? {
            Value::String(text) => {
                self.work.read(text.len())?;
                set.texts.contains(&*text)
            }
            value => {
                let mut found = false;
                for member in &set.others {
                    if equality::equals(member, &value, &mut self.work)? {
                        found = true;
                        break;
                    }
                }
                found
            }
        };
        Ok(Value::Bool(found))
    }

    fn optional_or(&mut self, args: &'a [Node; 2], unwrap: bool) -> Evaluated<'a> {
        match self.eval(&args[0])? {
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            Value::Optional(None) => self.eval(&args[1]),
            // cel-go takes any other value as it is.
            value => Ok(value),
        }
    }

    #[inline(never)]
    fn list(&mut self, elements: &'a [Element]) -> Evaluated<'a> {
        let result = unless_final(self.elements(elements))?;
        self.charge(LIST_COST)?;
        result.map(Value::list)
    }

    fn elements(&mut self, elements: &'a [Element]) -> Result<Vec<Value<'a>>, EvalError> {
        self.work.build_list(elements.len())?;
        let mut values = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.eval(&element.node)?;
            match value {
                Value::Optional(inner) if element.optional => {
                    values.extend(inner.map(|value| (*value).clone()));
                }
                value if element.optional => {
                    return Err(EvalError::new(format!(
                        "cannot initialize optional list element from non-optional value {}",
                        display::debug(&value)
                    )));
                }
                value => values.push(value),
            }
        }
        Ok(values)
    }

    #[inline(never)]
    fn map(&mut self, entries: &'a [MapEntry]) -> Evaluated<'a> {
        let result = unless_final(self.entries(entries))?;
        self.charge(MAP_COST)?;
        result.map(|entries| Value::Map(Map::from(entries)))
    }

    fn entries(&mut self, entries: &'a [MapEntry]) -> Result<Entries<'a>, EvalError> {
        let mut map = Entries::default();
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = self.eval(&entry.value)?;
            self.insert(&mut map, key, value, entry.optional)?;
        }
        Ok(map)
    }

    #[inline(never)]
    fn object(&mut self, name: &Arc<str>, fields: &'a [ObjectField]) -> Evaluated<'a> {
        let mut map = Entries::of_type(name);
        let mut result = Ok(());
        for field in fields {
            result = self
                .eval(&field.value)
                .and_then(|value| self.insert(&mut map, Value::text(&field.name), value, field.optional));
            if result.is_err() {
                break;
            }
        }
        unless_final(result.clone())?.ok();
        self.charge(OBJECT_COST)?;
        result?;
        if !check::is_mutation_object(name) {
            return Err(EvalError::new(format!("unknown type '{name}'")));
        }
        Ok(Value::Map(Map::from(map)))
    }

    fn insert(
        &mut self,
        map: &mut Entries<'a>,
        key: Value<'a>,
        value: Value<'a>,
        optional: bool,
    ) -> Result<(), EvalError> {
        match value {
            Value::Optional(Some(value)) if optional => map.insert(key, (*value).clone(), &mut self.work),
            Value::Optional(None) if optional => map.remove(&key, &mut self.work),
            value if optional => Err(EvalError::new(format!(
                "cannot initialize optional entry '{}' from non-optional value {}",
                display::debug(&key),
                display::debug(&value)
            ))),
            value => map.insert(key, value, &mut self.work),
        }
    }

    #[inline(never)]
    fn fold(&mut self, fold: &'a Fold) -> Evaluated<'a> {
        let range = self.eval(&fold.range)?;
        debug_assert_eq!(self.locals.len(), fold.slot);
        self.locals.push(Local::Pending(&fold.init));
        let result = match &range {
            Value::List(list) => self.fold_list(fold, list),
            Value::Map(map) => self.fold_map(fold, map),
            other if fold.two_variables => Err(EvalError::new(format!(
                "unsupported comprehension range type: {}",
                crate::display::go_type(other)
            ))),
            other => Err(EvalError::new(format!(
                "got '{}', expected iterable type",
                crate::display::go_type(other)
            ))),
        };
        self.locals.truncate(fold.slot + 1);
        let result = result.and_then(|()| self.eval(&fold.result));
        self.locals.truncate(fold.slot);
        result
    }

    fn fold_list(&mut self, fold: &'a Fold, list: &List<'a>) -> Result<(), EvalError> {
        for (index, element) in list.iter().enumerate() {
            let goes_on = if fold.two_variables {
                let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                self.iterate(fold, Ok(index), Some(element))?
            } else {
                self.iterate(fold, element, None)?
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    fn fold_map(&mut self, fold: &'a Fold, map: &Map<'a>) -> Result<(), EvalError> {
        // The loop may end with the first key.
        self.work.spend(map.len() as u64 / 8)?;
        for key in map.keys() {
            let value = fold.two_variables.then(|| {
                map.look_up(&key, &mut self.work)
                    .unwrap_or_else(|| Err(missing(&Value::Null, &key)))
            });
            if !self.iterate(fold, Ok(key), value)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs the loop once. Returns whether it goes on.
    fn iterate(
        &mut self,
        fold: &'a Fold,
        first: Evaluated<'a>,
        second: Option<Evaluated<'a>>,
    ) -> Result<bool, EvalError> {
        for value in [Some(&first), second.as_ref()].into_iter().flatten().flatten() {
            self.work.decoded(value)?;
        }
        let variable = |value: Evaluated<'a>| match value {
            Ok(value) => Local::Ready(value),
            Err(error) => Local::Failed(error),
        };
        self.work.spend(8)?;
        self.locals.truncate(fold.slot + 1);
        self.locals.push(variable(first));
        self.locals.extend(second.map(variable));
        match self.eval(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(error) if error.is_final() => return Err(error),
            _ => {}
        }
        let step = self.eval(&fold.step);
        self.set_accumulator(fold.slot, step)?;
        Ok(true)
    }
}

/// Whether the evaluation of the node needs no variables, as of the accumulators of most loops.
fn is_simple(node: &Node) -> bool {
    match node {
        Node::Const(_) => true,
        Node::List(elements) => elements.is_empty(),
        Node::Map(entries) => entries.is_empty(),
        _ => false,
    }
}

/// A constant of the plan, without sharing what can be borrowed.
fn borrow<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::String(Text::Shared(text)) => Value::text(text),
        other => other.clone(),
    }
}

/// Only `@not_strictly_false` takes errors as arguments.
fn is_non_strict(call: &Call) -> bool {
    call.function.name == "@not_strictly_false"
}

/// All fields that are computed on demand, as a map.
fn whole<'a>(fields: &dyn LazyFields<'a>, work: &mut Work) -> Evaluated<'a> {
    let mut map = Entries::default();
    for name in fields.names() {
        if let Some(value) = fields.field(name) {
            map.insert(Value::string(name), value?, work)?;
        }
    }
    Ok(Value::Map(Map::from(map)))
}

/// Returns errors that end the evaluation, and leaves others to the caller.
fn unless_final<T>(value: Result<T, EvalError>) -> Result<Result<T, EvalError>, EvalError> {
    match value {
        Err(error) if error.is_final() => Err(error),
        other => Ok(other),
    }
}

/// The cost of `==`: a tenth of the smaller size, and 1 for values of libraries.
fn equality_cost(
    left: &Value<'_>,
    right: &Value<'_>,
    negated: bool,
    work: &mut Work,
) -> Result<u64, EvalError> {
    if !negated && matches!(left, Value::Opaque(_)) {
        return Ok(1);
    }
    Ok(cost::size(left, work)?.min(cost::size(right, work)?).div_ceil(10))
}

fn select<'a>(value: &Value<'a>, name: &str) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::Map(map) => map.field(name).transpose(),
        Value::List(_) => Err(EvalError::new("unsupported index type 'string' in list")),
        _ => Ok(None),
    }
}

fn index<'a>(value: &Value<'a>, key: &Value<'a>, work: &mut Work) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::Map(map) => map.look_up(key, work).transpose(),
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) if *index > i64::MAX.cast_unsigned() => {
                    return Err(EvalError::new(format!("unsupported index value {index} in list")));
                }
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(float) => {
                    let whole = float.fract() == 0.0;
                    if !whole {
                        return Err(EvalError::new(format!(
                            "unsupported index value {} in list",
                            crate::go_format::float(*float)
                        )));
                    }
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    (*float >= 0.0).then_some(*float as usize)
                }
                other => {
                    return Err(EvalError::new(format!(
                        "unsupported index type '{}' in list",
                        other.type_name()
                    )));
                }
            };
            index.and_then(|index| list.get(index)).transpose()
        }
        _ => Ok(None),
    }
}

fn missing_qualifier(value: &Value<'_>, qualifier: &Qualifier) -> EvalError {
    match &qualifier.key {
        Key::Field(name) => EvalError::no_such_key(name),
        Key::Const(key) => missing(value, key),
        Key::Node(_) => unreachable!("reported with its value"),
    }
}

fn missing(value: &Value<'_>, key: &Value<'_>) -> EvalError {
    let key = crate::display::plain(key);
    match value {
        Value::List(_) => EvalError::new(format!("index out of bounds: {key}")),
        _ => EvalError::no_such_key(key),
    }
}
