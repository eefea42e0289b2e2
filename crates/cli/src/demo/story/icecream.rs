//! An Icecream: a Deployment again, and an account of where its pods are and what they ask for.

use std::collections::BTreeSet;

use anyhow::Context;
use futures::FutureExt;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::{
        ResourceExt,
        api::{DeleteParams, ListParams, PostParams},
    },
};
use windlass_icecream::{ICECREAM, Icecream, IcecreamSpec, IcecreamStatus};

use super::{Chapter, Finding, Story, node_of};
use crate::demo::sight::pod_is_ready;

const NAME: &str = "sundae";
const REPLICAS: usize = 3;

const ACCOUNT: &str = "its status has the nodes, names and addresses of its 3 pods";
const SUM: &str = "its status adds up their requests: 750m CPU, 192Mi memory";
const REPLACED: &str = "the pod was replaced, and the status tells of the new one";

pub(super) const CHAPTER: Chapter = Chapter {
    title: "icecream: a Deployment, and an account of its pods",
    claims: &[ACCOUNT, SUM, REPLACED],
    tell: |story| tell(story).boxed_local(),
};

async fn tell(story: &Story) -> anyhow::Result<()> {
    let icecreams = story.api::<Icecream>();
    let spec = IcecreamSpec {
        deployment_name: NAME.to_owned(),
        replicas: i32::try_from(REPLICAS).ok(),
        flavor: None,
    };
    let (post, icecream) = (PostParams::default(), Icecream::new(NAME, spec));
    let creating = icecreams.create(&post, &icecream);
    story
        .act("create Icecream demo/sundae with 3 replicas", creating)
        .await?;
    let own = ListParams::default().labels(&format!("{ICECREAM}={NAME}"));
    let look = async || {
        let pods = story.api::<Pod>().list(&own).await?.items;
        let status = icecreams.get(NAME).await?.status.unwrap_or_default();
        anyhow::Ok((pods, status))
    };
    let account = async || {
        let (pods, status) = look().await?;
        anyhow::Ok(tells_of(&status, &pods))
    };
    story.claim(ACCOUNT, account).await?;
    let sum = async || {
        let (_, status) = look().await?;
        let (cpu, memory) = (&*status.total_allocated_cpu, &*status.total_allocated_memory);
        let found = format!("it says {cpu} CPU and {memory} memory");
        anyhow::Ok(((cpu, memory) == ("750m", "192Mi")).then_some(()).ok_or(found))
    };
    story.claim(SUM, sum).await?;

    let (before, _) = look().await?;
    let doomed = before.first().context("it has no pods")?.name_any();
    let (pods, delete) = (story.api::<Pod>(), DeleteParams::default());
    let deleting = pods.delete(&doomed, &delete);
    story.act(format!("delete its pod {doomed}"), deleting).await?;
    let replaced = async || {
        let (pods, status) = look().await?;
        if pods.iter().any(|pod| pod.name_any() == doomed) {
            return Ok(Err(format!("Pod demo/{doomed} is still there")));
        }
        anyhow::Ok(tells_of(&status, &pods))
    };
    story.claim(REPLACED, replaced).await
}

/// Whether a status says of these pods what they say of themselves, and all of them are ready.
fn tells_of(status: &IcecreamStatus, pods: &[Pod]) -> Finding {
    let ready = pods.iter().filter(|pod| pod_is_ready(pod)).count();
    if (pods.len(), ready) != (REPLICAS, REPLICAS) {
        return Err(format!("{ready} of {} pods are ready", pods.len()));
    }
    let addresses = pods
        .iter()
        .filter_map(|pod| pod.status.as_ref()?.pod_ip.as_deref());
    let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    let same = |told: &[String], there: BTreeSet<&str>| told.iter().map(String::as_str).eq(there);
    let told = same(&status.node_names, pods.iter().filter_map(node_of).collect())
        && same(&status.pod_names, names.iter().map(String::as_str).collect())
        && same(&status.pod_ips, addresses.collect());
    told.then_some(()).ok_or_else(|| {
        let IcecreamStatus { pod_names, .. } = status;
        format!(
            "the pods are {}, and the status names {}",
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
    fn a_status_tells_of_pods_if_it_names_just_what_they_say() {
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
        assert_eq!(tells_of(&status, &pods), Ok(()));
        assert!(tells_of(&status, &pods[..2]).is_err());
        for change in [
            |status: &mut IcecreamStatus| status.node_names.clear(),
            |status: &mut IcecreamStatus| status.pod_names.reverse(),
            |status: &mut IcecreamStatus| status.pod_ips.push("10.0.0.4".to_owned()),
        ] {
            let mut other = status.clone();
            change(&mut other);
            assert!(tells_of(&other, &pods).is_err(), "{other:?}");
        }
    }
}
