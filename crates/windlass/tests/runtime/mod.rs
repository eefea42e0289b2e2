//! Behaviour of the runtime, on every kind of cluster.

mod declarative;
mod fixture;
pub(crate) mod garden;
mod imperative;
pub(crate) mod kstatus;
mod leader_election;
mod manager;
mod order;
mod pruning;
mod restart;
mod shop;
mod start;
mod status;
mod undecodable;

use windlass_suite::suite;

suite!("runtime";
    declarative::children_are_created_once_with_owner_references,
    declarative::condition_has_the_observed_generation,
    declarative::undesired_children_are_pruned_and_foreign_objects_stay,
    declarative::drift_is_corrected_and_foreign_fields_stay,
    declarative::foreign_object_is_reported_and_not_touched,
    declarative::cleanup_runs_before_deletion_and_is_retried,
    declarative::cleanup_runs_once_for_each_object,
    declarative::cleanup_is_repeated_only_by_a_new_process,
    status::type_with_conditions_is_reported_without_status_code,
    status::failed_child_is_reported_and_does_not_stop_the_others,
    status::rejected_child_has_the_servers_reason,
    status::error_of_desired_is_reported_and_keeps_the_rest,
    status::failed_status_write_is_reported_with_the_first_error,
    status::panic_of_desired_is_reported,
    status::failed_cleanup_is_reported,
    undecodable::undecodable_object_is_reported_in_the_status,
    undecodable::undecodable_child_is_reported_when_it_is_unwanted,
    status::timeout_is_reported,
    status::last_retry_is_reported_as_stalled,
    status::change_during_the_last_attempt_is_reconciled,
    status::report_does_not_end_the_backoff,
    status::last_report_is_not_limited,
    status::status_that_the_server_rejects_is_reported,
    order::child_waits_for_its_predecessors,
    order::child_that_is_being_deleted_is_not_ready,
    pruning::undecided_keeps_children_and_status,
    status::outcomes_that_alternate_are_not_written_at_full_speed,
    status::authors_ready_has_precedence,
    status::controller_can_do_without_standard_conditions,
    kstatus::every_documented_outcome_has_its_kstatus,
    pruning::kind_that_is_not_mentioned_is_kept_and_reported,
    pruning::approval_holds_for_the_generation_that_it_makes,
    pruning::empty_desired_state_keeps_all_children,
    pruning::many_children_are_not_deleted_at_once,
    pruning::nothing_is_pruned_while_a_child_fails,
    pruning::quota_of_a_predecessor_is_freed_on_request,
    pruning::deletions_of_a_generation_count_together,
    pruning::desired_can_delete_its_object,
    pruning::pruned_child_that_still_exists_is_reported,
    pruning::storm_of_wrong_desired_values_loses_no_child,
    restart::unchanged_restart_writes_nothing_and_posts_no_event,
    restart::conditions_of_others_are_no_reason_to_write,
    imperative::terminal_error_is_reported_as_an_event,
    imperative::terminal_error_is_not_announced_again_after_a_restart,
    imperative::trigger_names_what_changed,
    imperative::reconcile_records_events_and_counts_repeats,
    imperative::apply_takes_fields_over_and_can_be_told_not_to,
    imperative::predicate_filters_updates_but_not_deletions,
    imperative::dynamic_kind_works_like_a_typed_one,
    leader_election::standby_takes_over_when_the_leader_stops,
    manager::crd_install_is_served_and_keeps_stored_versions,
    start::missing_rights_are_reported_together_and_hold_no_other_controller,
    start::missing_write_rights_are_reported_at_the_start,
    start::missing_watch_right_is_reported_at_the_start,
    start::deleted_child_is_created_again_without_the_right_to_get_it,
    start::missing_crd_holds_no_other_controller,
    start::kind_that_answers_with_errors_holds_no_other_controller,
    manager::eviction_reports_the_blocking_pdb,
    manager::health_readiness_and_metrics_are_served,
);
