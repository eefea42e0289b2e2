//! `Warning` headers of a response.

use std::collections::HashSet;

/// The real server's limits: the total characters of an answer's `Warning` headers, and the length to which each is cut
/// if the total is exceeded.
const MAX_TOTAL_CHARS: usize = 4 * 1024;
const TRUNCATED_CHARS: usize = 256;

/// Deduplicates warnings and limits their length. If they exceed the total, each is truncated, and none follows the one
/// that still exceeds it.
pub(crate) fn truncate_warnings(warnings: &[String]) -> Vec<&str> {
    let short = |warning: &'_ str| {
        warning
            .char_indices()
            .nth(TRUNCATED_CHARS)
            .map_or(warning.len(), |(end, _)| end)
    };
    let (mut seen, mut whole, mut fitting) = (HashSet::new(), Vec::new(), Vec::new());
    let (mut length, mut cutting) = (0, false);
    for warning in warnings
        .iter()
        .map(String::as_str)
        .filter(|warning| !warning.is_empty())
    {
        if cutting && length >= MAX_TOTAL_CHARS {
            break;
        }
        if !seen.insert(warning) {
            continue;
        }
        whole.push(warning);
        let shown = if cutting {
            &warning[..short(warning)]
        } else {
            warning
        };
        let characters = shown.chars().count();
        if cutting || length + characters <= MAX_TOTAL_CHARS {
            length += characters;
            fitting.push(shown);
            continue;
        }
        cutting = true;
        fitting = whole.iter().map(|warning| &warning[..short(warning)]).collect();
        length = fitting.iter().map(|warning| warning.chars().count()).sum();
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of the real server's `warning_test.go`, and its limits.
    #[test]
    fn warnings_are_deduplicated_and_truncated() {
        let fit = |warnings: &[&str]| -> Vec<String> {
            let warnings: Vec<_> = warnings.iter().map(|warning| (*warning).to_owned()).collect();
            truncate_warnings(&warnings)
                .into_iter()
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(fit(&["a", "b", "a", ""]), ["a", "b"]);
        // Exactly at the limit.
        let (long, longer) = ("x".repeat(MAX_TOTAL_CHARS), "x".repeat(MAX_TOTAL_CHARS + 1));
        assert_eq!(fit(&[&long]), [long.as_str()]);
        assert_eq!(fit(&[&long, "b"]), ["x".repeat(TRUNCATED_CHARS), "b".to_owned()]);
        assert_eq!(fit(&[&longer]), ["x".repeat(TRUNCATED_CHARS)]);
        // Characters count, not bytes.
        assert_eq!(
            fit(&[&"é".repeat(MAX_TOTAL_CHARS), "b"]),
            ["é".repeat(TRUNCATED_CHARS), "b".to_owned()]
        );
        let many: Vec<_> = (0..10_000).map(|index| format!("{index:0300}")).collect();
        let fitting = truncate_warnings(&many);
        assert_eq!(fitting.len(), MAX_TOTAL_CHARS / TRUNCATED_CHARS);
        assert!(fitting.iter().all(|warning| warning.len() == TRUNCATED_CHARS));
    }
}
