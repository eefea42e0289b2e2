//! The hub's guarantees, on a paused clock with scripted sinks.

mod fixture;
mod journal;
mod lifetimes;
mod pacing;
mod sinks;
