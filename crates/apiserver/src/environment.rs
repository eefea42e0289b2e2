//! The server's clock and source of randomness.
//!
//! Randomness comes from the operating system, so that clients cannot guess keys or uids. A server with a fixed seed
//! ([`crate::Server::seeded`]) and a paused clock instead answers the same requests with the same bytes, including uids,
//! generated names and keys. It must never serve untrusted clients.

use http::HeaderValue;
use jiff::{Timestamp, tz::Offset};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use windlass_clock::Clock;

/// The only source of time and randomness.
#[derive(Debug)]
pub(crate) struct Environment {
    clock: Clock,
    random: Mutex<RandomSource>,
    /// For audit IDs, separate from `random`: reads must not change what a seeded server writes next.
    request_ids: Mutex<RandomSource>,
    seeded: bool,
}

impl Environment {
    /// Time starts at `epoch` and advances with tokio's clock; by default it is that of [`Clock::system`]. `seed`
    /// determines every uid, generated name and key.
    pub(crate) fn new(epoch: Option<Timestamp>, seed: Option<u64>) -> Self {
        let random = |salt: u64| {
            Mutex::new(match seed {
                Some(seed) => RandomSource::Seeded(fastrand::Rng::with_seed(seed ^ salt)),
                None => RandomSource::System(Box::default()),
            })
        };
        Self {
            clock: epoch.map_or_else(Clock::system, Clock::starting_at),
            random: random(0),
            request_ids: random(u64::MAX),
            seeded: seed.is_some(),
        }
    }

    /// Whether uids and keys are predictable, from a seed.
    pub(crate) fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// The clock.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.precise_now()
    }

    /// `metav1.Time`: RFC 3339 in UTC to the second.
    pub(crate) fn now_rfc3339(&self) -> String {
        rfc3339(self.now())
    }

    /// A random (version 4) UUID.
    pub(crate) fn uid(&self) -> String {
        uuid(u128::from_ne_bytes(self.random.lock().bytes()))
    }

    /// The audit ID of a request without one.
    pub(crate) fn audit_id(&self) -> HeaderValue {
        let text = uuid_text(u128::from_ne_bytes(self.request_ids.lock().bytes()));
        HeaderValue::from_bytes(&text).expect("hexadecimal digits and hyphens")
    }

    /// The uid of a review that is sent to a webhook.
    pub(crate) fn review_uid(&self) -> String {
        uuid(u128::from_ne_bytes(self.request_ids.lock().bytes()))
    }

    /// A random number below `limit`, which must not be zero.
    pub(crate) fn random_below(&self, limit: usize) -> usize {
        self.random.lock().below(limit)
    }

    /// A signing key.
    pub(crate) fn signing_key(&self) -> [u8; 32] {
        self.random.lock().bytes()
    }

    /// The duration of a watch without a timeout: 30 to 60 minutes, so that watches do not all end at once.
    pub(crate) fn watch_timeout(&self) -> std::time::Duration {
        let seconds = 1800 + self.random.lock().below(1800);
        std::time::Duration::from_secs(seconds as u64)
    }
}

/// The five characters that complete a `generateName`, from random numbers below a limit. Without vowels, so that they form
/// no words.
pub(crate) fn name_suffix(mut random_below: impl FnMut(usize) -> usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5)
        .map(|_| char::from(ALPHABET[random_below(ALPHABET.len())]))
        .collect()
}

/// Where random bytes come from.
#[derive(Debug)]
enum RandomSource {
    System(Box<RandomPool>),
    Seeded(fastrand::Rng),
}

impl RandomSource {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        match self {
            Self::System(pool) => pool.fill(&mut bytes),
            Self::Seeded(random) => random.fill(&mut bytes),
        }
        bytes
    }

    /// A random number below `limit`: the upper half of its product with 64 random bits. The bias is negligible.
    fn below(&mut self, limit: usize) -> usize {
        let product = u128::from(u64::from_ne_bytes(self.bytes())) * limit as u128;
        usize::try_from(product >> 64).expect("below a usize")
    }
}

/// A buffer of random bytes from the operating system: every request needs a few, and a system call for each would cost
/// more than the rest of a small read.
struct RandomPool {
    bytes: [u8; 512],
    /// How many of them are used up.
    used: usize,
}

impl Default for RandomPool {
    fn default() -> Self {
        let bytes = [0; 512];
        Self {
            used: bytes.len(),
            bytes,
        }
    }
}

impl RandomPool {
    /// `target` must not be longer than the pool.
    fn fill(&mut self, target: &mut [u8]) {
        if self.bytes.len() - self.used < target.len() {
            // It cannot fail after it has succeeded once since boot.
            let filled = SystemRandom::new().fill(&mut self.bytes);
            filled.expect("the operating system has a random number generator");
            self.used = 0;
        }
        let taken = &mut self.bytes[self.used..][..target.len()];
        target.copy_from_slice(taken);
        // A used key must not stay in memory.
        taken.fill(0);
        self.used += target.len();
    }
}

impl std::fmt::Debug for RandomPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

fn uuid(random: u128) -> String {
    uuid_text(random).into_iter().map(char::from).collect()
}

/// The text of a version 4 UUID with these random bits.
fn uuid_text(random: u128) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    /// Where the two digits of each byte are.
    const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let mut text = [b'-'; 36];
    for (byte, place) in bits.to_be_bytes().into_iter().zip(PLACES) {
        text[place] = DIGITS[usize::from(byte >> 4)];
        text[place + 1] = DIGITS[usize::from(byte & 0xf)];
    }
    text
}

/// RFC 3339 in UTC to the second. Written by hand because every write formats several times.
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
    async fn seed_and_paused_clock_make_everything_deterministic() {
        let epoch = Timestamp::from_second(1_700_000_000).expect("in range");
        let environments = [
            Environment::new(Some(epoch), Some(7)),
            Environment::new(Some(epoch), Some(7)),
        ];
        let [a, b] = environments.each_ref().map(|one| {
            (
                one.uid(),
                one.random_below(1_000),
                one.signing_key(),
                one.audit_id(),
                one.now_rfc3339(),
            )
        });
        assert_eq!(a, b);
        tokio::time::advance(std::time::Duration::from_secs(61)).await;
        assert_eq!(environments[0].now_rfc3339(), "2023-11-14T22:14:21Z");
    }

    #[test]
    fn pool_returns_every_byte_once_and_erases_it() {
        let environment = Environment::new(None, None);
        assert!(!environment.is_seeded());
        // Several times the pool's size.
        let uids: std::collections::HashSet<_> = (0..1_000).map(|_| environment.uid()).collect();
        assert_eq!(uids.len(), 1_000);
        let mut pool = RandomPool::default();
        let mut key = [0; 32];
        pool.fill(&mut key);
        assert_ne!(key, [0; 32]);
        assert_eq!(pool.bytes[..32], [0; 32]);
        assert!(!pool.bytes.windows(32).any(|window| *window == key));
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        for mut random in [
            RandomSource::System(Box::default()),
            RandomSource::Seeded(fastrand::Rng::with_seed(1)),
        ] {
            let seen: std::collections::BTreeSet<_> = (0..1_000).map(|_| random.below(7)).collect();
            assert_eq!(seen, (0..7).collect());
            assert_eq!(random.below(1), 0);
        }
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
        let uid = Environment::new(None, None).uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]), "{uid}");
        let bits = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        assert_eq!(uuid(bits), "01234567-89ab-4def-8123-456789abcdef");
    }
}
