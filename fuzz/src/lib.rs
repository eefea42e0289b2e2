//! Fuzzing of everything that reads bytes from outside.
//!
//! ```text
//!   corpus, seeds ──► mutation ──► Target::run ──► laws
//!        ▲                             │
//!        └──── inputs with new answers ┘
//! ```
//!
//! A [`Target`] is a reader of bytes: the embedded API server behind one kind of request, the cache behind a server that lies, or a
//! parser of an operator. An input is bytes that a person can read, so that a corpus is a folder of small files. The
//! [`engine`] replays the corpus, then mutates what it knows; an input that is answered as none before it is kept and mutated
//! further, which guides the search without instrumented builds. The [`laws`] hold for every input: nothing panics, no stack
//! overflows, memory is bounded by the size of the input, and what was accepted can be read again.
//!
//! Each target runs in a process of its own ([`supervisor`]), which writes down each input before it runs it: an overflow of the
//! stack ends the process, and the input is known.
//!
//! This crate knows the other crates by their public interfaces only.

pub mod engine;
pub mod laws;
mod mutate;
pub mod supervisor;
pub mod targets;

pub use engine::{Outcome, Target};
