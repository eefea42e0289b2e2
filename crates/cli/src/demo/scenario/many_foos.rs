//! Many Foos at once, and their cleanup.

use std::collections::BTreeSet;

use futures::FutureExt;
use windlass::{
    k8s_openapi::api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
    },
    kube::{
        ResourceExt,
        api::{DeleteParams, ListParams, PostParams},
    },
};
use windlass_foo::{Foo, FooSpec};
use windlass_icecream::Icecream;

use super::{Chapter, Scenario, foo::check_available, node_of};

/// The number of Foos, and of replicas of each: a few pods per node.
const FOOS: usize = 20;
const REPLICAS: i32 = 2;

const AVAILABLE: &str = "each of the 20 reports 2 available replicas";
const SPREAD: &str = "their 40 pods are spread over all ten nodes";
const PODS_PRINTED: &str = "podwatch printed every existing pod, and no other";
const DELETIONS_PRINTED: &str = "podwatch printed the deletion of every pod";
const NOTHING_LEFT: &str = "nothing is left: no Deployment, no ReplicaSet, no pod";

pub(super) const CREATE: Chapter = Chapter {
    title: "foo and podwatch: twenty more at once",
    claims: &[AVAILABLE, SPREAD, PODS_PRINTED],
    run: |scenario| create(scenario).boxed_local(),
};

pub(super) const CLEANUP: Chapter = Chapter {
    title: "Cleanup: deleting the owners deletes everything",
    claims: &[NOTHING_LEFT, DELETIONS_PRINTED],
    run: |scenario| clean_up(scenario).boxed_local(),
};

async fn create(scenario: &Scenario) -> anyhow::Result<()> {
    let foos = scenario.api::<Foo>();
    let creating = async {
        for number in 1..=FOOS {
            let name = format!("crowd-{number:02}");
            let spec = FooSpec {
                deployment_name: name.clone(),
                replicas: Some(REPLICAS),
            };
            foos.create(&PostParams::default(), &Foo::new(&name, spec))
                .await?;
        }
        Ok::<_, windlass::kube::Error>(())
    };
    scenario
        .perform("create 20 Foos with 2 replicas each", creating)
        .await?;
    let crowd = async || {
        let foos = scenario.list::<Foo>().await?;
        let crowd = foos.iter().filter(|foo| is_one_of_the_foos(*foo));
        let unready: Vec<_> = crowd
            .clone()
            .filter_map(|foo| check_available(foo, REPLICAS).err())
            .collect();
        anyhow::Ok(match (crowd.count(), unready.first()) {
            (FOOS, None) => Ok(()),
            (FOOS, Some(first)) => Err(format!("{} do not: {first}", unready.len())),
            (count, _) => Err(format!("there are {count} Foos")),
        })
    };
    scenario.check_claim(AVAILABLE, crowd).await?;
    let spread = async || {
        let pods = scenario.list::<Pod>().await?;
        let crowd: Vec<_> = pods.iter().filter(|pod| is_one_of_the_foos(*pod)).collect();
        let nodes: BTreeSet<_> = crowd.iter().filter_map(|pod| node_of(pod)).collect();
        let all = scenario.nodes.names().len();
        let found = format!("{} pods are on {} of {all} nodes", crowd.len(), nodes.len());
        let wanted = FOOS * usize::try_from(REPLICAS)?;
        anyhow::Ok(
            (crowd.len() == wanted && nodes.len() == all)
                .then_some(())
                .ok_or(found),
        )
    };
    scenario.check_claim(SPREAD, spread).await?;
    let printed = async || {
        let pods = scenario.list::<Pod>().await?;
        let existing: BTreeSet<_> = pods.iter().map(ResourceExt::name_any).collect();
        let printed: BTreeSet<_> = scenario.printer.pods(true).into_iter().collect();
        let found = format!(
            "{} pods exist, and {} were printed",
            existing.len(),
            printed.len()
        );
        anyhow::Ok((existing == printed).then_some(()).ok_or(found))
    };
    scenario.check_claim(PODS_PRINTED, printed).await
}

async fn clean_up(scenario: &Scenario) -> anyhow::Result<()> {
    let (foos, icecreams) = (scenario.api::<Foo>(), scenario.api::<Icecream>());
    let deleting = async {
        let (delete, list) = (DeleteParams::default(), ListParams::default());
        foos.delete_collection(&delete, &list).await?;
        icecreams.delete_collection(&delete, &list).await
    };
    scenario
        .perform("delete all Foos and Icecreams", deleting)
        .await?;
    let nothing = async || {
        let left = [
            (scenario.list::<Foo>().await?.len(), "Foos"),
            (scenario.list::<Icecream>().await?.len(), "Icecreams"),
            (scenario.list::<Deployment>().await?.len(), "Deployments"),
            (scenario.list::<ReplicaSet>().await?.len(), "ReplicaSets"),
            (scenario.list::<Pod>().await?.len(), "pods"),
        ];
        let left: Vec<_> = left
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} {kind}"))
            .collect();
        anyhow::Ok(
            left.is_empty()
                .then_some(())
                .ok_or(format!("there are {}", left.join(", "))),
        )
    };
    scenario.check_claim(NOTHING_LEFT, nothing).await?;
    let printed = async || {
        let (existing, gone) = (scenario.printer.pods(true), scenario.printer.pods(false));
        let found = format!(
            "{} were printed as existing, {} as deleted",
            existing.len(),
            gone.len()
        );
        anyhow::Ok(
            (existing.is_empty() && !gone.is_empty())
                .then_some(())
                .ok_or(found),
        )
    };
    scenario.check_claim(DELETIONS_PRINTED, printed).await
}

fn is_one_of_the_foos(object: &impl ResourceExt) -> bool {
    object.name_any().starts_with("crowd-")
}
