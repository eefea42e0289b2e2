//! `apply_desired` as one step of an imperative reconcile, on the embedded server.

use crate::request_log;

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use request_log::{RequestLog, recorded_on};
use serde_json::json;
use tokio::sync::oneshot;
use windlass_apiserver::Server;
use windlass_runtime::{Action, Context, Controller, Desired, Error, Manager, Request};

/// Every Deployment gets a ConfigMap, named by its annotation.
async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(deployment) = ctx.lister::<Deployment>()?.get(&request.key) else {
        return Ok(Action::done());
    };
    let mut child = ConfigMap::default();
    child.metadata.name = deployment.annotations().get("child").cloned();
    ctx.apply_desired(&*deployment, Desired::new().child(child)).await
}

fn writes(log: &RequestLog) -> Vec<String> {
    let sent = log.take().into_iter();
    let written = sent.filter(|sent| sent.method != "GET" && !sent.path.contains("/events"));
    written
        .map(|sent| sent.line().replace("/api/v1/namespaces/default/", ""))
        .collect()
}

/// Long enough for everything but a second retry.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn children_are_created_kept_and_pruned_and_foreign_objects_are_not_touched() {
    let server = Server::builder().without_service_accounts().build();
    let client = Client::new(server.clone(), "default");
    let (noted, log) = recorded_on(server);
    let (deployments, configs) = (
        Api::<Deployment>::default_namespaced(client.clone()),
        Api::<ConfigMap>::default_namespaced(client.clone()),
    );
    let web: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "web", "annotations": { "child": "one" } },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
            },
        },
    }))
    .expect("valid Deployment");
    let web = deployments
        .create(&PostParams::default(), &web)
        .await
        .expect("accepted");
    let mut theirs = ConfigMap::default();
    theirs.metadata.name = Some("theirs".to_owned());
    let theirs = configs
        .create(&PostParams::default(), &theirs)
        .await
        .expect("accepted");

    let controller = Controller::<Deployment>::new("notes")
        .owns::<ConfigMap>()
        .reconcile(reconcile);
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(noted).controller(controller);
    let manager = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    settle().await;
    assert_eq!(writes(&log), ["PATCH configmaps/one"]);
    let one = configs.get("one").await.expect("exists");
    assert_eq!(Some(&one.owner_references()[0].uid), web.metadata.uid.as_ref());

    let rename = async |child: &str| {
        let change = json!({ "metadata": { "annotations": { "child": child } } });
        let changed = deployments
            .patch("web", &PatchParams::default(), &Patch::Merge(change))
            .await;
        changed.expect("accepted");
        settle().await;
    };
    rename("two").await;
    assert_eq!(writes(&log), ["PATCH configmaps/two", "DELETE configmaps/one"]);
    rename("theirs").await;
    assert_eq!(writes(&log), [""; 0]);
    assert_eq!(configs.get("theirs").await.expect("exists"), theirs);
    assert!(
        configs.get("two").await.is_ok(),
        "nothing goes while something is wrong"
    );
    // A name with a path to another kind is neither read nor written.
    log.take();
    rename("../secrets/theirs").await;
    assert_eq!(writes(&log), [""; 0]);
    drop(stop);
    manager.await.expect("no panic").expect("no error");
    let events = Api::<Event>::default_namespaced(client);
    let reasons = events.list(&ListParams::default()).await.expect("readable");
    let reasons: BTreeSet<_> = reasons
        .items
        .iter()
        .filter_map(|event| event.reason.as_deref())
        .collect();
    assert_eq!(reasons, BTreeSet::from(["ErrInvalid", "ErrResourceExists"]));
    assert_eq!(
        events
            .list(&ListParams::default())
            .await
            .expect("readable")
            .items
            .len(),
        2
    );
}
