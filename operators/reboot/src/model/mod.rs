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
        let mut cluster = ModelCluster::new(nodes, max);
        for choice in choices {
            cluster.event(choice, disturbances);
            cluster.check();
        }
        cluster.settle();
    }
}

/// The two controllers of races that random schedules rarely find.
const ONE: usize = 0;
const STALE: usize = 1;

/// A node whose request is renewed while its slot is taken back: it was granted, and counts although nothing was done
/// to it.
#[test]
fn granted_node_counts_while_its_slot_is_taken_back() {
    let mut cluster = ModelCluster::new(2, 1);
    cluster.node(0).request();
    cluster.slot_round(ONE, false);
    cluster.refresh_all(STALE);
    cluster.node(0).cancel();
    // One controller has seen that the slot expired, and takes it back after the other has read it for the last time.
    cluster.begin_slot_round(ONE, true);
    cluster.advance(ONE);
    for node in [0, 1] {
        cluster.node(node).request();
    }
    cluster.refresh_node(STALE, 0);
    cluster.step_node(STALE, 0, 1);
    cluster.step_node(STALE, 0, 1);
    cluster.advance(STALE);
    cluster.advance(ONE);
    cluster.slot_round(ONE, false);
    cluster.refresh_all(ONE);
    cluster.advance(STALE);
    assert_eq!(cluster.rebooting_nodes(), ["n0"]);
    for _ in 0..4 {
        cluster.step_node(ONE, 1, 1);
        cluster.advance(ONE);
        cluster.advance(ONE);
        cluster.check();
    }
    cluster.settle();
}

/// A controller that missed that a slot was taken back and granted to another node.
#[test]
fn released_slot_does_not_allow_cordoning() {
    let mut cluster = ModelCluster::new(2, 1);
    cluster.node(0).request();
    cluster.slot_round(ONE, false);
    cluster.refresh_all(STALE);
    cluster.node(0).cancel();
    cluster.slot_round(ONE, true);
    cluster.node(1).request();
    cluster.slot_round(ONE, false);
    cluster.node(0).request();
    cluster.refresh_all(ONE);
    cluster.refresh_node(STALE, 0);
    for _ in 0..4 {
        for (who, node) in [(STALE, 0), (ONE, 1)] {
            cluster.step_node(who, node, 1);
            cluster.advance(who);
            cluster.advance(who);
            cluster.check();
        }
    }
    assert_eq!(cluster.rebooting_nodes(), ["n1"], "the slot is n1's");
    cluster.settle();
}
