//! What a compromised agent or controller can and cannot do: a case for each claim of "A compromised agent" and "A
//! compromised controller" in docs/reboot.md that a cluster can show. `attacks_host.rs` covers the manifests and the host's files, `attacks_bus.rs` the bus.

mod controller;
mod lies;
mod stolen;

use windlass_suite::suite;

use crate::{
    controller::fleet,
    reboot::{node, token},
};

// Policies and nodes are cluster-scoped.
suite!("attacks", paused, cluster_per_case;
    stolen::stolen_token_cannot_write_other_nodes,
    stolen::stolen_token_cannot_arm_its_own_node,
    stolen::stolen_token_cannot_fill_the_annotations_of_its_node,
    stolen::stolen_token_gives_no_other_rights,
    controller::stolen_controller_token_cannot_start_programs,
    controller::stolen_controller_token_gives_no_other_rights,
    lies::forged_command_without_grant_reboots_nothing,
    lies::forged_proof_does_not_release_a_slot,
    lies::proof_for_another_grant_is_ignored,
    lies::invalid_progress_is_not_a_proof,
    lies::huge_failure_text_still_fails_the_node,
    lies::huge_request_reason_does_not_block_the_roll,
);
