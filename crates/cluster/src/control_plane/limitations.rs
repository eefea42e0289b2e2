//! What an embedded cluster lacks: the kinds whose objects are stored, but have no effect.
//!
//! A client that creates one of them gets a warning. A controller that is added here removes its line.

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
        Limitation::of_some("", "services", load_balancer),
        Limitation::of_some("", "services", endpoints),
        Limitation::of_some(
            "certificates.k8s.io",
            "certificatesigningrequests",
            certificate_signer,
        ),
    ]
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
