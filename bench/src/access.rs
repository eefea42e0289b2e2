//! What knowing its users costs the embedded API server: in its start, and in every request.

use anyhow::Context;
use kube::{Client, client::Body};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use windlass_bench::{
    cases::{Figures, Line, Plan},
    report::Report,
};
use windlass_cluster::Cluster;

use crate::measure::{LINES, measure};

/// How many users have a binding of their own in the namespace.
const USERS: usize = 1_000;

/// How many requests are timed together.
const REQUESTS: u32 = 200;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The server that asks nobody; the ratio of the others is what asking costs.
const OPEN: &str = "without RBAC";

/// A contender's name and how it measures itself.
type Contender<'a> = (&'a str, Box<dyn Fn() -> Figures + 'a>);

/// Measures in this process, round by round.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("a runtime")?;
    let started = |rbac| {
        measure(
            1,
            || (),
            |()| drop(runtime.block_on(start(rbac)).expect("it starts")),
        )
    };
    let open = runtime.block_on(populated(false))?;
    let asking = runtime.block_on(populated(true))?;
    let one = runtime.block_on(asking.user("user-500", [""; 0]))?.client();
    let (open, admin) = (open.client(), asking.client());
    let cases: [(&str, Vec<Contender<'_>>); 2] = [
        (
            "start in the process",
            vec![
                (OPEN, Box::new(|| started(false))),
                ("with RBAC", Box::new(|| started(true))),
            ],
        ),
        (
            "get of a config map in the process",
            vec![
                (OPEN, Box::new(|| gets(&runtime, &open))),
                ("administrator", Box::new(|| gets(&runtime, &admin))),
                ("one user of 1,000", Box::new(|| gets(&runtime, &one))),
            ],
        ),
    ];
    let mut report = Report::new("access", OPEN);
    for (title, contenders) in cases.iter().filter(|(title, _)| plan.wants(title)) {
        for _ in plan.rounds() {
            for (name, measure) in contenders {
                let figures = measure();
                for Line { what, key, unit } in LINES {
                    report.add(&format!("{title}{what}"), name, *unit, figures[*key]);
                }
            }
        }
    }
    Ok(report)
}

async fn start(rbac: bool) -> anyhow::Result<Cluster> {
    let embedded = if rbac {
        Cluster::embedded()
    } else {
        Cluster::embedded().without_rbac()
    };
    Ok(embedded.start().await?)
}

/// A cluster with a config map, and with users who may read it.
async fn populated(rbac: bool) -> anyhow::Result<Cluster> {
    let cluster = start(rbac).await?;
    let client = cluster.client();
    post(&client, MAPS, json!({"metadata": {"name": "one"}})).await?;
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]);
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    post(&client, ROLES, role).await?;
    for index in 0..USERS {
        let name = format!("user-{index}");
        let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
        let reader = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"});
        let binding = json!({"metadata": {"name": name}, "roleRef": reader, "subjects": [subject]});
        post(&client, BINDINGS, binding).await?;
    }
    Ok(cluster)
}

async fn post(client: &Client, path: &str, body: serde_json::Value) -> anyhow::Result<()> {
    let request = http::Request::post(path).header("content-type", "application/json");
    client
        .request_text(request.body(body.to_string().into_bytes())?)
        .await?;
    Ok(())
}

fn gets(runtime: &Runtime, client: &Client) -> Figures {
    measure(
        REQUESTS,
        || (),
        |()| {
            runtime.block_on(async {
                for _ in 0..REQUESTS {
                    let request = http::Request::get(format!("{MAPS}/one")).body(Body::empty());
                    let answer = client.send(request.expect("a request")).await.expect("an answer");
                    assert_eq!(answer.status(), 200);
                }
            });
        },
    )
}
