//! What must hold for every input, and how a violation is noticed.

use std::sync::{Mutex, Once, PoisonError};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts every byte that any thread of the process allocates.
#[global_allocator]
pub static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// The stack of the thread that runs inputs: tokio's default for its workers. Frames of a debug build are larger than those of
/// a release build, so what fits here fits there.
pub const STACK_BYTES: usize = 2 * 1024 * 1024;

/// How deeply nested the trees are that this program itself makes and reads: `serde_json` reads 128 levels. Deeper inputs are made
/// as text, and of the objects that they make it is tried only that they can be read in every form and deleted.
pub const MAX_DEPTH: usize = 100;

/// What a request may allocate in total whatever its size: the server's own tables, and answers that do not depend on the request.
pub const BASE_BYTES: usize = 4 * 1024 * 1024;

/// What a request may allocate in total for each of its bytes. The peak is lower; the sum is what can be measured without
/// `unsafe` code, and bounds it. An object of eight bytes of JSON takes about 100 bytes as a tree, and a write has several trees.
pub const BYTES_PER_BYTE: usize = 1_500;

/// What a JSON patch may allocate besides for what it copies: the server, as a real one, takes copies of up to 3 MiB of JSON in total, each
/// byte of which is some fifty as a tree.
pub const COPIED_BYTES: usize = 192 * 1024 * 1024;

/// A law that an input broke.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which one.
    pub law: Law,
    /// What was observed.
    pub detail: String,
}

/// The laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Nothing panics, in any thread, whether it is caught or not.
    NoPanic,
    /// Memory is bounded by the size of the input.
    BoundedMemory,
    /// What was accepted can be read, written back unchanged, and deleted.
    ReadableAgain,
    /// An answer is well formed, and not an internal error.
    WellFormed,
    /// Only what proves who asks is taken as a proof.
    Authentic,
}

impl Law {
    /// A violation of it.
    pub fn broken(self, detail: impl Into<String>) -> Violation {
        let mut detail = detail.into();
        if detail.len() > 4_000 {
            let end = detail.floor_char_boundary(4_000);
            detail.truncate(end);
            detail.push('…');
        }
        Violation { law: self, detail }
    }
}

static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Records panics of all threads instead of printing them.
pub fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let mut panic = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
            panic.get_or_insert_with(|| info.to_string());
        }));
    });
}

/// The first panic since the last call.
pub fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Measures what the process allocates from here on.
pub struct Meter(Region<'static, std::alloc::System>);

impl Meter {
    /// Starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Self(Region::new(ALLOCATOR))
    }

    /// The bytes that were allocated since the start, also if they were freed again.
    pub fn allocated(&self) -> usize {
        self.0.change().bytes_allocated
    }

    /// Checks the law for an input of `length` bytes.
    pub fn check(&self, length: usize) -> Result<usize, Violation> {
        let allocated = self.allocated();
        let limit = BASE_BYTES + length * BYTES_PER_BYTE;
        if allocated > limit {
            return Err(Law::BoundedMemory.broken(format!(
                "{length} bytes of input made the process allocate {allocated} bytes, more than {limit}"
            )));
        }
        Ok(allocated)
    }
}
