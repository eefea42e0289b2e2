//! The properties of an object's schema, found by name.
//!
//! Every field of every object that is written is looked up here, so that a lookup compares numbers that lie side by
//! side and one text at the end.

use super::NodeId;

/// In order of their names, so that the first of several errors is always the same.
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
            .find(|property| *property.name == *name)
            .map(|property| property.id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, NodeId)> {
        self.0.iter().map(|property| (&*property.name, property.id))
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

/// The first bytes of a name as a number that sorts as they do.
fn head(name: &str) -> u64 {
    let mut head = [0; 8];
    let length = name.len().min(8);
    head[..length].copy_from_slice(&name.as_bytes()[..length]);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_however_alike_they_begin() {
        let names = [
            "terminationMessagePath",
            "a",
            "",
            "terminationGracePeriodSeconds",
            "ab",
            "terminat",
            "é",
        ];
        let properties: Properties = names.iter().copied().map(Box::from).zip(0..).collect();
        for (name, id) in names.iter().zip(0..) {
            assert_eq!(properties.get(name), Some(id), "{name}");
        }
        assert_eq!(properties.get("termination"), None);
        assert_eq!(properties.get("b"), None);
        assert!(properties.iter().is_sorted());
    }
}
