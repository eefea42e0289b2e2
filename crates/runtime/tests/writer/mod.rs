//! Requests of a writer, and its handling of responses.

mod eviction;
mod finalizers;
use crate::request_log;

use std::future::{Future, ready};

use http::Method;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Node, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Preconditions},
};
use request_log::{recorded, recorded_with};
use serde_json::{Value, json};
use windlass_apiserver::Server;
use windlass_runtime::{ApplyOptions, ApplyOutcome, DeleteOutcome, Writer};

const MANAGER: &str = "test manager";

fn config(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("a".to_owned(), "1".to_owned())].into()),
        ..ConfigMap::default()
    }
}

async fn live(client: &Client, name: &str) -> Option<ConfigMap> {
    Api::default_namespaced(client.clone())
        .get_opt(name)
        .await
        .expect("the server answers")
}

/// Reconciles may move between threads.
#[test]
fn write_futures_are_send() {
    fn can_move(_: impl Future + Send) {}
    #[expect(dead_code, reason = "compiling it is the test")]
    fn moves(writer: &Writer, dynamic: &Writer<ApiResource>, object: &DynamicObject, pod: &Pod) {
        can_move(writer.apply(pod));
        can_move(writer.remove_finalizer(pod, "example.com/x"));
        can_move(async { writer.evict(pod, &DeleteParams::default()).await });
        can_move(dynamic.delete(object));
    }
}

#[tokio::test(start_paused = true)]
async fn writes_have_the_field_manager_and_apply_omits_server_metadata() {
    let (client, log) = recorded();
    let writer = Writer::new(client, MANAGER);
    let created = writer.create(&config("a")).await.expect("created");
    let sent = log.one();
    assert_eq!(sent.line(), "POST /api/v1/namespaces/default/configmaps");
    assert_eq!(sent.query.trim_matches('&'), "fieldManager=test+manager");

    // An object as read from the API.
    let applied = writer.apply(&created).await.expect("applied");
    let sent = log.one();
    assert_eq!(sent.line(), "PATCH /api/v1/namespaces/default/configmaps/a");
    assert_eq!(
        sent.query.trim_matches('&'),
        "force=true&fieldManager=test+manager"
    );
    assert_eq!(sent.content_type, "application/apply-patch+yaml");
    assert_eq!(
        sent.body,
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "a": "1" },
            "metadata": { "name": "a", "namespace": "default" },
        })
    );
    let managers = applied.metadata.managed_fields.expect("the server keeps them");
    assert!(managers.iter().any(
        |entry| entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
    ));

    let pinned = ApplyOptions::default().require_uid().require_resource_version();
    writer
        .apply_with(&created, pinned)
        .await
        .expect_err("outdated resource version");
    let metadata = &log.one().body["metadata"];
    assert_eq!(metadata["uid"], created.uid().expect("a uid"));
    assert_eq!(
        metadata["resourceVersion"],
        created.resource_version().expect("a version")
    );
}

#[tokio::test(start_paused = true)]
async fn apply_takes_fields_over_unless_told_not_to() {
    let (client, _) = recorded();
    let (ours, theirs) = (
        Writer::new(client.clone(), MANAGER),
        Writer::new(client.clone(), "them"),
    );
    ours.apply(&config("a")).await.expect("created");
    let mut changed = config("a");
    changed.data = Some([("a".to_owned(), "theirs".to_owned())].into());
    let gently = ApplyOptions::default().without_force();
    let refused = theirs
        .apply_with(&changed, gently)
        .await
        .expect_err("a field of ours");
    assert!(refused.is_field_conflict() && refused.is_conflict());
    let text = refused.to_string();
    assert!(text.contains("conflict with \"test manager\""), "{text}");
    assert!(
        text.ends_with("; an apply without `ApplyOptions::without_force` takes the fields over"),
        "{text}"
    );
    let taken = theirs.apply(&changed).await.expect("forced");
    assert_eq!(json!(taken.data), json!({ "a": "theirs" }));
    let taken = ours.apply(&config("a")).await.expect("forced");
    assert_eq!(json!(taken.data), json!({ "a": "1" }));
}

/// As atomic as a create, and later applies remove fields that they omit.
#[tokio::test(start_paused = true)]
async fn require_absent_creates_once_and_leaves_existing_objects_alone() {
    let (client, log) = recorded();
    let (ours, theirs) = (
        Writer::new(client.clone(), MANAGER),
        Writer::new(client.clone(), "them"),
    );
    let new = ApplyOptions::default().require_absent();
    let mut wanted = config("a");
    wanted.metadata.uid = Some("of an object that was read".to_owned());
    let made = ours.apply_with(&wanted, new).await.expect("there was none");
    assert_eq!(log.one().line(), "PATCH /api/v1/namespaces/default/configmaps/a");
    for writer in [&ours, &theirs] {
        for how in [new, new.without_force()] {
            let refused = writer
                .apply_with(&config("a"), how)
                .await
                .expect_err("there is one");
            assert!(refused.is_conflict(), "{refused}");
            assert_eq!(live(&client, "a").await.as_ref(), Some(&made));
        }
    }
    wanted.data = Some([("b".to_owned(), "2".to_owned())].into());
    let changed = ours.apply(&wanted).await.expect("it is ours");
    assert_eq!(json!(changed.data), json!({ "b": "2" }));
}

#[tokio::test(start_paused = true)]
async fn dry_run_persists_nothing() {
    let (client, log) = recorded();
    let writer = Writer::new(client.clone(), MANAGER);
    let kept = writer.create(&config("kept")).await.expect("created");
    log.take();
    let dry_run = writer.clone().dry_run();
    assert!(dry_run.is_dry_run() && !writer.is_dry_run());
    let mut changed = kept.clone();
    changed.data = None;

    dry_run.create(&config("a")).await.expect("valid write");
    dry_run.apply(&config("b")).await.expect("valid write");
    dry_run.replace(&changed).await.expect("valid write");
    dry_run
        .merge_patch(&kept, &json!({ "data": null }))
        .await
        .expect("valid write");
    dry_run
        .add_finalizer(&kept, "example.com/x")
        .await
        .expect("valid write");
    dry_run.delete(&kept).await.expect("valid write");
    for sent in log.take() {
        let says_so = sent.query.contains("dryRun=All") || sent.body["dryRun"] == json!(["All"]);
        assert!(says_so, "{sent:?}");
    }
    assert!(live(&client, "a").await.is_none() && live(&client, "b").await.is_none());
    assert_eq!(live(&client, "kept").await.expect("exists"), kept);
}

#[tokio::test(start_paused = true)]
async fn dynamic_kind_is_written_like_a_typed_one() {
    let (client, log) = recorded();
    let kind = ApiResource::erase::<ConfigMap>(&());
    let writer = Writer::new(client, MANAGER).dynamic(kind.clone());
    // Without its type, which the server requires.
    let mut object = DynamicObject::new("a", &kind)
        .within("default")
        .data(json!({ "data": { "a": "1" } }));
    object.types = None;

    let created = writer
        .create_or_apply(&object, ApplyOptions::default())
        .await
        .expect("applied");
    let ApplyOutcome::Created(created) = created else {
        panic!("{created:?}")
    };
    let again = writer
        .create_or_apply(&object, ApplyOptions::default())
        .await
        .expect("applied");
    assert!(
        matches!(again, ApplyOutcome::Existed(again) if again.resource_version() == created.resource_version())
    );
    let held = writer
        .add_finalizer(&created, "example.com/x")
        .await
        .expect("added");
    assert_eq!(held.finalizers(), ["example.com/x"]);
    let pending = writer.delete(&held).await.expect("marked");
    let DeleteOutcome::Pending(pending) = pending else {
        panic!("{pending:?}")
    };
    writer
        .remove_finalizer(&pending, "example.com/x")
        .await
        .expect("removed");
    assert!(matches!(
        writer.delete(&pending).await,
        Ok(DeleteOutcome::AlreadyGone)
    ));
    let methods: Vec<_> = log.take().into_iter().map(|sent| sent.method).collect();
    let (patch, delete) = (Method::PATCH, Method::DELETE);
    assert_eq!(
        methods,
        [&patch, &patch, &patch, &delete, &patch, &delete].map(Clone::clone)
    );
}

#[tokio::test(start_paused = true)]
async fn apply_status_writes_only_the_status_of_the_same_object() {
    let (client, log) = recorded();
    let writer = Writer::new(client, MANAGER);
    let mut node = Node::default();
    node.metadata.name = Some("n".to_owned());
    let mut node = writer.create(&node).await.expect("created");
    let error = writer
        .apply_status(&ConfigMap::default())
        .await
        .expect_err("missing status");
    assert_eq!(
        error.to_string(),
        "cannot apply the status of ConfigMap: missing status: set it before writing it"
    );
    log.take();

    node.status = Some(serde_json::from_value(json!({ "phase": "Running" })).expect("status"));
    node.labels_mut().insert("not".to_owned(), "sent".to_owned());
    let applied = writer.apply_status(&node).await.expect("applied");
    assert_eq!(applied.status.expect("status").phase.as_deref(), Some("Running"));
    let sent = log.one();
    assert_eq!(sent.line(), "PATCH /api/v1/nodes/n/status");
    let uid = node.uid().expect("a uid");
    assert_eq!(
        sent.body,
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "n", "uid": uid }, "status": { "phase": "Running" },
        })
    );

    node.metadata.uid = Some("another".to_owned());
    let error = writer.apply_status(&node).await.expect_err("it is another node");
    assert!(error.is_uid_mismatch(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn merge_patch_changes_neither_a_recreated_object_nor_other_fields() {
    let (client, log) = recorded();
    let writer = Writer::new(client.clone(), MANAGER);
    let first = writer.create(&config("a")).await.expect("created");
    log.take();
    let patched = writer
        .merge_patch(&first, &json!({ "data": { "b": "2" } }))
        .await
        .expect("patched");
    assert_eq!(log.one().content_type, "application/merge-patch+json");
    assert_eq!(patched.data.expect("data").len(), 2);

    writer.delete(&first).await.expect("deleted");
    let second = writer.create(&config("a")).await.expect("created");
    let error = writer
        .merge_patch(&first, &json!({ "data": null }))
        .await
        .expect_err("it is another object");
    assert!(error.is_uid_mismatch() && !error.is_conflict(), "{error:?}");
    assert!(matches!(
        writer.delete(&first).await,
        Ok(DeleteOutcome::AlreadyGone)
    ));
    assert_eq!(
        live(&client, "a").await.expect("the recreated object remains"),
        second
    );
}

#[tokio::test(start_paused = true)]
async fn replace_and_delete_respect_preconditions() {
    let (client, log) = recorded();
    let writer = Writer::new(client, MANAGER);
    let first = writer.create(&config("a")).await.expect("created");
    let newer = writer
        .merge_patch(&first, &json!({ "data": { "a": "2" } }))
        .await
        .expect("patched");
    log.take();

    let error = writer
        .replace(&first)
        .await
        .expect_err("outdated resource version");
    assert!(error.is_conflict() && !error.is_uid_mismatch());
    assert_eq!(log.one().method, Method::PUT);
    let error = writer
        .replace(&config("a"))
        .await
        .expect_err("missing resource version");
    let expected = "cannot replace ConfigMap default/a: missing resource version: start from an object read from the API";
    assert_eq!(error.to_string(), expected);
    assert!(log.take().is_empty(), "rejected without a request");

    let options = DeleteParams::foreground()
        .grace_period(7)
        .preconditions(Preconditions {
            resource_version: first.resource_version(),
            uid: None,
        });
    let error = writer
        .delete_with(&newer, &options)
        .await
        .expect_err("outdated resource version");
    assert!(error.is_conflict());
    let sent = log.take();
    assert_eq!(sent[0].body["propagationPolicy"], "Foreground");
    assert_eq!(sent[0].body["gracePeriodSeconds"], 7);
    let expected = json!({ "uid": newer.uid(), "resourceVersion": first.resource_version() });
    assert_eq!(sent[0].body["preconditions"], expected);
    assert!(matches!(writer.delete(&newer).await, Ok(DeleteOutcome::Deleted)));
    assert!(matches!(
        writer.delete(&newer).await,
        Ok(DeleteOutcome::AlreadyGone)
    ));
}

/// Of two concurrent writers, one gets a conflict.
#[tokio::test(start_paused = true)]
async fn replace_status_requires_the_current_resource_version() {
    let (client, log) = recorded();
    let writer = Writer::new(client, MANAGER);
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "n" } })).expect("a node");
    let node = writer.create(&node).await.expect("created");
    log.take();
    let mut changed = node.clone();
    changed.spec = serde_json::from_value(json!({ "unschedulable": true })).expect("a spec");
    changed.status = serde_json::from_value(json!({ "phase": "Running" })).expect("status");
    let replaced = writer.replace_status(&changed).await.expect("replaced");
    assert_eq!(log.one().line(), "PUT /api/v1/nodes/n/status");
    assert_eq!(json!(replaced.status)["phase"], "Running");
    assert_ne!(
        json!(replaced.spec)["unschedulable"],
        true,
        "only the status is replaced"
    );
    let error = writer
        .replace_status(&changed)
        .await
        .expect_err("outdated resource version");
    assert!(error.is_conflict());
    assert!(
        error
            .to_string()
            .starts_with("cannot replace the status of Node n: ")
    );
    changed.metadata.resource_version = None;
    log.take();
    writer
        .replace_status(&changed)
        .await
        .expect_err("missing resource version");
    assert!(log.take().is_empty(), "rejected without a request");
}

#[tokio::test(start_paused = true)]
async fn write_error_names_the_verb_the_kind_and_the_object() {
    let (client, log) = recorded();
    let writer = Writer::new(client, MANAGER);
    writer.create(&config("a")).await.expect("created");
    log.take();
    let error = writer.create(&config("a")).await.expect_err("already exists");
    assert!(error.is_already_exists() && !error.is_conflict());
    assert_eq!(
        error.to_string(),
        "cannot create ConfigMap default/a: configmaps \"a\" already exists"
    );
    assert_eq!(
        (error.key().namespace(), error.key().name()),
        (Some("default"), "a")
    );

    let mut lost = config("a");
    lost.metadata.namespace = None;
    let error = writer
        .apply(&lost)
        .await
        .expect_err("missing namespace")
        .to_string();
    assert_eq!(
        error,
        "cannot apply ConfigMap a: missing namespace: set metadata.namespace"
    );
    let error = writer
        .apply(&Namespace::default())
        .await
        .expect_err("missing name")
        .to_string();
    assert_eq!(error, "cannot apply Namespace: missing name: set metadata.name");
    for name in ["../secrets/a", "a/status", "a?force=true", ".."] {
        let error = writer.apply(&config(name)).await.expect_err(name);
        assert!(error.to_string().contains("invalid name"), "{error}");
        writer.delete(&config(name)).await.expect_err(name);
    }
    assert_eq!(log.take().len(), 1, "invalid writes are not sent");
}

#[tokio::test(start_paused = true)]
async fn response_without_a_status_is_in_the_error() {
    let (client, _) = recorded_with(Server::new(), |_| ready(Some((502, Value::from("bad gateway")))));
    let error = Writer::new(client, MANAGER)
        .create(&config("a"))
        .await
        .expect_err("no answer");
    assert_eq!(error.status().map(|status| status.code), Some(502));
    assert!(error.to_string().ends_with("bad gateway\""), "{error}");
}
