//! Attacks by users who own one namespace and want something of another one.
//!
//! `mallory` owns the namespace `mallory` and everything in it: Secrets, ConfigMaps, SecretSyncs. The namespace
//! `victim` accepts copies from it. What `victim` had before is its own.

mod adoption;
mod crash;
mod fixture;
mod load;
mod oracle;
mod overwrite;
mod races;

use windlass_suite::suite;

use crate::secretsync::test_cluster;

suite!("secretsync-attacks", paused, cluster_per_case;
    overwrite::adoption_policy_without_target_consent_changes_nothing,
    overwrite::recreate_never_deletes_preexisting_objects,
    overwrite::reserved_names_are_never_written,
    overwrite::protected_types_are_never_adopted,
    overwrite::older_sync_does_not_replace_a_copy_of_another_source,
    oracle::status_and_events_do_not_depend_on_the_value,
    oracle::status_does_not_name_syncs_of_other_namespaces,
    oracle::metadata_of_copies_does_not_depend_on_the_value,
    adoption::adoption_needs_policy_and_target_consent,
    adoption::adopted_objects_are_released_by_every_removal,
    adoption::withdrawn_consent_releases_at_once,
    adoption::mistaken_adopt_releases_nothing,
    races::removing_our_label_before_a_delete_keeps_the_object,
    races::removing_our_label_before_an_update_keeps_the_object,
    races::consent_withdrawn_before_an_adoption_stops_it,
    crash::adoption_and_release_recover_from_a_crash_at_every_request,
    load::target_cannot_block_the_deletion_of_a_sync,
    load::forged_copies_do_not_hold_back_removals,
    load::names_and_selectors_share_one_watch_per_kind,
    load::schema_limits_list_lengths,
    load::sync_over_its_limits_writes_nothing_and_reports_it,
    load::content_over_the_limit_is_not_held,
    load::unchanged_spec_does_not_reconcile_copies,
    load::conflict_checks_are_rate_limited,
);
