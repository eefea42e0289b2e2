//! Finalizers without extra requests.

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;
use windlass_runtime::{CrdInstaller, Writer, check_finalizer};

use crate::writer::{MANAGER, config, live, request_log::recorded};

/// One patch the first time, and no request later.
#[tokio::test(start_paused = true)]
async fn finalizer_is_added_once_with_uid_and_resource_version_preconditions() {
    let (client, log) = recorded();
    let writer = Writer::new(client.clone(), MANAGER);
    let seen = writer.create(&config("a")).await.expect("created");
    log.take();
    let held = writer.add_finalizer(&seen, "example.com/x").await.expect("added");
    let sent = log.one();
    assert_eq!(
        sent.body,
        json!({ "metadata": {
            "finalizers": ["example.com/x"], "resourceVersion": seen.resource_version(), "uid": seen.uid(),
        } })
    );
    let again = writer
        .add_finalizer(&held, "example.com/x")
        .await
        .expect("exists");
    assert_eq!(again, held);
    assert!(log.take().is_empty(), "no request");

    // Another controller adds one meanwhile; neither is lost.
    writer.add_finalizer(&held, "other.com/y").await.expect("added");
    let error = writer
        .add_finalizer(&held, "third.com/z")
        .await
        .expect_err("outdated");
    assert!(error.is_conflict(), "{error}");
    let now = live(&client, "a").await.expect("exists");
    assert_eq!(now.finalizers(), ["example.com/x", "other.com/y"]);
    log.take();

    let error = writer
        .add_finalizer(&now, "Example.com/x")
        .await
        .expect_err("invalid finalizer")
        .to_string();
    assert!(
        error.starts_with("cannot patch ConfigMap default/a: invalid finalizer \"Example.com/x\": "),
        "{error}"
    );
    assert!(
        writer.add_finalizer(&config("a"), "example.com/x").await.is_err(),
        "an unread object has no resource version"
    );
    assert!(log.take().is_empty(), "no request");
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_removed_with_one_patch_and_others_stay() {
    let (client, log) = recorded();
    let writer = Writer::new(client.clone(), MANAGER);
    let mut object = config("a");
    object.metadata.finalizers = Some(vec!["one.com/a".to_owned(), "two.com/b".to_owned()]);
    writer.create(&object).await.expect("created");
    writer
        .delete(&live(&client, "a").await.expect("exists"))
        .await
        .expect("marked");
    let marked = live(&client, "a").await.expect("held");
    log.take();
    let error = writer
        .add_finalizer(&marked, "three.com/c")
        .await
        .expect_err("too late")
        .to_string();
    assert!(error.ends_with(
        "the object is being deleted: add finalizer `three.com/c` earlier, in its first reconcile"
    ));
    assert!(log.take().is_empty(), "no request");

    let left = writer
        .remove_finalizer(&marked, "one.com/a")
        .await
        .expect("removed")
        .expect("one is left");
    assert_eq!(left.finalizers(), ["two.com/b"]);
    assert_eq!(log.one().method, Method::PATCH);
    writer
        .remove_finalizer(&left, "one.com/a")
        .await
        .expect("not present")
        .expect("the object as it was");
    assert!(log.take().is_empty(), "no request");
    writer
        .remove_finalizer(&left, "two.com/b")
        .await
        .expect("removed");
    assert!(live(&client, "a").await.is_none(), "no finalizer is left");
    let gone = writer
        .remove_finalizer(&left, "two.com/b")
        .await
        .expect("already deleted");
    assert!(gone.is_none());
}

#[tokio::test(start_paused = true)]
async fn finalizer_validation_matches_the_server() {
    let (client, _) = recorded();
    let writer = Writer::new(client, MANAGER);
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": { "name": "foos.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "plural": "foos", "kind": "Foo" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    }))
    .expect("valid CRD");
    let installed = CrdInstaller::new([definition]).apply().run(&writer).await;
    installed.expect("installed");
    let foos = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
    let mut foo = DynamicObject::new("a", &foos).within("default");
    let dry_run = writer.dynamic(foos).dry_run();
    let many = |text: &str, times| text.repeat(times);
    let names = [
        "",
        "x",
        "X_y.z-1",
        "9",
        "-x",
        "x-",
        "x.",
        "x y",
        "ä",
        "a/b",
        &many("a", 63),
        &many("a", 64),
    ];
    let domains = [
        "",
        "a",
        "A",
        "a.b",
        "a..b",
        ".a",
        "a.",
        "-a",
        "a-",
        "a.-b",
        "a-b.c",
        "a_b",
        "ä",
        &many("a", 64),
        &many("a", 253),
        &many("a", 254),
    ];
    let with_domain = domains
        .iter()
        .flat_map(|domain| names.iter().map(move |name| format!("{domain}/{name}")));
    for finalizer in names.iter().map(ToString::to_string).chain(with_domain) {
        foo.metadata.finalizers = Some(vec![finalizer.clone()]);
        let taken = dry_run.create(&foo).await.map(drop);
        assert_eq!(
            check_finalizer(&finalizer).is_ok(),
            taken.is_ok(),
            "{finalizer}: {taken:?}"
        );
    }
}
