//! Tests on an embedded API server that calls the webhooks in the process: without sockets, on a paused clock.

mod admission;
mod server;
