//! Events from a recorder to the embedded API server, in simulated time.

mod faults;
mod series;
mod stop;
mod wire;
