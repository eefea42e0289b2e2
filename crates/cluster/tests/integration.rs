//! Tests of embedded clusters, and of the faults of real ones.

mod cluster_with_nodes;
mod embedded;
mod faults;
mod leftovers;
mod limitations;
mod logs;
mod machines;
mod nodes;
mod references;
mod upkeep_time;
