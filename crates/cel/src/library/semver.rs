//! Semantic versions.

use std::{any::Any, cmp::Ordering, fmt};

use super::{Result, no_overload};
use crate::{
    EvalError, Type, Value,
    function::{Args, FunctionSpec},
    value::Opaque,
};

/// A version, such as `semver('1.2.3-rc.1')`.
#[derive(Clone, Debug)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
    build: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        for (index, identifier) in self.pre.iter().enumerate() {
            f.write_str(if index == 0 { "-" } else { "." })?;
            match identifier {
                Identifier::Number(number) => write!(f, "{number}")?,
                Identifier::Text(text) => f.write_str(text)?,
            }
        }
        for (index, build) in self.build.iter().enumerate() {
            f.write_str(if index == 0 { "+" } else { "." })?;
            f.write_str(build)?;
        }
        Ok(())
    }
}

impl Opaque for Semver {
    fn type_of(&self) -> Type {
        Type::parse("Semver")
    }

    fn equals(&self, other: &dyn Opaque) -> Option<bool> {
        let other = other.as_any().downcast_ref();
        other.map(|other: &Self| self.compare(other) == Ordering::Equal)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    FunctionSpec {
        name: "semver",
        overloads: &[
            ("string_to_semver", "(string) -> Semver"),
            ("string_bool_to_semver", "(string, bool) -> Semver"),
        ],
        eval: |args| {
            parse_args(&args, "semver")?
                .map(Value::opaque)
                .map_err(EvalError::new)
        },
    },
    FunctionSpec {
        name: "isSemver",
        overloads: &[
            ("is_semver_string", "(string) -> bool"),
            ("is_semver_string_bool", "(string, bool) -> bool"),
        ],
        eval: |args| Ok(Value::Bool(parse_args(&args, "isSemver")?.is_ok())),
    },
    FunctionSpec {
        name: "major",
        overloads: &[("semver_major", "Semver.() -> int")],
        eval: |args| number(&args, "major", 0),
    },
    FunctionSpec {
        name: "minor",
        overloads: &[("semver_minor", "Semver.() -> int")],
        eval: |args| number(&args, "minor", 1),
    },
    FunctionSpec {
        name: "patch",
        overloads: &[("semver_patch", "Semver.() -> int")],
        eval: |args| number(&args, "patch", 2),
    },
];

#[allow(clippy::cast_possible_wrap)]
fn number<'a>(args: &Args<'_, 'a>, name: &str, index: usize) -> Result<'a> {
    match args.values[0].downcast::<Semver>() {
        // Go converts by wrapping too.
        Some(version) => Ok(Value::Int(version.numbers[index] as i64)),
        None => no_overload(name, args.values),
    }
}

type Parsed = std::result::Result<Semver, String>;

fn parse_args(args: &Args<'_, '_>, name: &str) -> std::result::Result<Parsed, EvalError> {
    match &args.values[..] {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(Semver::parse(text)),
        [Value::String(text), Value::Bool(true)] => {
            Ok(normalized(text).and_then(|text| Semver::parse(&text)))
        }
        _ => no_overload(name, args.values).map(|_| Err(String::new())),
    }
}

/// Without a `v` and leading zeros, and with all three numbers.
fn normalized(text: &str) -> std::result::Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            if part.len() <= 1 {
                return part.to_owned();
            }
            let trimmed = part.trim_start_matches('0');
            if trimmed.starts_with(|sign: char| sign.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

fn is_alphanumeric(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

impl Semver {
    fn parse(text: &str) -> Parsed {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let mut numbers = [number_of("Major", major)?, number_of("Minor", minor)?, 0];
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        numbers[2] = number_of("Patch", patch)?;
        let pre = match pre {
            Some(pre) => pre
                .split('.')
                .map(identifier)
                .collect::<std::result::Result<_, _>>()?,
            None => Vec::new(),
        };
        let mut builds = Vec::new();
        for build in build.into_iter().flat_map(|build| build.split('.')) {
            if build.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_alphanumeric(build) {
                return Err(format!(
                    "Invalid character(s) found in build meta data {}",
                    crate::go_format::quote(build)
                ));
            }
            builds.push(build.to_owned());
        }
        Ok(Self {
            numbers,
            pre,
            build: builds,
        })
    }

    /// The order of versions; build metadata does not count.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| match (&self.pre[..], &other.pre[..]) {
                ([], []) => Ordering::Equal,
                ([], _) => Ordering::Greater,
                (_, []) => Ordering::Less,
                (left, right) => left
                    .iter()
                    .zip(right)
                    .map(|(left, right)| match (left, right) {
                        (Identifier::Number(left), Identifier::Number(right)) => left.cmp(right),
                        (Identifier::Number(_), Identifier::Text(_)) => Ordering::Less,
                        (Identifier::Text(_), Identifier::Number(_)) => Ordering::Greater,
                        (Identifier::Text(left), Identifier::Text(right)) => left.cmp(right),
                    })
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| left.len().cmp(&right.len())),
            })
    }
}

fn number_of(what: &str, text: &str) -> std::result::Result<u64, String> {
    let quoted = crate::go_format::quote(text);
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "Invalid character(s) found in {} number {quoted}",
            what.to_lowercase()
        ));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{what} number must not contain leading zeroes {quoted}"));
    }
    text.parse().map_err(|_| match text {
        "" => format!("strconv.ParseUint: parsing {quoted}: invalid syntax"),
        _ => format!("strconv.ParseUint: parsing {quoted}: value out of range"),
    })
}

fn identifier(text: &str) -> std::result::Result<Identifier, String> {
    let quoted = crate::go_format::quote(text);
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {quoted}"
            ));
        }
        return text
            .parse()
            .map(Identifier::Number)
            .map_err(|_| format!("strconv.ParseUint: parsing {quoted}: value out of range"));
    }
    if !is_alphanumeric(text) {
        return Err(format!("Invalid character(s) found in prerelease {quoted}"));
    }
    Ok(Identifier::Text(text.to_owned()))
}
