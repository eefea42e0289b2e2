//! A manager with all its features at once.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event},
};
use kube::{
    Api, Client, CustomResourceExt,
    api::{ListParams, PostParams},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use windlass_apiserver::Server;
use windlass_runtime::{
    Action, Context, Controller, CrdInstaller, Desired, ElectionConfig, Manager, ObjectKey, Request,
};

#[derive(Clone, Debug, kube::CustomResource, schemars::JsonSchema, serde::Deserialize, serde::Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Shed", namespaced)]
struct ShedSpec {}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Two controllers, events, leader election, tasks, CRDs and the listener with a connected client: when `run` returns,
/// every task has ended, the lease is released and the events are written.
#[tokio::test]
async fn no_task_outlives_a_manager_with_all_features() {
    let server = Server::builder().without_service_accounts().build();
    let client = Client::new(server, "default");
    let config: ConfigMap =
        serde_json::from_value(serde_json::json!({ "metadata": { "name": "a" } })).expect("valid ConfigMap");
    let configs = Api::default_namespaced(client.clone());
    configs
        .create(&PostParams::default(), &config)
        .await
        .expect("created");
    let free = TcpListener::bind("127.0.0.1:0").await.expect("free port");
    let address = free.local_addr().expect("local address").to_string();
    drop(free);

    let before = alive_tasks();
    let (started, mut worked) = tokio::sync::mpsc::channel(16);
    let busy = Controller::<ConfigMap>::new("busy")
        .triggered_by(futures::stream::pending::<ObjectKey>())
        .timeout(Duration::from_mins(1))
        .reconcile(move |request: Request, ctx: Context| {
            let started = started.clone();
            async move {
                if let Some(config) = ctx.lister::<ConfigMap>()?.get(&request.key) {
                    ctx.recorder().normal(&config, "Seen", "object exists");
                }
                let _ = started.send("busy").await;
                // Delayed keys and a retry are pending at the stop.
                Ok(Action::requeue_after(Duration::from_mins(10)))
            }
        });
    let sheds = Controller::<Shed>::new("sheds")
        .owns::<ConfigMap>()
        .declare(|_: Arc<Shed>, _: Context| async { Ok(Desired::new()) });
    let manager = Manager::new(client.clone())
        .namespace("default")
        .install(CrdInstaller::new([Shed::crd()]).apply())
        .controller(busy)
        .controller(sheds)
        .task("task", |ctx| async move {
            ctx.stopping().await;
            Ok(())
        })
        .leader_task("leader-task", |ctx| async move {
            ctx.stopping().await;
            Ok(())
        })
        .elect(ElectionConfig::new("whole"))
        .listen(&address);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
    worked.recv().await.expect("a reconcile ran");
    let mut visitor = TcpStream::connect(&address).await.expect("listening");
    visitor
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("request sent");
    assert!(visitor.read(&mut [0; 64]).await.expect("response received") > 0);
    let with_everything = alive_tasks();
    assert!(
        with_everything > before + 5,
        "{with_everything} tasks are not everything"
    );

    drop(stop);
    running.await.expect("no panic").expect("stops cleanly");
    assert_eq!(alive_tasks(), before);
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(10), visitor.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the client's connection is closed");
    let lease: Lease = Api::default_namespaced(client.clone())
        .get("whole")
        .await
        .expect("a lease");
    assert_eq!(
        lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .unwrap_or_default(),
        ""
    );
    let events = Api::<Event>::default_namespaced(client);
    let events = events.list(&ListParams::default()).await.expect("list").items;
    assert!(events.iter().any(|event| event.reason.as_deref() == Some("Seen")));
}
