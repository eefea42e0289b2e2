//! Evaluates label selectors, to decide whether a written object belongs to a cache.

use crate::meta::Meta;

/// Returns whether the labels match a selector in the server's syntax; `None` if it cannot be parsed.
pub(crate) fn labels_match(selector: &str, meta: &Meta) -> Option<bool> {
    let mut matches = true;
    for part in parts(selector) {
        matches &= part_matches(part, meta)?;
    }
    Some(matches)
}

/// Splits at commas outside parentheses.
fn parts(selector: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let parts = selector.split(move |sign| {
        match sign {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        sign == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

fn part_matches(part: &str, meta: &Meta) -> Option<bool> {
    if let Some((head, values)) = part.split_once('(') {
        let values: Vec<_> = values.strip_suffix(')')?.split(',').map(str::trim).collect();
        let (name, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let found = meta.label(name.trim());
        return match operator {
            "in" => Some(found.is_some_and(|found| values.contains(&found))),
            "notin" => Some(found.is_none_or(|found| !values.contains(&found))),
            _ => None,
        };
    }
    if let Some((name, value)) = part.split_once("!=") {
        return Some(meta.label(name.trim()) != Some(value.trim()));
    }
    if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(meta.label(name.trim()) == Some(value.trim()));
    }
    if part.contains(['>', '<', ' ']) {
        return None;
    }
    Some(match part.strip_prefix('!') {
        Some(name) => meta.label(name.trim()).is_none(),
        None => meta.label(part).is_some(),
    })
}

#[cfg(test)]
mod tests {
    use crate::{meta::Interner, scan::ScannedObject};

    use super::*;

    #[test]
    fn label_selector_matches_like_the_server() {
        let labels = [("app", "web"), ("tier", "")];
        let found = ScannedObject {
            labels: labels.map(|(name, value)| (name.into(), value.into())).to_vec(),
            ..ScannedObject::default()
        };
        let meta = Interner::default().meta(&found);
        for (selector, expected) in [
            ("", Some(true)),
            ("app=web", Some(true)),
            ("app == web , tier=", Some(true)),
            ("app!=web", Some(false)),
            ("zone!=a", Some(true)),
            ("app in (db, web),tier", Some(true)),
            ("app notin (db,web)", Some(false)),
            ("zone notin (a)", Some(true)),
            ("zone in (a)", Some(false)),
            ("!zone,!app", Some(false)),
            ("size > 5", None),
            ("app near (web)", None),
        ] {
            assert_eq!(labels_match(selector, &meta), expected, "{selector}");
        }
    }
}
