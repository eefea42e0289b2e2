//! Podwatch on real API servers: `syncToStdout` with exactly its shipped rights, and notices of any kind.

mod crash;
mod fixture;
mod notices;
mod recording_sink;
mod scripted_printer;
mod sync_to_stdout;

use windlass_suite::suite;

suite!("podwatch", paused;
    sync_to_stdout::pods_of_one_namespace_are_printed_once,
    sync_to_stdout::added_changed_and_deleted_pods_are_printed,
    sync_to_stdout::nothing_is_printed_before_the_caches_are_synced,
    sync_to_stdout::changes_while_a_pod_is_processed_print_one_more_line,
    sync_to_stdout::a_pod_is_processed_by_one_worker_at_a_time,
    sync_to_stdout::change_during_processing_prints_again,
    sync_to_stdout::failing_line_is_tried_six_times_then_dropped,
    sync_to_stdout::success_resets_the_backoff,
    sync_to_stdout::printed_state_is_never_stale,
    sync_to_stdout::known_pod_that_is_gone_is_printed_after_the_sync,
    sync_to_stdout::stop_waits_for_the_line_in_progress,
    sync_to_stdout::deletion_during_disconnect_is_printed,
    sync_to_stdout::panic_costs_one_attempt_and_no_worker,
    sync_to_stdout::recreated_pod_is_printed_as_deleted_and_added,
    sync_to_stdout::selectors_limit_the_printed_pods,
    sync_to_stdout::shipped_rights_are_sufficient_and_minimal,
    notices::events_are_reported_with_changed_fields,
    notices::several_kinds_are_resolved_by_name_and_reported,
    notices::kind_installed_later_is_reported,
    notices::unknown_or_ambiguous_kind_is_rejected,
    notices::filter_and_event_types_select_notices,
    notices::heartbeats_are_reported_only_on_request,
    notices::events_missed_during_disconnect_are_inferred,
    notices::changes_are_reported_as_kubernetes_events,
    notices::burst_of_changes_is_coalesced_and_counted_or_reported_whole,
    notices::events_missed_while_stopped_are_reported_after_restart,
    notices::secret_values_never_leak,
    notices::known_object_that_is_gone_is_reported_as_deleted,
    notices::forbidden_watch_is_retried_with_backoff,
    crash::restart_after_crash_prints_current_pods,
    crash::restart_after_crash_reports_every_object,
);
