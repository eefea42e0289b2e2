//! A buffer that each thread writes into again and again, so that what is kept has as many bytes as it takes, and nothing
//! is copied while it grows.

use std::cell::Cell;

/// A buffer that has become larger than nearly every object is not kept.
const KEPT: usize = 64 * 1024;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What `write` appends to an empty buffer.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    // Whoever writes inside of `write` finds no buffer, and makes one.
    let mut buffer = BUFFER.take();
    buffer.clear();
    write(&mut buffer);
    let written = buffer.as_slice().to_vec();
    if buffer.capacity() <= KEPT {
        BUFFER.set(buffer);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_is_gone_and_nothing_is_kept_that_is_not_needed() {
        assert_eq!(written(|buffer| buffer.extend(b"longer than the next")).len(), 20);
        let outer = written(|buffer| {
            buffer.push(b'a');
            buffer.extend(written(|inner| inner.push(b'b')));
        });
        assert_eq!(outer, b"ab");
        assert_eq!(outer.capacity(), 2);
        let large = written(|buffer| buffer.resize(KEPT + 1, b'x'));
        assert_eq!(large.len(), KEPT + 1);
        assert!(BUFFER.take().capacity() <= KEPT);
    }
}
