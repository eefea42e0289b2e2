//! Invariants that hold for every input, and how violations are detected.

use std::sync::{Mutex, Once, PoisonError};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

/// Counts every byte that any thread of the process allocates.
#[global_allocator]
pub static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// Stack size of the thread that runs inputs: tokio's default for its workers. Frames of a debug build are larger than
/// those of a release build, so what fits here fits there.
pub const STACK_BYTES: usize = 2 * 1024 * 1024;

/// Maximum depth of the trees that the fuzzer itself builds and parses: `serde_json` parses 128 levels. Deeper inputs
/// are built as text, and for the objects they create it is only checked that every representation can be read and that
/// they can be deleted.
pub const MAX_DEPTH: usize = 100;

/// Bytes that a request of any size may allocate in total: the server's own tables, and responses that do not depend on
/// the request.
pub const BASE_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that a request may allocate in total per byte of input. The sum is measured because the peak cannot be without
/// `unsafe` code; it is an upper bound of the peak. Eight bytes of JSON take about 100 bytes as a tree, and a write has
/// several trees.
pub const BYTES_PER_BYTE: usize = 1_500;

/// Bytes that a JSON patch may allocate in addition for its copies. The server, like a real one, allows copies of up to
/// 3 MiB of JSON in total, and each byte takes about fifty as a tree.
pub const COPIED_BYTES: usize = 192 * 1024 * 1024;

/// A violated invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// What was observed.
    pub detail: String,
}

/// The invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {
    /// No thread panics, even if the panic is caught.
    NoPanic,
    /// Memory is bounded by the size of the input.
    BoundedMemory,
    /// An accepted object can be read, written back without a change, and deleted.
    ReadableAgain,
    /// A response is well formed and not an internal error.
    WellFormed,
    /// Only the genuine token authenticates its user.
    Authentic,
}

impl Invariant {
    /// Returns a violation of this invariant.
    pub fn violated(self, detail: impl Into<String>) -> Violation {
        let mut detail = detail.into();
        if detail.len() > 4_000 {
            let end = detail.floor_char_boundary(4_000);
            detail.truncate(end);
            detail.push('…');
        }
        Violation {
            invariant: self,
            detail,
        }
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

/// Returns the first panic since the last call.
pub fn take_panic() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Measures allocations of the process.
pub struct Meter(Region<'static, std::alloc::System>);

impl Meter {
    /// Starts counting at zero.
    #[must_use]
    pub fn start() -> Self {
        Self(Region::new(ALLOCATOR))
    }

    /// Returns the bytes allocated since the start, including those freed since.
    pub fn allocated(&self) -> usize {
        self.0.change().bytes_allocated
    }

    /// Checks that an input of `length` bytes stayed within the memory bound.
    pub fn check(&self, length: usize) -> Result<usize, Violation> {
        let allocated = self.allocated();
        let limit = BASE_BYTES + length * BYTES_PER_BYTE;
        if allocated > limit {
            return Err(Invariant::BoundedMemory.violated(format!(
                "{length} bytes of input made the process allocate {allocated} bytes, more than {limit}"
            )));
        }
        Ok(allocated)
    }
}
