//! The type checker: finds the type of each node and the overloads of each call.
//!
//! It is cel-go's algorithm, because its errors are what users see: types are inferred from the leaves up, type
//! parameters are unified as calls are resolved, and a call may keep several overloads if an argument is `dyn`.

use std::sync::Arc;

use crate::{
    Env, Type,
    assign::Bindings,
    ast::{Comprehension, Entry, Expr, Id, Kind, List, Literal, Source, Struct},
    function::{Function, Overload},
    issue::Issues,
    types::Types,
    validate,
};

/// An expression whose types are known.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) expr: Expr,
    pub(crate) source: Source,
    /// By id.
    pub(crate) types: Vec<Type>,
    /// By id.
    pub(crate) references: Vec<Reference>,
}

/// What a name or a call refers to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    /// A variable of the environment. Variables of loops are resolved by name.
    Variable(usize),
    /// A type as a value.
    Type(Type),
    /// A call of a function, with the overloads that fit.
    Call(&'static Function, Vec<&'static Overload>),
}

impl Checked {
    pub(crate) fn type_of(&self, id: Id) -> &Type {
        &self.types[id as usize]
    }

    pub(crate) fn reference(&self, id: Id) -> &Reference {
        &self.references[id as usize]
    }
}

/// Types with more nodes than this are refused: each doubling of a type takes only a few characters of an expression.
const MAX_TYPE_SIZE: usize = 1000;

/// Checks an expression.
pub(crate) fn check(env: &Env, expr: Expr, source: Source) -> Result<Checked, Issues> {
    let mut state = Checker {
        env,
        issues: Issues::new(&source),
        types: vec![Type::Error; source.len()],
        references: vec![Reference::None; source.len()],
        bindings: Bindings::default(),
        scopes: Vec::new(),
        source,
    };
    state.check(&expr);
    let Checker {
        mut issues,
        mut types,
        references,
        bindings,
        source,
        ..
    } = state;
    if !issues.is_empty() {
        issues.sort();
        return Err(issues);
    }
    for type_ in &mut types {
        *type_ = bindings.resolve_or_dyn(type_);
    }
    let checked = Checked {
        expr,
        source,
        types,
        references,
    };
    validate::validate(&checked)?;
    Ok(checked)
}

struct Checker<'e> {
    env: &'e Env,
    source: Source,
    issues: Issues,
    types: Vec<Type>,
    references: Vec<Reference>,
    bindings: Bindings,
    /// Variables of loops, innermost last.
    scopes: Vec<(Arc<str>, Type)>,
}

/// What a name means.
enum Name {
    Local(Type),
    Variable(usize, Type),
    Type(Type),
}

impl Checker<'_> {
    fn check(&mut self, expr: &Expr) {
        match &expr.kind {
            Kind::Literal(literal) => self.set_type(expr.id, literal_type(literal)),
            Kind::Ident(name) => match self.lookup(name) {
                Some(found) => self.refer(expr.id, found),
                None => self.undeclared(expr.id, name),
            },
            Kind::Select(select) => {
                if !select.test
                    && let Some(name) = expr.qualified_name()
                    && let Some(found) = self.lookup_qualified(&name)
                {
                    self.refer(expr.id, found);
                    return;
                }
                let type_ = self.select(expr.id, &select.operand, &select.field, false);
                let type_ = if select.test {
                    Type::Bool
                } else {
                    self.bindings.resolve(&type_)
                };
                self.set_type(expr.id, type_);
            }
            Kind::Call(_) => self.call(expr),
            Kind::List(list) => self.list(expr.id, list),
            Kind::Map(entries) => self.map(expr.id, entries),
            Kind::Struct(object) => self.construct(expr.id, object),
            Kind::Comprehension(fold) => self.fold(expr.id, fold),
        }
    }

    fn lookup(&self, name: &str) -> Option<Name> {
        let (name, is_global) = match name.strip_prefix('.') {
            Some(name) => (name, true),
            None => (name, false),
        };
        if !is_global && let Some((_, type_)) = self.scopes.iter().rev().find(|(local, _)| &**local == name) {
            return Some(Name::Local(type_.clone()));
        }
        self.lookup_qualified(name)
    }

    fn lookup_qualified(&self, name: &str) -> Option<Name> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((index, variable)) = self.env.variable(name) {
            return Some(Name::Variable(index, variable.type_.clone()));
        }
        if self.env.has_object(name) {
            return Some(Name::Type(Type::object(name)));
        }
        type_by_name(name, self.env.has_mutations()).map(Name::Type)
    }

    fn refer(&mut self, id: Id, name: Name) {
        let type_ = match name {
            Name::Local(type_) => type_,
            Name::Variable(index, type_) => {
                self.references[id as usize] = Reference::Variable(index);
                type_
            }
            Name::Type(type_) => {
                self.references[id as usize] = Reference::Type(type_.clone());
                Type::of_type(type_)
            }
        };
        self.set_type(id, type_);
    }

    fn select(&mut self, id: Id, operand: &Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand_type = self.bindings.resolve(self.type_of(operand));
        let (target, was_optional) = match operand_type.as_optional() {
            Some(inner) => (inner.clone(), true),
            None => (operand_type, false),
        };
        let result = match &target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object(name) => self.field_type(id, name, field),
            Type::Var(_) => {
                self.bindings.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.report(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(result)
        } else {
            result
        }
    }

    /// The type of a field; reports it if there is none.
    fn field_type(&mut self, id: Id, object: &str, field: &str) -> Type {
        if let Some(type_) = self.env.field(object, field) {
            return type_;
        }
        if is_mutation_object(object) {
            return mutation_field(object, field);
        }
        if self.env.has_object(object) {
            self.report(id, format!("undefined field '{field}'"));
        } else {
            self.report(id, format!("unexpected failed resolution of '{object}'"));
        }
        Type::Error
    }

    fn call(&mut self, expr: &Expr) {
        let Some(call) = expr.as_call() else { return };
        if &*call.function == "_?._" {
            return self.optional_select(expr);
        }
        for arg in &call.args {
            self.check(arg);
        }
        let Some(target) = &call.target else {
            match self.env.function(&call.function) {
                Some(function) => self.resolve(expr.id, function, None, &call.args),
                None => self.undeclared(expr.id, &call.function),
            }
            return;
        };
        // `a.b.c()` is either the function `a.b.c`, or `c` of `a.b`.
        if let Some(prefix) = target.qualified_name()
            && let Some(function) = self.env.function(&format!("{prefix}.{}", call.function))
        {
            return self.resolve(expr.id, function, None, &call.args);
        }
        self.check(target);
        match self.env.function(&call.function) {
            Some(function) => self.resolve(expr.id, function, Some(target), &call.args),
            None => self.undeclared(expr.id, &call.function),
        }
    }

    /// `a.?b`
    fn optional_select(&mut self, expr: &Expr) {
        let Some(call) = expr.as_call() else { return };
        let [operand, field] = &call.args[..] else {
            return self.report(
                expr.id,
                format!(
                    "unsupported optional field selection: incorrect signature. argument count: {}",
                    call.args.len()
                ),
            );
        };
        let Some(Literal::String(name)) = field.as_literal() else {
            return self.report(field.id, "unsupported optional field selection".to_owned());
        };
        let type_ = self.select(expr.id, operand, name, true);
        let type_ = self.bindings.resolve(&type_);
        self.set_type(expr.id, type_);
        if let Some(function) = self.env.function("_?._") {
            let overloads = function.overloads.iter().collect();
            self.references[expr.id as usize] = Reference::Call(function, overloads);
        }
    }

    /// Finds the overloads of a call that fit its arguments, and the type of its result.
    fn resolve(&mut self, id: Id, function: &'static Function, target: Option<&Expr>, args: &[Expr]) {
        let mut types: Vec<_> = target
            .into_iter()
            .chain(args)
            .map(|arg| self.type_of(arg).clone())
            .collect();
        if matches!(function.name, "_&&_" | "_||_") {
            return self.logical(id, function, args, &types);
        }
        let mut fitting = Vec::new();
        let mut result: Option<Type> = None;
        for overload in &function.overloads {
            if overload.is_member != target.is_some() {
                continue;
            }
            let (candidate, overload_result);
            let (candidate, overload_result) = if overload.parameters.is_empty() {
                (&overload.args, &overload.result)
            } else {
                let first = self.bindings.fresh(overload.parameters.len());
                let replace = |name: &str| {
                    let index = overload.parameters.iter().position(|known| &**known == name);
                    Type::Var(first + u32::try_from(index.unwrap_or_default()).unwrap_or_default())
                };
                candidate = overload
                    .args
                    .iter()
                    .map(|arg| arg.instantiate(&replace))
                    .collect::<Vec<_>>();
                overload_result = overload.result.instantiate(&replace);
                (&candidate, &overload_result)
            };
            if !self.bindings.assign_all(&types, candidate) {
                continue;
            }
            fitting.push(overload);
            let this = self.bindings.resolve(overload_result);
            result = Some(match result {
                None => this,
                Some(result) if !result.is_dyn() && result != this => Type::Dyn,
                Some(result) => result,
            });
        }
        let Some(result) = result else {
            for type_ in &mut types {
                *type_ = self.bindings.resolve_or_dyn(type_);
            }
            let signature = if target.is_some() {
                format!("{}.({})", types[0], Types(&types[1..]))
            } else {
                format!("({})", Types(&types))
            };
            self.report(
                id,
                format!(
                    "found no matching overload for '{}' applied to '{signature}'",
                    function.name
                ),
            );
            return self.set_type(id, Type::Error);
        };
        self.references[id as usize] = Reference::Call(function, fitting);
        self.set_type(id, result);
    }

    /// `&&` and `||` report each argument that is no bool.
    fn logical(&mut self, id: Id, function: &'static Function, args: &[Expr], types: &[Type]) {
        let mut failed = false;
        for (arg, type_) in args.iter().zip(types) {
            if !self.bindings.assign(type_, &Type::Bool) {
                self.mismatch(arg.id, &Type::Bool, type_);
                failed = true;
            }
        }
        if failed {
            return self.set_type(id, Type::Error);
        }
        let overloads = function.overloads.iter().collect();
        self.references[id as usize] = Reference::Call(function, overloads);
        self.set_type(id, Type::Bool);
    }

    fn list(&mut self, id: Id, list: &List) {
        let mut common: Option<Type> = None;
        for (index, element) in list.elements.iter().enumerate() {
            self.check(element);
            let type_ = self.type_of(element).clone();
            let type_ = self.unwrap(element, type_, list.optional.contains(&index));
            common = Some(self.join(common, type_));
        }
        let element = common.unwrap_or_else(|| Type::Var(self.bindings.fresh(1)));
        self.set_type(id, Type::list(element));
    }

    fn map(&mut self, id: Id, entries: &[Entry]) {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&entry.key);
            let key = self.type_of(&entry.key).clone();
            keys = Some(self.join(keys, key));
            self.check(&entry.value);
            let value = self.type_of(&entry.value).clone();
            let value = self.unwrap(&entry.value, value, entry.optional);
            values = Some(self.join(values, value));
        }
        let mut known = |type_: Option<Type>| type_.unwrap_or_else(|| Type::Var(self.bindings.fresh(1)));
        let type_ = Type::map(known(keys), known(values));
        self.set_type(id, type_);
    }

    /// The type of the value in an element written `?x`.
    fn unwrap(&mut self, expr: &Expr, type_: Type, optional: bool) -> Type {
        if !optional {
            return type_;
        }
        if let Some(inner) = type_.as_optional() {
            return inner.clone();
        }
        if !type_.is_dyn() {
            self.mismatch(expr.id, &Type::optional(type_.clone()), &type_);
        }
        type_
    }

    fn construct(&mut self, id: Id, object: &Struct) {
        let name = object.name.strip_prefix('.').unwrap_or(&object.name);
        let found = self.lookup_qualified(name);
        let type_ = match found {
            Some(Name::Type(type_ @ Type::Object(_))) => type_,
            Some(Name::Type(type_)) => {
                self.report(id, format!("'{type_}' is not a message type"));
                Type::Error
            }
            Some(Name::Local(type_) | Name::Variable(_, type_)) => {
                self.report(id, format!("'{type_}' is not a type"));
                Type::Error
            }
            None => {
                self.undeclared(id, name);
                return;
            }
        };
        for field in &object.fields {
            self.check(&field.value);
            let expected = match &type_ {
                Type::Object(name) => {
                    let name = Arc::clone(name);
                    self.field_type(field.id, &name, &field.name)
                }
                _ => Type::Error,
            };
            let value = self.type_of(&field.value).clone();
            let value = self.unwrap(&field.value, value, field.optional);
            if !self.bindings.assign(&expected, &value) {
                self.report(
                    field.id,
                    format!(
                        "expected type of field '{}' is '{expected}' but provided type is '{value}'",
                        field.name
                    ),
                );
            }
        }
        self.set_type(id, type_);
    }

    fn fold(&mut self, id: Id, fold: &Comprehension) {
        self.check(&fold.range);
        self.check(&fold.init);
        let range = self.bindings.resolve(self.type_of(&fold.range));
        let accumulator = self.type_of(&fold.init).clone();
        let depth = self.scopes.len();
        self.scopes
            .push((Arc::clone(&fold.accumulator), accumulator.clone()));
        let (first, second) = match &range {
            Type::List(element) if fold.var2.is_some() => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(pair) => pair.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Var(_) => {
                self.bindings.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                self.report(
                    fold.range.id,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((Arc::clone(&fold.var), first));
        if let Some(var2) = &fold.var2 {
            self.scopes.push((Arc::clone(var2), second));
        }
        self.check(&fold.condition);
        self.expect(&fold.condition, &Type::Bool);
        self.check(&fold.step);
        self.expect(&fold.step, &accumulator);
        self.scopes.truncate(depth + 1);
        self.check(&fold.result);
        self.scopes.truncate(depth);
        let type_ = self.bindings.resolve(self.type_of(&fold.result));
        self.set_type(id, type_);
    }

    fn expect(&mut self, expr: &Expr, expected: &Type) {
        let actual = self.type_of(expr).clone();
        if !self.bindings.assign(expected, &actual) {
            self.mismatch(expr.id, expected, &actual);
        }
    }

    /// The common type of the elements so far and the next. Mixed types are `dyn` here; [`validate`] reports them.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else {
            return current;
        };
        if self.bindings.assign(&previous, &current) {
            return Bindings::most_general(&previous, &current).clone();
        }
        Type::Dyn
    }

    fn type_of(&self, expr: &Expr) -> &Type {
        &self.types[expr.id as usize]
    }

    fn set_type(&mut self, id: Id, type_: Type) {
        let type_ = if exceeds(&type_, &mut MAX_TYPE_SIZE.clone()) {
            self.report(id, "the type of the expression is too large".to_owned());
            Type::Error
        } else {
            type_
        };
        self.types[id as usize] = type_;
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        self.set_type(id, Type::Error);
    }

    fn mismatch(&mut self, id: Id, expected: &Type, actual: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{actual}'"));
    }

    fn report(&mut self, id: Id, message: String) {
        let position = self.source.position(id);
        self.issues.push_at(&self.source, position, message);
    }
}

/// Whether the type has more nodes than are left.
fn exceeds(type_: &Type, left: &mut usize) -> bool {
    if *left == 0 {
        return true;
    }
    *left -= 1;
    match type_ {
        Type::List(inner) | Type::Type(Some(inner)) => exceeds(inner, left),
        Type::Map(pair) => exceeds(&pair.0, left) || exceeds(&pair.1, left),
        Type::Opaque(_, inner) => inner.iter().any(|type_| exceeds(type_, left)),
        _ => false,
    }
}

const fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// Types that expressions can name.
fn type_by_name(name: &str, mutations: bool) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "net.IP" => Type::parse("IP"),
        "net.CIDR" => Type::parse("CIDR"),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "optional_type" => Type::Opaque(name.into(), Arc::new([])),
        _ if mutations && is_mutation_object(name) => Type::object(name),
        _ => return None,
    })
}

/// `JSONPatch`, `Object` and `Object.…`
pub(crate) fn is_mutation_object(name: &str) -> bool {
    matches!(name, "JSONPatch" | "Object") || name.starts_with("Object.")
}

fn mutation_field(object: &str, field: &str) -> Type {
    match (object, field) {
        ("JSONPatch", "value") => Type::Dyn,
        ("JSONPatch", _) => Type::String,
        // The mutated object is not known here.
        _ => Type::Dyn,
    }
}
