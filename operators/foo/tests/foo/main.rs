//! What the sample controller promises, on every kind of cluster and with the rights that it ships with. Numbers are the
//! statements about upstream's controller that each case shows.

#![allow(
    clippy::disallowed_names,
    reason = "here, foo is not a placeholder: it is what the kind is called"
)]

mod crash;
mod follow;
mod names;
mod others;
mod pace;
mod rights;
mod world;

use windlass_suite::suite;

suite!("foo", paused;
    follow::a_new_foo_gets_one_deployment_and_one_status,
    follow::a_foo_costs_no_more_requests_than_it_must,
    follow::a_foo_in_sync_is_left_alone_by_a_restarted_controller,
    follow::a_foo_without_replicas_does_not_fight_for_them,
    follow::replicas_follow_the_foo,
    follow::whatever_drifts_is_put_right_with_one_write_each,
    follow::a_deployment_that_is_deleted_comes_back,
    follow::the_deployment_of_a_former_name_is_removed,
    follow::the_status_follows_the_deployment,
    follow::every_sync_is_told,
    follow::a_foo_that_is_being_deleted_gets_nothing_new,
    names::the_server_refuses_replicas_out_of_range,
    names::a_foo_without_a_deployment_name_waits_for_one,
    names::a_name_that_cannot_be_is_told_and_not_asked_for_again_and_again,
    names::a_foo_that_asks_for_what_cannot_be_keeps_what_it_has,
    others::a_deployment_of_somebody_else_is_not_touched,
    others::a_deployment_that_appears_in_the_last_moment_stays_theirs,
    others::two_foos_do_not_share_a_deployment,
    others::a_foo_does_not_inherit_from_its_namesake,
    others::what_happens_to_others_is_none_of_its_business,
    pace::failures_are_retried_with_growing_pauses,
    pace::nothing_is_done_before_both_caches_are_complete,
    pace::one_foo_does_not_wait_for_another_and_is_never_in_two_hands,
    pace::what_runs_is_finished_before_it_stops,
    crash::a_new_foo_survives_every_death,
    crash::a_renamed_foo_survives_every_death,
    rights::the_roles_are_enough_and_nothing_in_them_is_idle,
);
