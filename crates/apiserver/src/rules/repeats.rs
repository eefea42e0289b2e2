//! Finding what a list holds twice, with one look at each item.

use std::{collections::HashSet, hash::Hash};

use serde_json::Value;

use super::findings::text;

/// Up to this many items are compared with each other: that is faster, and takes no memory.
const FEW: usize = 6;

/// Which items of a list are equal to one before them, by what was asked of them.
#[derive(Debug)]
pub(super) struct Repeats(Vec<usize>);

impl Repeats {
    /// Looks at what `of` makes of each item.
    pub(super) fn of<'a, T: Eq + Hash>(items: &'a [Value], of: impl Fn(&'a Value) -> T) -> Self {
        let mut repeated = Vec::new();
        if items.len() <= FEW {
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

    /// Looks at a field that is a text; an absent one is an empty text.
    pub(super) fn of_field(items: &[Value], key: &str) -> Self {
        Self::of(items, |item| text(&item[key]))
    }

    /// Whether the item at this place is one of them.
    pub(super) fn has(&self, index: usize) -> bool {
        self.0.binary_search(&index).is_ok()
    }
}

/// The texts that items have in a field.
pub(super) fn texts_of<'a>(items: &'a [Value], key: &str) -> HashSet<&'a str> {
    items.iter().map(|item| text(&item[key])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeats_are_found_in_short_and_long_lists() {
        for length in [0, 1, 2, FEW, FEW + 1, 100] {
            let items: Vec<_> = (0..length)
                .map(|index| json!({"name": (index / 2).to_string()}))
                .collect();
            let repeats = Repeats::of_field(&items, "name");
            let found: Vec<_> = (0..length).filter(|index| repeats.has(*index)).collect();
            let odd: Vec<_> = (0..length).filter(|index| index % 2 == 1).collect();
            assert_eq!(found, odd, "{length} items");
        }
    }
}
