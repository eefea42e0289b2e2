//! Podwatch on real API servers: `syncToStdout` with exactly the rights that it ships with, and everything else that is told.

mod crash;
mod ear;
mod paper;
mod statements;
mod watching;
mod world;

use windlass_suite::suite;

suite!("podwatch", paused;
    statements::it_watches_pods_of_one_namespace_and_does_not_repeat_itself,
    statements::each_pod_that_comes_changes_or_goes_has_its_line,
    statements::nothing_is_printed_before_all_is_known,
    statements::many_changes_while_a_pod_is_busy_are_one_more_line,
    statements::one_pod_is_with_one_worker_and_two_pods_are_with_two,
    statements::a_change_while_a_pod_is_printed_prints_it_again,
    statements::a_line_that_fails_is_tried_six_times_and_then_dropped,
    statements::a_line_that_worked_is_forgotten_by_the_backoff,
    statements::a_line_is_at_least_as_new_as_what_caused_it,
    statements::a_pod_that_was_known_and_is_gone_is_told_of_after_the_sync,
    statements::a_stop_waits_for_the_line_that_is_being_printed,
    statements::a_pod_that_goes_while_the_connection_is_lost_is_told_of,
    statements::a_panic_costs_one_attempt_and_no_worker,
    statements::a_pod_that_was_replaced_is_told_apart_by_its_uid,
    statements::only_pods_that_are_selected_have_lines,
    statements::the_shipped_rights_are_enough_and_not_too_many,
    watching::what_happens_to_an_object_is_told_with_what_changed,
    watching::kinds_are_found_by_name_and_several_are_told_of,
    watching::a_kind_may_be_installed_later,
    watching::a_name_that_means_nothing_or_two_kinds_is_refused,
    watching::only_what_is_wanted_is_told_and_what_cannot_be_judged_is,
    watching::a_heartbeat_is_told_only_to_who_wants_it,
    watching::what_is_missed_while_the_connection_is_lost_is_told_as_inferred,
    watching::what_happens_while_it_is_away_is_told_when_it_is_back,
    watching::no_value_of_a_secret_gets_out,
    watching::an_object_that_was_known_and_is_gone_is_told_of,
    watching::a_server_that_refuses_is_not_asked_in_a_loop,
    crash::whenever_it_dies_the_next_one_prints_what_is_there,
    crash::whenever_it_dies_nothing_stays_untold,
);
