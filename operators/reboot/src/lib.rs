//! Reboots nodes in turn, and proves that each of them did.

pub mod after;
pub mod drain;
mod span;
pub mod window;

pub use span::{InvalidSpan, Span};
