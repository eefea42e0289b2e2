//! A model of the operator without I/O: random schedules of two controllers with stale caches, agents, machines and
//! administrators, with invariants that must hold after every event.
//!
//! ```text
//!   choices (shrinkable) ──► ModelCluster::event ──► one atomic event: a read, a conditional write, a boot, a crash, a delay
//!                                │
//!                                └──► check after each event; settle at the end: all reboots finish
//! ```
//!
//! Each object of the model's server has a resource version: a write with another version than the current one does
//! nothing. Cached reads are copies of any age; live reads and writes are separate events, so that anything can
//! happen between them.

mod cluster;
mod node;

use proptest::prelude::*;

use cluster::ModelCluster;

proptest! {
    #![proptest_config(ProptestConfig { cases: 8000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Crashes, stale caches, two controllers, machines that ignore reboots, administrators who change their minds.
    #[test]
    fn invariants_hold_in_every_schedule(
        nodes in 1_usize..5,
        max in 1_usize..3,
        disturbances in any::<u16>(),
        choices in prop::collection::vec(any::<u16>(), 0..400),
    ) {
        let mut world = ModelCluster::new(nodes, max);
        for choice in choices {
            world.event(choice, disturbances);
            world.check();
        }
        world.settle();
    }
}

/// The two controllers of races that random schedules rarely find.
const ONE: usize = 0;
const STALE: usize = 1;

/// A node whose request is renewed while its slot is taken back: it was granted, and counts although nothing was done
/// to it.
#[test]
fn granted_node_counts_while_its_slot_is_taken_back() {
    let mut world = ModelCluster::new(2, 1);
    world.node(0).request();
    world.slot_round(ONE, false);
    world.refresh_all(STALE);
    world.node(0).cancel();
    // One controller has seen that the slot expired, and takes it back after the other has read it for the last time.
    world.begin_slot_round(ONE, true);
    world.advance(ONE);
    for node in [0, 1] {
        world.node(node).request();
    }
    world.refresh_node(STALE, 0);
    world.step_node(STALE, 0, 1);
    world.step_node(STALE, 0, 1);
    world.advance(STALE);
    world.advance(ONE);
    world.slot_round(ONE, false);
    world.refresh_all(ONE);
    world.advance(STALE);
    assert_eq!(world.rebooting_nodes(), ["n0"]);
    for _ in 0..4 {
        world.step_node(ONE, 1, 1);
        world.advance(ONE);
        world.advance(ONE);
        world.check();
    }
    world.settle();
}

/// A controller that missed that a slot was taken back and granted to another node.
#[test]
fn released_slot_does_not_allow_cordoning() {
    let mut world = ModelCluster::new(2, 1);
    world.node(0).request();
    world.slot_round(ONE, false);
    world.refresh_all(STALE);
    world.node(0).cancel();
    world.slot_round(ONE, true);
    world.node(1).request();
    world.slot_round(ONE, false);
    world.node(0).request();
    world.refresh_all(ONE);
    world.refresh_node(STALE, 0);
    for _ in 0..4 {
        for (who, node) in [(STALE, 0), (ONE, 1)] {
            world.step_node(who, node, 1);
            world.advance(who);
            world.advance(who);
            world.check();
        }
    }
    assert_eq!(world.rebooting_nodes(), ["n1"], "the slot is n1's");
    world.settle();
}
