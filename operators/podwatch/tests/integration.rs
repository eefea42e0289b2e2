//! Tests of the program `podwatch`.

mod process;
mod sinks;
