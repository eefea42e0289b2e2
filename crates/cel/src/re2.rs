//! Regular expressions with RE2's syntax, as Go has it, on the `regex` crate.
//!
//! The crate differs: its `\d`, `\w`, `\s` and `\b` know Unicode, its classes have set operations, and it has no
//! `\Q…\E`. [`translate`] rewrites a pattern so that it means the same.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};

use crate::{
    CompileBudget, EvalError, Value,
    budget::{TEXT_BYTES, Work},
};

/// The greatest memory of a compiled expression.
const SIZE_LIMIT: usize = 4 << 20;

/// Classes of the memory of compiled expressions; the last is [`SIZE_LIMIT`]. Compiling one of the first class costs
/// nothing beyond its call.
const SIZE_CLASSES: [usize; 3] = [16 << 10, 256 << 10, SIZE_LIMIT];

/// Bytes of a larger compiled expression per unit of cost. The largest one costs a fifteenth of the limit for one
/// expression.
const BYTES_PER_COST: u64 = 64;

/// RE2 refuses greater counts of a repetition.
const MAX_REPEAT: u32 = 1000;

/// What a match keeps for the next one, in bytes, for each direction; without it as much as the crate likes.
const MAX_MATCH_CACHE: usize = 128 << 10;

/// The longest pattern, in bytes.
const MAX_LENGTH: usize = 64 << 10;

/// The most Unicode classes in a pattern: each takes kilobytes before the size of the result is known.
const MAX_CLASSES: usize = 1000;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// A bound of its memory, one of [`SIZE_CLASSES`].
    size: usize,
}

impl Pattern {
    /// Whether the pattern is found in a text.
    pub(crate) fn is_match(&self, text: &str, work: &mut Work) -> Result<bool, EvalError> {
        self.search(text.len(), work)?;
        Ok(self.regex.is_match(text))
    }

    /// Returns the first matches in a text.
    pub(crate) fn find_all<'a>(
        &self,
        text: &str,
        limit: usize,
        work: &mut Work,
    ) -> Result<Vec<Value<'a>>, EvalError> {
        /// Each match may have looked at all the text that follows, though nearly none does.
        const LOOK_AHEAD_PER_STEP: usize = 128;
        self.search(text.len(), work)?;
        let mut found = Vec::new();
        for part in self.regex.find_iter(text).take(limit) {
            work.spend(1 + ((text.len() - part.start()) / LOOK_AHEAD_PER_STEP) as u64)?;
            work.build(TEXT_BYTES + part.len())?;
            found.push(Value::string(part.as_str()));
        }
        Ok(found)
    }

    /// Counts the steps of a search: the length of the text times the size of the pattern, in MiB. The cost knows the
    /// pattern's length only, which is enough for a small one.
    fn search(&self, length: usize, work: &mut Work) -> Result<(), EvalError> {
        if self.size == SIZE_CLASSES[0] {
            return Ok(());
        }
        work.spend((length as u64).saturating_mul(self.size as u64) >> 20)
    }
}

/// Whether a pattern has no mistake. It may still be too large.
pub(crate) fn is_valid(pattern: &str) -> bool {
    let Ok(translated) = translate(pattern) else {
        return false;
    };
    matches!(
        build(&translated, SIZE_CLASSES[0]),
        Ok(_) | Err(regex::Error::CompiledTooBig(_))
    )
}

fn build(translated: &str, size: usize) -> Result<Pattern, regex::Error> {
    let regex = RegexBuilder::new(translated)
        .size_limit(size)
        .dfa_size_limit(MAX_MATCH_CACHE)
        .nest_limit(250)
        .build()?;
    Ok(Pattern { regex, size })
}

/// Compiles a pattern into the first class of sizes that it fits into. `before` is called with each class before work is
/// done for it, and may refuse that. The error has Go's message where it is a common one.
fn compile(
    pattern: &str,
    mut before: impl FnMut(usize) -> Result<(), EvalError>,
) -> Result<Pattern, EvalError> {
    let failed = |why: String| EvalError::new(format!("error parsing regexp: {why}"));
    let translated = translate(pattern).map_err(failed)?;
    for size in SIZE_CLASSES {
        before(size)?;
        match build(&translated, size) {
            Ok(pattern) => return Ok(pattern),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => break,
        }
    }
    Err(failed(format!("invalid syntax: `{pattern}`")))
}

/// Compiles a pattern that is not a constant, during an evaluation. Kubernetes charges only for its text; but a few
/// letters can take megabytes and many milliseconds, so large ones are charged here.
pub(crate) fn compile_charged(pattern: &str, work: &mut Work) -> Result<Pattern, EvalError> {
    work.read(pattern.len())?;
    compile(pattern, |size| {
        if size > SIZE_CLASSES[0] {
            work.check()?;
            work.charge(size as u64 / BYTES_PER_COST);
        }
        Ok(())
    })
}

/// Compiles a pattern that is kept. A few characters, such as `\pL{100}`, may take megabytes.
pub(crate) fn compile_within(pattern: &str, budget: &mut CompileBudget) -> Result<Pattern, EvalError> {
    let mut taken = 0;
    compile(pattern, |size| {
        // The class that was tried before was too small, and is dropped.
        budget.give_back(taken);
        taken = size;
        budget.take(size).map_err(EvalError::new)
    })
}

/// Rewrites a pattern; the error is why RE2 refuses it.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    // Where the current class begins.
    let mut class: Option<&str> = None;
    // The character before, in a class, if a hyphen makes a range of it.
    let mut range_start: Option<char> = None;
    // Whether the escape that follows is the end of a range.
    let mut ends_range = false;
    let mut groups = 0_usize;
    let mut repeats = Repeats::default();
    if pattern.len() > MAX_LENGTH
        || pattern.matches("\\p").count() + pattern.matches("\\P").count() > MAX_CLASSES
    {
        return Err("expression too large".to_owned());
    }
    while let Some(sign) = rest.chars().next() {
        let here = rest;
        rest = &rest[sign.len_utf8()..];
        if class.is_none() {
            repeats.atom(sign);
        }
        match sign {
            '\\' => {
                rest = translate_escape(&mut out, here, class.is_some())?;
                // A class of characters begins no range.
                let is_one = !here[1..].starts_with(['d', 'D', 'w', 'W', 's', 'S', 'p', 'P', 'Q']);
                range_start = (is_one && !ends_range).then_some(ESCAPED);
                ends_range = false;
            }
            '[' if class.is_none() => {
                class = Some(here);
                (rest, range_start) = open_class(&mut out, rest);
            }
            '[' if rest
                .strip_prefix(':')
                .is_some_and(|name| beginning(name).contains(":]")) =>
            {
                rest = named_class(&mut out, rest)?;
                range_start = None;
            }
            ']' if class.is_some() => {
                class = None;
                out.push(']');
            }
            '-' if class.is_some() && !rest.starts_with(']') && range_start.is_some() => {
                (rest, ends_range) = range_end(&mut out, rest, range_start.unwrap_or_default())?;
                range_start = None;
            }
            _ if class.is_some() => {
                push_member(&mut out, sign);
                range_start = Some(sign);
            }
            '(' => {
                groups += 1;
                check_group(here)?;
                out.push('(');
            }
            ')' => {
                groups = groups
                    .checked_sub(1)
                    .ok_or_else(|| format!("unexpected ): `{pattern}`"))?;
                out.push(')');
            }
            '*' | '+' if is_repeated(&out, here, pattern) => {
                let start = pattern.len() - here.len() - 1;
                return Err(format!(
                    "invalid nested repetition operator: `{}`",
                    &pattern[start..start + 2]
                ));
            }
            '*' | '+' | '?' if out.is_empty() || out.ends_with('(') && sign != '?' => {
                return Err(format!("missing argument to repetition operator: `{sign}`"));
            }
            '{' => match repetition(rest) {
                Some((counts, after)) => {
                    let end = after.strip_prefix('?').unwrap_or(after).len();
                    let operator = &here[..here.len() - end];
                    if counts.split(',').any(is_too_many) || repeats.repeat(counts).is_err() {
                        return Err(format!("invalid repeat count: `{operator}`"));
                    }
                    out.push_str(operator);
                    rest = &here[operator.len()..];
                }
                None => {
                    repeats.literal();
                    out.push_str("\\{");
                }
            },
            _ => out.push(sign),
        }
    }
    if let Some(class) = class {
        return Err(format!("missing closing ]: `{class}`"));
    }
    if groups > 0 {
        return Err(format!("missing closing ): `{pattern}`"));
    }
    Ok(out)
}

/// Writes the beginning of a class. Returns what follows, and the character that may begin a range.
fn open_class<'p>(out: &mut String, mut rest: &'p str) -> (&'p str, Option<char>) {
    out.push('[');
    if let Some(inner) = rest.strip_prefix('^') {
        out.push('^');
        rest = inner;
    }
    // A bracket in the first place is itself.
    match rest.strip_prefix(']') {
        Some(inner) => {
            out.push_str("\\]");
            (inner, Some(']'))
        }
        None => (rest, None),
    }
}

/// Writes a named class such as `[:alpha:]`, and returns what follows.
fn named_class<'p>(out: &mut String, rest: &'p str) -> Result<&'p str, String> {
    let (name, after) = rest[1..].split_once(":]").unwrap_or((&rest[1..], ""));
    let text = &rest[..rest.len() - after.len()];
    if !CLASS_NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err(format!("invalid character class range: `[{text}`"));
    }
    out.push('[');
    out.push_str(text);
    Ok(after)
}

/// Writes a hyphen that makes a range, and its end, which may be a hyphen too. Returns what follows, and whether the end is an
/// escape there.
fn range_end<'p>(out: &mut String, rest: &'p str, start: char) -> Result<(&'p str, bool), String> {
    out.push('-');
    let Some(end) = rest.chars().next().filter(|end| *end != '\\') else {
        return Ok((rest, true));
    };
    if end == '-' && start > end {
        return Err(format!("invalid character class range: `{start}--`"));
    }
    push_member(out, end);
    Ok((&rest[end.len_utf8()..], false))
}

/// The names of classes in classes: `[[:alpha:]]`.
const CLASS_NAMES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// The start of a range that is written as an escape, whose order is not checked here.
const ESCAPED: char = '\0';

/// Writes a character of a class. Those that mean something else in the crate `regex` are escaped.
fn push_member(out: &mut String, member: char) {
    if matches!(member, '-' | '[' | '&' | '~') {
        out.push('\\');
    }
    out.push(member);
}

/// Checks the group at the start of `here`: RE2 has no look-around, and few flags.
fn check_group(here: &str) -> Result<(), String> {
    let rest = &here[1..];
    if ["?=", "?!", "?<=", "?<!"]
        .iter()
        .any(|look| rest.starts_with(look))
    {
        let end = if rest.starts_with("?<") { 4 } else { 3 };
        return Err(format!("invalid or unsupported Perl syntax: `{}`", &here[..end]));
    }
    if let Some(flags) = rest.strip_prefix('?')
        && let Some(end) = beginning(flags).find([':', ')'])
        && !flags.starts_with(['P', '<'])
        && flags[..end].contains(|flag: char| !"imsU-".contains(flag))
    {
        let shown: String = here.chars().take(3).collect();
        return Err(format!("invalid or unsupported Perl syntax: `{shown}`"));
    }
    Ok(())
}

/// The first characters, in which flags and names of classes end: to look further for each of them takes long.
fn beginning(text: &str) -> &str {
    const CHARACTERS: usize = 64;
    text.char_indices()
        .nth(CHARACTERS)
        .map_or(text, |(end, _)| &text[..end])
}

/// How often the parts of a pattern are repeated. RE2 refuses more than [`MAX_REPEAT`] repetitions also of nested
/// repetitions together, as in `(a{100}){11}`.
#[derive(Debug)]
struct Repeats {
    /// Of each open group.
    groups: Vec<Repeat>,
    /// Outside of the open groups.
    current: Repeat,
}

#[derive(Clone, Copy, Debug)]
struct Repeat {
    /// The greatest product of all parts but the last one.
    others: u64,
    /// That of the last part.
    last: u64,
}

impl Default for Repeats {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            current: Repeat::START,
        }
    }
}

impl Repeat {
    const START: Self = Self { others: 0, last: 1 };

    fn max(self) -> u64 {
        self.others.max(self.last)
    }
}

impl Repeats {
    /// A sign outside of a class begins a part, if it is not an operator.
    fn atom(&mut self, sign: char) {
        match sign {
            '*' | '+' | '?' | '{' => {}
            '(' => {
                self.current.others = self.current.max();
                self.groups.push(self.current);
                self.current = Repeat::START;
            }
            ')' => {
                let last = self.current.max();
                let others = self.groups.pop().map_or(0, |group| group.others);
                self.current = Repeat { others, last };
            }
            _ => self.literal(),
        }
    }

    fn literal(&mut self) {
        self.current = Repeat {
            others: self.current.max(),
            last: 1,
        };
    }

    /// Repeats the last part. Fails if that is too often.
    fn repeat(&mut self, counts: &str) -> Result<(), ()> {
        let count = |text: &str| text.parse::<u64>().ok();
        let (least, most) = match counts.split_once(',') {
            Some((least, most)) => (count(least).unwrap_or_default(), count(most)),
            None => (count(counts).unwrap_or_default(), count(counts)),
        };
        if most.is_some_and(|most| most < least) {
            return Err(());
        }
        // Without an upper bound the lower one counts, and `{0,}` is a star.
        let factor = match most {
            Some(most) => most,
            None => least.max(1),
        };
        self.current.last = self.current.last.saturating_mul(factor);
        if factor >= 2 && self.current.last > u64::from(MAX_REPEAT) {
            return Err(());
        }
        Ok(())
    }
}

/// Whether the operator at the start of `here` repeats a repetition.
fn is_repeated(out: &str, here: &str, pattern: &str) -> bool {
    let before = &pattern[..pattern.len() - here.len()];
    let is_escaped = before
        .bytes()
        .rev()
        .skip(1)
        .take_while(|byte| *byte == b'\\')
        .count()
        % 2
        == 1;
    !is_escaped && before.ends_with(['*', '+', '?']) && !out.ends_with(['(', '|', '[']) && before.len() > 1
}

/// The counts of a repetition after its brace, if it is one, and what follows.
fn repetition(rest: &str) -> Option<(&str, &str)> {
    let (counts, after) = rest.split_once('}')?;
    let is_count = counts.starts_with(|sign: char| sign.is_ascii_digit())
        && counts.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
        && counts.matches(',').count() <= 1;
    is_count.then_some((counts, after))
}

fn is_too_many(count: &str) -> bool {
    !count.is_empty() && count.parse::<u32>().map_or(true, |count| count > MAX_REPEAT)
}

/// Rewrites the escape at the start of `here`, and returns what follows it.
fn translate_escape<'p>(out: &mut String, here: &'p str, in_class: bool) -> Result<&'p str, String> {
    let after = &here[1..];
    let Some(escaped) = after.chars().next() else {
        return Err("trailing backslash at end of expression: ``".to_owned());
    };
    let rest = &after[escaped.len_utf8()..];
    match escaped {
        'Q' => {
            let (literal, end) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(literal));
            return Ok(end);
        }
        // A property with its name in braces.
        'p' | 'P' => {
            out.push('\\');
            out.push(escaped);
            if let Some((name, end)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                out.push('{');
                out.push_str(name);
                out.push('}');
                return Ok(end);
            }
        }
        'x' => {
            out.push_str("\\x");
            if let Some((digits, end)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                out.push('{');
                out.push_str(digits);
                out.push('}');
                return Ok(end);
            }
        }
        // Octal, of up to three digits.
        '0' => {
            let length = after
                .bytes()
                .take(3)
                .take_while(|byte| (b'0'..=b'7').contains(byte))
                .count();
            let value = u32::from_str_radix(&after[..length], 8).unwrap_or_default();
            let _ = write!(out, "\\x{{{value:x}}}");
            return Ok(&after[length..]);
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'd' | 'D' | 'w' | 'W' | 's' | 'S' => {
            push_escape(out, escaped, in_class);
        }
        'b' | 'B' | 'A' | 'z' if !in_class => push_escape(out, escaped, in_class),
        _ if escaped.is_ascii_punctuation() => push_escape(out, escaped, in_class),
        _ => return Err(format!("invalid escape sequence: `\\{escaped}`")),
    }
    Ok(rest)
}

/// Writes a backslash and a letter. Outside of classes, classes of letters are ASCII.
fn push_escape(out: &mut String, escaped: char, in_class: bool) {
    const DIGITS: &str = "0-9";
    const WORDS: &str = "0-9A-Za-z_";
    const SPACES: &str = "\\t\\n\\x0c\\r\\x20";
    let (members, negated) = match escaped {
        'd' => (DIGITS, false),
        'D' => (DIGITS, true),
        'w' => (WORDS, false),
        'W' => (WORDS, true),
        's' => (SPACES, false),
        'S' => (SPACES, true),
        'b' if !in_class => return out.push_str("(?-u:\\b)"),
        _ => {
            out.push('\\');
            return out.push(escaped);
        }
    };
    match (in_class, negated) {
        (true, false) => out.push_str(members),
        (_, true) => {
            out.push_str("[^");
            out.push_str(members);
            out.push(']');
        }
        (false, false) => {
            out.push('[');
            out.push_str(members);
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, build, translate};

    fn compile(pattern: &str) -> Result<Pattern, String> {
        let translated = translate(pattern)?;
        build(&translated, super::SIZE_LIMIT).map_err(|error| error.to_string())
    }

    #[test]
    fn patterns_mean_what_they_mean_in_re2() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{661}", false),
            (r"^\w+$", "\u{e9}", false),
            (r"^[\w-]+$", "a-b", true),
            (r"^[a&&b]$", "&", true),
            (r"^[[]$", "[", true),
            (r"^[[:alpha:]]+$", "ab", true),
            // Hyphens: first, last, after a range, as the end and as the start of one.
            ("^[-a]$", "-", true),
            ("^[a-]$", "-", true),
            ("^[a-c-e]$", "-", true),
            ("^[a-c-e]$", "d", false),
            ("^[+--]$", ",", true),
            ("^[+--]$", ".", false),
            ("^[--/]$", ".", true),
            (r"^[a-\x63-]$", "b", true),
            (r"^[a-\x63-]$", "-", true),
            ("^[[:]+$", "[:", true),
            ("^[[:^digit:]]$", "a", true),
            ("^[a&&b]$", "&", true),
            ("^[a~~b[]$", "[", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^a{2}$", "aa", true),
            (r"^{a}$", "{a}", true),
            (r"\bfoo\b", "a foo b", true),
            (r"a\z", "ba", true),
        ] {
            assert_eq!(
                compile(pattern).unwrap().regex.is_match(text),
                matches,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn patterns_that_re2_refuses_are_errors() {
        for pattern in [
            r"a{1001}",
            r"(",
            r"\C",
            r"a(?=b)",
            "(?\u{e9}:a)",
            "[[:foo:]]",
            "[a--b]",
            "[b-a]",
        ] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }

    /// The cases of Go's `regexp/syntax`, and what it says.
    #[test]
    fn nested_repetitions_have_the_limit_of_re2() {
        for (pattern, refused) in [
            ("((((((((((x{2}){2}){2}){2}){2}){2}){2}){2}){2}))", None),
            ("((((((((((x{2}){2}){2}){2}){2}){2}){2}){2}){2}){2})", Some("{2}")),
            ("([ab]{1000}){40}", Some("{40}")),
            ("(a{100}b{10}){11}?", Some("{11}?")),
            ("(a{100}|b){10}", None),
            ("a{1000}b{1000}", None),
            ("(a{1000}){1}", None),
            ("(a{1000}){0,}", None),
            ("(a{1000})*", None),
            ("(a{1000}){2,}", Some("{2,}")),
            ("a{3,2}", Some("{3,2}")),
            (r"[{]{1000}\{{2}", None),
        ] {
            let error = refused.map(|operator| format!("invalid repeat count: `{operator}`"));
            assert_eq!(translate(pattern).err(), error, "{pattern}");
        }
    }
}
