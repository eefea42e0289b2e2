//! What the controller promises, on every kind of cluster, with nodes whose machines the tests own.

mod fleet;
mod roll;

use windlass_suite::suite;

suite!("rolls", paused;
    roll::an_annotated_node_reboots_once_and_nothing_is_left_of_it,
);
