//! What the controller guarantees, on every kind of cluster, with nodes whose machines the tests control.

mod alerts;
mod crash;
mod drain;
mod faults;
pub(crate) mod fleet;
mod hooks;
mod leaders;
pub(crate) mod machines;
mod nodes;
pub(crate) mod pods;
mod rights;
mod roll;
mod sizes;
mod windows;

use windlass_suite::suite;

// Policies and nodes are cluster-scoped.
suite!("rolls", paused, cluster_per_case;
    roll::annotated_node_reboots_once_and_is_cleaned_up,
    roll::ten_nodes_reboot_two_at_a_time_in_order,
    roll::max_unavailable_applies_to_all_nodes_and_to_each_zone,
    roll::control_plane_reboots_after_workers_and_own_node_last,
    roll::default_policy_is_created_and_reboots_one_node_at_a_time,
    roll::dry_run_plans_without_changes,
    roll::closed_window_grants_no_slot,
    roll::node_soaks_before_its_slot_is_released,
    roll::conditions_and_columns_show_progress,
    roll::wide_columns_show_what_is_waited_for,
    roll::overlapping_policies_resolve_by_name_and_report_overlap,
    roll::invalid_policy_reports_its_error,
    faults::unready_nodes_count_as_unavailable_once,
    faults::new_request_after_a_reboot_waits_for_a_new_slot,
    faults::administrator_cordon_is_preserved,
    faults::aborted_drain_restores_the_node,
    faults::drain_timeout_aborts_or_forces,
    faults::node_that_does_not_return_fails_and_stops_the_rollout,
    faults::node_that_returns_late_counts_as_rebooted,
    faults::kubelet_restart_is_not_a_reboot,
    faults::node_without_agent_fails_and_is_disarmed,
    faults::command_is_withdrawn_until_the_agent_has_started,
    faults::deleted_node_releases_its_slot,
    faults::invalid_state_is_left_unchanged_and_occupies_a_slot,
    leaders::concurrent_controllers_respect_max_unavailable,
    leaders::concurrent_grants_of_the_last_slot_conflict,
    leaders::uncached_pause_stops_a_drained_node,
    faults::api_outage_in_any_phase_only_delays,
    faults::api_outage_during_a_rollout_only_delays,
    sizes::hundred_nodes_reboot_ten_percent_at_a_time_with_lost_nodes,
    sizes::single_node_cluster_reboots_with_its_controller,
    sizes::metrics_report_phases_durations_and_blockers,
    rights::shipped_roles_are_sufficient_and_minimal,
    rights::second_controller_continues_after_the_leader_stops,
    crash::crash_at_any_request_is_recovered,
    crash::crash_at_any_request_with_an_aborted_drain_is_recovered,
    drain::blockers_are_reported_and_the_drain_aborts_at_its_timeout,
    drain::repeated_aborts_rest_longer_and_degrade_the_policy,
    drain::drain_continues_to_the_reboot_once_budgets_allow,
    drain::forced_drain_ignores_budgets_and_reboots,
    drain::drain_does_not_evict_a_pod_recreated_on_another_node,
    drain::overdue_pods_on_an_unready_node_do_not_block_the_reboot,
    nodes::flapping_node_is_healthy_only_after_min_ready_seconds,
    nodes::node_with_unready_pods_fails_and_keeps_its_slot,
    nodes::node_waits_for_the_agent_check,
    nodes::rollout_continues_until_the_failure_budget_is_exhausted,
    nodes::node_that_moves_to_another_policy_releases_its_slot,
    nodes::administrator_uncordon_and_cordon_are_respected,
    nodes::replaced_node_passes_nothing_to_its_successor,
    nodes::pause_during_a_rollout_can_be_resumed,
    hooks::hooks_run_once_before_the_drain_and_after_the_reboot,
    hooks::failed_hook_before_the_drain_aborts_the_attempt,
    hooks::failed_hook_after_the_reboot_fails_the_node,
    hooks::unfinished_hook_after_the_reboot_is_named_as_the_cause,
    hooks::hook_without_rights_aborts_the_attempt_and_names_the_fix,
    alerts::firing_alerts_block_new_reboots,
    windows::closing_window_aborts_a_drain,
    windows::overnight_window_opens_only_on_its_start_day,
    windows::window_opens_when_dst_skips_its_start,
    windows::window_closes_when_dst_repeats_the_hour_before_its_start,
    windows::unclaimed_command_is_withdrawn_when_the_window_closes,
    windows::controller_clock_ahead_does_not_reboot_early,
    windows::controller_clock_behind_does_not_reboot_late,
    windows::skewed_kubelet_clocks_do_not_delay_reboots,
);
