//! Behaviour of the runtime, on every kind of cluster.

mod declarative;
mod fixture;
mod garden;
mod imperative;
mod leader_election;
mod manager;

use windlass_suite::suite;

suite!("runtime";
    declarative::children_are_created_once_with_owner_references,
    declarative::condition_has_the_observed_generation,
    declarative::undesired_children_are_pruned_and_foreign_objects_stay,
    declarative::drift_is_corrected_and_foreign_fields_stay,
    declarative::foreign_object_is_reported_and_not_touched,
    declarative::cleanup_runs_before_deletion_and_is_retried,
    imperative::reconcile_records_events_and_counts_repeats,
    imperative::predicate_filters_updates_but_not_deletions,
    imperative::dynamic_kind_works_like_a_typed_one,
    leader_election::standby_takes_over_when_the_leader_stops,
    manager::crd_install_is_served_and_keeps_stored_versions,
    manager::eviction_reports_the_blocking_pdb,
    manager::health_readiness_and_metrics_are_served,
);
