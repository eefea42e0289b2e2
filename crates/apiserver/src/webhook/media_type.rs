//! The syntax of `Content-Type`, with the messages of Go's `mime`.

use std::collections::HashMap;

/// Why a media type is invalid.
///
/// An empty one is that of the request, and valid.
pub(super) fn problem(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return None;
    }
    let (name, parameters) = match text.find(';') {
        Some(end) => text.split_at(end),
        None => (text, ""),
    };
    name_problem(name.trim()).or_else(|| parameters_problem(parameters))
}

fn name_problem(name: &str) -> Option<&'static str> {
    let (kind, rest) = token(name);
    if kind.is_empty() {
        return Some("mime: no media type");
    }
    if rest.is_empty() {
        return None;
    }
    let Some(rest) = rest.strip_prefix('/') else {
        return Some("mime: expected slash after first token");
    };
    match token(rest) {
        ("", _) => Some("mime: expected token after slash"),
        (_, "") => None,
        _ => Some("mime: unexpected content after media subtype"),
    }
}

fn parameters_problem(mut text: &str) -> Option<&'static str> {
    let mut known = HashMap::new();
    loop {
        text = text.trim_start();
        if text.is_empty() || text.trim() == ";" {
            return None;
        }
        let Some((name, value, rest)) = parameter(text) else {
            return Some("mime: invalid media parameter");
        };
        let before = known.insert(name.to_ascii_lowercase(), value.clone());
        if before.is_some_and(|before| before != value) {
            return Some("mime: duplicate parameter name");
        }
        text = rest;
    }
}

/// The first parameter, `; name=value`, and what follows it.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = token(text.strip_prefix(';')?.trim_start());
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    if name.is_empty() {
        return None;
    }
    let Some(quoted) = rest.strip_prefix('"') else {
        let (value, rest) = token(rest);
        return (!value.is_empty()).then(|| (name, value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices().peekable();
    while let Some((position, letter)) = letters.next() {
        match letter {
            '"' => return Some((name, value, &quoted[position + 1..])),
            '\r' | '\n' => return None,
            '\\' => match letters.next_if(|(_, next)| is_special(*next)) {
                Some((_, next)) => value.push(next),
                None => value.push(letter),
            },
            letter => value.push(letter),
        }
    }
    None
}

/// The longest token at the beginning, and what follows it.
fn token(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_graphic() || is_special(letter));
    text.split_at(end.unwrap_or(text.len()))
}

fn is_special(letter: char) -> bool {
    "()<>@,;:\\\"/[]?=".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_have_the_problems_that_go_finds() {
        for (text, expected) in [
            ("", None),
            ("garbage", None),
            ("*/*", None),
            ("application/json; charset=utf-8;", None),
            ("a/b; c=\"d \\\" e\" ; f=g", None),
            ("a/b; c=d; C=d", None),
            (";", Some("mime: no media type")),
            ("a b", Some("mime: expected slash after first token")),
            ("a/", Some("mime: expected token after slash")),
            ("a/b,c/d", Some("mime: unexpected content after media subtype")),
            ("a/b;=", Some("mime: invalid media parameter")),
            ("a/b; c", Some("mime: invalid media parameter")),
            ("a/b; c=", Some("mime: invalid media parameter")),
            ("a/b; c=\"d", Some("mime: invalid media parameter")),
            ("a/b; c=d; c=e", Some("mime: duplicate parameter name")),
        ] {
            assert_eq!(problem(text), expected, "{text}");
        }
    }
}
