//! Keyed digests: they identify content within this process, without holding it.
//!
//! The key is random and never leaves the process, and digests are never written anywhere. A digest in an object's
//! metadata would let all who can read metadata test guesses of short values; with a key in a Secret, that Secret would
//! have to be protected, backed up and rotated, and still prove nothing: a client that changes a copy can leave its digest as
//! it was. So what a copy contains is known only for the versions that this process wrote or read.

use std::sync::LazyLock;

use ring::{
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};

static KEY: LazyLock<hmac::Key> = LazyLock::new(|| {
    hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).expect("the system has random numbers")
});

/// Identifies content; half of an HMAC-SHA-256, since there is one per copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest([u8; 16]);

/// Computes a digest.
pub(crate) struct DigestBuilder(hmac::Context);

impl DigestBuilder {
    pub(crate) fn new() -> Self {
        Self(hmac::Context::with_key(&KEY))
    }

    /// Adds a part, with its length, so that the encoding is unambiguous.
    pub(crate) fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    /// Adds a list, preceded by its length.
    pub(crate) fn add_all<'a>(&mut self, parts: impl ExactSizeIterator<Item = [&'a [u8]; 2]>) {
        self.0.update(&(parts.len() as u64).to_be_bytes());
        for part in parts.flatten() {
            self.add(part);
        }
    }

    pub(crate) fn finish(self) -> Digest {
        let tag = self.0.sign();
        let mut half = [0; 16];
        half.copy_from_slice(&tag.as_ref()[..16]);
        Digest(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_depend_on_the_parts_and_their_limits() {
        let of = |parts: &[&str], pairs: &[[&str; 2]]| {
            let mut builder = DigestBuilder::new();
            for part in parts {
                builder.add(part);
            }
            builder.add_all(pairs.iter().map(|pair| pair.map(str::as_bytes)));
            builder.finish()
        };
        let all = [
            of(&[], &[]),
            of(&["ab"], &[]),
            of(&["a", "b"], &[]),
            of(&["", "ab"], &[]),
            of(&[], &[["a", "b"]]),
            of(&["a", "b"], &[["a", "b"]]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one), "{at}");
        }
        assert_eq!(of(&["ab"], &[]), all[1]);
    }
}
