//! Formats a notice as a human-readable line.

use std::fmt::Write as _;

use windlass::serde_json::Value;

use crate::notice::{EventType, FieldChange, Notice};

/// The maximum number of changes shown; the rest is counted.
const MAX_CHANGES: usize = 6;

/// The maximum number of characters of a value.
const MAX_VALUE_CHARS: usize = 60;

/// A line with its newline: time, event, object, and with `diff` the changed fields.
pub(super) fn line(notice: &Notice, diff: bool, coloured: bool) -> Vec<u8> {
    let (colour, plain) = match (coloured, notice.event) {
        (false, _) => ("", ""),
        (true, EventType::Synced) => ("\x1b[2m", "\x1b[0m"),
        (true, EventType::Added) => ("\x1b[32m", "\x1b[0m"),
        (true, EventType::Updated) => ("\x1b[33m", "\x1b[0m"),
        (true, EventType::Deleted) => ("\x1b[31m", "\x1b[0m"),
    };
    let mut line = format!("{} {colour}{:<7}{plain} ", notice.time, notice.event);
    let mut rest = format!("{} {}", notice.kind.kind, notice.key);
    if notice.inferred {
        rest.push_str(" (inferred)");
    }
    let changes = if diff { &*notice.changes } else { &[] };
    for (place, change) in changes.iter().take(MAX_CHANGES).enumerate() {
        rest.push_str(if place == 0 { "  " } else { ", " });
        write_change(&mut rest, change);
    }
    if let Some(more @ 1..) = changes.len().checked_sub(MAX_CHANGES) {
        write!(rest, ", and {more} more").expect("text");
    }
    // Object data goes to a terminal: escape control characters and newlines.
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

fn write_change(line: &mut String, change: &FieldChange) {
    let side = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".to_owned(), truncated);
    let (old, new) = (side(&change.old), side(&change.new));
    write!(line, "{}: {old} → {new}", change.path).expect("text");
}

fn truncated(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE_CHARS) {
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
    fn line_shows_time_event_object_and_changes() {
        let mut notice = pod("web", "u1", 7).what(EventType::Updated).build();
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
        let mut gone = pod("web", "u1", 7).what(EventType::Deleted).build();
        gone.inferred = true;
        assert_eq!(
            text(&gone),
            "2026-01-02T03:04:05Z deleted Pod default/web (inferred)\n"
        );
        let coloured = String::from_utf8(line(&gone, true, true)).expect("text");
        assert!(coloured.contains("\x1b[31mdeleted\x1b[0m"), "{coloured}");
    }

    #[test]
    fn many_changes_and_long_values_are_truncated() {
        let mut notice = pod("web", "u1", 7).what(EventType::Updated).build();
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
    fn control_characters_are_escaped() {
        let mut notice = pod("web", "u1", 7).what(EventType::Updated).build();
        notice.changes = vec![change("a\nb\x1b[2J\u{9b}1m", None, Some(json!("\x1b]0;x\x07\n")))];
        let text = text(&notice);
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
    }
}
