//! The example `autoservice` on every kind of cluster, with its shipped rights.

mod fixture;
mod foreign;
mod lifecycle;
mod ports;
#[path = "../../autoservice.rs"]
#[allow(dead_code, reason = "`main` and its demo are run by the test `programs`")]
mod program;

use windlass_suite::suite;

suite!("autoservice", paused, controllers;
    lifecycle::annotated_deployment_gets_a_service_that_it_owns,
    lifecycle::deployment_without_annotation_gets_no_service,
    lifecycle::annotation_can_be_added_later,
    lifecycle::removing_the_annotation_deletes_the_service,
    lifecycle::invalid_annotation_is_reported_and_keeps_the_service,
    lifecycle::deleted_service_is_recreated,
    lifecycle::drift_is_corrected_and_foreign_labels_are_kept,
    lifecycle::changes_while_stopped_are_caught_up,
    lifecycle::restart_writes_nothing,
    lifecycle::service_is_deleted_with_its_deployment,
    ports::changed_ports_update_the_service_in_place,
    ports::ports_of_all_containers_are_exposed_once,
    ports::removing_all_ports_deletes_the_service,
    ports::match_expressions_are_reported,
    foreign::foreign_service_is_never_touched,
    foreign::service_of_another_deployment_is_never_touched,
    foreign::service_is_created_when_the_name_is_free,
    foreign::shipped_rights_are_sufficient_and_minimal,
);
