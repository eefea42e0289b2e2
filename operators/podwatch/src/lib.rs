//! Tells what happens to pods, or to any other kind, to whoever should know.

pub mod notice;

pub use notice::{FieldChange, Notice, Observer, Told, What};
