//! What reboot promises, on every kind of cluster.

mod agent;
mod node;
mod policy;
mod race;
mod token;

use windlass_suite::suite;

suite!("reboot", paused;
    agent::an_armed_node_reboots_once_and_its_agent_proves_it,
    agent::a_restarted_agent_is_no_reboot,
    agent::an_agent_that_dies_at_any_request_reboots_exactly_once,
    agent::a_machine_that_does_not_reboot_is_asked_five_times,
    agent::an_order_that_is_not_meant_for_this_boot_and_grant_is_left_alone,
    agent::an_api_that_is_away_after_the_boot_costs_nothing_but_time,
    agent::a_file_on_the_machine_asks_for_a_reboot,
    race::who_disarms_first_stops_the_agent,
    race::who_disarms_late_is_told_so,
    race::of_disarm_and_claim_at_once_exactly_one_happens,
    policy::the_token_of_an_agent_is_good_for_two_annotations_of_its_node,
    policy::an_agent_does_its_work_with_its_own_token,
);
