//! Tests of the server through its service, without a socket unless the test is about it.

mod access;
mod attacks;
mod client;
mod conversion;
mod histories;
mod hostile_bodies;
mod limits;
mod logs;
mod managed_fields;
mod metrics;
mod recorded;
mod responses;
mod webhook_calls;
mod webhooks;
