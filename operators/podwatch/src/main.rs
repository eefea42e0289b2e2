//! Runs podwatch.

fn main() {}
