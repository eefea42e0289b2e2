//! Errors of parsing and checking, in cel-go's words and layout.

use std::fmt;

use crate::ast::Source;

/// An error at a place in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// From 1; 0 or less if the error has no place.
    pub line: i32,
    /// From 0, in code points; -1 if the error has no place.
    pub column: i32,
    /// Without the place, as in `undeclared reference to 'foo' (in container '')`.
    pub message: String,
}

/// What is wrong with an expression.
///
/// `Display` writes what kube-apiserver shows, each error with the line and a mark below it:
///
/// ```
/// let env = windlass_cel::Env::kubernetes();
/// let issues = env.compile("1 + 'a'").unwrap_err();
/// assert_eq!(
///     issues.to_string(),
///     "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a'\n | ..^",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issues {
    source: String,
    list: Vec<Issue>,
    /// Errors beyond [`MAX_ISSUES`].
    more: usize,
    is_instantiation: bool,
}

/// cel-go reports at most so many errors.
const MAX_ISSUES: usize = 100;

impl Issues {
    pub(crate) fn new(source: &Source) -> Self {
        Self {
            source: source.text.to_string(),
            list: Vec::new(),
            more: 0,
            is_instantiation: false,
        }
    }

    pub(crate) fn push(&mut self, line: i32, column: i32, message: String) {
        if self.list.len() < MAX_ISSUES {
            self.list.push(Issue {
                line,
                column,
                message,
            });
        } else {
            self.more += 1;
        }
    }

    /// Adds an error at an offset in code points.
    pub(crate) fn push_at(&mut self, source: &Source, position: u32, message: String) {
        let (line, column) = source.location(position);
        let number = |number| i32::try_from(number).unwrap_or(i32::MAX);
        self.push(number(line), number(column), message);
    }

    /// Replaces the beginning of the names of types, which messages show.
    pub(crate) fn rename_types(&mut self, from: &str, to: &str) {
        for issue in &mut self.list {
            if issue.message.contains(from) {
                issue.message = issue.message.replace(from, to);
            }
        }
    }

    /// Orders the errors by place.
    pub(crate) fn sort(&mut self) {
        self.list.sort_by_key(|issue| (issue.line, issue.column));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// An error of the expression as a whole.
    pub(crate) fn without_place(text: &str, message: String) -> Self {
        let mut issues = Self::new(&Source::new(text));
        issues.push(-1, -1, message);
        issues
    }

    /// An error of a constant that is found only when the program is made, as in `int("a")`.
    pub(crate) fn instantiation(source: &Source, message: String) -> Self {
        Self {
            is_instantiation: true,
            list: vec![Issue {
                line: 0,
                column: -1,
                message,
            }],
            ..Self::new(source)
        }
    }

    /// Whether the expression is well-typed, but a constant in it fails, as in `int("a")`. kube-apiserver reports this as
    /// `program instantiation failed: …` instead of `compilation failed: …`.
    pub const fn is_instantiation(&self) -> bool {
        self.is_instantiation
    }

    /// Returns the errors, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.list.iter()
    }
}

impl std::error::Error for Issues {}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_instantiation {
            return self.list.iter().try_for_each(|issue| f.write_str(&issue.message));
        }
        for (index, issue) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            self.write_issue(f, issue)?;
        }
        if self.more > 0 {
            write!(f, "\n{} more errors were truncated", self.more)?;
        }
        Ok(())
    }
}

impl Issues {
    fn write_issue(&self, f: &mut fmt::Formatter<'_>, issue: &Issue) -> fmt::Result {
        write!(
            f,
            "ERROR: <input>:{}:{}: {}",
            issue.line,
            issue.column + 1,
            issue.message
        )?;
        let line = usize::try_from(issue.line - 1)
            .ok()
            .and_then(|line| self.source.split('\n').nth(line));
        let Some(line) = line else {
            return Ok(());
        };
        write!(f, "\n | {}\n | ", line.replace('\t', " "))?;
        let mut signs = line.chars();
        for sign in signs
            .by_ref()
            .take(usize::try_from(issue.column).unwrap_or_default())
        {
            f.write_str(if sign.is_ascii() { "." } else { "\u{ff0e}" })?;
        }
        f.write_str(match signs.next() {
            Some(sign) if !sign.is_ascii() => "\u{ff3e}",
            _ => "^",
        })
    }
}
