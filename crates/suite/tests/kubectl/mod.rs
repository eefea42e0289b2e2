//! kubectl on every backend: commands and their output. The expected output was observed with kube-apiserver.

mod change;
pub(crate) mod command;
mod create;
mod discover;
mod errors;
mod objects;
mod ownership;
mod read;
mod remove;
mod rights;

use windlass_suite::Suite;

macro_rules! cases {
    ($suite:expr; $($case:path),+ $(,)?) => { $suite$(.case(stringify!($case), $case))+ };
}

pub(crate) fn suite() -> Suite {
    let suite = Suite::new("kubectl").requires(windlass_cluster::matching_kubectl());
    cases!(suite;
        create::generators_create_their_objects,
        create::generators_with_dry_run_create_nothing,
        create::file_with_several_objects_is_created_in_order,
        create::dry_run_creates_nothing,
        create::unknown_field_is_rejected_by_default,
        create::create_of_existing_object_is_rejected,
        read::get_prints_tables,
        read::get_prints_objects_and_fields,
        read::get_without_results_says_so,
        read::get_follows_changes,
        read::get_shows_several_kinds_and_selectors,
        read::describe_shows_an_object,
        read::custom_columns_and_sorting_work,
        change::apply_creates_changes_and_keeps_objects,
        change::apply_removes_previously_applied_fields,
        change::apply_of_several_objects_prunes_by_label,
        change::patch_takes_three_types,
        change::labels_and_annotations_are_set_and_removed,
        change::scale_changes_replicas_with_precondition,
        change::set_changes_images_and_environments,
        change::replace_requires_the_current_version,
        change::edit_changes_an_object,
        change::rollouts_are_paused_and_resumed_and_have_a_history,
        change::diff_shows_what_apply_would_do,
        ownership::server_side_apply_creates_and_keeps_objects,
        ownership::server_side_apply_conflicts_and_can_be_forced,
        ownership::client_side_applied_fields_migrate_to_server_side_apply,
        ownership::managed_fields_are_shown_on_request,
        ownership::server_side_diff_shows_what_apply_would_do,
        remove::delete_prints_deleted_objects,
        remove::delete_by_file_selector_and_all,
        remove::delete_with_each_cascade,
        remove::finalizer_blocks_deletion_and_wait_sees_its_end,
        remove::wait_for_conditions_and_fields,
        remove::wait_times_out,
        discover::api_resources_and_versions_are_listed,
        discover::explain_shows_built_in_fields,
        discover::custom_kind_is_served_explained_and_printed,
        discover::raw_requests_work_for_every_verb,
        discover::proxy_forwards_requests_and_metrics,
        discover::version_and_cluster_info_are_answered,
        errors::missing_objects_and_kinds_are_reported,
        errors::bad_requests_are_explained,
        rights::can_i_works_for_oneself_and_others,
        rights::can_i_list_shows_rights,
        rights::whoami_shows_users_and_service_accounts,
        rights::forbidden_request_is_explained,
    )
}
