//! What an API server does for every controller: identity, versions, conflicts, lists, watches and deletion. Each case
//! states what kube-apiserver was seen to do, and holds also where controllers are at work: a new namespace may get
//! objects from them, and a Deployment a status.

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
    writes::create_of_an_existing_name_is_refused,
    writes::create_in_a_missing_namespace_is_refused,
    writes::generate_name_appends_five_characters,
    writes::get_of_a_missing_object_is_not_found,
    writes::update_replaces_the_object_and_raises_its_version,
    writes::update_with_a_stale_version_conflicts,
    writes::update_that_changes_nothing_keeps_the_version_and_is_not_watched,
    writes::a_merge_patch_sets_and_removes_fields,
    writes::a_json_patch_is_applied_wholly_or_not_at_all,
    status::a_deployment_keeps_status_and_spec_apart,
    status::generation_counts_changes_of_the_spec_only,
    lists::a_list_is_ordered_by_name,
    lists::a_list_of_all_namespaces_is_ordered_by_key,
    lists::a_label_selector_narrows_a_list,
    lists::a_field_selector_finds_an_object_by_name,
    lists::a_list_in_pages_is_one_snapshot,
    watches::a_watch_from_a_list_sees_each_change_in_order,
    watches::a_watch_from_zero_starts_with_what_is_there,
    watches::a_selected_watch_reports_entering_and_leaving,
    deletion::delete_answers_with_the_uid_and_forgets_the_object,
    deletion::a_finalizer_keeps_the_object_until_it_is_removed,
    deletion::delete_of_another_uid_conflicts,
    deletion::a_namespace_that_ends_accepts_no_new_objects,
    custom::a_definition_is_established_and_serves_its_kind,
    custom::a_custom_object_must_fit_its_schema,
    custom::unknown_fields_of_a_custom_object_are_pruned,
    custom::a_custom_object_needs_a_version_to_be_updated,
    custom::a_custom_object_keeps_status_and_spec_apart,
    custom::a_custom_object_with_a_finalizer_is_watched_to_its_end,
    users::a_user_without_roles_may_only_look_around,
    users::a_user_has_the_rights_of_its_role_and_no_others,
    users::a_cluster_role_reaches_everywhere,
    users::rights_derived_from_a_run_are_enough_for_the_next,
);
