//! An Icecream: a Deployment, and a status with its pods and their requests.

use std::collections::BTreeSet;

use anyhow::Context;
use futures::FutureExt;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::{
        self, ResourceExt,
        api::{DeleteParams, ListParams, PostParams},
    },
};
use windlass_icecream::{ICECREAM_LABEL, Icecream, IcecreamSpec, IcecreamStatus, v1beta1};

use super::{Chapter, CheckResult, Scenario, node_of};
use crate::demo::cluster_view::pod_is_ready;

const NAME: &str = "sundae";
const REPLICAS: usize = 3;

/// What the webhook says of an invalid name.
const INVALID: &str = "spec.deploymentName: Invalid value: \"Not a name\"";

const PODS_LISTED: &str = "its status lists the nodes, names and addresses of its 3 pods";
const REQUESTS_TOTALLED: &str = "its status totals their requests: 750m CPU, 192Mi memory";
const REFUSED: &str = "an Icecream with an invalid name is refused, with the field and the rule";
const CONVERTED: &str = "what was written as v1beta1 is read as v1alpha1, in other fields";
const REPLACED: &str = "the pod was replaced, and the status lists the new one";

pub(super) const CHAPTER: Chapter = Chapter {
    title: "icecream: a Deployment, with its pods in the status",
    claims: &[REFUSED, CONVERTED, PODS_LISTED, REQUESTS_TOTALLED, REPLACED],
    run: |scenario| run(scenario).boxed_local(),
};

async fn run(scenario: &Scenario) -> anyhow::Result<()> {
    let (icecreams, newer) = (scenario.api::<Icecream>(), scenario.api::<v1beta1::Icecream>());
    let icecream = |name: &str| {
        let deployment = v1beta1::DeploymentSpec {
            name: name.to_owned(),
            replicas: i32::try_from(REPLICAS).ok(),
        };
        let spec = v1beta1::IcecreamSpec {
            deployment,
            flavor: None,
        };
        v1beta1::Icecream::new(NAME, spec)
    };
    let (post, wrong) = (PostParams::default(), icecream("Not a name"));
    scenario
        .perform(
            "create Icecream demo/sundae (v1beta1) with a Deployment `Not a name`",
            async { anyhow::Ok(()) },
        )
        .await?;
    let refused = async || match newer.create(&post, &wrong).await {
        Err(kube::Error::Api(status)) if status.message.contains(INVALID) => Ok(Ok(())),
        // The API server does not call the webhook yet.
        Err(error) => anyhow::Ok(Err(error.to_string())),
        Ok(_) => Ok(Err("it was created".to_owned())),
    };
    scenario.check_claim(REFUSED, refused).await?;

    let icecream = icecream(NAME);
    let creating = newer.create(&post, &icecream);
    scenario
        .perform("create Icecream demo/sundae (v1beta1) with 3 replicas", creating)
        .await?;
    let converted = async || {
        let IcecreamSpec {
            deployment_name,
            replicas,
            ..
        } = icecreams.get(NAME).await?.spec;
        let is_same = deployment_name == NAME && replicas == i32::try_from(REPLICAS).ok();
        let found = format!("deploymentName is {deployment_name}, replicas is {replicas:?}");
        anyhow::Ok(is_same.then_some(()).ok_or(found))
    };
    scenario.check_claim(CONVERTED, converted).await?;
    let own = ListParams::default().labels(&format!("{ICECREAM_LABEL}={NAME}"));
    let read = async || {
        let pods = scenario.api::<Pod>().list(&own).await?.items;
        let status = icecreams.get(NAME).await?.status.unwrap_or_default();
        anyhow::Ok((pods, status))
    };
    let pods_listed = async || {
        let (pods, status) = read().await?;
        anyhow::Ok(check_status(&status, &pods))
    };
    scenario.check_claim(PODS_LISTED, pods_listed).await?;
    let sum = async || {
        let (_, status) = read().await?;
        let (cpu, memory) = (&*status.total_allocated_cpu, &*status.total_allocated_memory);
        let found = format!("it reports {cpu} CPU and {memory} memory");
        anyhow::Ok(((cpu, memory) == ("750m", "192Mi")).then_some(()).ok_or(found))
    };
    scenario.check_claim(REQUESTS_TOTALLED, sum).await?;

    let (before, _) = read().await?;
    let deleted = before.first().context("it has no pods")?.name_any();
    let (pods, delete) = (scenario.api::<Pod>(), DeleteParams::default());
    let deleting = pods.delete(&deleted, &delete);
    scenario
        .perform(format!("delete its pod {deleted}"), deleting)
        .await?;
    let replaced = async || {
        let (pods, status) = read().await?;
        if pods.iter().any(|pod| pod.name_any() == deleted) {
            return Ok(Err(format!("Pod demo/{deleted} still exists")));
        }
        anyhow::Ok(check_status(&status, &pods))
    };
    scenario.check_claim(REPLACED, replaced).await
}

/// Whether all pods are ready, and the status lists exactly them.
fn check_status(status: &IcecreamStatus, pods: &[Pod]) -> CheckResult {
    let ready = pods.iter().filter(|pod| pod_is_ready(pod)).count();
    if (pods.len(), ready) != (REPLICAS, REPLICAS) {
        return Err(format!("{ready} of {} pods are ready", pods.len()));
    }
    let addresses = pods
        .iter()
        .filter_map(|pod| pod.status.as_ref()?.pod_ip.as_deref());
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    let same = |listed: &[String], actual: BTreeSet<&str>| listed.iter().map(String::as_str).eq(actual);
    let matches = same(&status.node_names, pods.iter().filter_map(node_of).collect())
        && same(&status.pod_names, names.iter().map(String::as_str).collect())
        && same(&status.pod_ips, addresses.collect());
    matches.then_some(()).ok_or_else(|| {
        let IcecreamStatus { pod_names, .. } = status;
        format!(
            "the pods are {}, and the status lists {}",
            names.join(", "),
            pod_names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use windlass::prelude::{from_value, json};

    use super::*;

    #[test]
    fn status_matches_only_if_it_lists_exactly_the_pods() {
        let pod = |number: usize| -> Pod {
            let ready = json!([{ "type": "Ready", "status": "True" }]);
            let pod = json!({
                "metadata": { "name": format!("pod-{number}") },
                "spec": { "nodeName": "node-1", "containers": [] },
                "status": { "podIP": format!("10.0.0.{number}"), "conditions": ready },
            });
            from_value(pod).expect("a pod")
        };
        let pods = [1, 2, 3].map(pod);
        let texts = |form: &str| [1, 2, 3].map(|number| format!("{form}{number}")).to_vec();
        let status = IcecreamStatus {
            node_names: vec!["node-1".to_owned()],
            pod_names: texts("pod-"),
            pod_ips: texts("10.0.0."),
            ..IcecreamStatus::default()
        };
        assert_eq!(check_status(&status, &pods), Ok(()));
        assert!(check_status(&status, &pods[..2]).is_err());
        for change in [
            |status: &mut IcecreamStatus| status.node_names.clear(),
            |status: &mut IcecreamStatus| status.pod_names.reverse(),
            |status: &mut IcecreamStatus| status.pod_ips.push("10.0.0.4".to_owned()),
        ] {
            let mut other = status.clone();
            change(&mut other);
            assert!(check_status(&other, &pods).is_err(), "{other:?}");
        }
    }
}
