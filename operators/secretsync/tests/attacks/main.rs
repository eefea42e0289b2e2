//! Attacks by people who own one namespace and want something of another one.
//!
//! `mallory` owns the namespace `mallory` and everything in it: Secrets, ConfigMaps, SecretSyncs. The namespace `victim` takes
//! copies from it. What `victim` had before is its own.

mod adoption;
mod crash;
mod load;
mod oracle;
mod overwrite;
mod races;
mod stage;
#[path = "../secretsync/world.rs"]
#[allow(dead_code, reason = "the world of the other suite")]
mod world;

use windlass_suite::suite;

suite!("secretsync-attacks", paused, apart;
    overwrite::policy_of_the_source_alone_changes_nothing,
    overwrite::recreate_never_deletes_what_was_there_before,
    overwrite::reserved_names_are_never_written,
    overwrite::protected_types_are_never_adopted,
    overwrite::an_older_sync_does_not_replace_the_copy_of_another,
    oracle::status_and_events_do_not_depend_on_the_value,
    oracle::status_names_no_sync_of_another_namespace,
    adoption::consent_of_the_target_decides_what_is_adopted,
    adoption::adopted_objects_are_released_whatever_ends_the_sync,
    adoption::withdrawn_consent_releases_at_once,
    races::marks_removed_before_a_delete_keep_the_object,
    races::marks_removed_before_an_update_keep_the_object,
    races::consent_withdrawn_before_an_adoption_stops_it,
    crash::adoption_and_release_survive_every_death,
    load::a_target_cannot_keep_a_sync_from_going,
    load::many_names_and_selectors_share_one_watch_for_each_kind,
    load::lists_have_a_limit,
    load::a_sync_over_its_budget_writes_nothing_and_says_so,
    load::large_sources_are_not_held_beyond_the_limit,
    load::a_sync_that_asks_for_the_same_is_not_looked_at_again,
    load::conflicts_are_looked_at_less_often_the_more_there_are,
);
