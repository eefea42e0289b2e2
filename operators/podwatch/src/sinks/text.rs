//! Formats a notice as a human-readable line.

use std::fmt::Write as _;

use windlass::serde_json::Value;

use super::event_object::EventObject;
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
    let mut rest = subject(notice);
    if diff && !notice.changes.is_empty() {
        rest.push_str("  ");
        rest.push_str(&changes(notice));
    }
    push_escaped(&mut line, &rest);
    line.push('\n');
    line.into_bytes()
}

/// The event, the object and the changed fields, for a message; of a Kubernetes Event, what it says instead of its fields.
pub(super) fn message(notice: &Notice) -> String {
    let mut message = String::new();
    push_escaped(&mut message, &format!("{} {}", notice.event, subject(notice)));
    if let Some(event) = EventObject::of(notice) {
        let text = format!(": {} {}: {}", event.reason, event.involved_object, event.message);
        push_escaped(&mut message, &text);
    } else if !notice.changes.is_empty() {
        message.push_str(": ");
        push_escaped(&mut message, &changes(notice));
    }
    message
}

/// The changed fields, as in `spec.replicas: 1 → 2, spec.paused: true → -`.
pub(super) fn changes(notice: &Notice) -> String {
    let mut text = String::new();
    for (place, change) in notice.changes.iter().take(MAX_CHANGES).enumerate() {
        if place > 0 {
            text.push_str(", ");
        }
        write_change(&mut text, change);
    }
    if let Some(more @ 1..) = notice.changes.len().checked_sub(MAX_CHANGES) {
        write!(text, ", and {more} more").expect("text");
    }
    text
}

/// The object, and whether its event was inferred or includes others.
fn subject(notice: &Notice) -> String {
    let mut text = format!("{} {}", notice.kind.kind, notice.key);
    if notice.inferred {
        text.push_str(" (inferred)");
    }
    if notice.coalesced > 0 {
        write!(text, " ({} coalesced)", notice.coalesced).expect("text");
    }
    text
}

/// Object data goes to a terminal: escapes control characters and newlines.
fn push_escaped(line: &mut String, text: &str) {
    for character in text.chars() {
        if character.is_control() {
            write!(line, "{}", character.escape_default()).expect("text");
        } else {
            line.push(character);
        }
    }
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
    use std::sync::Arc;

    use serde_json::json;
    use windlass::kube::core::{ApiResource, GroupVersionKind};

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
        gone.coalesced = 2;
        assert_eq!(
            text(&gone),
            "2026-01-02T03:04:05Z deleted Pod default/web (inferred) (2 coalesced)\n"
        );
        let coloured = String::from_utf8(line(&gone, true, true)).expect("text");
        assert!(coloured.contains("\x1b[31mdeleted\x1b[0m"), "{coloured}");
    }

    #[test]
    fn message_about_an_event_has_what_it_says() {
        let mut notice = pod("n1.x1", "u1", 7).build();
        let kind = GroupVersionKind::gvk("", "v1", "Event");
        notice.kind = Arc::new(ApiResource::from_gvk(&kind));
        notice.object = Some(Arc::new(json!({
            "reason": "RebootFailed", "involvedObject": { "kind": "Node", "name": "n1" }, "message": "no\nboot",
        })));
        assert_eq!(
            message(&notice),
            "added Event default/n1.x1: RebootFailed Node n1: no\\nboot"
        );
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
