//! Finds duplicates in lists, looking at each item once.

use std::{collections::HashSet, hash::Hash};

use serde_json::Value;

use super::error_list::text;

/// Up to this many items are compared pairwise, which is faster and needs no memory.
const PAIRWISE_MAX: usize = 6;

/// The items of a list that are equal to an earlier one by some key.
#[derive(Debug)]
pub(super) struct Duplicates(Vec<usize>);

impl Duplicates {
    /// Compares items by the key that `of` returns.
    pub(super) fn by<'a, T: Eq + Hash>(items: &'a [Value], of: impl Fn(&'a Value) -> T) -> Self {
        let mut repeated = Vec::new();
        if items.len() <= PAIRWISE_MAX {
            for (index, item) in items.iter().enumerate().skip(1) {
                let own = of(item);
                if items[..index].iter().any(|other| of(other) == own) {
                    repeated.push(index);
                }
            }
        } else {
            let mut seen = HashSet::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                if !seen.insert(of(item)) {
                    repeated.push(index);
                }
            }
        }
        Self(repeated)
    }

    /// Compares items by a string field; an absent one counts as empty.
    pub(super) fn by_field(items: &[Value], key: &str) -> Self {
        Self::by(items, |item| text(&item[key]))
    }

    /// Whether the item at this index is a duplicate.
    pub(super) fn contains(&self, index: usize) -> bool {
        self.0.binary_search(&index).is_ok()
    }
}

/// The values of a string field of all items.
pub(super) fn field_values<'a>(items: &'a [Value], key: &str) -> HashSet<&'a str> {
    items.iter().map(|item| text(&item[key])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicates_are_found_in_short_and_long_lists() {
        for length in [0, 1, 2, PAIRWISE_MAX, PAIRWISE_MAX + 1, 100] {
            let items: Vec<_> = (0..length)
                .map(|index| json!({"name": (index / 2).to_string()}))
                .collect();
            let repeats = Duplicates::by_field(&items, "name");
            let found: Vec<_> = (0..length).filter(|index| repeats.contains(*index)).collect();
            let odd: Vec<_> = (0..length).filter(|index| index % 2 == 1).collect();
            assert_eq!(found, odd, "{length} items");
        }
    }
}
