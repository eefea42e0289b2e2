//! Tells what happens to pods, or to any other kind, to whoever should know.

pub mod delivery;
pub mod journal;
pub mod notice;
pub mod sinks;

pub use notice::{FieldChange, Notice, Observer, Told, What};
