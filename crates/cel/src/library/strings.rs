//! The strings extension, version 2, except for `format`. Indexes count code points.

use super::{Result, no_overload};
use crate::{
    EvalError, Value,
    budget::TEXT_BYTES,
    function::{Args, FunctionSpec},
    go_format::quote_named,
};

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "charAt",
        overloads: &[("string_char_at_int", "string.(int) -> string")],
        eval: char_at,
    },
    // Of lists, in `lists`: the table there has the implementation for both.
    FunctionSpec {
        name: "join",
        overloads: &[
            ("list_join", "list(string).() -> string"),
            ("list_join_string", "list(string).(string) -> string"),
        ],
        eval: join,
    },
    FunctionSpec {
        name: "lowerAscii",
        overloads: &[("string_lower_ascii", "string.() -> string")],
        eval: |mut args| map(&mut args, "lowerAscii", str::to_ascii_lowercase),
    },
    FunctionSpec {
        name: "upperAscii",
        overloads: &[("string_upper_ascii", "string.() -> string")],
        eval: |mut args| map(&mut args, "upperAscii", str::to_ascii_uppercase),
    },
    FunctionSpec {
        name: "trim",
        overloads: &[("string_trim", "string.() -> string")],
        eval: |mut args| map(&mut args, "trim", |text| text.trim_matches(is_space).to_owned()),
    },
    FunctionSpec {
        name: "replace",
        overloads: &[
            (
                "string_replace_string_string",
                "string.(string, string) -> string",
            ),
            (
                "string_replace_string_string_int",
                "string.(string, string, int) -> string",
            ),
        ],
        eval: replace,
    },
    FunctionSpec {
        name: "split",
        overloads: &[
            ("string_split_string", "string.(string) -> list(string)"),
            ("string_split_string_int", "string.(string, int) -> list(string)"),
        ],
        eval: split,
    },
    FunctionSpec {
        name: "substring",
        overloads: &[
            ("string_substring_int", "string.(int) -> string"),
            ("string_substring_int_int", "string.(int, int) -> string"),
        ],
        eval: substring,
    },
    FunctionSpec {
        name: "strings.quote",
        overloads: &[("strings_quote", "(string) -> string")],
        eval: |mut args| map(&mut args, "strings.quote", quote_named),
    },
];

/// Go's `unicode.IsSpace`.
fn is_space(sign: char) -> bool {
    sign.is_whitespace()
}

/// A function whose result is at most twice as long as the text.
fn map<'a>(args: &mut Args<'_, 'a>, name: &str, change: impl Fn(&str) -> String) -> Result<'a> {
    match &args.values[0] {
        Value::String(text) => {
            args.work.build(text.len())?;
            Ok(Value::string(change(text)))
        }
        _ => no_overload(name, args.values),
    }
}

pub(super) fn out_of_range(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

/// The byte offset of a code point, if it is not beyond the end.
fn offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    text.char_indices()
        .map(|(offset, _)| offset)
        .chain([text.len()])
        .nth(index)
}

fn char_at<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (Value::String(text), Value::Int(index)) = (&args.values[0], &args.values[1]) else {
        return no_overload("charAt", args.values);
    };
    args.work.read(text.len())?;
    let start = offset(text, *index).ok_or_else(|| out_of_range(*index))?;
    let sign = text[start..].chars().next();
    Ok(Value::string(sign.map_or_else(String::new, String::from)))
}

fn substring<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (text, start, end) = match &args.values[..] {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return no_overload("substring", args.values),
    };
    if let Some(end) = end
        && start > end
    {
        return Err(EvalError::new(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    args.work.build(text.len())?;
    let from = offset(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => offset(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(Value::string(&text[from..to]))
}

/// The index of a substring from an index on; `-1` if there is none.
pub(super) fn index_of<'a>(text: &str, part: &str, from: i64) -> Result<'a> {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Some(start) = offset(text, from) else {
        return Ok(Value::Int(-1));
    };
    Ok(match text[start..].find(part) {
        Some(found) => Value::Int(from.saturating_add(count(&text[start..start + found]))),
        None => Value::Int(-1),
    })
}

/// The last index of a substring, at or before an index if there is one.
pub(super) fn last_index_of<'a>(text: &str, part: &str, from: Option<i64>) -> Result<'a> {
    let length = count(text);
    if part.is_empty() {
        return Ok(Value::Int(from.unwrap_or(length)));
    }
    let from = match from {
        Some(from) if from < 0 => return Err(out_of_range(from)),
        Some(from) if from >= length => return Ok(Value::Int(-1)),
        Some(from) => from,
        None if part.len() > text.len() => return Ok(Value::Int(-1)),
        None => length - 1,
    };
    let last_start = from.min(length - count(part));
    if last_start < 0 {
        return Ok(Value::Int(-1));
    }
    // A match that starts at `last_start` ends this many bytes in.
    let start = offset(text, last_start).unwrap_or(text.len());
    let end = text.len().min(start + part.len());
    let mut end = end;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Ok(match text[..end].rfind(part) {
        Some(found) => Value::Int(count(&text[..found])),
        None => Value::Int(-1),
    })
}

fn count(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn join<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (list, separator) = match &args.values[..] {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return no_overload("join", args.values),
    };
    let mut joined = String::new();
    for (index, element) in list.iter().enumerate() {
        args.work.spend(1)?;
        if index > 0 {
            args.work.build(separator.len())?;
            joined.push_str(separator);
        }
        match element? {
            Value::String(text) => {
                args.work.build(text.len())?;
                joined.push_str(&text);
            }
            _ => return no_overload("join", args.values),
        }
    }
    Ok(Value::string(joined))
}

fn replace<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (text, old, new, times) = match &args.values[..] {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [
            Value::String(text),
            Value::String(old),
            Value::String(new),
            Value::Int(times),
        ] => (text, old, new, *times),
        _ => return no_overload("replace", args.values),
    };
    let times = usize::try_from(times).unwrap_or(usize::MAX);
    // The product of sizes is not in the cost: a replacement for every character can be large.
    args.work.read(text.len())?;
    let replacements = text.matches(&**old).take(times).count();
    args.work
        .build(text.len().saturating_add(replacements.saturating_mul(new.len())))?;
    Ok(Value::string(text.replacen(&**old, new, times)))
}

fn split<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (text, separator, limit) = match &args.values[..] {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return no_overload("split", args.values),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    args.work.read(text.len())?;
    let count = text.matches(&**separator).take(limit).count().saturating_add(1);
    args.work
        .build(text.len().saturating_add(count.saturating_mul(TEXT_BYTES)))?;
    let parts: Vec<_> = if separator.is_empty() {
        let mut rest: &str = text;
        let mut parts = Vec::new();
        while let Some(sign) = rest.chars().next() {
            if parts.len() + 1 == limit {
                parts.push(Value::string(rest));
                break;
            }
            let (first, after) = rest.split_at(sign.len_utf8());
            parts.push(Value::string(first));
            rest = after;
        }
        parts
    } else {
        text.splitn(limit, &**separator).map(Value::string).collect()
    };
    Ok(Value::list(parts))
}
