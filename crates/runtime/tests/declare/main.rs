//! The declarative style, on the embedded server: what is written, what is not, and whose objects are touched.

mod children;
mod going;
mod others;
mod refused;
mod status;
#[path = "../wire/mod.rs"]
mod wire;
mod world;
