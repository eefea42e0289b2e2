//! Deep expressions run on a thread with a large stack.
//!
//! The parser, the checker and the evaluator recurse over the tree. An ordinary expression is a few levels deep. The
//! deepest that cel-go accepts, with macros in macros, needs more stack than a thread has by default, most of all in a
//! debug build; a thread for it costs some microseconds.

use std::{io, thread};

/// For the deepest tree, in a debug build. Only the pages that are used are allocated.
const LARGE_STACK: usize = 256 << 20;

/// Runs `work` here, or on a thread with a large stack if it is deep.
///
/// Fails if the thread cannot be started. A panic of `work` is passed on.
pub(crate) fn run<T: Send>(is_deep: bool, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    if !is_deep {
        return Ok(work());
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .stack_size(LARGE_STACK)
            .spawn_scoped(scope, work)?;
        match thread.join() {
            Ok(value) => Ok(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
