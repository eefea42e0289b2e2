//! Changes of bytes, whatever they mean.

use fastrand::Rng;

use super::words;

/// One change.
pub(crate) fn mutate(input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let place = rng.usize(..=bytes.len());
    match rng.u8(..10) {
        0 if place < bytes.len() => bytes[place] ^= 1 << rng.u8(..8),
        1 if place < bytes.len() => bytes[place] = rng.u8(..),
        2 => {
            let end = (place + 1 + rng.usize(..8)).min(bytes.len());
            bytes.drain(place..end);
        }
        3 => bytes.truncate(place),
        4 => {
            let (from, to) = range(donor.len(), rng);
            bytes.splice(place..place, donor[from..to].iter().copied());
        }
        5 => {
            let (from, to) = range(bytes.len(), rng);
            let piece = bytes[from..to].repeat(1 + rng.usize(..3));
            bytes.splice(place..place, piece);
        }
        6 if place < bytes.len() => {
            let swapped: Vec<u8> = bytes.drain(place..).collect();
            bytes.splice(0..0, swapped);
        }
        _ => {
            let word = rng.choice(words::TEXTS).copied().unwrap_or_default();
            let end = if rng.bool() {
                place
            } else {
                (place + word.len()).min(bytes.len())
            };
            bytes.splice(place..end, word.bytes());
        }
    }
    bytes
}

/// A few bytes somewhere.
fn range(length: usize, rng: &mut Rng) -> (usize, usize) {
    let from = rng.usize(..=length);
    (from, (from + rng.usize(..64)).min(length))
}
