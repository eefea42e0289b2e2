//! The declarative style, on the embedded server: what is written, what is not, and whose objects are touched.

mod wire;

use std::{future::ready, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event, Pod, Secret, Service},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};
use windlass_apiserver::Server;
use windlass_runtime::{
    APPLIED, CONTROLLER, Context, Controller, Desired, Error, Finding, Manager, ManagerError, Outcomes, Watch,
};
use wire::{Sent, Wire, recorded_on, recorded_with};

/// What the controller under test wants, changed by the test as it goes.
type Plan = Arc<Mutex<Box<dyn Fn(&Deployment) -> Desired + Send>>>;

fn plan(wants: impl Fn(&Deployment) -> Desired + Send + 'static) -> Plan {
    Arc::new(Mutex::new(Box::new(wants)))
}

fn config(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.to_owned());
    let data = data
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config.data = Some(data.collect());
    config
}

fn one(_: &Deployment) -> Desired {
    Desired::new().child(config("child", &[("a", "1")]))
}

/// A running controller of Deployments, whose children are config maps and pods.
struct World {
    /// The test's own client: what it does is not noted.
    client: Client,
    /// The controller's.
    noted: Client,
    /// What the controller sent.
    wire: Wire,
    plan: Plan,
    outcomes: Arc<Outcomes>,
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<(), ManagerError>>,
}

impl World {
    async fn new(plan: Plan) -> Self {
        let server = server();
        create(&Client::new(server.clone(), "default"), parent("web")).await;
        Self::on(server, plan).await
    }

    async fn on(server: Server, plan: Plan) -> Self {
        let (noted, wire) = recorded_on(server.clone());
        Self::with(Client::new(server, "default"), noted, wire, plan).await
    }

    async fn with(client: Client, noted: Client, wire: Wire, plan: Plan) -> Self {
        let wants = Arc::clone(&plan);
        let controller = Controller::<Deployment>::new("sizes")
            .owns::<ConfigMap>()
            .owns::<Pod>()
            .declare(move |deployment: Arc<Deployment>, _: Context| {
                ready(Ok::<_, Error>(wants.lock()(&deployment)))
            });
        let outcomes = controller.outcomes();
        let (stop, stopped) = oneshot::channel();
        let manager = Manager::new(noted.clone()).controller(controller);
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        let world = Self {
            client,
            noted,
            wire,
            plan,
            outcomes,
            stop,
            manager,
        };
        world.settle().await;
        world
    }

    /// A controller that knows nothing of what this one did.
    async fn restart(self, plan: Option<Plan>) -> Self {
        let (client, noted, wire) = (self.client.clone(), self.noted.clone(), self.wire.clone());
        let plan = plan.unwrap_or_else(|| Arc::clone(&self.plan));
        self.stop().await;
        wire.take();
        Self::with(client, noted, wire, plan).await
    }

    /// Lets everything happen that is going to happen.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    /// The writes since the last call. What is told to people is not one.
    fn writes(&self) -> Vec<String> {
        let sent = self.wire.take().into_iter();
        sent.filter(|sent| sent.method != "GET" && !sent.path.contains("/events"))
            .map(|sent| sent.line())
            .collect()
    }

    fn configs(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn parents(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// The events of this reason.
    async fn told(&self, reason: &str) -> Vec<Event> {
        let events = Api::<Event>::namespaced(self.client.clone(), "default");
        let events = events.list(&ListParams::default()).await.expect("a list");
        let about = |event: &Event| event.reason.as_deref() == Some(reason);
        events.items.into_iter().filter(about).collect()
    }

    async fn child(&self) -> ConfigMap {
        self.configs().get("child").await.expect("it is there")
    }

    /// Changes the parent, so that it is looked at again.
    async fn touch(&self) {
        let change =
            json!({ "metadata": { "annotations": { "at": format!("{:?}", tokio::time::Instant::now()) } } });
        let parents = self.parents();
        parents
            .patch("web", &PatchParams::default(), &Patch::Merge(change))
            .await
            .expect("it is there");
        self.settle().await;
    }

    async fn stop(self) {
        self.stop.send(()).expect("it runs");
        self.manager.await.expect("no panic").expect("no error");
    }
}

fn server() -> Server {
    Server::builder().without_service_accounts().build()
}

fn parent(name: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
            },
        },
    }))
    .expect("a deployment")
}

async fn create<K>(client: &Client, object: K) -> K
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &object)
        .await
        .expect("it is accepted")
}

const CHILD: &str = "/api/v1/namespaces/default/configmaps/child";

#[tokio::test(start_paused = true)]
async fn a_child_is_made_with_one_write_and_says_whose_it_is() {
    let world = World::new(plan(one)).await;
    assert_eq!(world.writes(), [format!("PATCH {CHILD}")]);
    let (child, parent) = (
        world.child().await,
        world.parents().get("web").await.expect("it is there"),
    );
    let owners = child.owner_references();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (Some(&owners[0].uid), owners[0].controller),
        (parent.metadata.uid.as_ref(), Some(true))
    );
    assert_eq!(child.labels()[CONTROLLER], "sizes");
    let managers: Vec<_> = child
        .managed_fields()
        .iter()
        .map(|entry| entry.manager.clone())
        .collect();
    assert_eq!(managers, [Some("sizes".to_owned())]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_when_nothing_changed() {
    let world = World::new(plan(one)).await;
    world.wire.take();
    world.touch().await;
    assert!(world.outcomes.done() >= 2, "it was looked at again");
    assert_eq!(world.writes(), Vec::<String>::new());
    // Nor by a controller that knows nothing of what the last one did.
    let world = world.restart(None).await;
    assert!(world.outcomes.done() >= 1);
    assert_eq!(world.writes(), Vec::<String>::new());
    world.stop().await;
}

/// The server writes a quantity in another way than the author, and fills in defaults.
#[tokio::test(start_paused = true)]
async fn what_the_server_writes_differently_is_applied_once() {
    let world = World::new(plan(|_| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "child" },
            "spec": { "containers": [{ "name": "c", "image": "nginx", "resources": { "requests": { "cpu": "1000m" } } }] },
        }))
        .expect("a pod");
        Desired::new().child(pod)
    }))
    .await;
    world.wire.take();
    let pods = Api::<Pod>::namespaced(world.client.clone(), "default");
    for phase in ["Running", "Failed"] {
        let change = json!({ "status": { "phase": phase } });
        pods.patch_status("child", &PatchParams::default(), &Patch::Merge(change))
            .await
            .expect("it is there");
        world.settle().await;
    }
    world.touch().await;
    assert_eq!(world.writes(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_and_what_is_not_said_is_left_alone() {
    let world = World::new(plan(one)).await;
    world.wire.take();
    let theirs = json!({ "data": { "a": "theirs", "b": "theirs" }, "metadata": { "labels": { "x": "y" } } });
    let params = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..PatchParams::default()
    };
    world
        .configs()
        .patch("child", &params, &Patch::Merge(theirs))
        .await
        .expect("it is there");
    world.settle().await;
    assert_eq!(world.writes(), [format!("PATCH {CHILD}")]);
    let child = world.child().await;
    assert_eq!(json!(child.data), json!({ "a": "1", "b": "theirs" }));
    assert_eq!(child.labels()["x"], "y");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_not_said_any_more_goes() {
    let world = World::new(plan(|_| {
        Desired::new().child(config("child", &[("a", "1"), ("b", "2")]))
    }))
    .await;
    *world.plan.lock() = Box::new(one);
    world.touch().await;
    assert_eq!(json!(world.child().await.data), json!({ "a": "1" }));
    world.stop().await;
}

/// Also by a controller that was started after the author changed their mind.
#[tokio::test(start_paused = true)]
async fn a_field_that_a_new_version_does_not_say_goes() {
    let world = World::new(plan(|_| {
        Desired::new().child(config("child", &[("a", "1"), ("b", "2")]))
    }))
    .await;
    let world = world.restart(Some(plan(one))).await;
    assert_eq!(json!(world.child().await.data), json!({ "a": "1" }));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_deleted_comes_back() {
    let world = World::new(plan(one)).await;
    let before = world.child().await.uid();
    world
        .configs()
        .delete("child", &DeleteParams::default())
        .await
        .expect("it is there");
    world.settle().await;
    assert_ne!(world.child().await.uid(), before);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_not_wanted_any_more_is_deleted_after_its_successor_is_there() {
    let world = World::new(plan(one)).await;
    *world.plan.lock() = Box::new(|_| Desired::new().child(config("renamed", &[])));
    world.wire.take();
    world.touch().await;
    assert!(
        world
            .configs()
            .get_opt("child")
            .await
            .expect("an answer")
            .is_none()
    );
    assert!(
        world
            .configs()
            .get_opt("renamed")
            .await
            .expect("an answer")
            .is_some()
    );
    world.stop().await;
}

/// Neither the owner reference nor the label alone makes a child.
#[tokio::test(start_paused = true)]
async fn only_what_has_both_marks_is_pruned() {
    let world = World::new(plan(one)).await;
    let parent = world.parents().get("web").await.expect("it is there");
    let owner = parent.controller_owner_ref(&()).expect("it has a uid");
    let mut unlabelled = config("unlabelled", &[]);
    unlabelled.metadata.owner_references = Some(vec![owner.clone()]);
    let mut labelled = config("labelled", &[]);
    labelled.metadata.labels = Some([(CONTROLLER.to_owned(), "sizes".to_owned())].into());
    let mut of_another = labelled.clone();
    of_another.metadata.name = Some("of-another".to_owned());
    of_another.metadata.labels = Some([(CONTROLLER.to_owned(), "another".to_owned())].into());
    of_another.metadata.owner_references = Some(vec![owner.clone()]);
    let mut not_controlled = labelled.clone();
    not_controlled.metadata.name = Some("not-controlled".to_owned());
    not_controlled.metadata.owner_references = Some(vec![
        k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            controller: None,
            ..owner
        },
    ]);
    for theirs in [unlabelled, labelled, of_another, not_controlled] {
        create(&world.client, theirs).await;
    }
    world.touch().await;
    let names: Vec<_> = world
        .configs()
        .list(&ListParams::default())
        .await
        .expect("a list")
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    for name in ["child", "labelled", "not-controlled", "of-another", "unlabelled"] {
        assert!(names.iter().any(|there| there == name), "{name} is gone");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_is_reported_and_not_touched() {
    let server = server();
    let client = Client::new(server.clone(), "default");
    create(&client, parent("web")).await;
    let theirs = create(&client, config("child", &[("theirs", "yes")])).await;
    let world = World::on(server, plan(one)).await;
    assert!(world.outcomes.failed() > 0, "it is an error, and retried");
    assert_eq!(world.child().await.resource_version(), theirs.resource_version());
    assert_eq!(world.writes(), Vec::<String>::new());
    let events = Api::<Event>::namespaced(world.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.expect("a list");
    let told = events
        .iter()
        .find(|event| event.reason.as_deref() == Some("ErrResourceExists"));
    let message = told.and_then(|event| event.message.as_deref());
    assert_eq!(
        message,
        Some("Resource \"child\" already exists and is not managed by Deployment")
    );
    // And when it goes there is place for ours.
    world
        .configs()
        .delete("child", &DeleteParams::default())
        .await
        .expect("it is there");
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(json!(world.child().await.data), json!({ "a": "1" }));
    world.stop().await;
}

/// An apply does not ask whose the object is. What comes between the look and the write is given back as it was.
#[tokio::test(start_paused = true)]
async fn an_object_that_somebody_makes_in_the_same_moment_stays_theirs() {
    let server = server();
    let theirs = Client::new(server.clone(), "default");
    create(&theirs, parent("web")).await;
    let (racer, sneaked) = (theirs.clone(), Arc::new(Mutex::new(false)));
    let meddle = move |sent: Sent| {
        let (racer, sneaked) = (racer.clone(), Arc::clone(&sneaked));
        async move {
            if sent.line() == format!("PATCH {CHILD}") && !std::mem::replace(&mut *sneaked.lock(), true) {
                create(&racer, config("child", &[("theirs", "yes")])).await;
            }
            None
        }
    };
    let (noted, wire) = recorded_with(server, meddle);
    let world = World::with(theirs, noted, wire, plan(one)).await;
    let child = world.child().await;
    assert_eq!(json!(child.data), json!({ "theirs": "yes" }));
    assert!(
        child.owner_references().is_empty()
            && child.labels().is_empty()
            && !child.annotations().contains_key(APPLIED)
    );
    assert!(world.outcomes.failed() > 0);
    world.stop().await;
}

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
    assert!(
        world
            .configs()
            .get_opt("child")
            .await
            .expect("an answer")
            .is_none()
    );
    world.stop().await;
}

fn replicas(count: i32) -> Value {
    json!({ "replicas": count, "observedGeneration": 1 })
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_when_it_differs_and_not_again() {
    let world = World::new(plan(|_| Desired::new().status(replicas(3)))).await;
    let status = |parent: Deployment| parent.status.expect("a status");
    let parent = || async { world.parents().get("web").await.expect("it is there") };
    assert_eq!(status(parent().await).replicas, Some(3));
    world.wire.take();
    world.touch().await;
    assert_eq!(world.writes(), Vec::<String>::new());
    *world.plan.lock() = Box::new(|_| Desired::new().status(json!({ "observedGeneration": 1 })));
    world.touch().await;
    assert_eq!(
        status(parent().await).replicas,
        None,
        "what is not said any more goes"
    );
    let world = world.restart(None).await;
    assert_eq!(world.writes(), Vec::<String>::new());
    world.stop().await;
}

/// What others write into the status is theirs, and not fought over.
#[tokio::test(start_paused = true)]
async fn a_part_of_the_status_may_be_somebody_elses() {
    let world = World::new(plan(|_| Desired::new().status(replicas(3)))).await;
    let theirs = json!({ "status": { "readyReplicas": 2 } });
    let params = PatchParams {
        field_manager: Some("other".into()),
        ..PatchParams::default()
    };
    world
        .parents()
        .patch_status("web", &params, &Patch::Merge(theirs))
        .await
        .expect("it is there");
    world.settle().await;
    world.wire.take();
    world.touch().await;
    assert_eq!(world.writes(), Vec::<String>::new());
    let status = world
        .parents()
        .get("web")
        .await
        .expect("it is there")
        .status
        .expect("a status");
    assert_eq!((status.replicas, status.ready_replicas), (Some(3), Some(2)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_be_is_a_terminal_error() {
    let elsewhere = |_: &Deployment| {
        let mut child = config("child", &[]);
        child.metadata.namespace = Some("kube-system".to_owned());
        Desired::new().child(child)
    };
    let undeclared = |_: &Deployment| {
        let mut secret = Secret::default();
        secret.metadata.name = Some("child".to_owned());
        Desired::new().child(secret)
    };
    for wants in [
        plan(elsewhere),
        plan(undeclared),
        plan(|_| Desired::new().child(ConfigMap::default())),
        // It would be read as a part of another child.
        plan(|_| Desired::new().child(config("child/status", &[]))),
    ] {
        let world = World::new(wants).await;
        assert_eq!((world.outcomes.terminal(), world.outcomes.failed()), (1, 0));
        assert_eq!(world.writes(), Vec::<String>::new());
        let told = world.told("ErrInvalid").await;
        assert_eq!(told.len(), 1, "people are told, once");
        assert_eq!(told[0].type_.as_deref(), Some("Warning"));
        world.stop().await;
    }
}

/// The server knows which names it takes; what it says is for people, and asked again ever more seldom.
#[tokio::test(start_paused = true)]
async fn a_child_that_the_server_refuses_is_told_of() {
    let world = World::new(plan(|_| Desired::new().child(config("Not_Valid!", &[])))).await;
    let told = world.told("ErrInvalid").await;
    let message = told[0].message.as_deref().unwrap_or_default();
    assert!(message.contains("ConfigMap default/Not_Valid!"), "{message}");
    assert!(message.contains("lowercase RFC 1123 subdomain"), "{message}");
    assert_eq!(told.len(), 1);
    let before = world.outcomes.failed();
    tokio::time::sleep(Duration::from_hours(1)).await;
    let tries = world.outcomes.failed() - before;
    assert!((1..=12).contains(&tries), "{tries} in an hour");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_known_at_run_time_work_like_typed_ones() {
    let client = Client::new(server(), "default");
    create(&client, parent("web")).await;
    let (deployments, configs) = (
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<ConfigMap>(&()),
    );
    let kind = configs.clone();
    let controller = Controller::of("sizes", Watch::<DynamicObject>::dynamic(deployments.clone()))
        .watch(Watch::<DynamicObject>::dynamic(configs).owned())
        .declare(move |object: Arc<DynamicObject>, ctx: Context| {
            let seen = ctx
                .lister_of::<DynamicObject>(&deployments)
                .map(windlass_cache::Lister::len);
            let mut child = DynamicObject::new(&object.name_any(), &kind);
            child.data = json!({ "data": { "seen": format!("{seen:?}") } });
            ready(Ok::<_, Error>(Desired::new().dynamic_child(child, kind.clone())))
        });
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(client.clone()).controller(controller);
    let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let api = Api::<ConfigMap>::namespaced(client, "default");
    assert_eq!(
        json!(api.get("web").await.expect("it is there").data),
        json!({ "seen": "Ok(1)" })
    );
    api.delete("web", &DeleteParams::default())
        .await
        .expect("it is there");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        api.get_opt("web").await.expect("an answer").is_some(),
        "its change leads to its owner"
    );
    stop.send(()).expect("it runs");
    manager.await.expect("no panic").expect("no error");
}

/// A condition is written once, says for which generation and since when, and stands beside those of others.
#[tokio::test(start_paused = true)]
async fn a_condition_is_written_when_it_changes() {
    let server = server();
    let (client, (noted, wire)) = (Client::new(server.clone(), "default"), recorded_on(server));
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    create(
        &client,
        serde_json::from_value::<Service>(service).expect("a service"),
    )
    .await;
    let found = Arc::new(Mutex::new(Finding::no("Ready", "Waiting")));
    let finding = Arc::clone(&found);
    let controller = Controller::<Service>::new("sizes").declare(move |_: Arc<Service>, _: Context| {
        ready(Ok::<_, Error>(Desired::new().condition(finding.lock().clone())))
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(noted).controller(controller);
    let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
    let services = Api::<Service>::namespaced(client, "default");
    let patch = |change: Value| {
        let services = services.clone();
        async move {
            let params = PatchParams::default();
            tokio::time::sleep(Duration::from_secs(2)).await;
            services
                .patch_status("web", &params, &Patch::Strategic(change))
                .await
                .expect("it is there");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let theirs = json!({ "type": "Theirs", "status": "True", "reason": "So", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z" });
    patch(json!({ "status": { "conditions": [theirs] } })).await;
    wire.take();
    patch(json!({ "metadata": { "annotations": { "touched": "yes" } } })).await;
    assert!(
        wire.take().iter().all(|sent| sent.method == "GET"),
        "nothing changed"
    );
    *found.lock() = Finding::yes("Ready", "AllRun");
    patch(json!({ "metadata": { "annotations": { "touched": "again" } } })).await;
    let status = services
        .get("web")
        .await
        .expect("it is there")
        .status
        .expect("a status");
    let mut conditions: Vec<_> = status
        .conditions
        .into_iter()
        .flatten()
        .map(|condition| (condition.type_, condition.status))
        .collect();
    conditions.sort();
    assert_eq!(
        conditions,
        [("Ready", "True"), ("Theirs", "True")].map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
    stop.send(()).expect("it runs");
    manager.await.expect("no panic").expect("no error");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_recorded_once_all_is_as_it_should_be() {
    let world = World::new(plan(|_| {
        one(&Deployment::default()).event("Synced", "all is there")
    }))
    .await;
    let told = world.told("Synced").await;
    assert_eq!(told.len(), 1);
    assert_eq!(
        told[0]
            .source
            .as_ref()
            .and_then(|source| source.component.as_deref()),
        Some("sizes")
    );
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
