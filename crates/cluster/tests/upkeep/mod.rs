//! The maintenance controllers as a watcher sees them, on the embedded cluster and on a real control plane.

mod budgets;
mod garbage_collector;
mod kinds;
mod namespace_defaults;
mod namespaces;
mod policy_types;
mod recorded_watch;
mod storage_protection;

use windlass_suite::Suite;

macro_rules! suite {
    ($($case:path),+ $(,)?) => {
        Suite::new("upkeep").controllers()$(.case(stringify!($case), $case))+
    };
}

pub(crate) fn suite() -> Suite {
    suite!(
        garbage_collector::background_deletion_collects_dependents,
        garbage_collector::foreground_deletion_waits_for_blocking_dependents,
        garbage_collector::dependent_with_finalizer_blocks_foreground_deletion,
        garbage_collector::orphan_deletion_removes_owner_references_first,
        garbage_collector::dependent_of_nonexistent_owner_is_deleted,
        garbage_collector::dependent_of_previous_uid_is_deleted,
        garbage_collector::reference_to_deleted_owner_is_removed_while_another_exists,
        garbage_collector::owner_in_another_namespace_is_invalid,
        garbage_collector::cluster_scoped_object_keeps_its_namespaced_owner,
        garbage_collector::dependent_of_unknown_kind_is_kept,
        kinds::custom_resources_are_owners_and_dependents,
        kinds::deeply_nested_objects_are_deleted_with_owner_and_namespace,
        kinds::deleting_a_crd_collects_dependents_of_its_objects,
        kinds::crd_version_change_keeps_collection_working,
        namespaces::empty_namespace_is_deleted,
        namespaces::remaining_finalizer_is_reported_and_awaited,
        namespaces::namespace_deletion_removes_pods_first,
        namespaces::foreign_namespace_finalizers_are_kept,
        namespace_defaults::every_namespace_has_service_account_and_root_ca,
        namespace_defaults::root_ca_is_the_ca_of_the_kubeconfig,
        budgets::min_available_number_counts_existing_pods,
        budgets::percentage_of_unmanaged_pods_is_zero,
        budgets::expected_pods_follow_the_scale_subresource,
        budgets::controller_without_scale_subresource_fails_the_sync,
        budgets::evictions_reduce_the_allowed_disruptions,
        storage_protection::deleted_claim_waits_for_the_pod_that_uses_it,
        storage_protection::deleted_claim_does_not_wait_for_pods_without_a_node,
        storage_protection::deleted_volume_waits_until_it_is_not_bound,
        policy_types::policy_status_names_type_errors_of_each_kind,
        policy_types::checked_policy_without_errors_is_checked_again_after_a_change,
        budgets::replica_sets_count_with_the_scale_of_their_deployment,
    )
}
