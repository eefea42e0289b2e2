//! Fuzzing of everything that parses untrusted bytes.
//!
//! ```text
//!   corpus, seeds ──► mutation ──► Target::run ──► invariants
//!        ▲                              │
//!        └ inputs with new fingerprints ┘
//! ```
//!
//! A [`Target`] parses bytes: the embedded API server with one kind of request, the cache with a misbehaving server, or
//! a parser of an operator. Inputs are readable text where possible, so a corpus is a folder of small files. The
//! [`engine`] replays the corpus, then mutates known inputs. An input whose response has a new fingerprint is kept and
//! mutated further, which guides the search without instrumented builds. The [`invariants`] hold for every input:
//! nothing panics, no stack overflows, memory is bounded by the size of the input, and accepted objects can be read
//! back.
//!
//! Each target runs in its own process ([`supervisor`]), which writes each input to a file before running it: a stack
//! overflow kills the process, and the input is known.
//!
//! This crate uses only the public API of the other crates.

pub mod engine;
pub mod invariants;
mod mutate;
pub mod supervisor;
pub mod targets;

pub use engine::{Outcome, Target};
