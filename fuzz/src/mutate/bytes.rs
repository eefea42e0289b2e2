//! Mutations of raw bytes.

use fastrand::Rng;

use super::dictionary;

/// Applies one mutation.
pub(crate) fn mutate(input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let position = rng.usize(..=bytes.len());
    match rng.u8(..10) {
        0 if position < bytes.len() => bytes[position] ^= 1 << rng.u8(..8),
        1 if position < bytes.len() => bytes[position] = rng.u8(..),
        2 => {
            let end = (position + 1 + rng.usize(..8)).min(bytes.len());
            bytes.drain(position..end);
        }
        3 => bytes.truncate(position),
        4 => {
            let (from, to) = range(donor.len(), rng);
            bytes.splice(position..position, donor[from..to].iter().copied());
        }
        5 => {
            let (from, to) = range(bytes.len(), rng);
            let piece = bytes[from..to].repeat(1 + rng.usize(..3));
            bytes.splice(position..position, piece);
        }
        6 if position < bytes.len() => {
            let swapped: Vec<u8> = bytes.drain(position..).collect();
            bytes.splice(0..0, swapped);
        }
        _ => {
            let word = rng.choice(dictionary::TEXTS).copied().unwrap_or_default();
            let end = if rng.bool() {
                position
            } else {
                (position + word.len()).min(bytes.len())
            };
            bytes.splice(position..end, word.bytes());
        }
    }
    bytes
}

/// Replaces a scalar of JSON or flow YAML with a value that nests up to `levels` deep, often close to a known limit.
/// The rest of the text stays, so that it often still parses as an object of its kind.
pub(crate) fn deepen(input: &[u8], levels: usize, rng: &mut Rng) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'.' | b'-');
    let values: Vec<(usize, usize)> = (1..input.len())
        .filter(|position| input[position - 1] == b':')
        .map(|position| {
            (
                position,
                input[position..].iter().take_while(|byte| is_plain(byte)).count(),
            )
        })
        .filter(|(_, length)| *length > 0)
        .collect();
    let Some((position, length)) = rng.choice(values) else {
        return input.to_vec();
    };
    let levels = rng.usize(..levels);
    let (open, close) = if rng.bool() { ("[", "]") } else { ("{\"a\":", "}") };
    let nested = format!("{}1{}", open.repeat(levels), close.repeat(levels));
    [&input[..position], nested.as_bytes(), &input[position + length..]].concat()
}

/// Picks a short range.
fn range(length: usize, rng: &mut Rng) -> (usize, usize) {
    let from = rng.usize(..=length);
    (from, (from + rng.usize(..64)).min(length))
}
