//! Validation and mutation.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v1::Scale, core::v1::ConfigMap};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_runtime::Error;
use windlass_suite::Context;
use windlass_webhook::{
    Change, FieldErrors, Operation, Target, Verdict, Webhooks, mutate_target, validate, validate_target,
};

use super::fixture::{is_refused, map, maps, name_of, only, run, send};

pub(super) async fn refusal_is_the_servers_own_text_with_causes_and_warnings(
    ctx: Context,
) -> anyhow::Result<()> {
    let checked = validate::<ConfigMap, _>(|change, _| {
        let mut errors = FieldErrors::new();
        for (key, value) in change
            .new_object()
            .iter()
            .flat_map(|map| map.data.iter().flatten())
        {
            if value == "0" {
                errors.invalid(format_args!("data[{key}]"), 0, "must be greater than 0");
            }
            if value.is_empty() {
                errors.required(format_args!("data[{key}]"), "");
            }
        }
        let name = name_of(change.object());
        if name == "never" {
            return Verdict::deny("this name is reserved");
        }
        Verdict::from(errors).warn("maps are deprecated: use chapters")
    });
    let webhooks = Webhooks::new("suite-refusal").with(only(&ctx, checked));
    let running = run(&ctx, webhooks, async || is_refused(&ctx, "never").await).await?;

    let (code, warnings, status) =
        send(&ctx, "POST", &maps(&ctx), &map("a", &json!({"x": "0", "y": ""}))).await?;
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "admission webhook \"validate.configmaps.suite-refusal\" denied the request: \
                        ConfigMap \"a\" is invalid: \
                        [data[x]: Invalid value: 0: must be greater than 0, data[y]: Required value]",
            "reason": "Invalid",
            "details": {"name": "a", "kind": "ConfigMap", "causes": [
                {"reason": "FieldValueInvalid", "message": "Invalid value: 0: must be greater than 0", "field": "data[x]"},
                {"reason": "FieldValueRequired", "message": "Required value", "field": "data[y]"},
            ]},
            "code": 422,
        })
    );
    assert_eq!(
        (code, &warnings[..]),
        (
            422,
            &["299 - \"maps are deprecated: use chapters\"".to_owned()][..]
        )
    );

    let (code, warnings, _) = send(&ctx, "POST", &maps(&ctx), &map("b", &json!({"x": "1"}))).await?;
    assert_eq!((code, warnings.len()), (201, 1));
    let (code, _, status) = send(&ctx, "POST", &maps(&ctx), &map("never", &json!({}))).await?;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    running.stop().await
}

/// A ConfigMap of which only a part is known.
#[derive(Deserialize, Serialize)]
struct Partial {
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize, Serialize)]
struct Data {
    known: Option<String>,
    #[serde(default)]
    filled_in: String,
}

pub(super) async fn mutation_keeps_what_the_type_does_not_know(ctx: Context) -> anyhow::Result<()> {
    let partial = mutate_target(Target::of::<ConfigMap>(), |map: &mut Partial, _| {
        if map.data.known.as_deref() == Some("never") {
            return Verdict::deny("no");
        }
        if let Some(known) = &mut map.data.known {
            known.push('!');
        }
        Verdict::allow()
    });
    let webhooks = Webhooks::new("suite-mutation").with(only(&ctx, partial));
    let dry = format!("{}?dryRun=All", maps(&ctx));
    let running = run(&ctx, webhooks, async || {
        let (code, ..) = send(&ctx, "POST", &dry, &map("a", &json!({"known": "never"}))).await?;
        Ok(code == 403)
    })
    .await?;
    let mut object = map("a", &json!({"known": "x", "unknown": "y"}));
    object["metadata"]["labels"] = json!({"a/b": "c"});
    object["binaryData"] = json!({"z": "AAE="});
    let (code, _, created) = send(&ctx, "POST", &maps(&ctx), &object).await?;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["data"], json!({"known": "x!", "unknown": "y"}));
    assert_eq!(created["binaryData"], object["binaryData"]);
    assert_eq!(created["metadata"]["labels"], object["metadata"]["labels"]);
    running.stop().await
}

pub(super) async fn validator_sees_every_operation(ctx: Context) -> anyhow::Result<()> {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorded = seen.clone();
    let watching = validate::<ConfigMap, _>(move |change, request| {
        let data = |map: Option<&ConfigMap>| map.map(|map| map.data.iter().flatten().count());
        if name_of(change.object()) == "never" {
            return Verdict::deny("no");
        }
        let line = format!(
            "{} {} {:?} {:?} dry={} by={}",
            request.operation.name(),
            request.name,
            data(change.old_object()),
            data(change.new_object()),
            request.is_dry_run,
            !request.username().is_empty(),
        );
        recorded.lock().expect("no panic").push(line);
        Verdict::allow()
    });
    let webhooks = Webhooks::new("suite-operations").with(only(&ctx, watching.on_delete()));
    let running = run(&ctx, webhooks, async || is_refused(&ctx, "never").await).await?;
    seen.lock().expect("no panic").clear();
    let path = maps(&ctx);
    send(&ctx, "POST", &path, &map("a", &json!({"x": "1"}))).await?;
    send(&ctx, "POST", &format!("{path}?dryRun=All"), &map("b", &json!({}))).await?;
    send(&ctx, "PATCH", &format!("{path}/a"), &json!({"data": {"y": "2"}})).await?;
    send(&ctx, "DELETE", &format!("{path}/a"), &json!({})).await?;
    let seen = seen.lock().expect("no panic").clone();
    assert_eq!(
        seen,
        [
            "CREATE a None Some(1) dry=false by=true",
            "CREATE b None Some(0) dry=true by=true",
            "UPDATE a Some(1) Some(2) dry=false by=true",
            "DELETE a Some(2) None dry=false by=true",
        ]
    );
    running.stop().await
}

pub(super) async fn scale_and_status_have_types_of_their_own(ctx: Context) -> anyhow::Result<()> {
    let replicas = |scale: &Scale| scale.spec.as_ref().and_then(|spec| spec.replicas);
    let scale = validate_target(
        Target::of::<Deployment>().subresource("scale"),
        move |change: Change<'_, Scale>, _| match change.new_object().and_then(replicas) {
            Some(11..) => Verdict::deny(format!("not from {:?}", change.old_object().and_then(replicas))),
            _ => Verdict::allow(),
        },
    );
    let status = validate_target(
        Target::of::<Deployment>().subresource("status"),
        |change: Change<'_, Deployment>, _| {
            let status = change
                .new_object()
                .and_then(|deployment| deployment.status.as_ref());
            if status.and_then(|status| status.replicas) == Some(7) {
                Verdict::deny("seven")
            } else {
                Verdict::allow()
            }
        },
    );
    let webhooks = Webhooks::new("suite-scale")
        .with(only(&ctx, scale))
        .with(only(&ctx, status));
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", ctx.namespace());
    let deployment = json!({"metadata": {"name": "a"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let (code, _, created) = send(&ctx, "POST", &path, &deployment).await?;
    assert_eq!(code, 201, "{created}");
    let scaled = json!({"spec": {"replicas": 11}});
    let running = run(&ctx, webhooks, async || {
        let (code, ..) = send(&ctx, "PATCH", &format!("{path}/a/scale?dryRun=All"), &scaled).await?;
        Ok(code == 403)
    })
    .await?;
    let (_, _, refused) = send(&ctx, "PATCH", &format!("{path}/a/scale"), &scaled).await?;
    assert_eq!(
        refused["message"],
        "admission webhook \"validate.scale.deployments.apps\" denied the request: not from Some(1)"
    );
    // The Deployment itself is not asked about.
    let (code, ..) = send(&ctx, "PATCH", &format!("{path}/a"), &scaled).await?;
    assert_eq!(code, 200);
    let seven = json!({"status": {"replicas": 7}});
    let (code, _, refused) = send(&ctx, "PATCH", &format!("{path}/a/status"), &seven).await?;
    assert_eq!(code, 403, "{refused}");
    running.stop().await
}

pub(super) async fn panic_and_error_are_handled_by_policy(ctx: Context) -> anyhow::Result<()> {
    let failing = || {
        validate::<ConfigMap, _>(|change, _| match name_of(change.object()) {
            "never" => Ok(Verdict::deny("no")),
            "error" => Err(Error::from("the database is away")),
            "panic" => panic!("oops"),
            _ => Ok(Verdict::allow()),
        })
    };
    let webhooks = Webhooks::new("suite-failures").with(only(&ctx, failing()));
    let running = run(&ctx, webhooks, async || is_refused(&ctx, "never").await).await?;
    for (name, why) in [
        ("error", "the database is away"),
        ("panic", "the handler panicked: oops"),
    ] {
        let (code, _, status) = send(&ctx, "POST", &maps(&ctx), &map(name, &json!({}))).await?;
        assert_eq!(code, 500);
        assert_eq!(
            status["message"],
            format!(
                "Internal error occurred: failed calling webhook \"validate.configmaps.suite-failures\": \
                 failed to call webhook: {why}"
            )
        );
    }
    let (code, ..) = send(&ctx, "POST", &maps(&ctx), &map("fine", &json!({}))).await?;
    assert_eq!(code, 201, "the server goes on");
    running.stop().await?;

    let webhooks = Webhooks::new("suite-failures").with(only(&ctx, failing().fail_open()));
    let running = run(&ctx, webhooks, async || is_refused(&ctx, "never").await).await?;
    for name in ["error", "panic"] {
        let (code, _, body): (_, _, Value) = send(&ctx, "POST", &maps(&ctx), &map(name, &json!({}))).await?;
        assert_eq!(code, 201, "{body}");
    }
    running.stop().await
}

pub(super) async fn connections_are_asked_about(ctx: Context) -> anyhow::Result<()> {
    /// The options of a connection, which have no type in `k8s-openapi`.
    #[derive(Deserialize)]
    struct ExecOptions {
        #[serde(default)]
        command: Vec<String>,
    }
    let exec = validate_target(
        Target::new("", "v1", "pods").subresource("exec"),
        |change: Change<'_, ExecOptions>, request| {
            let user = request.username().is_empty();
            Verdict::deny(format!(
                "{} {:?} {user}",
                request.operation.name(),
                change.object().command
            ))
        },
    );
    let webhooks = Webhooks::new("suite-exec").with(only(&ctx, exec.operations([Operation::Connect])));
    let path = format!("/api/v1/namespaces/{}/pods", ctx.namespace());
    let pod = json!({"metadata": {"name": "a"}, "spec": {
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
    }});
    let (code, _, created) = send(&ctx, "POST", &path, &pod).await?;
    assert_eq!(code, 201, "{created}");
    let exec = format!("{path}/a/exec?command=ls&command=-l");
    let running = run(&ctx, webhooks, async || {
        Ok(send(&ctx, "POST", &exec, &json!({})).await?.0 == 403)
    })
    .await?;
    let (_, _, status) = send(&ctx, "POST", &exec, &json!({})).await?;
    assert_eq!(
        status["message"],
        "admission webhook \"validate.exec.pods.suite-exec\" denied the request: CONNECT [\"ls\", \"-l\"] false"
    );
    running.stop().await
}
