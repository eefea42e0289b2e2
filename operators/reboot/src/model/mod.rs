//! A model of the whole thing without I/O: random schedules of two controllers with old views, agents, machines and people, and
//! what must hold at every moment of each.
//!
//! ```text
//!   choices (shrinkable) ──► World::event ──► one atomic thing happens: a read, a conditional write, a boot, a death, an hour
//!                                │
//!                                └──► World::check after each; World::settle at the end: everything comes to rest
//! ```
//!
//! The server is a version for each object: a write under another version than the one that was read does nothing. Reads that
//! a controller takes from its cache are copies of any age; live reads and writes are events of their own, so that anything can
//! happen between them.

mod rig;
mod world;

use proptest::prelude::*;

use world::World;

proptest! {
    #![proptest_config(ProptestConfig { cases: 8000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Deaths, old views, two controllers, machines that do not hear, people who change their minds.
    #[test]
    fn no_schedule_breaks_a_promise(
        nodes in 1_usize..5,
        max in 1_usize..3,
        disturbances in any::<u16>(),
        choices in prop::collection::vec(any::<u16>(), 0..400),
    ) {
        let mut world = World::new(nodes, max);
        for choice in choices {
            world.event(choice, disturbances);
            world.check();
        }
        world.settle();
    }
}

/// The two controllers of the races that chance does not find.
const ONE: usize = 0;
const LATE: usize = 1;

/// A node that is asked for again while its slot is taken back: it has begun, and counts, although nothing was done to it.
#[test]
fn a_node_that_has_begun_counts_when_its_slot_goes() {
    let mut world = World::new(2, 1);
    world.node(0).request();
    world.round(ONE, false);
    world.refresh_all(LATE);
    world.node(0).cancel();
    // One has seen that the slot is over, and takes it back when the other has read it for the last time.
    world.slots(ONE, true);
    world.go_on(ONE);
    for node in [0, 1] {
        world.node(node).request();
    }
    world.see(LATE, 0);
    world.work(LATE, 0, 1);
    world.work(LATE, 0, 1);
    world.go_on(LATE);
    world.go_on(ONE);
    world.round(ONE, false);
    world.refresh_all(ONE);
    world.go_on(LATE);
    assert_eq!(world.on_their_way(), ["n0"]);
    for _ in 0..4 {
        world.work(ONE, 1, 1);
        world.go_on(ONE);
        world.go_on(ONE);
        world.check();
    }
    world.settle();
}

/// A controller that missed that a slot was taken back and given to another node.
#[test]
fn a_slot_that_was_taken_back_is_no_leave_to_cordon() {
    let mut world = World::new(2, 1);
    world.node(0).request();
    world.round(ONE, false);
    world.refresh_all(LATE);
    world.node(0).cancel();
    world.round(ONE, true);
    world.node(1).request();
    world.round(ONE, false);
    world.node(0).request();
    world.refresh_all(ONE);
    world.see(LATE, 0);
    for _ in 0..4 {
        for (who, node) in [(LATE, 0), (ONE, 1)] {
            world.work(who, node, 1);
            world.go_on(who);
            world.go_on(who);
            world.check();
        }
    }
    assert_eq!(world.on_their_way(), ["n1"], "the other one is");
    world.settle();
}
