//! A cache without a controller: list, query by index and label, and subscribe to changes.
//!
//! Prints the pods of the cluster by node, then every change.
//!
//! ```sh
//! cargo run -p windlass-examples --bin cache_only -- --embedded   # on an embedded cluster, with pods that `demo` creates
//! cargo run -p windlass-examples --bin cache_only                 # on the kubeconfig's cluster, until Ctrl-C
//! ```

use std::{collections::BTreeSet, time::Duration};

use clap::Parser;
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::core::v1::Pod,
    kube::{
        api::{Api, DeleteParams, Patch, PatchParams, PostParams},
        core::{Expression, Selector},
    },
    prelude::*,
};
use windlass_cluster::Cluster;

#[derive(Parser)]
struct Program {
    /// Use an embedded cluster, and exit after the demo
    #[arg(long)]
    embedded: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Program { embedded } = Program::parse();
    let cluster = if embedded {
        Cluster::embedded().start().await?
    } else {
        Cluster::existing().connect().await?
    };
    if embedded {
        create_pods(cluster.client()).await?;
    }

    let cache = Cache::<Pod>::start(cluster.client(), &WatchScope::all());
    let by_node = cache.index_by(|pod| node(pod).map(str::to_owned).into_iter().collect());
    // Only a synced cache can be read: without this wait it does not compile.
    let pods = cache.synced(Duration::from_secs(30)).await?;

    // Objects are shared with the cache, not copied.
    let all = pods.list(&Query::all());
    let nodes: BTreeSet<_> = all.iter().filter_map(|pod| node(pod)).collect();
    for node in nodes {
        let names: Vec<_> = pods
            .by_index(&by_node, node)
            .iter()
            .map(|pod| pod.name_any())
            .collect();
        println!("{node}: {}", names.join(", "));
    }
    let web = Selector::from(Expression::Equal("app".to_owned(), "web".to_owned()));
    println!(
        "{} of {} pods have the label app=web",
        pods.list(&Query::all().labels(web)).len(),
        pods.len()
    );

    // Every object that exists now, then every change, with the state before and after.
    let mut changes = pods.subscribe();
    let mut delivered = changes.synced();
    let client = cluster.client();
    let demo = embedded.then(|| {
        tokio::spawn(async move {
            delivered.wait().await; // until the objects that exist now are printed
            demo(client).await
        })
    });
    while let Some(change) = changes.next().await {
        match &change {
            Change::Deleted { .. } => println!("deleted {}", change.key()),
            Change::Applied { new, .. } if new.meta().is_deleting() => {}
            Change::Applied { old: None, .. } => println!("added {}", change.key()),
            Change::Applied {
                old: Some(_), new, ..
            } => {
                println!("changed {}: {:?}", change.key(), new.object()?.labels());
            }
        }
        if embedded && matches!(change, Change::Deleted { .. }) {
            break; // the last step of the demo
        }
    }
    if let Some(demo) = demo {
        demo.await??;
    }
    Ok(())
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

async fn create_pods(client: Client) -> anyhow::Result<()> {
    let pods = Api::<Pod>::default_namespaced(client);
    for (name, node, app) in [
        ("a", "node-1", "web"),
        ("b", "node-2", "web"),
        ("c", "node-1", "db"),
    ] {
        let pod = from_value(json!({
            "metadata": { "name": name, "labels": { "app": app } },
            "spec": { "nodeName": node, "containers": [{ "name": app, "image": app }] },
        }))?;
        pods.create(&PostParams::default(), &pod).await?;
    }
    Ok(())
}

async fn demo(client: Client) -> anyhow::Result<()> {
    let pods = Api::<Pod>::default_namespaced(client);
    let change = Patch::Merge(json!({ "metadata": { "labels": { "app": "cache" } } }));
    pods.patch("b", &PatchParams::default(), &change).await?;
    // Without a grace period, because no kubelet confirms that the containers have ended.
    pods.delete("c", &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}
