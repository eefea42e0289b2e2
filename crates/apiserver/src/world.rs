//! What the server takes from outside itself: the time, and chance.
//!
//! A server made with a fixed seed on a paused clock answers the same requests with the same bytes, uids and
//! generated names included.

use jiff::{Timestamp, tz::Offset};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The server's only source of time and randomness.
#[derive(Debug)]
pub(crate) struct World {
    epoch: Timestamp,
    started: Instant,
    chance: Mutex<fastrand::Rng>,
    /// For what every request gets, so that reading does not change what is written next.
    requests: Mutex<fastrand::Rng>,
}

impl World {
    /// Time runs on from `epoch` as tokio's clock does; `seed` fixes every uid and generated name.
    pub(crate) fn new(epoch: Option<Timestamp>, seed: Option<u64>) -> Self {
        let chance = |salt: u64| {
            let seeded = seed.map(|seed| fastrand::Rng::with_seed(seed ^ salt));
            Mutex::new(seeded.unwrap_or_default())
        };
        Self {
            epoch: epoch.unwrap_or_else(Timestamp::now),
            started: Instant::now(),
            chance: chance(0),
            requests: chance(u64::MAX),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.epoch + self.started.elapsed()
    }

    /// `metav1.Time`: RFC 3339 in UTC to the second.
    pub(crate) fn now_text(&self) -> String {
        rfc3339(self.now())
    }

    /// A random (version 4) UUID.
    pub(crate) fn uid(&self) -> String {
        uuid(self.chance.lock().u128(..))
    }

    /// What a request is called in logs, unless its client has a name for it.
    pub(crate) fn audit_id(&self) -> String {
        uuid(self.requests.lock().u128(..))
    }

    /// The five characters that complete a `generateName`: no vowels, so that no words come up.
    pub(crate) fn name_suffix(&self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut chance = self.chance.lock();
        (0..5)
            .map(|_| char::from(ALPHABET[chance.usize(..ALPHABET.len())]))
            .collect()
    }

    /// Any number below `limit`, which must not be zero.
    pub(crate) fn below(&self, limit: usize) -> usize {
        self.chance.lock().usize(..limit)
    }

    /// Bytes that nobody can guess, unless the server was seeded.
    pub(crate) fn secret(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.chance.lock().fill(&mut bytes);
        bytes
    }

    /// The length of a watch whose client named none: 30 to 60 minutes, so that they do not all end at once.
    pub(crate) fn watch_timeout(&self) -> std::time::Duration {
        std::time::Duration::from_secs(self.chance.lock().u64(1800..3600))
    }
}

fn uuid(chance: u128) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bits = chance & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let mut text = String::with_capacity(36);
    for (index, byte) in bits.to_be_bytes().into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    text
}

/// RFC 3339 in UTC to the second. Every write says several times when it was.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    let time = Offset::UTC.to_datetime(time);
    // The clock has no times before year 0.
    let (century, year) = (time.year() / 100, time.year() % 100);
    let mut text = String::with_capacity(20);
    for (number, behind) in [
        (century, ""),
        (year, "-"),
        (time.month().into(), "-"),
        (time.day().into(), "T"),
        (time.hour().into(), ":"),
        (time.minute().into(), ":"),
        (time.second().into(), "Z"),
    ] {
        for digit in [number / 10, number % 10] {
            text.push(char::from_digit(digit.unsigned_abs().into(), 10).unwrap_or('0'));
        }
        text.push_str(behind);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_seed_and_a_paused_clock_fix_everything() {
        let epoch = Timestamp::from_second(1_700_000_000).expect("in range");
        let worlds = [World::new(Some(epoch), Some(7)), World::new(Some(epoch), Some(7))];
        let [a, b] = worlds
            .each_ref()
            .map(|w| (w.uid(), w.name_suffix(), w.now_text()));
        assert_eq!(a, b);
        tokio::time::advance(std::time::Duration::from_secs(61)).await;
        assert_eq!(worlds[0].now_text(), "2023-11-14T22:14:21Z");
    }

    #[test]
    fn times_are_written_to_the_second() {
        for second in [0, 1, 951_827_696, 1_700_000_000, 4_102_444_799, 253_402_207_199] {
            let time = Timestamp::from_second(second).expect("in range");
            assert_eq!(rfc3339(time), time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
    }

    #[test]
    fn uids_are_version_4_uuids() {
        let uid = World::new(None, None).uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]), "{uid}");
        let bits = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        assert_eq!(uuid(bits), "01234567-89ab-4def-8123-456789abcdef");
    }
}
