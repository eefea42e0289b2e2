//! Applies everything with kubectl, as an administrator does.

use windlass_suite::{Context as Case, suite};

// Only one case: the applied objects are cluster-wide.
suite!("reboot-kubectl", paused, requires(windlass_cluster::matching_kubectl());
    shipped_manifests_apply_with_kubectl,
);

async fn shipped_manifests_apply_with_kubectl(case: Case) -> anyhow::Result<()> {
    let all = case
        .kubectl(&["kustomize", env!("CARGO_MANIFEST_DIR")], "")
        .await?;
    // Into the case's namespace, which is deleted at the end.
    let all = all.replace("windlass-reboot", case.namespace());
    let output = case.kubectl(&["apply", "--server-side", "-f", "-"], &all).await?;
    for part in [
        "customresourcedefinition.apiextensions.k8s.io/rebootpolicies.reboot.windlass.dev",
        "serviceaccount/reboot",
        "serviceaccount/reboot-agent",
        "clusterrole.rbac.authorization.k8s.io/reboot",
        "clusterrolebinding.rbac.authorization.k8s.io/reboot",
        "role.rbac.authorization.k8s.io/reboot-leader-election",
        "rolebinding.rbac.authorization.k8s.io/reboot-leader-election",
        "deployment.apps/reboot",
        "daemonset.apps/reboot-agent",
        "validatingadmissionpolicy.admissionregistration.k8s.io/",
        "validatingadmissionpolicybinding.admissionregistration.k8s.io/",
    ] {
        let line = output.lines().find(|line| line.starts_with(part));
        assert!(
            line.is_some_and(|line| line.ends_with("serverside-applied")),
            "`{part}` in:\n{output}"
        );
    }
    let accounts =
        ["reboot", "reboot-agent"].map(|name| format!("system:serviceaccount:{}:{name}", case.namespace()));
    for (account, verb, resource, part, may) in [
        (&accounts[0], "patch", "nodes", "", true),
        (&accounts[0], "create", "pods", "eviction", true),
        (&accounts[0], "create", "pods", "", false),
        (&accounts[0], "create", "jobs.batch", "", false),
        (&accounts[0], "delete", "nodes", "", false),
        (&accounts[0], "get", "secrets", "", false),
        (&accounts[1], "patch", "nodes", "", true),
        (&accounts[1], "patch", "nodes", "status", false),
        (&accounts[1], "get", "pods", "", false),
    ] {
        let part = format!("--subresource={part}");
        let question = ["auth", "can-i", verb, resource, &part, "--as", account];
        // kubectl exits with a failure if the answer is no.
        let answer = case.kubectl(&question, "").await;
        assert_eq!(answer.is_ok(), may, "{question:?}: {answer:?}");
    }
    // The rights for hooks, on request. Here one namespace stands for both.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/hooks");
    let hooks = case.kubectl(&["kustomize", folder], "").await?;
    let hooks = hooks
        .replace("windlass-reboot-hooks", case.namespace())
        .replace("windlass-reboot", case.namespace());
    case.kubectl(&["apply", "--server-side", "-f", "-"], &hooks)
        .await?;
    let question = ["auth", "can-i", "create", "jobs.batch", "--as", &accounts[0]];
    case.kubectl(&question, "").await?;
    case.kubectl(&["delete", "--wait=false", "-f", "-"], &all).await?;
    Ok(())
}
