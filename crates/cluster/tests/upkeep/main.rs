//! What keeps a cluster tidy, as a watcher sees it: written once, run on the embedded cluster and on a real control plane with
//! its controllers.

mod budgets;
mod collector;
mod kinds;
mod namespaces;
mod provisions;
mod witness;

use std::process::ExitCode;

use windlass_suite::Suite;

macro_rules! suite {
    ($($case:path),+ $(,)?) => {
        Suite::new("upkeep").controllers()$(.case(stringify!($case), $case))+
    };
}

fn main() -> ExitCode {
    suite!(
        collector::an_owners_children_go_after_it,
        collector::foreground_deletion_waits_for_the_dependents_that_block_it,
        collector::a_dependent_with_a_finalizer_holds_its_owner,
        collector::orphaned_children_are_released_before_their_owner_goes,
        collector::a_child_of_nobody_goes,
        collector::a_child_of_a_predecessor_goes,
        collector::only_the_reference_to_a_gone_owner_goes_while_another_lives,
        collector::an_owner_in_another_namespace_is_none,
        collector::an_object_outside_namespaces_keeps_its_impossible_owner,
        collector::an_owner_of_an_unknown_kind_is_waited_for,
        kinds::custom_objects_own_and_are_owned,
        kinds::deeply_nested_objects_are_collected_and_leave_with_their_namespace,
        kinds::a_kind_that_goes_takes_its_objects_children_with_it,
        kinds::a_kind_that_moves_to_another_version_is_followed,
        namespaces::an_empty_namespace_goes,
        namespaces::a_stuck_finalizer_is_shown_and_waited_for,
        namespaces::pods_go_first,
        namespaces::foreign_finalizers_of_a_namespace_are_left_to_their_owners,
        provisions::every_namespace_has_its_account_and_certificate,
        provisions::the_certificate_is_the_authoritys,
        budgets::a_number_is_counted_against_the_pods_that_are_there,
        budgets::a_percentage_of_unmanaged_pods_is_none,
        budgets::pods_are_expected_as_their_controller_scales,
        budgets::what_cannot_be_scaled_cannot_be_counted,
        budgets::evictions_are_taken_from_the_budget,
        budgets::replica_sets_count_as_their_deployment,
    )
    .run()
}
