//! Reboots nodes in turn, and proves that each of them did.

pub mod window;
