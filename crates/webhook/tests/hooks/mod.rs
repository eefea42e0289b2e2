//! What users and clients see of webhooks, and what the webhooks see of them.

mod admission;
mod fixture;
mod registration;
mod versions;

use windlass_suite::suite;

suite!("webhooks";
    admission::refusal_is_the_servers_own_text_with_causes_and_warnings,
    admission::mutation_keeps_what_the_type_does_not_know,
    admission::validator_sees_every_operation,
    admission::scale_and_status_have_types_of_their_own,
    admission::connections_are_asked_about,
    admission::panic_and_error_are_handled_by_policy,
    registration::wiped_bundle_heals_and_the_registration_is_taken_back,
    registration::documented_rights_suffice,
    versions::objects_are_converted_and_losses_are_restored,
);
