//! The cost of RBAC on the embedded API server: at startup and per request.

use anyhow::Context;
use kube::{Client, client::Body};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use windlass_bench::{
    cases::{Measurements, Plan, ReportedValue},
    report::Report,
};
use windlass_cluster::Cluster;

use crate::measure::{VALUES, measure};

/// Number of users with their own binding in the namespace.
const USERS: usize = 1_000;

/// Number of requests that are timed together.
const REQUESTS: u32 = 200;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The server without authorization; the ratio of the others to it is the cost of authorization.
const WITHOUT_RBAC: &str = "without RBAC";

/// A contender's name and its measurement.
type Contender<'a> = (&'a str, Box<dyn Fn() -> Measurements + 'a>);

/// Measures all contenders in this process, in rounds.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let started = |rbac| {
        measure(
            1,
            || (),
            |()| drop(runtime.block_on(start(rbac)).expect("it starts")),
        )
    };
    let open = runtime.block_on(populated_cluster(false))?;
    let guarded = runtime.block_on(populated_cluster(true))?;
    let one = runtime.block_on(guarded.user("user-500", [""; 0]))?.client();
    let (open, admin) = (open.client(), guarded.client());
    let cases: [(&str, Vec<Contender<'_>>); 2] = [
        (
            "start in the process",
            vec![
                (WITHOUT_RBAC, Box::new(|| started(false))),
                ("with RBAC", Box::new(|| started(true))),
            ],
        ),
        (
            "get of a config map in the process",
            vec![
                (WITHOUT_RBAC, Box::new(|| gets(&runtime, &open))),
                ("administrator", Box::new(|| gets(&runtime, &admin))),
                ("one user of 1,000", Box::new(|| gets(&runtime, &one))),
            ],
        ),
    ];
    let mut report = Report::new("access", WITHOUT_RBAC);
    for (title, contenders) in cases.iter().filter(|(title, _)| plan.includes(title)) {
        for _ in plan.rounds() {
            for (name, measure) in contenders {
                let measurements = measure();
                for ReportedValue { suffix, key, unit } in VALUES {
                    report.add(&format!("{title}{suffix}"), name, *unit, measurements[*key]);
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

/// Starts a cluster with a ConfigMap and users who may read it.
async fn populated_cluster(rbac: bool) -> anyhow::Result<Cluster> {
    let cluster = start(rbac).await?;
    let client = cluster.client();
    post(&client, CONFIG_MAPS, json!({"metadata": {"name": "one"}})).await?;
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

fn gets(runtime: &Runtime, client: &Client) -> Measurements {
    measure(
        REQUESTS,
        || (),
        |()| {
            runtime.block_on(async {
                for _ in 0..REQUESTS {
                    let request = http::Request::get(format!("{CONFIG_MAPS}/one")).body(Body::empty());
                    let response = client
                        .send(request.expect("a request"))
                        .await
                        .expect("a response");
                    assert_eq!(response.status(), 200);
                }
            });
        },
    )
}
