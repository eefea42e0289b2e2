use windlass::serde_json::{from_value, json};

use super::*;

/// A server's discovery documents: groups, versions and kinds.
fn server() -> Vec<Served> {
    let kind = |plural: &str, kind: &str, scope: &str, short: &[&str], verbs: &[&str]| {
        json!({
            "resource": plural, "responseKind": { "group": "", "version": "", "kind": kind }, "scope": scope,
            "singularResource": kind.to_lowercase(), "shortNames": short, "verbs": verbs,
        })
    };
    let all = ["create", "delete", "get", "list", "watch"];
    let group = |name: &str, versions: serde_json::Value| json!({ "metadata": { "name": name }, "versions": versions });
    let list = |items| from_value(json!({ "metadata": {}, "items": items })).expect("a list");
    let core: APIGroupDiscoveryList = list(json!([group(
        "",
        json!([{ "version": "v1", "resources": [
        kind("pods", "Pod", "Namespaced", &["po"], &all),
        kind("nodes", "Node", "Cluster", &["no"], &all),
        kind("events", "Event", "Namespaced", &["ev"], &all),
        kind("services", "Service", "Namespaced", &["svc"], &all),
        kind("bindings", "Binding", "Namespaced", &[], &["create"]),
    ] }])
    )]));
    let others: APIGroupDiscoveryList = list(json!([
        group(
            "apps",
            json!([{ "version": "v1", "resources": [kind("deployments", "Deployment", "Namespaced", &["deploy"], &all)] }])
        ),
        group(
            "autoscaling",
            json!([
                { "version": "v2", "resources": [kind("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced", &["hpa"], &all)] },
                { "version": "v1", "resources": [kind("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced", &["hpa"], &all)] },
            ])
        ),
        group(
            "events.k8s.io",
            json!([{ "version": "v1", "resources": [kind("events", "Event", "Namespaced", &["ev"], &all)] }])
        ),
        group(
            "metrics.k8s.io",
            json!([{ "version": "v1beta1", "resources": [kind("pods", "PodMetrics", "Namespaced", &[], &["get", "list"])] }])
        ),
        group(
            "serving.knative.dev",
            json!([{ "version": "v1", "resources": [kind("services", "Service", "Namespaced", &["ksvc"], &all)] }])
        ),
        group(
            "samplecontroller.k8s.io",
            json!([{ "version": "v1alpha1", "resources": [kind("foos", "Foo", "Namespaced", &[], &all)] }])
        ),
    ]));
    served([core, others])
}

fn found(name: &str) -> Result<Kind, String> {
    let name: KindRef = name.parse().map_err(|error: KindError| error.to_string())?;
    name.find(&server()).map_err(|error| error.to_string())
}

fn place(kind: &Kind) -> String {
    let ApiResource {
        group,
        version,
        plural,
        kind: name,
        ..
    } = &kind.resource;
    format!("{group}/{version}/{plural}/{name}")
}

#[test]
fn kind_resolves_by_any_of_its_names() {
    for (names, expected) in [
        (
            &["pods", "pod", "po", "Pod", "pods.v1", "Pod.v1"][..],
            "/v1/pods/Pod",
        ),
        (
            &[
                "deployments",
                "deploy",
                "Deployment",
                "deployments.apps",
                "deployment.v1.apps",
                "Deployment.v1.apps",
            ],
            "apps/v1/deployments/Deployment",
        ),
        (
            &[
                "foos",
                "Foo",
                "foos.samplecontroller.k8s.io",
                "Foo.v1alpha1.samplecontroller.k8s.io",
            ],
            "samplecontroller.k8s.io/v1alpha1/foos/Foo",
        ),
        (
            &["hpa", "hpa.autoscaling", "hpa.v2.autoscaling"],
            "autoscaling/v2/horizontalpodautoscalers/HorizontalPodAutoscaler",
        ),
        (
            &["hpa.v1.autoscaling"],
            "autoscaling/v1/horizontalpodautoscalers/HorizontalPodAutoscaler",
        ),
        (&["services.v1", "svc"], "/v1/services/Service"),
        (
            &["ksvc", "services.serving.knative.dev"],
            "serving.knative.dev/v1/services/Service",
        ),
        (&["ev.events.k8s.io"], "events.k8s.io/v1/events/Event"),
    ] {
        for name in names {
            let kind = found(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(
                (place(&kind).as_str(), kind.installed),
                (expected, true),
                "{name}"
            );
        }
    }
    assert!(!found("nodes").expect("found").namespaced);
}

#[test]
fn unknown_or_ambiguous_kind_is_rejected_with_suggestion() {
    for (name, expected) in [
        (
            "podz",
            "the server has no kind `podz` that can be watched: did you mean `pods.v1`?",
        ),
        ("deploymets.apps", "did you mean `deployments.apps`?"),
        ("pods.v2", "did you mean `pods.v1`?"),
        ("pods.apps", "did you mean `pods.v1`?"),
        ("pods.metrics.k8s.io", "did you mean `pods.v1`?"),
        ("xyzzy", "see `kubectl api-resources`"),
        ("bindings", "see `kubectl api-resources`"),
        ("xyzzy.v1.apps", "the server has no kind `xyzzy.v1.apps`"),
        (
            "services",
            "several kinds: write one of `services.v1`, `services.serving.knative.dev`",
        ),
        (
            "events",
            "several kinds: write one of `events.v1`, `events.events.k8s.io`",
        ),
        (
            "bars.example.com",
            "name its version too, as in `bars.v1.example.com`",
        ),
        ("", "invalid kind ``"),
        (".apps", "invalid kind"),
        ("pods/status", "invalid kind"),
        ("pods,deployments", "invalid kind"),
    ] {
        let error = found(name).map(|kind| place(&kind)).expect_err(name);
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn missing_kind_with_version_and_group_is_guessed() {
    for (name, expected) in [
        ("Bar.v1.example.com", "example.com/v1/bars/Bar"),
        ("bars.v1.example.com", "example.com/v1/bars/Bar"),
        (
            "policies.v1beta1.example.com",
            "example.com/v1beta1/policies/Policy",
        ),
        ("boxes.v1.example.com", "example.com/v1/boxes/Box"),
        (
            "foos.v9.samplecontroller.k8s.io",
            "samplecontroller.k8s.io/v9/foos/Foo",
        ),
    ] {
        let kind = found(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            (place(&kind).as_str(), kind.installed),
            (expected, false),
            "{name}"
        );
    }
}
