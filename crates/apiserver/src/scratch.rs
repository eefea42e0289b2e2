//! A reusable buffer per thread. Results are copied out of it at their exact size, and encoding does not reallocate.

use std::cell::Cell;

/// The largest capacity that a buffer keeps; nearly every object is smaller.
const MAX_RETAINED_CAPACITY: usize = 64 * 1024;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Returns what `write` appends to an empty buffer.
pub(crate) fn write_to_vec(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    // A nested call finds no buffer and allocates one.
    let mut buffer = BUFFER.take();
    buffer.clear();
    write(&mut buffer);
    let written = buffer.as_slice().to_vec();
    if buffer.capacity() <= MAX_RETAINED_CAPACITY {
        BUFFER.set(buffer);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_cleared_and_large_buffers_are_dropped() {
        assert_eq!(
            write_to_vec(|buffer| buffer.extend(b"longer than the next")).len(),
            20
        );
        let outer = write_to_vec(|buffer| {
            buffer.push(b'a');
            buffer.extend(write_to_vec(|inner| inner.push(b'b')));
        });
        assert_eq!(outer, b"ab");
        assert_eq!(outer.capacity(), 2);
        let large = write_to_vec(|buffer| buffer.resize(MAX_RETAINED_CAPACITY + 1, b'x'));
        assert_eq!(large.len(), MAX_RETAINED_CAPACITY + 1);
        assert!(BUFFER.take().capacity() <= MAX_RETAINED_CAPACITY);
    }
}
