//! Runs podwatch.
fn main() {}
