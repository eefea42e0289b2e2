//! Tells what happens to pods, or to any other kind, to whoever should know.

pub mod arguments;
mod diff;
mod filter;
mod kinds;
pub mod notice;
mod redact;
pub mod sync;

pub use filter::{Filter, FilterError};
pub use kinds::{Kind, KindError, KindRef, resolve};
pub use notice::{FieldChange, Notice, Observer, Told, What};
pub use redact::REDACTED;
