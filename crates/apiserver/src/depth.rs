//! Limits on the nesting of documents, and large stacks for deep ones.
//!
//! Everything that handles a tree (reading, comparing, merging, writing, even dropping it) recurses over it. A real
//! kube-apiserver accepts 10,000 levels, because goroutine stacks grow; a Rust thread's stack does not. So there are two
//! ways to handle a request:
//!
//! ```text
//!   body, patch result, stored object
//!        │ at most SHALLOW levels ──► handled where it is, on the caller's stack
//!        │ at most MAX levels ──────► handled on a thread with a large stack, which exists for this request only
//!        └ more ────────────────────► rejected before anything recurses over it
//! ```
//!
//! Nearly no request pays for that: a parser detects a deep document and asks for a large stack ([`check`]), and the
//! request starts again with one ([`run`]). Stored objects are bytes, and parsing them is the first step that recurses.
//! A deep object is marked ([`Encoded::is_deep`](crate::object::Encoded::is_deep)), and only requests about it pay.
//! Only custom resources can be deep: other parts of the server read built-in kinds on small stacks.

use std::{cell::Cell, thread};

use serde_json::Value;

/// The maximum depth of any document, as in kube-apiserver's decoders.
pub(crate) const MAX: usize = 10_000;

/// The maximum depth on the caller's stack, which may be a test's in a debug build.
pub(crate) const SHALLOW: usize = 128;

/// The stack for deep documents, in bytes: four times what the deepest one was seen to use in a debug build. Only the used
/// part takes memory.
const LARGE_STACK_BYTES: usize = 512 * 1024 * 1024;

thread_local! {
    /// Whether this thread has a large stack.
    static HAS_LARGE_STACK: Cell<bool> = const { Cell::new(false) };
    /// What this thread runs.
    static WORK: Cell<Work> = const { Cell::new(Work::Once) };
}

/// Work on a thread's small stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// None of [`run`]. A document that is too deep for the stack is an error.
    Once,
    /// That of [`run`], which can start again on a large stack.
    Restartable,
    /// That of [`run`], which must start again.
    Restarting,
}

/// Whether deep documents can be handled on this thread.
pub(crate) fn has_large_stack() -> bool {
    HAS_LARGE_STACK.get()
}

/// The maximum depth of documents on this thread.
pub(crate) fn limit() -> usize {
    if has_large_stack() { MAX } else { SHALLOW }
}

/// The maximum depth on this thread of JSON that the server itself wrote: defaults and managed fields are deeper than
/// what the client sent.
pub(crate) fn stored_limit() -> usize {
    2 * limit()
}

/// Checks that a document of this depth can be handled on this thread. If it needs a large stack, [`run`] starts the work
/// again with one and discards the error.
pub(crate) fn check(depth: usize) -> Result<(), TooDeep> {
    if depth <= limit() {
        return Ok(());
    }
    if WORK.get() != Work::Once {
        WORK.set(if depth <= MAX {
            Work::Restarting
        } else {
            Work::Restartable
        });
    }
    Err(TooDeep)
}

/// Whether the current work starts again on a large stack, whatever it returns. It must not change anything any more.
pub(crate) fn must_restart() -> bool {
    WORK.get() == Work::Restarting
}

/// Says that something was changed, or that a document is read in another way, so that the work does not start again for what
/// was too deep before.
pub(crate) fn settle() {
    if must_restart() {
        WORK.set(Work::Restartable);
    }
}

/// A document is too deep for this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooDeep;

/// Runs some work, and again with a large stack if it needs one. `deep` means that it is known to need one.
///
/// The work must not have changed anything when it calls [`check`].
pub(crate) fn run<R: Send>(deep: bool, mut work: impl FnMut() -> R + Send) -> R {
    if !deep {
        let outer = OuterWork(WORK.replace(Work::Restartable));
        let done = work();
        if !must_restart() {
            return done;
        }
        drop(outer);
    }
    with_large_stack(work)
}

/// What the thread did before a [`run`], and does again after it, even if that panics.
struct OuterWork(Work);

impl Drop for OuterWork {
    fn drop(&mut self) {
        WORK.set(self.0);
    }
}

/// Runs some work on a large stack. Its result must not be deep.
pub(crate) fn with_large_stack<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if has_large_stack() {
        return work();
    }
    let runtime = tokio::runtime::Handle::try_current().ok();
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("windlass-deep".to_owned())
            .stack_size(LARGE_STACK_BYTES)
            .spawn_scoped(scope, || {
                // The work may read tokio's clock.
                let _context = runtime.as_ref().map(tokio::runtime::Handle::enter);
                HAS_LARGE_STACK.set(true);
                work()
            });
        // Without memory for a thread, only this request fails, like any other that panics.
        let worker = worker.unwrap_or_else(|error| panic!("no stack for a deeply nested document: {error}"));
        worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The depth of a tree; 0 for scalars.
pub(crate) fn of_value(value: &Value) -> usize {
    measure(value, &mut usize::MAX.clone()).unwrap_or(usize::MAX)
}

/// Like [`of_value`]; none if the tree has more values than the budget.
pub(crate) fn measure(value: &Value, budget: &mut usize) -> Option<usize> {
    let mut deepest = 0;
    let mut open = vec![(value, 0)];
    while let Some((value, outer)) = open.pop() {
        *budget = budget.checked_sub(1)?;
        let depth = outer + usize::from(value.is_object() || value.is_array());
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, depth))),
            _ => {}
        }
    }
    Some(deepest)
}

/// The depth of JSON text. Invalid JSON has some depth, too.
pub(crate) fn of_json(text: &[u8]) -> usize {
    scan(text, |_, _| {})
}

/// Like [`of_json`], and calls `open` with every opening bracket and its depth.
pub(crate) fn scan(text: &[u8], mut open: impl FnMut(u8, usize)) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
                open(*byte, depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn depth_counts_objects_and_lists() {
        for (value, depth) in [
            (json!(1), 0),
            (json!("[{"), 0),
            (json!({}), 1),
            (json!({"a": [{"b": "}"}], "c": 1}), 3),
            (json!({"\"[": [[]]}), 3),
        ] {
            assert_eq!(of_value(&value), depth, "{value}");
            assert_eq!(of_json(value.to_string().as_bytes()), depth, "{value}");
        }
        assert_eq!(measure(&json!([1, 2, 3]), &mut 3), None);
    }

    #[test]
    fn work_runs_again_on_large_stack_if_needed() {
        let mut tries = 0;
        let seen = run(false, || {
            tries += 1;
            check(SHALLOW + 1).map(|()| has_large_stack())
        });
        assert_eq!((seen, tries), (Ok(true), 2));
        assert_eq!(
            run(false, || check(SHALLOW).map(|()| has_large_stack())),
            Ok(false)
        );
        assert!(run(true, has_large_stack));
        let mut tries = 0;
        let refused = run(false, || {
            tries += 1;
            check(MAX + 1)
        });
        assert_eq!((refused, tries), (Err(TooDeep), 1));
        assert!(!has_large_stack());
    }

    #[test]
    fn work_outside_a_run_never_restarts() {
        assert_eq!(check(SHALLOW + 1), Err(TooDeep));
        assert!(!must_restart());
        let panicked = std::panic::catch_unwind(|| {
            run(false, || {
                assert_eq!(check(SHALLOW + 1), Err(TooDeep));
                panic!("after a deep document");
            })
        });
        assert!(panicked.is_err() && !must_restart());
    }

    #[test]
    fn settled_work_does_not_run_again() {
        let mut tries = 0;
        let done = run(false, || {
            tries += 1;
            let refused = check(SHALLOW + 1);
            settle();
            refused
        });
        assert_eq!((done, tries), (Err(TooDeep), 1));
    }

    proptest! {
        #[test]
        fn scan_accepts_any_bytes(text in prop::collection::vec(prop::sample::select(b"{}[]\"\\a".to_vec()), 0..64)) {
            prop_assert!(of_json(&text) <= text.len());
        }
    }
}
