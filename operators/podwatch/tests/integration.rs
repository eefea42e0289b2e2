//! Tests of the program `podwatch` and its page.

mod page;
mod process;
mod sinks;
