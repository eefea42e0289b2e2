//! API server behaviour that controllers rely on: identity, versions, conflicts, lists, watches and deletion. The expected
//! values were observed on kube-apiserver. The cases also hold with controllers, which may create objects in a new
//! namespace and set the status of a Deployment.

mod custom;
mod deletion;
mod lists;
mod rest;
mod status;
mod users;
mod watches;
mod writes;

windlass_suite::suite!("api";
    writes::create_assigns_identity_and_version,
    writes::create_gives_generation_one_to_a_kind_with_a_spec,
    writes::create_of_an_existing_name_is_rejected,
    writes::create_in_a_missing_namespace_is_rejected,
    writes::generate_name_appends_five_characters,
    writes::get_of_a_missing_object_is_not_found,
    writes::update_replaces_the_object_and_raises_its_version,
    writes::update_with_a_stale_version_conflicts,
    writes::update_without_change_keeps_the_version_and_is_not_watched,
    writes::merge_patch_sets_and_removes_fields,
    writes::json_patch_is_atomic,
    status::deployment_status_and_spec_are_separate,
    status::generation_counts_changes_of_the_spec_only,
    lists::list_is_ordered_by_name,
    lists::list_of_all_namespaces_is_ordered_by_key,
    lists::label_selector_filters_a_list,
    lists::field_selector_finds_an_object_by_name,
    lists::paged_list_is_one_snapshot,
    watches::watch_from_a_list_delivers_each_change_in_order,
    watches::watch_from_zero_starts_with_existing_objects,
    watches::watch_with_selector_reports_entering_and_leaving_objects,
    deletion::delete_returns_the_uid_and_removes_the_object,
    deletion::finalizer_keeps_the_object_until_removed,
    deletion::delete_of_another_uid_conflicts,
    deletion::terminating_namespace_rejects_new_objects,
    custom::crd_is_established_and_served,
    custom::custom_object_is_validated_by_its_schema,
    custom::unknown_fields_of_a_custom_object_are_pruned,
    custom::custom_object_update_requires_a_resource_version,
    custom::custom_object_status_and_spec_are_separate,
    custom::custom_object_with_finalizer_is_watched_until_deleted,
    users::user_without_roles_may_only_use_discovery,
    users::user_has_exactly_the_rights_of_its_role,
    users::cluster_role_applies_to_all_namespaces,
    users::recorded_rights_are_sufficient_for_another_run,
);
