//! Secretsync on whole clusters, with exactly the rights that it ships with.

mod canary;
mod cleanup;
mod consent;
mod crash;
mod drift;
mod foreign;
mod kinds;
mod loops;
mod quiet;
mod rights;
mod spread;
mod trouble;
mod world;

use windlass_suite::suite;

suite!("secretsync", paused, apart;
    spread::an_annotated_secret_is_copied_to_the_namespaces_that_ask,
    spread::config_maps_go_the_same_way,
    spread::a_secret_sync_copies_what_it_selects_and_says_how_far_it_is,
    spread::what_is_narrowed_goes_from_the_copies_at_once,
    spread::a_sync_that_no_namespace_wants_says_what_it_matches,
    spread::a_paused_sync_does_nothing_until_it_goes_on,
    spread::an_object_is_adopted_only_as_the_policy_allows,
    spread::orphans_stay_and_lose_our_marks,
    spread::a_sync_that_is_gone_left_word_whether_its_copies_stay,
    spread::a_spec_that_cannot_be_meant_is_told_and_takes_nothing_away,
    crash::a_fan_out_survives_every_death,
    crash::its_end_survives_every_death,
    crash::a_fan_out_to_200_namespaces_survives_a_death,
    crash::the_end_of_200_copies_survives_a_death,
    foreign::foreign_objects_stay_as_they_are_whatever_an_annotated_source_does,
    foreign::foreign_objects_stay_as_they_are_whatever_a_secret_sync_does,
    foreign::a_change_at_the_last_moment_is_not_written_over,
    foreign::a_secret_that_appears_at_the_last_moment_is_not_written_over,
    consent::a_namespace_gets_copies_from_whom_it_named_and_nobody_else,
    consent::a_tenant_reaches_neither_another_tenant_nor_the_system,
    consent::a_system_namespace_that_is_allowed_still_has_to_consent,
    consent::the_annotation_and_the_source_namespace_can_be_named,
    consent::copies_from_another_source_namespace_are_left_alone,
    consent::a_secret_sync_in_the_source_namespace_needs_no_other_consent,
    cleanup::whatever_ends_a_copy_takes_the_right_ones_away,
    cleanup::whatever_ends_a_copy_while_it_is_down_is_caught_up,
    cleanup::a_namespace_that_is_made_anew_gets_its_copies_again,
    cleanup::a_deletion_overtakes_a_pending_fan_out,
    drift::drift_is_repaired_at_once,
    drift::drift_is_repaired_at_once_also_in_a_namespace_of_sources,
    drift::drift_while_it_was_down_is_repaired_without_reading_values,
    drift::what_others_add_around_the_data_stays,
    drift::there_is_no_fight_with_somebody_who_applies,
    quiet::nothing_is_written_when_all_is_in_sync,
    quiet::only_sources_are_read_whole,
    quiet::a_leader_that_takes_over_writes_nothing_twice,
    kinds::secrets_of_every_type_are_copied_as_they_are,
    kinds::what_cannot_be_changed_is_replaced_only_if_that_is_allowed,
    kinds::tokens_and_releases_never_leave_their_namespace,
    loops::copies_are_no_sources_and_sources_no_targets,
    loops::a_chain_goes_on_and_a_circle_is_refused,
    loops::of_two_syncs_that_want_one_target_the_older_has_it,
    loops::an_older_sync_waits_until_the_copy_of_another_is_gone,
    loops::a_source_that_is_annotated_and_selected_has_one_copy,
    trouble::a_namespace_with_a_full_quota_holds_nobody_up,
    trouble::a_webhook_that_fails_for_one_namespace_holds_nobody_up,
    trouble::a_refusal_that_quotes_the_values_is_told_without_them,
    trouble::a_refusal_that_quotes_older_values_is_told_without_them,
    trouble::a_sync_that_cannot_go_says_why,
    trouble::a_namespace_that_is_going_is_done,
    trouble::storms_pass,
    trouble::a_stall_is_told_by_its_health,
    canary::no_value_gets_out,
    rights::the_roles_are_enough_and_nothing_in_them_is_idle,
);
