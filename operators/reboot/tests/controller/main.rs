//! What the controller promises, on every kind of cluster, with nodes whose machines the tests own.

mod drain;
mod fleet;
mod pods;
mod roll;
mod windows;

use windlass_suite::suite;

suite!("rolls", paused;
    roll::an_annotated_node_reboots_once_and_nothing_is_left_of_it,
    drain::what_is_in_the_way_is_named_and_the_node_given_back_in_time,
    drain::a_drain_that_is_let_through_goes_on_to_the_reboot,
    drain::forced_the_node_reboots_whatever_its_budgets_say,
    drain::a_pod_made_anew_elsewhere_while_its_node_is_drained_is_never_evicted,
    windows::a_window_that_closes_during_a_drain_gives_the_node_back,
    windows::a_window_over_midnight_opens_on_its_own_day_only,
    windows::a_window_opens_when_the_clock_is_set_forward_over_its_start,
    windows::a_window_closes_when_the_clock_is_set_back_before_its_start,
    windows::an_order_that_nobody_takes_up_is_taken_back_when_the_window_closes,
    windows::a_controller_that_is_ten_minutes_ahead_reboots_nothing_early,
    windows::a_controller_that_is_ten_minutes_behind_reboots_nothing_late,
    windows::kubelets_with_other_clocks_hold_nothing_up,
);
