//! What the hub promises, on a paused clock, with sinks whose mood the test decides.

mod journal;
mod lives;
mod pacing;
mod sinks;
mod world;
