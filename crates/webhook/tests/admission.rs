//! What admission webhooks see, and what users see of them.

use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v1::Scale,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, Status},
};
use serde_json::{Value, json};
use windlass_webhook::{
    Change, FailurePolicy, FieldErrors, Operation, ReviewRequest, Target, Verdict, Webhooks, mutate,
    mutate_async, validate, validate_async, validate_target,
};

use crate::server;

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

fn map(name: &str, data: &Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data.clone()})).expect("a ConfigMap")
}

fn refused<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("not refused: {other:?}"),
    }
}

/// Few entries, no empty value, and `fixed` never changes.
fn check(change: Change<'_, ConfigMap>, _: &ReviewRequest) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let data = |map: &ConfigMap| map.data.clone().unwrap_or_default();
    let Some(new) = change.new_object().map(data) else {
        errors.forbidden("metadata.name", "it is needed");
        return errors;
    };
    for (key, value) in &new {
        if value.is_empty() {
            errors.required(format_args!("data[{key}]"), "");
        }
    }
    if new.len() > 2 {
        errors.too_many("data", new.len(), 2);
    }
    if let Some(old) = change.old_object().map(data) {
        errors.immutable("data[fixed]", &old.get("fixed"), &new.get("fixed"));
    }
    errors
}

#[tokio::test(start_paused = true)]
async fn field_errors_are_shown_like_those_of_the_server() {
    let client = server::with(Webhooks::new("maps").with(validate(check).on_delete())).await;
    let maps = maps(&client);
    let valid = map("a", &json!({"fixed": "1", "b": "2"}));
    maps.create(&PostParams::default(), &valid).await.expect("valid");

    let status = refused(
        maps.create(
            &PostParams::default(),
            &map("b", &json!({"x": "", "y": "1", "z": ""})),
        )
        .await,
    );
    assert_eq!(status.code, 422);
    assert_eq!(status.reason, "Invalid");
    assert_eq!(
        status.message,
        "admission webhook \"validate.configmaps.maps\" denied the request: ConfigMap \"b\" is invalid: \
         [data[x]: Required value, data[z]: Required value, data: Too many: 3: must have at most 2 items]"
    );

    let patch = Patch::Merge(json!({"data": {"fixed": "2"}}));
    let status = refused(maps.patch("a", &PatchParams::default(), &patch).await);
    assert_eq!(
        status.message,
        "admission webhook \"validate.configmaps.maps\" denied the request: ConfigMap \"a\" is invalid: \
         data[fixed]: Invalid value: \"2\": field is immutable"
    );

    let status = refused(maps.delete("a", &DeleteParams::default()).await);
    assert!(
        status.message.ends_with("metadata.name: Forbidden: it is needed"),
        "{}",
        status.message
    );
}

#[tokio::test(start_paused = true)]
async fn causes_of_field_errors_reach_the_client() {
    let client = server::with(Webhooks::new("maps").with(validate(check))).await;
    let body = json!({"metadata": {"name": "b"}, "data": {"x": ""}}).to_string();
    let request = http::Request::post("/api/v1/namespaces/default/configmaps")
        .header("content-type", "application/json")
        .body(body.into_bytes())
        .expect("a request");
    let (parts, body) = client
        .send(request.map(Into::into))
        .await
        .expect("an answer")
        .into_parts();
    let body = http_body_util::BodyExt::collect(body)
        .await
        .expect("a body")
        .to_bytes();
    let status: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(parts.status, 422);
    assert_eq!(
        status["details"],
        json!({"name": "b", "kind": "ConfigMap", "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "data[x]"}
        ]})
    );
}

#[tokio::test(start_paused = true)]
async fn handler_sees_who_asks_and_what_for() {
    let webhook = validate::<ConfigMap, _>(|change, request| {
        Verdict::deny(format!(
            "{} {} {} {:?} {} dry={} {}",
            request.username(),
            request.operation.name(),
            request.resource.resource,
            request.namespace,
            request.name,
            request.is_dry_run,
            change.object().metadata.name.as_deref().unwrap_or("?"),
        ))
    });
    let client = server::with(Webhooks::new("maps").with(webhook)).await;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let status = refused(maps(&client).create(&params, &map("a", &json!({}))).await);
    assert_eq!(status.code, 403);
    assert!(
        status
            .message
            .ends_with("CREATE configmaps Some(\"default\") a dry=true a"),
        "{}",
        status.message
    );
}

#[tokio::test(start_paused = true)]
async fn mutation_changes_only_what_the_author_changed() {
    let webhook = mutate::<ConfigMap, _>(|map, _| {
        map.data
            .get_or_insert_default()
            .entry("added".to_owned())
            .or_insert_with(|| "yes".to_owned());
    });
    let client = server::with(Webhooks::new("maps").with(webhook)).await;
    let created = maps(&client)
        .create(&PostParams::default(), &map("a", &json!({"b": "1"})))
        .await;
    let data = created.expect("allowed").data.unwrap_or_default();
    assert_eq!(json!(data), json!({"added": "yes", "b": "1"}));
}

#[tokio::test(start_paused = true)]
async fn async_handlers_are_cancelled_at_the_deadline() {
    let slow = validate_async(
        Target::of::<ConfigMap>(),
        |_: Option<ConfigMap>, new: Option<ConfigMap>, request| async move {
            if new.is_some_and(|map| map.metadata.name.as_deref() == Some("slow")) {
                std::future::pending::<()>().await;
            }
            assert!(request.deadline().is_some());
        },
    );
    let labels = mutate_async(Target::of::<ConfigMap>(), |mut map: ConfigMap, _| async move {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        map.metadata
            .labels
            .get_or_insert_default()
            .insert("seen".to_owned(), "yes".to_owned());
        Ok(map)
    });
    let client = server::with(Webhooks::new("maps").with(slow).with(labels)).await;
    let maps = maps(&client);
    let created = maps
        .create(&PostParams::default(), &map("quick", &json!({})))
        .await
        .expect("allowed");
    assert_eq!(created.metadata.labels.expect("labels")["seen"], "yes");
    let started = tokio::time::Instant::now();
    let status = refused(
        maps.create(&PostParams::default(), &map("slow", &json!({})))
            .await,
    );
    assert_eq!(started.elapsed().as_millis(), 9_020);
    assert_eq!(
        status.message,
        "Internal error occurred: failed calling webhook \"validate.configmaps.maps\": failed to call webhook: \
         the handler has not answered in time"
    );
}

#[tokio::test(start_paused = true)]
async fn panic_is_a_failure_by_policy() {
    for (policy, is_allowed) in [(FailurePolicy::Fail, false), (FailurePolicy::Ignore, true)] {
        let webhook = validate::<ConfigMap, ()>(|_, _| panic!("oops")).failure_policy(policy);
        let client = server::with(Webhooks::new("maps").with(webhook)).await;
        for name in ["a", "b"] {
            let created = maps(&client)
                .create(&PostParams::default(), &map(name, &json!({})))
                .await;
            if is_allowed {
                created.expect("allowed");
            } else {
                let status = refused(created);
                assert!(
                    status.message.ends_with("the handler panicked: oops"),
                    "{}",
                    status.message
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn update_of_a_terminating_object_passes_by_default() {
    let deny = || validate::<ConfigMap, _>(|_, _| Verdict::deny("no")).operations([Operation::Update]);
    for (webhook, passes) in [(deny(), true), (deny().on_terminating(), false)] {
        let client = server::with(Webhooks::new("maps").with(webhook)).await;
        let maps = maps(&client);
        let mut object = map("a", &json!({}));
        object.metadata.finalizers = Some(vec!["example.com/x".to_owned()]);
        maps.create(&PostParams::default(), &object)
            .await
            .expect("created");
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        refused(maps.patch("a", &PatchParams::default(), &release).await);
        maps.delete("a", &DeleteParams::default()).await.expect("deleted");
        let released = maps.patch("a", &PatchParams::default(), &release).await;
        assert_eq!(released.is_ok(), passes, "{released:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn own_namespace_and_kube_system_are_not_locked_out() {
    let deny = || validate::<ConfigMap, _>(|_, _| Verdict::deny("no"));
    for (webhook, allowed) in [
        (deny(), ["system", "kube-system"].as_slice()),
        (deny().in_system_namespaces(), &[]),
    ] {
        let client = server::with(Webhooks::new("maps").with(webhook)).await;
        for name in ["system", "kube-system", "other"] {
            let namespace = json!({"metadata": {"name": name}});
            let namespace: Namespace = serde_json::from_value(namespace).expect("a Namespace");
            Api::all(client.clone())
                .create(&PostParams::default(), &namespace)
                .await
                .ok();
            let maps = Api::<ConfigMap>::namespaced(client.clone(), name);
            let created = maps.create(&PostParams::default(), &map("a", &json!({}))).await;
            assert_eq!(created.is_ok(), allowed.contains(&name), "{name} {created:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn scale_of_a_deployment_has_its_own_type() {
    let target = Target::of::<Deployment>().subresource("scale");
    let webhook = validate_target(target, |change: Change<'_, Scale>, request| {
        let replicas = |scale: &Scale| scale.spec.as_ref().and_then(|spec| spec.replicas);
        assert_eq!(request.subresource.as_deref(), Some("scale"));
        Verdict::deny(format!(
            "{:?} {:?}",
            change.old_object().and_then(replicas),
            change.new_object().and_then(replicas)
        ))
    });
    let client = server::with(Webhooks::new("scales").with(webhook)).await;
    let deployments: Api<Deployment> = Api::namespaced(client, "default");
    let deployment = json!({"metadata": {"name": "a"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let deployment = serde_json::from_value(deployment).expect("a Deployment");
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .expect("created");
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    let status = refused(
        deployments
            .patch_scale("a", &PatchParams::default(), &patch)
            .await,
    );
    assert_eq!(
        status.message,
        "admission webhook \"validate.scale.deployments.apps\" denied the request: Some(1) Some(7)"
    );
}

#[tokio::test(start_paused = true)]
async fn dynamic_kinds_and_json_are_types_too() {
    let resource = ApiResource::erase::<ConfigMap>(&());
    let dynamic = validate_target(
        Target::dynamic(&resource),
        |change: Change<'_, DynamicObject>, _| {
            let name = change.object().metadata.name.clone();
            if name.as_deref() == Some("a") {
                Verdict::deny("dynamic")
            } else {
                Verdict::allow()
            }
        },
    );
    let json = validate_target(Target::of::<Namespace>(), |change: Change<'_, Value>, _| {
        Verdict::deny(change.object()["metadata"]["name"].to_string())
    });
    let client = server::with(Webhooks::new("dynamic").with(dynamic).with(json)).await;
    let status = refused(
        maps(&client)
            .create(&PostParams::default(), &map("a", &json!({})))
            .await,
    );
    assert!(status.message.ends_with(": dynamic"));
    let namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).expect("a Namespace");
    let namespaces: Api<Namespace> = Api::all(client);
    let status = refused(namespaces.create(&PostParams::default(), &namespace).await);
    assert!(status.message.ends_with(": \"n\""), "{}", status.message);
}

#[tokio::test(start_paused = true)]
async fn handler_reads_from_synced_caches() {
    let webhook = validate::<ConfigMap, _>(|_, request| {
        let namespaces = request.lister::<Namespace>()?;
        Ok::<_, windlass_runtime::Error>(Verdict::deny(format!("{} namespaces", namespaces.len())))
    });
    let webhooks = Webhooks::new("maps").with(webhook).reads::<Namespace>();
    let (client, caches) = server::with_reads(webhooks).await;
    let status = refused(
        maps(&client)
            .create(&PostParams::default(), &map("a", &json!({})))
            .await,
    );
    assert!(status.message.ends_with("4 namespaces"), "{}", status.message);
    caches.close().await;
}

#[tokio::test(start_paused = true)]
async fn handler_without_its_cache_fails_with_the_fix() {
    let webhook = validate::<ConfigMap, _>(|_, request| request.lister::<Namespace>().map(drop));
    let client = server::with(Webhooks::new("maps").with(webhook)).await;
    let status = refused(
        maps(&client)
            .create(&PostParams::default(), &map("a", &json!({})))
            .await,
    );
    assert!(
        status.message.contains("add `.reads::<Namespace>()`"),
        "{}",
        status.message
    );
}

#[tokio::test(start_paused = true)]
async fn object_that_does_not_decode_can_be_deleted() {
    #[derive(serde::Deserialize)]
    struct Numbers {
        #[serde(rename = "data")]
        _data: std::collections::BTreeMap<String, u32>,
    }
    let guard = validate_target(Target::of::<ConfigMap>(), |_: Change<'_, Numbers>, _| {
        Verdict::deny("no")
    });
    let webhooks = Webhooks::new("maps").with(guard.operations([Operation::Delete]));
    let maps: Api<ConfigMap> = Api::default_namespaced(server::with(webhooks).await);
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"a": "x"}})).expect("valid");
    maps.create(&PostParams::default(), &map).await.expect("created");
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
}

#[tokio::test(start_paused = true)]
async fn refusal_does_not_quote_a_large_value() {
    #[derive(serde::Deserialize)]
    struct Numbers {
        #[serde(rename = "data")]
        _data: std::collections::BTreeMap<String, u32>,
    }
    let guard = validate_target(Target::of::<ConfigMap>(), |_: Change<'_, Numbers>, _| {
        Verdict::allow()
    });
    let maps: Api<ConfigMap> = Api::default_namespaced(server::with(Webhooks::new("maps").with(guard)).await);
    let data = json!({"a": "x".repeat(100_000)});
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "data": data})).expect("valid");
    let status = refused(maps.create(&PostParams::default(), &map).await);
    assert!(
        status.message.contains("invalid type: string"),
        "{}",
        &status.message[..200]
    );
    assert!(status.message.len() < 2_000, "{} bytes", status.message.len());
}
