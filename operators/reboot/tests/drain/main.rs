//! Passes of a drain over pods and budgets that are made by hand: what the server says, and what becomes of it.

mod budgets;
#[path = "../controller/pods.rs"]
mod hands;
mod pods;
mod stage;

use windlass_suite::suite;

suite!("drain", paused;
    budgets::a_budget_at_zero_is_named_and_asked_once_in_five_seconds,
    budgets::a_budget_that_is_being_processed_is_asked_when_the_server_says,
    budgets::two_budgets_on_a_pod_are_both_named_and_hold_no_other_pod_up,
    budgets::a_budget_that_gives_way_lets_the_pod_go,
    budgets::forced_a_pod_goes_whatever_its_budget_says,
    budgets::without_storing_anything_it_is_known_what_is_in_the_way,
    pods::pods_that_may_stay_are_not_touched,
    pods::a_pod_gets_the_time_that_the_policy_gives,
    pods::a_pod_made_anew_elsewhere_under_its_name_is_never_evicted,
    pods::a_forced_deletion_meets_no_successor_either,
    pods::a_pod_that_does_not_go_is_named,
    pods::a_server_that_fails_is_asked_again_in_five_seconds,
    pods::a_drain_goes_on_where_another_one_died,
);
