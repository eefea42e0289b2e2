//! What reboot guarantees, on every kind of cluster.

mod agent;
pub(crate) mod node;
mod policy;
mod race;
pub(crate) mod token;

use windlass_suite::suite;

suite!("reboot", paused;
    agent::armed_node_reboots_once_and_agent_proves_it,
    agent::agent_restart_is_not_a_reboot,
    agent::agent_crash_at_any_request_reboots_exactly_once,
    agent::agent_gives_up_after_five_attempts,
    agent::agent_ignores_commands_for_other_boots_and_grants,
    agent::api_outage_after_the_boot_only_delays_the_proof,
    agent::trigger_file_requests_a_reboot,
    race::disarming_before_the_claim_stops_the_agent,
    race::disarming_after_the_claim_conflicts,
    race::concurrent_disarm_and_claim_exactly_one_succeeds,
    policy::agent_token_can_write_only_two_annotations_of_its_node,
    policy::agent_works_with_its_shipped_rights,
);
