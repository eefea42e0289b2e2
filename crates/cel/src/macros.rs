//! The macros: calls that the parser replaces by loops and tests.
//!
//! These are the 20 of Kubernetes 1.36. The generated trees are those of cel-go, because the cost of an expression is
//! defined by them.

use std::sync::Arc;

use crate::{
    ast::{ACCUMULATOR, Call, Comprehension, Expr, Id, Kind, List, Literal, Select},
    parse::Adapter,
};

/// Replaces a call by the expansion of its macro, if it has one.
pub(crate) fn expand(
    adapter: &mut Adapter,
    id: Id,
    function: Arc<str>,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Expr {
    let Some(macro_) = find(&function, target.is_some(), args.len()) else {
        return Expr {
            id,
            kind: Kind::Call(Call {
                function,
                target: target.map(Box::new),
                args,
            }),
        };
    };
    let mut maker = Maker { adapter, id };
    match maker.expand(macro_, target, args) {
        Ok(expr) => expr,
        Err((at, message)) => {
            adapter.report(at, message);
            Expr {
                id,
                kind: Kind::Literal(Literal::Null),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Macro {
    Has,
    All,
    Exists,
    ExistsOne,
    /// Also with a filter.
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
    OptMap,
    OptFlatMap,
    SortBy,
}

/// The macros, as cel-go writes their keys: the name, the number of arguments, and whether it has a target.
#[cfg(test)]
pub(crate) const KEYS: [&str; 20] = [
    "has:1:false",
    "all:2:true",
    "exists:2:true",
    "exists_one:2:true",
    "map:2:true",
    "map:3:true",
    "filter:2:true",
    "optMap:2:true",
    "optFlatMap:2:true",
    "all:3:true",
    "exists:3:true",
    "existsOne:3:true",
    "exists_one:3:true",
    "transformList:3:true",
    "transformList:4:true",
    "transformMap:3:true",
    "transformMap:4:true",
    "transformMapEntry:3:true",
    "transformMapEntry:4:true",
    "sortBy:2:true",
];

fn find(function: &str, has_target: bool, args: usize) -> Option<Macro> {
    Some(match (function, args) {
        ("has", 1) if !has_target => return Some(Macro::Has),
        _ if !has_target => return None,
        ("all", 2 | 3) => Macro::All,
        ("exists", 2 | 3) => Macro::Exists,
        ("exists_one", 2 | 3) | ("existsOne", 3) => Macro::ExistsOne,
        ("map", 2 | 3) => Macro::Map,
        ("transformList", 3 | 4) => Macro::TransformList,
        ("filter", 2) => Macro::Filter,
        ("transformMap", 3 | 4) => Macro::TransformMap,
        ("transformMapEntry", 3 | 4) => Macro::TransformMapEntry,
        ("optMap", 2) => Macro::OptMap,
        ("optFlatMap", 2) => Macro::OptFlatMap,
        ("sortBy", 2) => Macro::SortBy,
        _ => return None,
    })
}

type Failure = (Id, String);

/// Makes the nodes of an expansion, all at the place of the call.
struct Maker<'a> {
    adapter: &'a mut Adapter,
    id: Id,
}

impl Maker<'_> {
    fn expand(&mut self, macro_: Macro, target: Option<Expr>, mut args: Vec<Expr>) -> Result<Expr, Failure> {
        let Some(target) = target else {
            return self.has(args.remove(0));
        };
        match macro_ {
            Macro::OptMap | Macro::OptFlatMap => self.opt_map(macro_, target, args),
            Macro::SortBy => self.sort_by(target, args),
            Macro::Map | Macro::Filter => {
                let name = iteration_variable(&args[0], "argument is not an identifier")?;
                Ok(self.fold(macro_, target, (name, None), args.split_off(1), &args[0]))
            }
            Macro::All | Macro::Exists | Macro::ExistsOne if args.len() == 2 => {
                let name = iteration_variable(&args[0], "argument must be a simple name")?;
                Ok(self.fold(macro_, target, (name, None), args.split_off(1), &args[0]))
            }
            _ => {
                let names = two_variables(&args)?;
                Ok(self.fold(macro_, target, names, args.split_off(2), &args[0]))
            }
        }
    }

    /// Makes the loop of a macro; `rest` are its arguments after the variables.
    fn fold(
        &mut self,
        macro_: Macro,
        range: Expr,
        (var, var2): (Arc<str>, Option<Arc<str>>),
        mut rest: Vec<Expr>,
        variable: &Expr,
    ) -> Expr {
        let last = rest.pop().expect("the arity was checked");
        let filter = rest.pop();
        let init = match macro_ {
            Macro::All => self.literal(Literal::Bool(true)),
            Macro::Exists => self.literal(Literal::Bool(false)),
            Macro::ExistsOne => self.literal(Literal::Int(0)),
            Macro::TransformMap | Macro::TransformMapEntry => self.expr(Kind::Map(Vec::new())),
            _ => self.list(Vec::new()),
        };
        let condition = match macro_ {
            Macro::All => {
                let accumulator = self.accumulator();
                self.call("@not_strictly_false", vec![accumulator])
            }
            Macro::Exists => {
                let accumulator = self.accumulator();
                let not = self.call("!_", vec![accumulator]);
                self.call("@not_strictly_false", vec![not])
            }
            _ => self.literal(Literal::Bool(true)),
        };
        let accumulator = self.accumulator();
        let step = match macro_ {
            Macro::All => self.call("_&&_", vec![accumulator, last]),
            Macro::Exists => self.call("_||_", vec![accumulator, last]),
            Macro::ExistsOne => {
                let one = self.literal(Literal::Int(1));
                let sum = self.call("_+_", vec![accumulator, one]);
                self.when(Some(last), sum)
            }
            Macro::Filter => {
                let element = self.list(vec![variable.clone()]);
                let sum = self.call("_+_", vec![accumulator, element]);
                self.when(Some(last), sum)
            }
            Macro::TransformMap => {
                let key = self.expr(Kind::Ident(Arc::clone(&var)));
                let sum = self.call("cel.@mapInsert", vec![accumulator, key, last]);
                self.when(filter, sum)
            }
            Macro::TransformMapEntry => {
                let sum = self.call("cel.@mapInsert", vec![accumulator, last]);
                self.when(filter, sum)
            }
            _ => {
                let element = self.list(vec![last]);
                let sum = self.call("_+_", vec![accumulator, element]);
                self.when(filter, sum)
            }
        };
        let mut result = self.accumulator();
        if macro_ == Macro::ExistsOne {
            let one = self.literal(Literal::Int(1));
            result = self.call("_==_", vec![result, one]);
        }
        self.expr(Kind::Comprehension(Box::new(Comprehension {
            range,
            var,
            var2,
            accumulator: ACCUMULATOR.into(),
            init,
            condition,
            step,
            result,
        })))
    }

    /// The step if the condition holds, else the accumulator as it is.
    fn when(&mut self, condition: Option<Expr>, step: Expr) -> Expr {
        match condition {
            Some(condition) => {
                let accumulator = self.accumulator();
                self.call("_?_:_", vec![condition, step, accumulator])
            }
            None => step,
        }
    }

    fn has(&mut self, arg: Expr) -> Result<Expr, Failure> {
        match arg.kind {
            Kind::Select(select) => Ok(self.expr(Kind::Select(Select { test: true, ..select }))),
            _ => Err((arg.id, "invalid argument to has() macro".to_owned())),
        }
    }

    fn opt_map(&mut self, macro_: Macro, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Failure> {
        let name = if macro_ == Macro::OptMap {
            "optMap"
        } else {
            "optFlatMap"
        };
        let Kind::Ident(var) = &args[0].kind else {
            let message = format!("{name}() variable name must be a simple identifier");
            return Err((args[0].id, message));
        };
        let var = Arc::clone(var);
        let body = args.pop().expect("the arity was checked");
        let again = self.adapter.copy(&target);
        let present = self.member("hasValue", target, Vec::new());
        let value = self.member("value", again, Vec::new());
        let mut mapped = self.bind(&var, value, body);
        if macro_ == Macro::OptMap {
            mapped = self.call("optional.of", vec![mapped]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![present, mapped, none]))
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Result<Expr, Failure> {
        if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Struct(_)) {
            let message =
                "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target.id, message.to_owned()));
        }
        let name: Arc<str> = "@__sortBy_input__".into();
        let input = self.expr(Kind::Ident(Arc::clone(&name)));
        let keys = self.expand(Macro::Map, Some(input), args)?;
        let input = self.expr(Kind::Ident(Arc::clone(&name)));
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind(&name, target, sorted))
    }

    /// A loop that does not run: its accumulator is a variable of its result.
    fn bind(&mut self, var: &Arc<str>, value: Expr, body: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.expr(Kind::Ident(Arc::clone(var)));
        self.expr(Kind::Comprehension(Box::new(Comprehension {
            range,
            var: "#unused".into(),
            var2: None,
            accumulator: Arc::clone(var),
            init: value,
            condition,
            step,
            result: body,
        })))
    }

    fn expr(&mut self, kind: Kind) -> Expr {
        Expr {
            id: self.adapter.derived(self.id),
            kind,
        }
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.expr(Kind::Literal(literal))
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.expr(Kind::List(List {
            elements,
            optional: Vec::new(),
        }))
    }

    fn accumulator(&mut self) -> Expr {
        self.expr(Kind::Ident(ACCUMULATOR.into()))
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.expr(Kind::Call(Call {
            function: function.into(),
            target: None,
            args,
        }))
    }

    fn member(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        self.expr(Kind::Call(Call {
            function: function.into(),
            target: Some(Box::new(target)),
            args,
        }))
    }
}

fn iteration_variable(arg: &Expr, message: &str) -> Result<Arc<str>, Failure> {
    match &arg.kind {
        Kind::Ident(name) if &**name == "__result__" => Err((
            arg.id,
            "iteration variable overwrites accumulator variable".to_owned(),
        )),
        Kind::Ident(name) => Ok(Arc::clone(name)),
        _ => Err((arg.id, message.to_owned())),
    }
}

fn two_variables(args: &[Expr]) -> Result<(Arc<str>, Option<Arc<str>>), Failure> {
    let name = |arg: &Expr| match &arg.kind {
        Kind::Ident(name) => Ok(Arc::clone(name)),
        _ => Err((arg.id, "argument must be a simple name".to_owned())),
    };
    let (first, second) = (name(&args[0])?, name(&args[1])?);
    if first == second {
        return Err((args[1].id, format!("duplicate variable name: {first}")));
    }
    iteration_variable(&args[0], "")?;
    iteration_variable(&args[1], "")?;
    Ok((first, Some(second)))
}
