//! Objects that are being deleted.

use std::{future::ready, sync::Arc, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Api, Client, ResourceExt, api::DeleteParams};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use windlass_runtime::{Context, Controller, Error, Manager};

use crate::declare::{
    harness::{CHILD, Harness, create, one, parent, plan, server},
    request_log::recorded_on,
};

#[tokio::test(start_paused = true)]
async fn parent_being_deleted_gets_no_new_children() {
    let server = server();
    let client = Client::new(server.clone(), "default");
    let mut going = parent("web");
    going.metadata.finalizers = Some(vec!["example.com/wait".to_owned()]);
    create(&client, going).await;
    let parents = Api::<Deployment>::namespaced(client.clone(), "default");
    parents
        .delete("web", &DeleteParams::default())
        .await
        .expect("exists");
    let harness = Harness::on(server, plan(one)).await;
    assert!(!harness.has("child").await);
    harness.stop().await;
}

/// The finalizer is added before anything else, and removed after the cleanup has succeeded.
#[tokio::test(start_paused = true)]
async fn cleanup_runs_before_the_object_is_deleted() {
    const TIDY: &str = "sizes.example.com/tidy";
    let server = server();
    let (client, (recorded_client, log)) = (Client::new(server.clone(), "default"), recorded_on(server));
    create(&client, parent("web")).await;
    let cleaned = Arc::new(Mutex::new(0));
    let cleaning = Arc::clone(&cleaned);
    let controller = Controller::<Deployment>::new("sizes")
        .owns::<ConfigMap>()
        .declare(|_: Arc<Deployment>, _: Context| ready(Ok::<_, Error>(one(&Deployment::default()))))
        .cleanup(TIDY, move |_, _| {
            *cleaning.lock() += 1;
            let failed = *cleaning.lock() < 3;
            async move { if failed { Err("not yet".into()) } else { Ok(()) } }
        });
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(recorded_client).controller(controller);
    let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes: Vec<_> = log
        .take()
        .into_iter()
        .filter(|sent| sent.method != "GET")
        .map(|sent| sent.line())
        .collect();
    let parents = Api::<Deployment>::namespaced(client.clone(), "default");
    assert_eq!(
        writes,
        [
            "PATCH /apis/apps/v1/namespaces/default/deployments/web".to_owned(),
            format!("PATCH {CHILD}")
        ]
    );
    assert_eq!(parents.get("web").await.expect("exists").finalizers(), [TIDY]);
    parents
        .delete("web", &DeleteParams::default())
        .await
        .expect("exists");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*cleaned.lock(), 3, "retried until it succeeds, and not again");
    assert!(parents.get_opt("web").await.expect("response").is_none());
    stop.send(()).expect("running");
    manager.await.expect("no panic").expect("no error");
}
