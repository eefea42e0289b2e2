//! A persistent array, cheap to clone: clones share pages until one of them writes (copy on write).
//!
//! ```text
//!   branches ─► [ 32 leaves ] ─► [ 32 values ]        changing one value of a clone copies one of each
//! ```

use std::sync::Arc;

/// Values in a page, and pages in a branch.
const WIDTH: usize = 32;

type Leaf<T> = [T; WIDTH];
type Branch<T> = [Option<Arc<Leaf<T>>>; WIDTH];

/// Values by index, without an upper bound. A value that was never set is the default.
#[derive(Clone)]
pub(crate) struct Paged<T> {
    branches: Vec<Arc<Branch<T>>>,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { branches: Vec::new() }
    }
}

impl<T: Clone + Default> Paged<T> {
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        let branch = self.branches.get(at / (WIDTH * WIDTH))?;
        let leaf = branch[at / WIDTH % WIDTH].as_ref()?;
        Some(&leaf[at % WIDTH])
    }

    /// Sets a value; returns the previous one.
    pub(crate) fn set(&mut self, at: usize, value: T) -> T {
        let number = at / (WIDTH * WIDTH);
        while self.branches.len() <= number {
            self.branches.push(Arc::default());
        }
        let branch = Arc::make_mut(&mut self.branches[number]);
        let leaf = branch[at / WIDTH % WIDTH].get_or_insert_default();
        std::mem::replace(&mut Arc::make_mut(leaf)[at % WIDTH], value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_independent() {
        let mut one = Paged::<u32>::default();
        for at in 0..5000 {
            one.set(at, u32::try_from(at).unwrap());
        }
        let mut other = one.clone();
        assert_eq!(other.set(4711, 1), 4711);
        assert_eq!(other.set(100_000, 2), 0);
        assert_eq!((one.get(4711), other.get(4711)), (Some(&4711), Some(&1)));
        assert_eq!((one.get(100_000), other.get(100_000)), (None, Some(&2)));
        assert_eq!(other.get(4999), Some(&4999));
    }
}
