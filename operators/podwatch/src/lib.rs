//! Tells what happens to pods, or to any other kind, to whoever should know.

pub mod arguments;
pub mod delivery;
mod diff;
mod filter;
pub mod journal;
mod kinds;
pub mod notice;
mod redact;
pub mod sinks;
pub mod sync;

pub use filter::{Filter, FilterError};
pub use kinds::{Kind, KindError, KindRef, resolve};
pub use notice::{FieldChange, Notice, Observer, Told, What};
pub use redact::REDACTED;
