//! Tests on an embedded API server that calls the webhooks: in the process on a paused clock, or over TLS.

mod admission;
mod conversion;
mod manager;
mod recorded;
mod server;
mod socket;
