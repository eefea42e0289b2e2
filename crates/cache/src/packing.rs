//! Compresses objects' JSON: zstd with a dictionary trained from the kind's own objects.
//!
//! The objects of one kind repeat the same names and phrases; a dictionary of 16 KB stores them once. The benchmark's
//! pods (5.7 KB, 7.3 KB with `managedFields`) take 723 bytes after 7.3 µs at zstd level 1, and 677 after 9.5 µs at
//! level 3. Fast ingest matters more than the last bytes. `lz4_flex` with the same dictionary compresses far less and
//! takes longer. Larger dictionaries gain less than 2 %.

use std::sync::Arc;

use parking_lot::Mutex;
use zstd::zstd_safe::{self, CCtx, CDict, DCtx, DDict};

const LEVEL: i32 = 1;
const DICTIONARY_BYTES: usize = 16 << 10;

/// Upper bound for the training data, so that training takes some 30 ms.
pub(crate) const MAX_TRAINING_BYTES: usize = 512 << 10;

/// With fewer samples, a dictionary is not worth its own memory.
const MIN_SAMPLES: usize = 16;

/// The compression ratio is measured over this many objects.
const WINDOW: u32 = 256;

/// A dictionary is retrained when the compression ratio is worse than the initial one by this factor.
const RETRAIN_FACTOR: f64 = 1.5;

/// Pool of decompression contexts; each takes some 100 KB, so only few are kept.
static DECOMPRESSORS: Mutex<Vec<DCtx<'static>>> = Mutex::new(Vec::new());
const MAX_DECOMPRESSORS: usize = 4;

/// A dictionary of one kind. Objects packed with it keep it alive.
pub(crate) struct Dictionary {
    pack: CDict<'static>,
    unpack: DDict<'static>,
}

/// An object's compressed JSON.
#[derive(Clone)]
pub(crate) struct Packed {
    dictionary: Option<Arc<Dictionary>>,
    bytes: Arc<[u8]>,
    /// The length of the JSON.
    length: usize,
}

impl Packed {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn unpack(&self) -> Vec<u8> {
        let mut context = DECOMPRESSORS.lock().pop().unwrap_or_default();
        let mut text = Vec::with_capacity(self.length);
        let outcome = match &self.dictionary {
            Some(dictionary) => context.decompress_using_ddict(&mut text, &self.bytes, &dictionary.unpack),
            None => context.decompress(&mut text, &self.bytes),
        };
        outcome.expect("the bytes were packed here with this dictionary");
        let mut readers = DECOMPRESSORS.lock();
        if readers.len() < MAX_DECOMPRESSORS {
            readers.push(context);
        }
        text
    }
}

/// Compresses the objects of one kind.
pub(crate) struct Packer {
    context: CCtx<'static>,
    dictionary: Option<Arc<Dictionary>>,
    scratch: Vec<u8>,
    /// Packed size over JSON size in the first window after training.
    initial_ratio: Option<f64>,
    window: Ratio,
    trained: u32,
}

#[derive(Default)]
struct Ratio {
    packed: u64,
    plain: u64,
    objects: u32,
}

impl Packer {
    pub(crate) fn new() -> Self {
        Self {
            context: CCtx::default(),
            dictionary: None,
            scratch: Vec::new(),
            initial_ratio: None,
            window: Ratio::default(),
            trained: 0,
        }
    }

    /// Returns whether to train a dictionary: there is none, or the ratio has become too bad. If training failed, it is
    /// tried again after two windows.
    pub(crate) fn needs_training(&self) -> bool {
        (self.dictionary.is_none() && self.window.objects == 0)
            || self.initial_ratio.is_some_and(|first| {
                self.window.objects >= WINDOW && self.window.value() > first * RETRAIN_FACTOR
            })
    }

    /// Trains a dictionary from samples, if there are enough.
    pub(crate) fn train<'a>(&mut self, samples: impl Iterator<Item = &'a [u8]>) {
        let (mut text, mut sizes) = (Vec::new(), Vec::new());
        for sample in samples {
            if text.len() + sample.len() > MAX_TRAINING_BYTES {
                break;
            }
            text.extend_from_slice(sample);
            sizes.push(sample.len());
        }
        if sizes.len() < MIN_SAMPLES {
            return;
        }
        let size = DICTIONARY_BYTES.min(text.len() / 8);
        // Training fails for objects with nothing in common; they are packed without a dictionary.
        if let Ok(trained) = zstd::dict::from_continuous(&text, &sizes, size) {
            self.dictionary = Some(Arc::new(Dictionary {
                pack: zstd_safe::create_cdict(&trained, LEVEL),
                unpack: zstd_safe::create_ddict(&trained),
            }));
            self.trained += 1;
        }
        self.initial_ratio = None;
        self.window = Ratio::default();
    }

    pub(crate) fn pack(&mut self, text: &[u8]) -> Packed {
        self.scratch.clear();
        self.scratch.reserve(zstd_safe::compress_bound(text.len()));
        let outcome = match &self.dictionary {
            Some(dictionary) => self
                .context
                .compress_using_cdict(&mut self.scratch, text, &dictionary.pack),
            None => self.context.compress(&mut self.scratch, text, LEVEL),
        };
        outcome.expect("the buffer has the size of zstd's bound");
        self.window.add(self.scratch.len(), text.len());
        if self.window.objects >= WINDOW && self.initial_ratio.is_none() {
            self.initial_ratio = Some(self.window.value());
            self.window = Ratio::default();
        } else if self.window.objects >= 2 * WINDOW {
            self.window = Ratio::default();
        }
        Packed {
            dictionary: self.dictionary.clone(),
            bytes: self.scratch.as_slice().into(),
            length: text.len(),
        }
    }

    /// Returns how many dictionaries were trained.
    pub(crate) fn trained(&self) -> u32 {
        self.trained
    }
}

impl Ratio {
    fn add(&mut self, packed: usize, plain: usize) {
        self.packed += packed as u64;
        self.plain += plain as u64;
        self.objects += 1;
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more")]
    fn value(&self) -> f64 {
        self.packed as f64 / self.plain.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: usize, phrase: &str) -> Vec<u8> {
        let fields: Vec<_> = (0..40)
            .map(|field| format!(r#""{phrase}-{field}":"{phrase} {}""#, number * field))
            .collect();
        format!(r#"{{{},"number":{number}}}"#, fields.join(",")).into_bytes()
    }

    fn samples(phrase: &str) -> Vec<Vec<u8>> {
        (0..300).map(|number| object(number, phrase)).collect()
    }

    #[test]
    fn packing_round_trips() {
        let mut packer = Packer::new();
        let plain = packer.pack(&object(1, "ship"));
        packer.train(samples("ship").iter().map(Vec::as_slice));
        let small = packer.pack(&object(1, "ship"));
        assert_eq!(plain.unpack(), object(1, "ship"));
        assert_eq!(small.unpack(), object(1, "ship"));
        assert!(small.len() < plain.len(), "{} {}", small.len(), plain.len());
        assert_eq!(packer.pack(b"").unpack(), b"");
    }

    #[test]
    fn dictionary_is_retrained_and_old_objects_stay_readable() {
        let mut packer = Packer::new();
        assert!(packer.needs_training());
        packer.train(samples("ship").iter().map(Vec::as_slice));
        let early: Vec<_> = samples("ship").iter().map(|object| packer.pack(object)).collect();
        assert!(!packer.needs_training());
        let noise = |number: u64| -> Vec<u8> {
            let mut random = fastrand::Rng::with_seed(number);
            (0..1000).map(|_| random.alphanumeric() as u8).collect()
        };
        for number in 0..u64::from(WINDOW) {
            packer.pack(&noise(number));
        }
        assert!(packer.needs_training());
        packer.train(samples("harbour").iter().map(Vec::as_slice));
        assert_eq!(packer.trained(), 2);
        assert_eq!(early[7].unpack(), object(7, "ship"));
        assert_eq!(packer.pack(&object(8, "harbour")).unpack(), object(8, "harbour"));
    }
}
