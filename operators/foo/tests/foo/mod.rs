//! The sample controller on every kind of cluster, with its shipped rights.

#![allow(
    clippy::disallowed_names,
    reason = "here, foo is not a placeholder: it is what the kind is called"
)]

mod crash;
mod fixture;
mod foreign;
mod names;
mod rights;
mod scheduling;
mod sync;

use windlass_suite::suite;

suite!("foo", paused;
    sync::new_foo_gets_one_deployment_and_one_status,
    sync::foo_needs_the_minimum_of_requests,
    sync::restart_does_not_write_a_synced_foo,
    sync::foo_without_replicas_keeps_foreign_scaling,
    sync::deployment_follows_replicas,
    sync::drift_is_corrected_with_one_write,
    sync::deleted_deployment_is_recreated,
    sync::renaming_removes_the_old_deployment,
    sync::status_follows_the_deployment,
    sync::every_sync_records_an_event,
    sync::terminating_foo_gets_nothing_new,
    names::server_rejects_replicas_out_of_range,
    names::empty_deployment_name_is_reported_and_not_retried,
    names::invalid_deployment_name_is_reported_and_retried_rarely,
    names::invalid_change_keeps_the_existing_deployment,
    foreign::foreign_deployment_is_not_touched,
    foreign::deployment_created_during_the_write_is_not_taken_over,
    foreign::two_foos_do_not_share_a_deployment,
    foreign::recreated_foo_does_not_adopt_the_old_deployment,
    foreign::foreign_deployments_cause_no_requests,
    scheduling::failures_are_retried_with_exponential_backoff,
    scheduling::nothing_is_written_before_both_caches_are_synced,
    scheduling::two_workers_never_share_a_foo,
    scheduling::stop_finishes_running_reconciles,
    crash::new_foo_survives_a_crash_at_any_request,
    crash::renamed_foo_survives_a_crash_at_any_request,
    rights::shipped_rights_are_sufficient_and_minimal,
);
