//! Tests of the queue as workers and producers see it.

mod behaviour;
mod model;
mod threads;
