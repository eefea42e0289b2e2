//! Compilation and evaluation of deep expressions run on a thread with a large stack.
//!
//! The parser, the checker and the evaluator recurse over the tree. An ordinary expression is a few levels deep. The
//! deepest that cel-go accepts, with macros in macros, needs more stack than a thread has by default, most of all in a
//! debug build; a thread for it costs some microseconds. A walk over many values enters the large stack once, around all
//! of its evaluations.

use std::{cell::Cell, io, thread};

/// The size of a large stack: for the deepest tree, in a debug build. Only the pages that are used are allocated.
const LARGE_STACK_BYTES: usize = 256 << 20;

thread_local! {
    /// Whether this thread has a large stack of which no evaluation uses a part.
    static HAS_LARGE_STACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread with a large stack, or here if this is one. Each of its evaluations runs there.
///
/// Fails if the thread cannot be started. A panic of `work` is passed on.
pub(crate) fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    if HAS_LARGE_STACK.get() {
        return Ok(work());
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .stack_size(LARGE_STACK_BYTES)
            .spawn_scoped(scope, || {
                HAS_LARGE_STACK.set(true);
                work()
            })?;
        match thread.join() {
            Ok(value) => Ok(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Runs the compilation or evaluation of one expression here, or with a large stack if it is deep.
///
/// What it evaluates in turn, such as a variable of the host that is computed on demand, gets a large stack of its own if
/// it is deep: a chain of them would not fit into one.
pub(crate) fn run<T: Send>(is_deep: bool, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    /// Restores the mark, also if the work panics.
    struct Restore;

    impl Drop for Restore {
        fn drop(&mut self) {
            HAS_LARGE_STACK.set(true);
        }
    }

    if !is_deep {
        return Ok(work());
    }
    with_large_stack(|| {
        HAS_LARGE_STACK.set(false);
        let _restore = Restore;
        work()
    })
}
