//! Texts with a limit.

/// Truncates to at most `limit` bytes of whole characters, with an ellipsis.
pub(crate) fn truncate(mut text: String, limit: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - ELLIPSIS.len()));
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn truncated_text_has_whole_characters_within_the_limit(text in ".{0,80}", limit in 3usize..100) {
            let short = truncate(text.clone(), limit);
            prop_assert!(short.len() <= limit);
            if text.len() <= limit {
                prop_assert_eq!(short, text);
            } else {
                let kept = short.strip_suffix('…').expect("ends with an ellipsis");
                prop_assert!(text.starts_with(kept));
                // As many characters as fit.
                let next = text[kept.len()..].chars().next().expect("text was truncated");
                prop_assert!(short.len() + next.len_utf8() > limit);
            }
        }
    }
}
