//! Tests of the program `secretsync`, its manifests and its page.

mod manifests;
mod page;
mod process;
