//! secretsync on whole clusters, with exactly the shipped rights.

mod canary;
mod cleanup;
mod consent;
mod crash;
mod drift;
mod failures;
mod foreign;
mod kinds;
mod loops;
mod quiet;
mod removals;
mod rights;
mod spread;
pub(crate) mod test_cluster;
mod traces;
pub(crate) mod webhooks;

use windlass_suite::suite;

suite!(
    "secretsync", paused, cluster_per_case,
    embedded_only("traces::lasting_refusals_are_recorded_again", "it takes an hour");
    spread::annotated_secret_is_copied_to_consenting_namespaces,
    spread::config_maps_are_copied_like_secrets,
    spread::secret_sync_copies_selected_sources_and_reports_status,
    spread::narrowed_filters_update_copies_at_once,
    spread::sync_without_targets_reports_its_sources,
    spread::paused_sync_writes_nothing_until_resumed,
    spread::object_is_adopted_only_as_the_policy_allows,
    spread::orphaned_copies_stay_without_our_metadata,
    spread::deletion_policy_on_copies_applies_after_the_sync_is_gone,
    spread::invalid_spec_is_reported_and_removes_nothing,
    crash::fan_out_recovers_from_a_crash_at_every_request,
    crash::removal_recovers_from_a_crash_at_every_request,
    crash::fan_out_to_200_namespaces_recovers_from_a_crash,
    crash::removal_of_200_copies_recovers_from_a_crash,
    foreign::annotated_source_never_changes_foreign_objects,
    foreign::secret_sync_never_changes_foreign_objects,
    foreign::concurrent_change_is_not_overwritten,
    foreign::concurrently_created_secret_is_not_overwritten,
    consent::namespace_gets_copies_only_from_namespaces_it_names,
    consent::mistaken_consent_withdraws_nothing,
    consent::name_of_no_namespace_withdraws_nothing_until_it_exists,
    consent::source_deleted_during_an_invalid_consent_takes_its_copy_along,
    consent::negated_annotation_of_a_source_copies_and_removes_nothing,
    consent::tenant_cannot_reach_other_tenants_or_system_namespaces,
    consent::allowed_system_namespace_still_has_to_consent,
    consent::annotation_and_source_namespace_are_configurable,
    consent::copies_from_another_source_namespace_are_ignored,
    consent::consent_to_the_source_namespace_covers_its_secret_syncs,
    cleanup::every_removal_deletes_exactly_the_affected_copies,
    cleanup::removals_during_downtime_are_caught_up,
    cleanup::recreated_namespace_gets_its_copies_again,
    cleanup::deletion_overtakes_a_pending_fan_out,
    removals::removal_of_most_copies_waits_for_a_confirmation,
    removals::held_removal_stays_held_until_it_is_confirmed,
    removals::restart_does_not_reset_the_count_of_removals,
    removals::crash_right_after_removals_does_not_reset_their_count,
    removals::deletion_of_a_source_is_never_held,
    removals::deletion_of_a_source_ends_what_is_held,
    removals::withdrawal_of_consent_is_never_held,
    removals::consent_that_vanishes_everywhere_waits_for_a_confirmation,
    removals::consent_without_names_waits_for_a_confirmation,
    removals::unserved_kind_removes_no_copies,
    removals::lost_sync_keeps_its_copies_until_it_is_deleted,
    removals::removal_is_held_after_a_restart_without_a_status,
    removals::late_status_does_not_overwrite_the_plan_of_a_removal,
    removals::removed_annotation_of_a_source_waits_for_a_confirmation,
    removals::changed_annotation_flag_removes_nothing,
    removals::removals_of_annotated_sources_count_together,
    removals::failures_do_not_hide_a_held_removal,
    drift::drift_is_repaired_at_once,
    drift::drift_is_repaired_at_once_in_a_source_namespace,
    drift::changes_under_our_name_are_repaired,
    drift::copies_are_read_once_after_a_start,
    drift::many_copies_are_compared_together_after_a_start,
    drift::update_of_a_known_copy_is_one_request,
    drift::data_applied_as_string_data_is_reported,
    drift::metadata_of_other_managers_is_preserved,
    drift::applied_data_of_another_manager_is_reported_not_fought,
    quiet::nothing_is_written_when_all_is_in_sync,
    quiet::only_sources_are_read_with_content,
    quiet::new_leader_writes_nothing_twice,
    kinds::secrets_of_every_type_are_copied_unchanged,
    kinds::copy_without_a_required_key_is_opaque,
    kinds::immutable_copy_is_recreated_only_if_allowed,
    kinds::tokens_and_helm_releases_are_never_copied,
    loops::copies_are_not_sources_and_sources_are_not_targets,
    loops::chaining_copies_copies_and_refuses_loops,
    loops::older_sync_wins_a_contested_target,
    loops::older_sync_waits_for_an_existing_copy_of_another_source,
    loops::annotated_and_selected_source_has_one_copy,
    failures::full_quota_in_one_namespace_does_not_delay_others,
    failures::failing_webhook_in_one_namespace_does_not_delay_others,
    failures::values_quoted_by_a_refusal_are_hidden,
    failures::old_values_quoted_by_a_refusal_are_hidden,
    failures::blocked_deletion_of_a_sync_reports_its_reason,
    failures::terminating_namespace_is_skipped_without_errors,
    failures::request_and_watch_failures_are_recovered,
    failures::outage_is_neither_a_failure_nor_a_flood,
    failures::missing_right_is_left_to_the_report_of_the_start,
    failures::start_without_a_server_is_silent,
    failures::stall_fails_the_health_check,
    traces::every_action_is_logged_and_shown_as_an_event,
    traces::many_targets_do_not_flood_the_source_with_events,
    traces::refusals_show_in_the_target_namespace,
    traces::lasting_refusals_are_recorded_again,
    traces::restart_announces_no_refusal_again,
    traces::every_refusal_is_logged_however_many_there_are,
    traces::action_without_a_response_is_logged,
    traces::annotated_source_has_a_status,
    traces::missing_status_of_a_source_is_reported,
    canary::no_value_leaks_into_any_output,
    rights::shipped_roles_are_sufficient_and_minimal,
);
