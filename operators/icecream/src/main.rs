//! Runs icecream.

fn main() {}
