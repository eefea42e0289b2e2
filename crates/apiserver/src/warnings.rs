//! `Warning` headers of a response.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    ops::Deref,
    sync::LazyLock,
};

/// The real server's limits: the total characters of an answer's `Warning` headers, and the length to which each is cut
/// if the total is exceeded.
const MAX_TOTAL_CHARS: usize = 4 * 1024;
const TRUNCATED_CHARS: usize = 256;

/// The warnings of a request: distinct, not empty, and no more of them than a response can show, whatever a webhook or a
/// policy adds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings {
    /// In order. Those that are longer than a response are cut.
    texts: Vec<String>,
    /// The hashes of the whole texts.
    seen: HashSet<u64>,
    /// How many characters the texts have if each is truncated.
    truncated_chars: usize,
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Warnings {
    /// Adds a warning, unless it is empty or known, or would not be shown.
    pub(crate) fn push(&mut self, text: &str) {
        // Even if all are truncated, nothing is shown after so many.
        let is_full = self.truncated_chars > MAX_TOTAL_CHARS;
        if text.is_empty() || is_full || !self.seen.insert(HASHER.hash_one(text)) {
            return;
        }
        self.truncated_chars += text.chars().take(TRUNCATED_CHARS).count();
        // One character more than the total makes the response truncate it.
        let end = text.char_indices().nth(MAX_TOTAL_CHARS + 1);
        self.texts
            .push(text[..end.map_or(text.len(), |(end, _)| end)].to_owned());
    }

    /// Adds warnings.
    pub(crate) fn extend<T: AsRef<str>>(&mut self, texts: impl IntoIterator<Item = T>) {
        for text in texts {
            self.push(text.as_ref());
        }
    }
}

impl From<Vec<String>> for Warnings {
    fn from(texts: Vec<String>) -> Self {
        let mut warnings = Self::default();
        warnings.extend(texts);
        warnings
    }
}

impl Deref for Warnings {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.texts
    }
}

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

    #[test]
    fn memory_of_warnings_is_bounded_whatever_a_webhook_sends() {
        let hostile: [Vec<String>; 5] = [
            vec![String::new(); 100_000],
            vec!["x".to_owned(); 100_000],
            (0..100_000).map(|index| index.to_string()).collect(),
            (0..100_000).map(|index| format!("{index:0300}")).collect(),
            (0..20)
                .map(|index| format!("{index}{}", "é".repeat(100_000)))
                .collect(),
        ];
        for texts in hostile {
            let warnings = Warnings::from(texts);
            assert!(warnings.len() <= MAX_TOTAL_CHARS + 1, "{}", warnings.len());
            let bytes: usize = warnings.iter().map(String::capacity).sum();
            assert!(bytes < 1024 * 1024, "{bytes}");
            assert!(warnings.seen.len() <= warnings.len());
        }
    }

    #[test]
    fn bounded_warnings_show_the_same_as_all_of_them() {
        let long = |index: usize| format!("{index}{}", "é".repeat(5_000));
        for texts in [
            vec!["a".to_owned(), String::new(), "b".to_owned(), "a".to_owned()],
            (0..5_000).map(|index| index.to_string()).collect(),
            (0..100).map(|index| format!("{index:0200}")).collect(),
            // Exactly the total, then one more.
            (0..16).map(|index| format!("{index:0256}")).collect(),
            (0..17).map(|index| format!("{index:0256}")).collect(),
            (0..16)
                .map(|index| format!("{index:0256}"))
                .chain(["more".to_owned(), "last".to_owned()])
                .collect(),
            (0..30).map(long).collect(),
            vec!["a".to_owned(), long(0), "b".to_owned()],
            vec!["x".repeat(MAX_TOTAL_CHARS)],
            vec!["x".repeat(MAX_TOTAL_CHARS + 1)],
        ] {
            let bounded = Warnings::from(texts.clone());
            assert_eq!(truncate_warnings(&bounded), truncate_warnings(&texts));
        }
    }

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
