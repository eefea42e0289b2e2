//! The watch events of workloads, step by step: recorded on a real control plane, compared on every backend.
//!
//! ```text
//!   case: steps ──► TestRun ── changes objects, acts as kubelet for one pod at a time, then waits until idle
//!                      └─ Watcher: every change of every object ──► transcript ── must match recorded/<case>.json
//! ```
//!
//! A transcript is grouped by object, since controllers run concurrently and only the order of one object's states is
//! deterministic. Generated names are numbered; times, UIDs and resource versions are omitted.
//!
//! `WINDLASS_RECORD=1 WINDLASS_BACKENDS=real cargo test -p windlass-suite --test suites rollouts` adds the observed transcripts to
//! the recordings. To record from scratch, delete them and run this a few times: real controllers race, so there are several
//! valid transcripts.

mod daemonsets;
mod deployments;
mod kubelet;
mod replicasets;
mod settled;
mod test_run;
mod transcript;
mod watcher;

use windlass_suite::Suite;

macro_rules! cases {
    ($suite:expr; $($case:path),+ $(,)?) => { $suite$(.case(stringify!($case), $case))+ };
}

pub(crate) fn suite() -> Suite {
    let suite = Suite::new("rollouts").controllers();
    cases!(suite;
        deployments::a_deployment_is_created_and_scaled,
        deployments::a_template_is_rolled_out_and_undone,
        deployments::a_rollout_takes_from_the_old_what_may_be_missing,
        deployments::a_size_that_changes_during_a_rollout_is_shared_out,
        deployments::a_paused_deployment_scales_but_does_not_roll,
        deployments::recreate_waits_for_the_old_pods_to_go,
        deployments::a_rollout_that_stands_still_is_called_so,
        deployments::old_revisions_beyond_the_limit_go,
        deployments::a_pod_that_is_refused_is_told_of,
        deployments::a_pod_must_stay_ready_to_count_as_available,
        deployments::annotations_are_passed_on,
        replicasets::pods_are_adopted_and_released,
        replicasets::deployments_adopt_and_release_replica_sets,
        replicasets::a_pod_that_ends_or_goes_is_replaced,
        daemonsets::daemons_follow_nodes,
        daemonsets::a_template_is_rolled_out_and_undone,
        daemonsets::new_daemons_may_come_before_old_ones_go,
        daemonsets::daemons_are_replaced_when_they_go,
    )
}
