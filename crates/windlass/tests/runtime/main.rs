//! What the runtime promises to an author, on every kind of cluster.

mod declare;
mod garden;
mod lead;
mod manage;
mod stepwise;
mod world;

use windlass_suite::suite;

suite!("runtime";
    declare::children_are_made_for_their_owner_and_then_nothing_is_written,
    declare::the_status_says_which_generation_it_is_about,
    declare::what_is_not_wanted_any_more_goes_and_what_is_not_ours_stays,
    declare::drift_is_put_right_and_what_others_add_stays,
    declare::an_object_of_somebody_else_is_reported_and_not_touched,
    declare::what_must_be_cleaned_up_is_cleaned_up_before_it_goes,
    stepwise::what_was_done_is_told_where_people_look,
    stepwise::only_changes_that_pass_a_predicate_trigger_and_deletions_always,
    stepwise::a_kind_that_is_known_at_run_time_works_like_a_typed_one,
    lead::one_of_two_works_and_the_other_takes_over_at_once,
    manage::what_is_installed_is_served_and_no_stored_version_is_dropped,
    manage::a_budget_that_says_no_is_an_answer,
    manage::health_readiness_and_metrics_are_served,
);
