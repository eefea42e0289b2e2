//! Declarative controllers on the embedded server: what is written, and what is left alone.

mod children;
mod deletion;
mod foreign;
mod harness;
mod invalid;
#[path = "../request_log/mod.rs"]
mod request_log;
mod status;
