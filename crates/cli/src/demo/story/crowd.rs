//! Many Foos at once, and what is left of them.

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

use super::{Chapter, Story, foo::available, node_of};

/// How many, and with how many replicas each: a few pods for every node.
const CROWD: usize = 20;
const REPLICAS: i32 = 2;

const AVAILABLE: &str = "each of the 20 says that its 2 replicas are available";
const SPREAD: &str = "their 40 pods are spread over all ten nodes";
const TOLD: &str = "podwatch told of every pod that there is, and of no other";
const TOLD_GONE: &str = "podwatch told of each of them that it is gone";
const NOTHING: &str = "nothing is left: no Deployment, no ReplicaSet, no pod";

pub(super) const MANY: Chapter = Chapter {
    title: "foo and podwatch: twenty more at once",
    claims: &[AVAILABLE, SPREAD, TOLD],
    tell: |story| many(story).boxed_local(),
};

pub(super) const GONE: Chapter = Chapter {
    title: "The end: what owned everything is deleted",
    claims: &[NOTHING, TOLD_GONE],
    tell: |story| gone(story).boxed_local(),
};

async fn many(story: &Story) -> anyhow::Result<()> {
    let foos = story.api::<Foo>();
    let creating = async {
        for number in 1..=CROWD {
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
    story.act("create 20 Foos with 2 replicas each", creating).await?;
    let crowd = async || {
        let foos = story.all::<Foo>().await?;
        let crowd = foos.iter().filter(|foo| is_crowd(*foo));
        let unready: Vec<_> = crowd
            .clone()
            .filter_map(|foo| available(foo, REPLICAS).err())
            .collect();
        anyhow::Ok(match (crowd.count(), unready.first()) {
            (CROWD, None) => Ok(()),
            (CROWD, Some(first)) => Err(format!("{} do not yet: {first}", unready.len())),
            (count, _) => Err(format!("there are {count}")),
        })
    };
    story.claim(AVAILABLE, crowd).await?;
    let spread = async || {
        let pods = story.all::<Pod>().await?;
        let crowd: Vec<_> = pods.iter().filter(|pod| is_crowd(*pod)).collect();
        let nodes: BTreeSet<_> = crowd.iter().filter_map(|pod| node_of(pod)).collect();
        let all = story.machines.names().len();
        let found = format!("{} pods are on {} of {all} nodes", crowd.len(), nodes.len());
        let wanted = CROWD * usize::try_from(REPLICAS)?;
        anyhow::Ok(
            (crowd.len() == wanted && nodes.len() == all)
                .then_some(())
                .ok_or(found),
        )
    };
    story.claim(SPREAD, spread).await?;
    let told = async || {
        let pods = story.all::<Pod>().await?;
        let there: BTreeSet<_> = pods.iter().map(ResourceExt::name_any).collect();
        let told: BTreeSet<_> = story.notices.told(true).into_iter().collect();
        let found = format!("there are {} pods, and {} were told of", there.len(), told.len());
        anyhow::Ok((there == told).then_some(()).ok_or(found))
    };
    story.claim(TOLD, told).await
}

async fn gone(story: &Story) -> anyhow::Result<()> {
    let (foos, icecreams) = (story.api::<Foo>(), story.api::<Icecream>());
    let deleting = async {
        let (delete, list) = (DeleteParams::default(), ListParams::default());
        foos.delete_collection(&delete, &list).await?;
        icecreams.delete_collection(&delete, &list).await
    };
    story.act("delete all Foos and Icecreams", deleting).await?;
    let nothing = async || {
        let left = [
            (story.all::<Foo>().await?.len(), "Foos"),
            (story.all::<Icecream>().await?.len(), "Icecreams"),
            (story.all::<Deployment>().await?.len(), "Deployments"),
            (story.all::<ReplicaSet>().await?.len(), "ReplicaSets"),
            (story.all::<Pod>().await?.len(), "pods"),
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
    story.claim(NOTHING, nothing).await?;
    let told = async || {
        let (there, gone) = (story.notices.told(true), story.notices.told(false));
        let found = format!("{} were told of as there, {} as gone", there.len(), gone.len());
        anyhow::Ok((there.is_empty() && !gone.is_empty()).then_some(()).ok_or(found))
    };
    story.claim(TOLD_GONE, told).await
}

fn is_crowd(object: &impl ResourceExt) -> bool {
    object.name_any().starts_with("crowd-")
}
