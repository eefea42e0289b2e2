//! Declarative controllers on the embedded server: what is written, and what is left alone.

mod children;
mod deletion;
mod foreign;
mod harness;
mod invalid;
mod status;

use crate::request_log;
