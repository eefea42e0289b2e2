//! What an embedded cluster lacks: the kinds whose objects are stored, but have no effect.
//!
//! A client that creates one of them gets a warning, as does one whose pods ask for what the scheduler ignores. A controller that is
//! added here removes its line.

use serde_json::Value;
use windlass_apiserver::Limitation;

/// The kinds whose controllers this cluster does not run.
pub(crate) fn missing_controllers() -> Vec<Limitation> {
    let kind = |group: &str, plural: &str, controller: &str, effect: &str| {
        let warning = format!("this cluster has no {controller} controller: {effect}");
        Limitation::new(group, plural, warning)
    };
    vec![
        kind("apps", "statefulsets", "StatefulSet", "no pods are created"),
        kind("batch", "jobs", "Job", "no pods are created"),
        kind("batch", "cronjobs", "CronJob", "no jobs are created"),
        kind(
            "",
            "replicationcontrollers",
            "ReplicationController",
            "no pods are created; use a Deployment",
        ),
        kind(
            "autoscaling",
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            "nothing is scaled, and there are no metrics of pods",
        ),
        kind(
            "",
            "persistentvolumeclaims",
            "volume",
            "the claim is not bound, and pods that use it wait until its status.phase is Bound",
        ),
        Limitation::new(
            "",
            "resourcequotas",
            "this cluster does not enforce quotas: nothing is counted or rejected",
        ),
        Limitation::new(
            "",
            "limitranges",
            "this cluster does not enforce limit ranges: no defaults are set, and nothing is rejected",
        ),
        Limitation::new(
            "networking.k8s.io",
            "networkpolicies",
            "this cluster has no network between pods: nothing is allowed or denied",
        ),
        kind(
            "networking.k8s.io",
            "ingresses",
            "Ingress",
            "the Ingress gets no address, and no requests are forwarded",
        ),
        Limitation::of_some("", "pods", |pod| ignored_by_scheduler(&pod["spec"])),
        ignored_of_template("deployments"),
        ignored_of_template("replicasets"),
        ignored_of_template("daemonsets"),
        Limitation::of_some("", "services", load_balancer),
        Limitation::of_some("", "services", endpoints),
        Limitation::of_some(
            "certificates.k8s.io",
            "certificatesigningrequests",
            certificate_signer,
        ),
    ]
}

fn ignored_of_template(plural: &str) -> Limitation {
    Limitation::of_some("apps", plural, |object| {
        ignored_by_scheduler(&object["spec"]["template"]["spec"])
    })
}

/// What the pod asks for, and the scheduler does not consider.
fn ignored_by_scheduler(pod: &Value) -> Option<String> {
    let is_set = |value: &Value| match value {
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    };
    let affinity = &pod["affinity"];
    let ignored = [
        ("pod affinity", &affinity["podAffinity"]),
        ("pod anti-affinity", &affinity["podAntiAffinity"]),
        ("topology spread constraints", &pod["topologySpreadConstraints"]),
    ];
    let ignored: Vec<_> = ignored
        .into_iter()
        .filter(|(_, value)| is_set(value))
        .map(|(what, _)| what)
        .collect();
    let what = ignored.join(" and ");
    (!ignored.is_empty()).then(|| {
        format!("the scheduler of this cluster ignores {what}: pods run on any node that fits otherwise")
    })
}

fn load_balancer(service: &Value) -> Option<String> {
    let warning = "this cluster has no load balancers: the Service gets no external address";
    (service["spec"]["type"] == "LoadBalancer").then(|| warning.to_owned())
}

fn endpoints(service: &Value) -> Option<String> {
    let warning = "this cluster has no EndpointSlice controller: the Service gets no endpoints";
    let selects = service["spec"]["selector"]
        .as_object()
        .is_some_and(|selector| !selector.is_empty());
    selects.then(|| warning.to_owned())
}

fn certificate_signer(request: &Value) -> Option<String> {
    let signer = request["spec"]["signerName"].as_str()?;
    signer
        .starts_with("kubernetes.io/")
        .then(|| format!("this cluster has no signer for {signer}: the request gets no certificate"))
}
