//! Errors of invalid YAML, with the messages of the real server's library.
//!
//! That library is a port of libyaml and has its messages. `serde_yaml_ng` contains libyaml, so it is run on texts that
//! the other parser rejected, to get the message.

use granit_parser::ScanError;
use serde::de::IgnoredAny;

/// Problems that libyaml's scanner reports without a context.
const SCANNER_PROBLEMS: [&str; 3] = [
    "mapping values are not allowed in this context",
    "mapping keys are not allowed in this context",
    "block sequence entries are not allowed in this context",
];

/// Limit on open brackets in a text given to libyaml, whose work grows with their number times the length of the text.
const MAX_OPEN_BRACKETS: usize = 100;

/// A body as text.
pub(super) fn to_utf8(body: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(body).map_err(|error| {
        let rest = &body[error.valid_up_to()..];
        match (error.error_len(), rest) {
            (None, _) => "yaml: incomplete UTF-8 octet sequence".to_owned(),
            (Some(1), [0xC2..=0xF4, ..]) => "yaml: invalid trailing UTF-8 octet".to_owned(),
            _ => "yaml: invalid leading UTF-8 octet".to_owned(),
        }
    })
}

/// Returns the library's message: `yaml: line 3: did not find expected key`.
pub(super) fn go_error_message(text: &str, error: &ScanError) -> String {
    let parsed = (!has_too_many_brackets(text)).then(|| serde_yaml_ng::from_str::<IgnoredAny>(text));
    let reported = parsed.and_then(Result::err);
    reported
        .and_then(|error| translate(&error.to_string()))
        .unwrap_or_else(|| format!("yaml: line {}: {}", error.marker().line(), error.info()))
}

fn has_too_many_brackets(text: &str) -> bool {
    let mut open = 0_usize;
    text.bytes().any(|byte| {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        open > MAX_OPEN_BRACKETS
    })
}

/// Translates `PROBLEM at line 2 column 1, while CONTEXT at line 1 column 4`; libyaml omits the start of the text.
fn translate(message: &str) -> Option<String> {
    let (problem, context) = match message.split_once(", while ") {
        Some((problem, context)) => (problem, Some(context)),
        None => (message, None),
    };
    let (words, found) = split_location(problem);
    let scanned =
        SCANNER_PROBLEMS.contains(&words) || context.is_some_and(|context| context.starts_with("scanning"));
    if found.is_none() && context.is_none() && !scanned {
        return None;
    }
    // Lines count from 0 there, and differ by one depending on which stage found the problem.
    let line = match (
        found.unwrap_or_default(),
        context.and_then(|context| split_location(context).1),
    ) {
        (0, began) => began.unwrap_or_default(),
        (line, _) if scanned => line + 1,
        (line, _) => line,
    };
    Some(if line == 0 {
        format!("yaml: {words}")
    } else {
        format!("yaml: line {line}: {words}")
    })
}

/// Splits a message from its location; returns the line, counted from 0.
fn split_location(text: &str) -> (&str, Option<usize>) {
    let split = text.rsplit_once(" at line ").and_then(|(words, place)| {
        let line: usize = place.split(' ').next()?.parse().ok()?;
        Some((words, line.checked_sub(1)?))
    });
    split.map_or((text, None), |(words, line)| (words, Some(line)))
}

#[cfg(test)]
mod tests {
    use super::super::read;

    /// Recorded from a real server.
    #[test]
    fn invalid_yaml_has_gos_error_messages() {
        for (text, why) in [
            ("a: [b\n", "yaml: line 1: did not find expected ',' or ']'"),
            (
                "a: b: c\n",
                "yaml: mapping values are not allowed in this context",
            ),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err(), why, "{text}");
        }
    }
}
