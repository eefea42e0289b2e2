//! The properties of an object schema, found by name.
//!
//! Every field of every written object is looked up here, so a lookup compares adjacent integers and only one string at
//! the end.

use super::NodeId;

/// Sorted by name, so that the order of errors is stable.
#[derive(Debug, Default)]
pub(super) struct Properties(Vec<Property>);

#[derive(Debug)]
struct Property {
    head: u64,
    id: NodeId,
    name: Box<str>,
}

impl Properties {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<NodeId> {
        let head = head(name);
        let first = self.0.partition_point(|property| property.head < head);
        self.0[first..]
            .iter()
            .take_while(|property| property.head == head)
            .find(|property| property.has_name(name))
            .map(|property| property.id)
    }

    pub(super) fn sorted_lookup(&self) -> SortedLookup<'_> {
        SortedLookup(&self.0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.0.iter().map(|property| (&*property.name, property.id))
    }
}

/// Looks up names in sorted order, like those of an object's fields, starting from the last match.
#[derive(Debug)]
pub(super) struct SortedLookup<'a>(&'a [Property]);

impl SortedLookup<'_> {
    pub(super) fn get(&mut self, name: &str) -> Option<NodeId> {
        let head = head(name);
        let place = self.0.iter().position(|property| property.head >= head);
        self.0 = &self.0[place.unwrap_or(self.0.len())..];
        self.0
            .iter()
            .take_while(|property| property.head == head)
            .find(|property| property.has_name(name))
            .map(|property| property.id)
    }
}

impl Property {
    /// Whether it has this name, given that the heads are equal.
    fn has_name(&self, name: &str) -> bool {
        // Most names are no longer than a head. Comparing the empty rests would cost more than everything else.
        self.name.len() == name.len()
            && (name.len() <= 8 || self.name.as_bytes()[8..] == name.as_bytes()[8..])
    }
}

impl FromIterator<(Box<str>, NodeId)> for Properties {
    fn from_iter<I: IntoIterator<Item = (Box<str>, NodeId)>>(all: I) -> Self {
        let mut properties: Vec<_> = all
            .into_iter()
            .map(|(name, id)| Property {
                head: head(&name),
                id,
                name,
            })
            .collect();
        properties.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        properties.shrink_to_fit();
        Self(properties)
    }
}

/// The first eight bytes of a name, as an integer that sorts the same.
fn head(name: &str) -> u64 {
    if let Some(head) = name.as_bytes().first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let head = name.bytes().fold(0, |head, byte| head << 8 | u64::from(byte));
    // The empty name would shift by 64 bits.
    head.checked_shl(64 - 8 * u32::try_from(name.len()).unwrap_or(8))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_common_prefixes_are_found() {
        let names = [
            "terminationMessagePath",
            "a",
            "",
            "terminationGracePeriodSeconds",
            "ab",
            "terminat",
            "é",
            "sevenébc",
            "sevenébd",
        ];
        let properties: Properties = names.iter().copied().map(Box::from).zip(0..).collect();
        for (name, id) in names.iter().zip(0..) {
            assert_eq!(properties.get(name), Some(id), "{name}");
        }
        assert_eq!(properties.get("termination"), None);
        assert_eq!(properties.get("b"), None);
        assert!(properties.iter().is_sorted());
        let mut sorted = names;
        sorted.sort_unstable();
        for skipped in 0..names.len() {
            let mut in_order = properties.sorted_lookup();
            for (index, name) in sorted.iter().enumerate().filter(|(index, _)| *index != skipped) {
                assert_eq!(in_order.get(name), properties.get(name), "{name}");
                assert_eq!(
                    in_order.get(&format!("{name}\u{1}")),
                    None,
                    "behind {name} at {index}"
                );
            }
        }
    }
}
