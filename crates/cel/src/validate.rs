//! Checks of literals, after the types are known.

use crate::{
    Type,
    ast::{Expr, Kind, Literal},
    check::Checked,
    issue::Issues,
    library::check_format,
    re2,
    time::{Duration, Timestamp},
};

/// Reports literals that cannot be what they are used as, and lists and maps of mixed types.
pub(crate) fn validate(checked: &Checked) -> Result<(), Issues> {
    let mut issues = Issues::new(&checked.source);
    walk(checked, &checked.expr, false, &mut issues);
    if issues.is_empty() {
        return Ok(());
    }
    issues.sort();
    Err(issues)
}

/// `in_format` is true for the arguments of `format`, which may be of mixed types.
fn walk(checked: &Checked, expr: &Expr, in_format: bool, issues: &mut Issues) {
    let report = |issues: &mut Issues, at: &Expr, message: String| {
        issues.push_at(&checked.source, checked.source.position(at.id), message);
    };
    match &expr.kind {
        Kind::Call(call) => {
            if let Some(arg) = call.args.first()
                && let Some(literal) = arg.as_literal()
                && !is_valid(&call.function, literal)
            {
                report(issues, arg, format!("invalid {} argument", call.function));
            }
            if &*call.function == "format"
                && let Some((at, message)) = check_format(checked, expr)
            {
                report(issues, at, message);
            }
        }
        Kind::List(list) if !in_format => {
            let mut first: Option<&Type> = None;
            for (index, element) in list.elements.iter().enumerate() {
                let type_ = unwrap(checked.type_of(element.id), list.optional.contains(&index));
                let first = *first.get_or_insert(type_);
                if first != type_ {
                    report(issues, element, mismatch(first, type_));
                    break;
                }
            }
        }
        Kind::Map(entries) if !in_format => {
            let mut first: Option<(&Type, &Type)> = None;
            for entry in entries {
                let key = checked.type_of(entry.key.id);
                let value = unwrap(checked.type_of(entry.value.id), entry.optional);
                let first = *first.get_or_insert((key, value));
                if first.0 != key {
                    report(issues, &entry.key, mismatch(first.0, key));
                }
                if first.1 != value {
                    report(issues, &entry.value, mismatch(first.1, value));
                }
            }
        }
        _ => {}
    }
    let in_format = in_format || expr.as_call().is_some_and(|call| &*call.function == "format");
    expr.children(&mut |child| walk(checked, child, in_format, issues));
}

fn unwrap(type_: &Type, optional: bool) -> &Type {
    match type_.as_optional() {
        Some(inner) if optional => inner,
        _ => type_,
    }
}

fn mismatch(expected: &Type, actual: &Type) -> String {
    format!("expected type '{expected}' but found '{actual}'")
}

fn is_valid(function: &str, literal: &Literal) -> bool {
    match (function, literal) {
        ("duration", Literal::String(text)) => Duration::parse(text).is_some(),
        ("timestamp", Literal::String(text)) => matches!(Timestamp::parse(text), Ok(Some(_))),
        ("timestamp", Literal::Int(seconds)) => Timestamp::from_unix(*seconds).is_ok(),
        // The conversion of a number is declared, but not implemented.
        ("duration" | "timestamp", _) => false,
        ("matches", Literal::String(pattern)) => re2::is_valid(pattern),
        _ => true,
    }
}
