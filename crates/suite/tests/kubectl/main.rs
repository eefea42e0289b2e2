//! kubectl itself, on every backend: what people type, and what they read back. Each case states what kubectl was seen
//! to say to kube-apiserver.

mod change;
mod create;
mod discover;
mod kubectl;
mod objects;
mod own;
mod read;
mod refusals;
mod remove;
mod rights;

use std::process::ExitCode;

use windlass_suite::Suite;

macro_rules! cases {
    ($suite:expr; $($case:path),+ $(,)?) => { $suite$(.case(stringify!($case), $case))+ };
}

fn main() -> ExitCode {
    let suite = Suite::new("kubectl").needs(windlass_cluster::matching_kubectl());
    cases!(suite;
        create::generators_make_what_they_say,
        create::generators_that_print_send_nothing,
        create::a_file_with_several_objects_is_created_in_order,
        create::a_dry_run_leaves_nothing_behind,
        create::an_unknown_field_is_refused_by_default,
        create::create_of_what_exists_is_refused,
        read::get_prints_tables,
        read::get_prints_objects_and_fields,
        read::get_of_nothing_says_so,
        read::get_follows_changes,
        read::get_shows_several_kinds_and_selections,
        read::describe_shows_an_object,
        read::custom_columns_and_sorting_work,
        change::apply_creates_changes_and_leaves_alone,
        change::apply_removes_what_was_applied_before,
        change::apply_of_several_objects_prunes_by_label,
        change::patch_takes_three_types,
        change::labels_and_annotations_are_set_and_removed,
        change::scale_changes_replicas_under_a_condition,
        change::set_changes_images_and_environments,
        change::replace_needs_the_current_version,
        change::edit_changes_an_object,
        change::rollouts_are_paused_and_resumed_and_have_a_history,
        change::diff_shows_what_apply_would_do,
        own::server_side_apply_creates_and_leaves_alone,
        own::server_side_apply_meets_conflicts_and_takes_by_force,
        own::what_was_applied_by_the_client_moves_to_the_server,
        own::managed_fields_are_shown_on_request,
        own::server_side_diff_shows_what_apply_would_do,
        remove::delete_says_what_it_deleted,
        remove::delete_by_file_selector_and_all,
        remove::delete_with_each_cascade,
        remove::a_finalizer_holds_a_deletion_and_wait_sees_its_end,
        remove::wait_for_conditions_and_fields,
        remove::wait_gives_up_in_time,
        discover::api_resources_and_versions_are_listed,
        discover::explain_knows_built_in_fields,
        discover::a_custom_kind_is_served_explained_and_printed,
        discover::raw_requests_work_for_every_verb,
        discover::version_and_cluster_info_are_answered,
        refusals::missing_objects_and_kinds_are_named,
        refusals::bad_requests_are_explained,
        rights::can_i_is_answered_for_oneself_and_others,
        rights::the_list_of_rights_is_shown,
        rights::whoami_knows_users_and_accounts,
        rights::a_user_is_refused_in_words,
    )
    .run()
}
