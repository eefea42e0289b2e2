//! Which types fit which, and what type variables stand for.

use std::{cell::Cell, sync::Arc};

use crate::Type;

/// Type variables and what they stand for so far.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    variables: Vec<Option<Type>>,
    /// Changes since an attempt began, to undo it: the variable and its former value.
    changes: Vec<(u32, Option<Type>)>,
    /// Steps left in the current operation. A type can be far larger than the expression that has it, as long as its
    /// parts are behind variables.
    budget: Cell<u32>,
}

/// Steps of one operation. Types that need more are refused by the checker.
const BUDGET: u32 = 20_000;

impl Bindings {
    /// Makes new variables with consecutive numbers, and returns the first.
    pub(crate) fn fresh(&mut self, count: usize) -> u32 {
        let first = self.variables.len();
        self.variables.resize(first + count, None);
        u32::try_from(first).expect("variables are bounded by the length of the expression")
    }

    /// Whether a value of one type can be assigned to another. Binds variables if so, else changes nothing.
    pub(crate) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// Like [`Self::assign`], for several at once.
    pub(crate) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.changes.clear();
        self.budget.set(BUDGET);
        if self.all(from, to) {
            return true;
        }
        while let Some((variable, before)) = self.changes.pop() {
            self.variables[variable as usize] = before;
        }
        false
    }

    fn all(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to))
    }

    /// Whether the budget is used up.
    fn is_exhausted(&self) -> bool {
        let left = self.budget.get();
        self.budget.set(left.saturating_sub(1));
        left == 0
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if self.is_exhausted() {
            return false;
        }
        if let Type::Var(variable) = to {
            let (valid, is_bound) = self.substitutes(from, to, *variable);
            if valid || is_bound {
                return valid;
            }
        }
        if let Type::Var(variable) = from {
            return self.substitutes(to, from, *variable).0;
        }
        match (from, to) {
            (Type::Dyn | Type::Error, _) | (_, Type::Dyn | Type::Error) | (Type::Type(_), Type::Type(_)) => {
                true
            }
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null | Type::Opaque(..) | Type::Object(_) | Type::Duration | Type::Timestamp
            ),
            (Type::List(from), Type::List(to)) => self.fits(from, to),
            (Type::Map(from), Type::Map(to)) => self.fits(&from.0, &to.0) && self.fits(&from.1, &to.1),
            (Type::Opaque(name, from), Type::Opaque(other, to)) => name == other && self.all(from, to),
            _ => from == to,
        }
    }

    /// Whether `type_` can stand for a variable, and whether the variable is bound already.
    fn substitutes(&mut self, type_: &Type, variable_type: &Type, variable: u32) -> (bool, bool) {
        if type_ == variable_type {
            return (true, true);
        }
        if let Some(bound) = self.variables[variable as usize].clone() {
            if *type_ == bound {
                return (true, true);
            }
            if self.fits(type_, &bound) {
                let general = Self::most_general(type_, &bound).clone();
                if !self.occurs(variable, &general) {
                    self.bind(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.occurs(variable, type_) {
            return (false, false);
        }
        self.bind(variable, type_.clone());
        (true, false)
    }

    fn bind(&mut self, variable: u32, type_: Type) {
        let before = self.variables[variable as usize].replace(type_);
        self.changes.push((variable, before));
    }

    /// Whether the variable is a part of the type.
    fn occurs(&self, variable: u32, type_: &Type) -> bool {
        if self.is_exhausted() {
            return true;
        }
        match type_ {
            Type::Var(other) if *other == variable => true,
            Type::Var(other) => {
                let bound = &self.variables[*other as usize];
                bound.as_ref().is_some_and(|bound| self.occurs(variable, bound))
            }
            Type::List(inner) | Type::Type(Some(inner)) => self.occurs(variable, inner),
            Type::Map(pair) => self.occurs(variable, &pair.0) || self.occurs(variable, &pair.1),
            Type::Opaque(_, inner) => inner.iter().any(|type_| self.occurs(variable, type_)),
            _ => false,
        }
    }

    /// Replaces variables by what they stand for.
    pub(crate) fn resolve(&self, type_: &Type) -> Type {
        self.budget.set(BUDGET);
        self.substitute(type_, false)
    }

    /// Replaces variables by what they stand for, or by `dyn`.
    pub(crate) fn resolve_or_dyn(&self, type_: &Type) -> Type {
        self.budget.set(BUDGET);
        self.substitute(type_, true)
    }

    fn substitute(&self, type_: &Type, to_dyn: bool) -> Type {
        if self.is_exhausted() {
            return Type::Dyn;
        }
        match type_ {
            Type::Var(variable) => match &self.variables[*variable as usize] {
                Some(bound) => self.substitute(bound, to_dyn),
                None if to_dyn => Type::Dyn,
                None => type_.clone(),
            },
            Type::List(inner) => Type::list(self.substitute(inner, to_dyn)),
            Type::Map(pair) => Type::map(self.substitute(&pair.0, to_dyn), self.substitute(&pair.1, to_dyn)),
            Type::Type(Some(inner)) => Type::of_type(self.substitute(inner, to_dyn)),
            Type::Opaque(name, inner) if !inner.is_empty() => Type::Opaque(
                Arc::clone(name),
                inner.iter().map(|type_| self.substitute(type_, to_dyn)).collect(),
            ),
            other => other.clone(),
        }
    }

    /// The more general of two types that fit each other.
    pub(crate) fn most_general<'t>(one: &'t Type, other: &'t Type) -> &'t Type {
        if is_equal_or_less_specific(one, other) {
            one
        } else {
            other
        }
    }
}

fn is_equal_or_less_specific(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Var(_), _) | (Type::Type(_), Type::Type(_)) => true,
        (_, Type::Dyn | Type::Var(_)) => false,
        (Type::List(one), Type::List(other)) => is_equal_or_less_specific(one, other),
        (Type::Map(one), Type::Map(other)) => {
            is_equal_or_less_specific(&one.0, &other.0) && is_equal_or_less_specific(&one.1, &other.1)
        }
        (Type::Opaque(name, one), Type::Opaque(other_name, other)) => {
            name == other_name
                && one.len() == other.len()
                && one
                    .iter()
                    .zip(other.iter())
                    .all(|(one, other)| is_equal_or_less_specific(one, other))
        }
        _ => one == other,
    }
}
