//! What is wrong with a text that is no YAML, in the words of the real server's library.
//!
//! Those words are libyaml's, which that library is a translation of, and `serde_yaml_ng` has libyaml inside: whoever asks
//! it about a text that another parser has refused hears them.

use granit_parser::ScanError;
use serde::de::IgnoredAny;

/// Problems that libyaml's scanner finds without saying what it was looking for.
const SCANNED: [&str; 3] = [
    "mapping values are not allowed in this context",
    "mapping keys are not allowed in this context",
    "block sequence entries are not allowed in this context",
];

/// How many brackets may be open at once in a text that libyaml is asked about: its work grows with the length of the text times them.
const BRACKETS: usize = 100;

/// A body as text.
pub(super) fn as_text(body: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(body).map_err(|error| {
        let rest = &body[error.valid_up_to()..];
        match (error.error_len(), rest) {
            (None, _) => "yaml: incomplete UTF-8 octet sequence".to_owned(),
            (Some(1), [0xC2..=0xF4, ..]) => "yaml: invalid trailing UTF-8 octet".to_owned(),
            _ => "yaml: invalid leading UTF-8 octet".to_owned(),
        }
    })
}

/// `yaml: line 3: did not find expected key`
pub(super) fn in_go(text: &str, error: &ScanError) -> String {
    let asked = (!too_deep(text)).then(|| serde_yaml_ng::from_str::<IgnoredAny>(text));
    let told = asked.and_then(Result::err);
    told.and_then(|error| translated(&error.to_string()))
        .unwrap_or_else(|| format!("yaml: line {}: {}", error.marker().line(), error.info()))
}

fn too_deep(text: &str) -> bool {
    let mut open = 0_usize;
    text.bytes().any(|byte| {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        open > BRACKETS
    })
}

/// From `PROBLEM at line 2 column 1, while CONTEXT at line 1 column 4`; the very beginning is not named.
fn translated(message: &str) -> Option<String> {
    let (problem, context) = match message.split_once(", while ") {
        Some((problem, context)) => (problem, Some(context)),
        None => (message, None),
    };
    let (words, found) = placed(problem);
    let scanned = SCANNED.contains(&words) || context.is_some_and(|context| context.starts_with("scanning"));
    if found.is_none() && context.is_none() && !scanned {
        return None;
    }
    // Lines count from 0 there, and one more or less depending on who found the problem.
    let line = match (
        found.unwrap_or_default(),
        context.and_then(|context| placed(context).1),
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

/// A text without its place, and the line of that, counted from 0.
fn placed(text: &str) -> (&str, Option<usize>) {
    let split = text.rsplit_once(" at line ").and_then(|(words, place)| {
        let line: usize = place.split(' ').next()?.parse().ok()?;
        Some((words, line.checked_sub(1)?))
    });
    split.map_or((text, None), |(words, line)| (words, Some(line)))
}

#[cfg(test)]
mod tests {
    use super::super::read;

    /// As a real server said it.
    #[test]
    fn what_is_no_yaml_is_told_in_gos_words() {
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
