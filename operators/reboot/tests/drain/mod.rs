//! Drain passes over pods and budgets that the test creates: the server's answers, and the result.

mod budgets;
mod fixture;
mod pods;

use windlass_suite::suite;

use crate::controller::pods as case_pods;

suite!("drain", paused;
    budgets::exhausted_budget_is_reported_and_retried_every_five_seconds,
    budgets::unprocessed_budget_is_retried_after_the_servers_delay,
    budgets::multiple_budgets_are_named_and_do_not_block_other_pods,
    budgets::pod_is_evicted_once_its_budget_allows,
    budgets::forced_pass_deletes_despite_the_budget,
    budgets::dry_run_reports_blockers,
    pods::ignored_pods_are_not_evicted,
    pods::eviction_uses_the_policys_grace_period,
    pods::pod_recreated_under_its_name_is_not_evicted,
    pods::forced_deletion_does_not_delete_a_recreated_pod,
    pods::overdue_pod_is_reported_with_its_finalizers,
    pods::failed_requests_are_retried_after_five_seconds,
    pods::new_drainer_continues_after_a_crash,
);
