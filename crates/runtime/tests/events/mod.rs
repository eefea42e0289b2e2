//! Events from a recorder to the embedded API server, in simulated time.

mod faults;
mod recorded_server;
mod series;
mod stop;
