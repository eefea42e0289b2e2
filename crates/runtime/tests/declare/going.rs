//! Objects that are going.

use std::{future::ready, sync::Arc, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Api, Client, ResourceExt, api::DeleteParams};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use windlass_runtime::{Context, Controller, Error, Manager};

use crate::{
    wire::recorded_on,
    world::{CHILD, World, create, one, parent, plan, server},
};

#[tokio::test(start_paused = true)]
async fn a_parent_that_is_being_deleted_gets_nothing_new() {
    let server = server();
    let client = Client::new(server.clone(), "default");
    let mut going = parent("web");
    going.metadata.finalizers = Some(vec!["example.com/wait".to_owned()]);
    create(&client, going).await;
    let parents = Api::<Deployment>::namespaced(client.clone(), "default");
    parents
        .delete("web", &DeleteParams::default())
        .await
        .expect("it is there");
    let world = World::on(server, plan(one)).await;
    assert!(!world.has("child").await);
    world.stop().await;
}

/// The finalizer is there before anything else, and goes when the clean-up has worked.
#[tokio::test(start_paused = true)]
async fn what_owner_references_do_not_reach_is_cleaned_up_before_the_object_goes() {
    const TIDY: &str = "sizes.example.com/tidy";
    let server = server();
    let (client, (noted, wire)) = (Client::new(server.clone(), "default"), recorded_on(server));
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
    let manager = Manager::new(noted).controller(controller);
    let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes: Vec<_> = wire
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
    assert_eq!(
        parents.get("web").await.expect("it is there").finalizers(),
        [TIDY]
    );
    parents
        .delete("web", &DeleteParams::default())
        .await
        .expect("it is there");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*cleaned.lock(), 3, "until it works, and not again");
    assert!(parents.get_opt("web").await.expect("an answer").is_none());
    stop.send(()).expect("it runs");
    manager.await.expect("no panic").expect("no error");
}
