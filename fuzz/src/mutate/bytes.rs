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

/// Replaces a plain value of JSON or flow YAML by one that nests up to `levels` deep, around every limit that there is. The rest of
/// the text stays as it is, so that what is read is often an object of its kind.
pub(crate) fn deepen(input: &[u8], levels: usize, rng: &mut Rng) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'.' | b'-');
    let values: Vec<(usize, usize)> = (1..input.len())
        .filter(|place| input[place - 1] == b':')
        .map(|place| {
            (
                place,
                input[place..].iter().take_while(|byte| is_plain(byte)).count(),
            )
        })
        .filter(|(_, length)| *length > 0)
        .collect();
    let Some((place, length)) = rng.choice(values) else {
        return input.to_vec();
    };
    let levels = rng.usize(..levels);
    let (open, close) = if rng.bool() { ("[", "]") } else { ("{\"a\":", "}") };
    let nested = format!("{}1{}", open.repeat(levels), close.repeat(levels));
    [&input[..place], nested.as_bytes(), &input[place + length..]].concat()
}

/// A few bytes somewhere.
fn range(length: usize, rng: &mut Rng) -> (usize, usize) {
    let from = rng.usize(..=length);
    (from, (from + rng.usize(..64)).min(length))
}
