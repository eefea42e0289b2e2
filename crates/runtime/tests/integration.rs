//! Tests of controllers and managers as their users see them.

mod all_features;
mod apply_desired;
mod blocked;
mod candidates;
mod custom_source;
mod debug_pages;
mod declare;
mod election;
mod election_fence;
mod election_storm;
mod events;
mod exposition;
mod exposure;
mod harness;
mod install;
mod keys;
mod layers;
mod lost_connections;
mod manager_election;
mod metrics;
#[path = "../../cache/tests/model/mod.rs"]
mod model;
mod outcomes;
mod request_log;
mod run;
mod scripted;
mod served;
mod serving;
mod stop;
mod testing;
mod triggers;
mod watches;
mod writer;
