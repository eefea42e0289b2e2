//! How deep documents may nest, and the stack that deep ones take.
//!
//! Everything that handles a tree (reading, comparing, merging, writing, even dropping it) recurses over it. A real
//! kube-apiserver accepts 10,000 levels, because goroutine stacks grow; a Rust thread's stack does not. So there are two
//! ways to handle a request:
//!
//! ```text
//!   body, patch result, stored object
//!        │ at most SHALLOW levels ──► handled where it is, on the caller's stack
//!        │ at most MAX levels ──────► handled on a thread with a large stack, which exists for this request only
//!        └ more ────────────────────► refused before anything recurses over it
//! ```
//!
//! Nearly no request pays for that: a reader notices on its way that a document is deep, asks for room
//! ([`check`]), and the request begins again with it ([`run`]). What is stored is bytes, and has no depth until it is read.
//! An object that is deep says so ([`Encoded::is_deep`](crate::object::Encoded::is_deep)), and so does its table
//! ([`DeepTables`]). Only custom resources can be deep: other parts of the server read built-in kinds at any time.

use std::{
    cell::Cell,
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use parking_lot::RwLock;
use serde_json::Value;

use crate::storage::TableName;

/// How deep any document may nest: the limit of kube-apiserver's decoders.
pub(crate) const MAX: usize = 10_000;

/// How deep a document may nest that is handled on the caller's stack, which may be a test's in a debug build.
pub(crate) const SHALLOW: usize = 128;

/// The stack for deep documents: four times what the deepest one was seen to take, in a debug build. Only what is used of
/// it becomes memory.
const STACK: usize = 512 * 1024 * 1024;

thread_local! {
    /// Whether this thread has a large stack.
    static ROOM: Cell<bool> = const { Cell::new(false) };
    /// Whether what this thread does needs a large stack, and must begin again.
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Whether deep documents can be handled on this thread.
pub(crate) fn has_room() -> bool {
    ROOM.get()
}

/// How deep a document may be that is handled on this thread.
pub(crate) fn limit() -> usize {
    if has_room() { MAX } else { SHALLOW }
}

/// How deep JSON may be that this server has written and reads again on this thread: defaults and managed fields come on
/// top of what a client sent.
pub(crate) fn own_limit() -> usize {
    2 * limit()
}

/// Passes a document of this depth, if it can be handled here. If it only needs more room, [`run`] will see to that, and
/// the refusal is never shown.
pub(crate) fn check(depth: usize) -> Result<(), Exceeded> {
    if depth <= limit() {
        return Ok(());
    }
    WANTED.set(depth <= MAX);
    Err(Exceeded)
}

/// A document nests deeper than can be handled here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded;

/// Does some work, and does it again with a large stack if it turns out to need one. `deep` says that it is known to.
///
/// The work must not have changed anything when it calls [`check`].
pub(crate) fn run<R: Send>(deep: bool, mut work: impl FnMut() -> R + Send) -> R {
    if !deep {
        WANTED.set(false);
        let done = work();
        if !WANTED.replace(false) {
            return done;
        }
    }
    with_room(work)
}

/// Does some work on a large stack. It must not return anything that is deep.
pub(crate) fn with_room<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    if has_room() {
        return work();
    }
    let runtime = tokio::runtime::Handle::try_current().ok();
    thread::scope(|scope| {
        let roomy = thread::Builder::new()
            .name("windlass-deep".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, || {
                // The work may ask for the time.
                let _context = runtime.as_ref().map(tokio::runtime::Handle::enter);
                ROOM.set(true);
                work()
            });
        // Without memory for a thread, this request fails like any other that panics, and nothing else does.
        let roomy = roomy.unwrap_or_else(|error| panic!("no stack for a deeply nested document: {error}"));
        roomy
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// How deep a tree nests; 0 for what is neither an object nor a list.
pub(crate) fn of_value(value: &Value) -> usize {
    measure(value, &mut usize::MAX.clone()).unwrap_or(usize::MAX)
}

/// As [`of_value`], unless the tree has more values than are left of the budget.
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

/// How deep JSON text nests. Text that is not JSON has some depth, too.
pub(crate) fn of_json(text: &[u8]) -> usize {
    scan(text, |_, _| {})
}

/// As [`of_json`], with a look at every opening bracket and its depth.
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

/// The tables that have held an object which is deeper than [`SHALLOW`].
#[derive(Debug, Default)]
pub(crate) struct DeepTables {
    /// Spares requests the lock on every server on which nothing is deep.
    any: AtomicBool,
    tables: RwLock<HashSet<TableName>>,
}

impl DeepTables {
    pub(crate) fn add(&self, table: &TableName) {
        self.tables.write().insert(table.clone());
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn has(&self, table: &TableName) -> bool {
        self.any.load(Ordering::Acquire) && self.tables.read().contains(table)
    }
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
    fn work_begins_again_with_room_when_a_reader_asks_for_it() {
        let mut tries = 0;
        let seen = run(false, || {
            tries += 1;
            check(SHALLOW + 1).map(|()| has_room())
        });
        assert_eq!((seen, tries), (Ok(true), 2));
        assert_eq!(run(false, || check(SHALLOW).map(|()| has_room())), Ok(false));
        assert!(run(true, has_room));
        let mut tries = 0;
        let refused = run(false, || {
            tries += 1;
            check(MAX + 1)
        });
        assert_eq!((refused, tries), (Err(Exceeded), 1));
        assert!(!has_room());
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_scan(text in prop::collection::vec(prop::sample::select(b"{}[]\"\\a".to_vec()), 0..64)) {
            prop_assert!(of_json(&text) <= text.len());
        }
    }
}
