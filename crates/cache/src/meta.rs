//! The metadata of an object that is always in memory: key, owners, labels and versions.

use std::{
    collections::HashSet,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use crate::{key::ObjectKey, scan::ScannedObject};

/// Metadata of a cached object, available without decoding it.
#[derive(Clone, Debug)]
pub struct Meta {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Uid,
    /// 0 where the server's version is not a number.
    pub(crate) resource_version: u64,
    pub(crate) generation: i64,
    pub(crate) deleting: bool,
    /// Alternating names and values, each ended by a NUL, sorted by name. Pods of one ReplicaSet share one string.
    labels: Arc<str>,
    pub(crate) owners: Box<[Uid]>,
}

impl Meta {
    /// Returns the object's key.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the UID, which distinguishes objects of the same name.
    pub fn uid(&self) -> Uid {
        self.uid
    }

    /// Returns the resource version; 0 if the server's is not a number.
    pub fn resource_version(&self) -> u64 {
        self.resource_version
    }

    /// Returns the generation of the spec; 0 if the kind has none.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Returns whether the object has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Returns the UIDs of the owner references.
    pub fn owners(&self) -> &[Uid] {
        &self.owners
    }

    /// Returns the labels, ordered by name.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = self.labels.split_terminator('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// Returns the value of one label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    /// Returns whether this is the state with this UID and resource version.
    pub(crate) fn has_version(&self, uid: &str, resource_version: &str) -> bool {
        self.resource_version != 0
            && resource_version.parse() == Ok(self.resource_version)
            && self.uid == Uid::from(uid)
    }

    /// Returns whether both are the same state of the same object.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        self.resource_version != 0 && self.resource_version == other.resource_version && self.uid == other.uid
    }
}

/// A UID in 16 bytes; a string that is not a UUID is hashed.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(
    /// Not a `u128`, whose alignment of 16 would leave gaps in each entry.
    [u8; 16],
);

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let digits = || text.bytes().filter(|byte| *byte != b'-');
        let is_uuid = text.len() == 36
            && digits().count() == 32
            && digits().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if is_uuid {
            let value = digits().fold(0_u128, |value, byte| {
                let digit = if byte.is_ascii_digit() {
                    byte - b'0'
                } else {
                    byte - b'a' + 10
                };
                value << 4 | u128::from(digit)
            });
            return Self(value.to_be_bytes());
        }
        let half = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            (seed, text).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Self((half(0) << 64 | half(1)).to_be_bytes())
    }
}

/// Writes the server's form, if it was a UUID.
impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", u128::from_be_bytes(self.0));
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
        f.write_str(&parts.join("-"))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Stores strings that many objects share only once. Owned by the writer.
#[derive(Default)]
pub(crate) struct Interner {
    texts: HashSet<Arc<str>, foldhash::fast::RandomState>,
    scratch: String,
    /// Sweep when there are this many.
    sweep_at: usize,
}

impl Interner {
    pub(crate) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        if self.texts.len() >= self.sweep_at.max(1024) {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = self.texts.len() * 2;
        }
        let text = Arc::<str>::from(text);
        self.texts.insert(Arc::clone(&text));
        text
    }

    pub(crate) fn meta(&mut self, found: &ScannedObject<'_>) -> Meta {
        let mut labels: Vec<_> = found.labels.iter().collect();
        labels.sort_unstable();
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        for part in labels.iter().flat_map(|(name, value)| [name, "\0", value, "\0"]) {
            text.push_str(part);
        }
        let interned = self.intern(&text);
        self.scratch = text;
        Meta {
            key: ObjectKey::namespaced(self.intern(&found.namespace), &*found.name),
            uid: Uid::from(&*found.uid),
            resource_version: found.resource_version.parse().unwrap_or_default(),
            generation: found.generation,
            deleting: found.deleting,
            labels: interned,
            owners: found.owners.iter().map(|uid| Uid::from(&**uid)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_of_different_strings_differ() {
        let uuid = "8c1d7c3e-6a0f-4b52-9f43-0a5de2b1c001";
        let number = 0x8c1d_7c3e_6a0f_4b52_9f43_0a5d_e2b1_c001_u128;
        assert_eq!(Uid::from(uuid).0, number.to_be_bytes());
        assert_eq!(Uid::from(uuid).to_string(), uuid);
        let small = "00000000-0000-0000-0000-00000000000f";
        assert_eq!(Uid::from(small).to_string(), small);
        assert_ne!(Uid::from("uid-1"), Uid::from("uid-2"));
        assert_ne!(Uid::from(&*uuid.to_uppercase()), Uid::from(uuid));
    }

    #[test]
    fn interner_shares_namespaces_and_label_sets() {
        let mut interner = Interner::default();
        let scanned = |labels: &[(&'static str, &'static str)]| ScannedObject {
            namespace: "shop".into(),
            labels: labels
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            ..ScannedObject::default()
        };
        let one = interner.meta(&scanned(&[("b", ""), ("a", "1")]));
        let two = interner.meta(&scanned(&[("a", "1"), ("b", "")]));
        assert!(Arc::ptr_eq(&one.labels, &two.labels));
        assert_eq!(one.labels().collect::<Vec<_>>(), [("a", "1"), ("b", "")]);
        assert_eq!((one.label("a"), one.label("c")), (Some("1"), None));
    }
}
