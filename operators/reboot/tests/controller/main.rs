//! What the controller promises, on every kind of cluster, with nodes whose machines the tests own.

mod crash;
mod drain;
mod faults;
mod fleet;
mod leaders;
mod machines;
mod nodes;
mod pods;
mod rights;
mod roll;
mod sizes;
mod windows;

use windlass_suite::suite;

// Policies and nodes are the cluster's.
suite!("rolls", paused, apart;
    roll::an_annotated_node_reboots_once_and_nothing_is_left_of_it,
    roll::ten_nodes_roll_two_at_a_time_in_their_order,
    roll::a_limit_holds_for_all_and_for_each_zone,
    roll::the_control_plane_comes_last_and_the_controllers_own_node_last_of_all,
    roll::without_a_policy_nodes_roll_one_at_a_time_under_the_default,
    roll::a_dry_run_plans_and_does_nothing,
    roll::a_closed_window_lets_nobody_go,
    roll::a_node_soaks_before_its_slot_is_free,
    roll::conditions_and_columns_tell_where_a_node_is,
    roll::of_two_policies_the_first_by_name_has_a_node_and_says_so,
    roll::a_policy_that_cannot_be_followed_says_why,
    faults::nodes_that_are_not_ready_count_but_not_twice,
    faults::a_request_after_the_end_waits_for_a_slot_of_its_own,
    faults::what_an_administrator_cordoned_stays_cordoned,
    faults::a_drain_that_is_called_off_leaves_the_node_as_it_was,
    faults::a_drain_that_takes_too_long_is_called_off_or_forced,
    faults::a_node_that_never_returns_stops_the_roll_until_somebody_looks,
    faults::the_same_boot_again_is_no_reboot,
    faults::a_node_without_an_agent_fails_and_is_not_rebooted_later,
    faults::an_order_is_taken_back_as_long_as_the_agent_has_not_begun,
    faults::a_node_that_is_deleted_leaves_no_slot_behind,
    faults::a_state_that_cannot_be_read_is_left_alone,
    leaders::two_controllers_at_once_never_let_too_many_go,
    leaders::of_two_who_give_the_last_slot_one_does,
    leaders::a_pause_that_nobody_has_heard_of_yet_stops_a_node_that_is_drained,
    faults::an_outage_in_any_phase_costs_nothing_but_time,
    faults::an_api_that_is_away_costs_nothing_but_time,
    sizes::a_hundred_nodes_roll_a_tenth_at_a_time_with_some_of_them_lost,
    sizes::a_cluster_of_one_node_reboots_it_with_the_controller_on_it,
    sizes::the_figures_tell_phases_durations_and_what_is_in_the_way,
    rights::the_roles_are_enough_and_nothing_in_them_is_idle,
    rights::a_second_controller_takes_over_where_the_leader_stopped,
    crash::a_controller_that_dies_at_any_request_leaves_nothing_behind,
    crash::so_does_one_whose_drain_is_called_off_at_first,
    drain::what_is_in_the_way_is_named_and_the_node_given_back_in_time,
    drain::a_drain_that_is_let_through_goes_on_to_the_reboot,
    drain::forced_the_node_reboots_whatever_its_budgets_say,
    drain::a_pod_made_anew_elsewhere_while_its_node_is_drained_is_never_evicted,
    drain::on_a_node_that_is_silent_pods_whose_time_is_over_are_left_to_the_reboot,
    nodes::a_node_that_flaps_is_not_good_until_it_stays_ready,
    nodes::a_node_whose_pods_do_not_come_back_fails_and_keeps_its_slot,
    nodes::a_node_waits_for_the_check_of_its_agent,
    nodes::the_roll_goes_on_until_the_failure_budget_is_spent,
    nodes::a_node_that_is_another_policys_by_now_holds_no_slot_of_its_former_one,
    nodes::what_an_administrator_decides_meanwhile_is_theirs,
    nodes::a_node_that_is_replaced_on_its_way_leaves_nothing_to_its_successor,
    nodes::a_pause_in_the_middle_of_a_roll_is_over_as_if_it_had_not_been,
    windows::a_window_that_closes_during_a_drain_gives_the_node_back,
    windows::a_window_over_midnight_opens_on_its_own_day_only,
    windows::a_window_opens_when_the_clock_is_set_forward_over_its_start,
    windows::a_window_closes_when_the_clock_is_set_back_before_its_start,
    windows::an_order_that_nobody_takes_up_is_taken_back_when_the_window_closes,
    windows::a_controller_that_is_ten_minutes_ahead_reboots_nothing_early,
    windows::a_controller_that_is_ten_minutes_behind_reboots_nothing_late,
    windows::kubelets_with_other_clocks_hold_nothing_up,
);
