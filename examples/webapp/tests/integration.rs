//! Unit tests of the controller, without a cluster.

mod definition;
mod desired;
