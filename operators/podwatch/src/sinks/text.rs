//! A notice as one line that people read.

use std::fmt::Write as _;

use windlass::serde_json::Value;

use crate::notice::{FieldChange, Notice, What};

/// So many changes are shown; the rest is counted.
const MOST_CHANGES: usize = 6;

/// A value is cut after so many characters.
const LONGEST_VALUE: usize = 60;

/// One line with its end, in the words of client-go's example.
pub(super) fn sync(notice: &Notice) -> Vec<u8> {
    let (kind, key) = (&notice.kind.kind, &notice.key);
    match notice.what {
        What::Deleted => format!("{kind} {key} does not exist anymore\n"),
        _ => format!("Sync/Add/Update for {kind} {}\n", key.name()),
    }
    .into_bytes()
}

/// One line with its end: when, what, which object, and what changed if that is asked for.
pub(super) fn line(notice: &Notice, diff: bool, coloured: bool) -> Vec<u8> {
    let (colour, plain) = match (coloured, notice.what) {
        (false, _) => ("", ""),
        (true, What::Synced) => ("\x1b[2m", "\x1b[0m"),
        (true, What::Added) => ("\x1b[32m", "\x1b[0m"),
        (true, What::Updated) => ("\x1b[33m", "\x1b[0m"),
        (true, What::Deleted) => ("\x1b[31m", "\x1b[0m"),
    };
    let mut line = format!("{} {colour}{:<7}{plain} ", notice.time, notice.what);
    let mut rest = format!("{} {}", notice.kind.kind, notice.key);
    if notice.inferred {
        rest.push_str(" (inferred)");
    }
    let changes = if diff { &*notice.changes } else { &[] };
    for (place, change) in changes.iter().take(MOST_CHANGES).enumerate() {
        rest.push_str(if place == 0 { "  " } else { ", " });
        put(&mut rest, change);
    }
    if let Some(more @ 1..) = changes.len().checked_sub(MOST_CHANGES) {
        write!(rest, ", and {more} more").expect("text");
    }
    // What objects say goes to a terminal: nothing in it may steer it, or begin a line.
    for character in rest.chars() {
        if character.is_control() {
            write!(line, "{}", character.escape_default()).expect("text");
        } else {
            line.push(character);
        }
    }
    line.push('\n');
    line.into_bytes()
}

fn put(line: &mut String, change: &FieldChange) {
    let side = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".to_owned(), short);
    let (old, new) = (side(&change.old), side(&change.new));
    write!(line, "{}: {old} → {new}", change.path).expect("text");
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST_VALUE) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::delivery::testing::pod;

    fn change(path: &str, old: Option<Value>, new: Option<Value>) -> FieldChange {
        FieldChange {
            path: path.to_owned(),
            old,
            new,
        }
    }

    fn text(notice: &Notice) -> String {
        String::from_utf8(line(notice, true, false)).expect("text")
    }

    #[test]
    fn a_line_says_when_what_which_and_what_changed() {
        let mut notice = pod("web", "u1", 7).what(What::Updated).build();
        notice.changes = vec![
            change("spec.replicas", Some(json!(1)), Some(json!(2))),
            change("metadata.labels.a", None, Some(json!("x"))),
            change("spec.paused", Some(json!(true)), None),
        ];
        assert_eq!(
            text(&notice),
            "2026-01-02T03:04:05Z updated Pod default/web  spec.replicas: 1 → 2, metadata.labels.a: - → \"x\", spec.paused: true → -\n"
        );
        assert_eq!(
            line(&notice, false, false),
            b"2026-01-02T03:04:05Z updated Pod default/web\n"
        );
        let mut gone = pod("web", "u1", 7).what(What::Deleted).build();
        gone.inferred = true;
        assert_eq!(
            text(&gone),
            "2026-01-02T03:04:05Z deleted Pod default/web (inferred)\n"
        );
        let coloured = String::from_utf8(line(&gone, true, true)).expect("text");
        assert!(coloured.contains("\x1b[31mdeleted\x1b[0m"), "{coloured}");
    }

    #[test]
    fn the_example_of_client_go_has_its_words() {
        let words = |what| String::from_utf8(sync(&pod("web", "u1", 7).what(what).build())).expect("text");
        assert_eq!(words(What::Synced), "Sync/Add/Update for Pod web\n");
        assert_eq!(words(What::Updated), "Sync/Add/Update for Pod web\n");
        assert_eq!(words(What::Deleted), "Pod default/web does not exist anymore\n");
    }

    #[test]
    fn many_changes_and_long_values_are_cut() {
        let mut notice = pod("web", "u1", 7).what(What::Updated).build();
        notice.changes = (0..8)
            .map(|place| change(&format!("f{place}"), None, Some(json!("é".repeat(100)))))
            .collect();
        let text = text(&notice);
        assert!(text.ends_with(", and 2 more\n"), "{text}");
        assert!(
            text.contains(&format!("f0: - → \"{}...", "é".repeat(59))),
            "{text}"
        );
    }

    #[test]
    fn what_an_object_says_cannot_steer_a_terminal_or_begin_a_line() {
        let mut notice = pod("web", "u1", 7).what(What::Updated).build();
        notice.changes = vec![change("a\nb\x1b[2J\u{9b}1m", None, Some(json!("\x1b]0;x\x07\n")))];
        let text = text(&notice);
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
    }
}
