//! The request proxy, crash tests and manifest roles.

use std::time::Duration;

use anyhow::Context as _;
use http::StatusCode;
use k8s_openapi::api::{
    core::v1::ConfigMap,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use windlass_cluster::Backend;
use windlass_runtime::{Action, Context as Ctx, Controller, Manager, Request};
use windlass_suite::{
    Context, CrashPoint, CrashScenario, ManifestRoles, RecordedRequest, RequestProxy, Snapshot,
    TestEnvironment, crash_at_every_request, suite,
};

suite!("request-proxy", paused;
    requests_are_recorded,
    crashed_process_sends_and_receives_nothing,
    rejected_requests_do_not_reach_the_server,
    careful_controller_survives_every_crash,
    careless_controller_fails_the_crash_test,
    forbidden_write_fails_the_crash_test,
    manifest_roles_grant_exactly_their_rules,
);

fn config(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a config map")
}

fn configs(proxy: &RequestProxy, case: &Context) -> Api<ConfigMap> {
    Api::namespaced(proxy.client(), case.namespace())
}

async fn requests_are_recorded(case: Context) -> anyhow::Result<()> {
    let proxy = RequestProxy::new(&case.client());
    let params = PostParams {
        field_manager: Some("me".to_owned()),
        ..PostParams::default()
    };
    configs(&proxy, &case).create(&params, &config("a")).await?;
    configs(&proxy, &case).list(&ListParams::default()).await?;
    let all: Vec<_> = proxy.requests().iter().map(ToString::to_string).collect();
    assert_eq!(all, ["create configmaps/a", "list configmaps"]);
    let [write] = &proxy.writes()[..] else {
        anyhow::bail!("one write")
    };
    assert_eq!(
        (write.resource(), write.name(), write.subresource()),
        ("configmaps", "a", "")
    );
    assert_eq!(write.field_manager.as_deref(), Some("me"));
    assert_eq!(write.body["metadata"]["name"], "a");
    proxy.clear();
    assert!(proxy.requests().is_empty());
    assert_eq!(proxy.request_count(), 2);
    Ok(())
}

async fn crashed_process_sends_and_receives_nothing(case: Context) -> anyhow::Result<()> {
    for (moment, name, there) in [
        (CrashPoint::Before, "before", false),
        (CrashPoint::After, "after", true),
    ] {
        let proxy = RequestProxy::crashing_at(&case.client(), 2, moment);
        let api = configs(&proxy, &case);
        api.list(&ListParams::default()).await?;
        let (params, object, late) = (PostParams::default(), config(name), config("late"));
        let limit = response_timeout(&case);
        assert!(
            timeout(limit, api.create(&params, &object)).await.is_err(),
            "{name}: response after the crash"
        );
        timeout(limit, proxy.wait_until_crashed())
            .await
            .context("no crash")?;
        assert!(
            timeout(limit, api.create(&params, &late)).await.is_err(),
            "{name}: request after the crash"
        );
        assert_eq!(proxy.request_count(), 2);
        assert_eq!(
            case.api::<ConfigMap>().get_opt(name).await?.is_some(),
            there,
            "{name}"
        );
        assert!(case.api::<ConfigMap>().get_opt("late").await?.is_none());
    }
    Ok(())
}

async fn rejected_requests_do_not_reach_the_server(case: Context) -> anyhow::Result<()> {
    let proxy = RequestProxy::new(&case.client());
    proxy.reject(2, StatusCode::CONFLICT, |sent| sent.is_about("configmaps", "a"));
    let (api, params) = (configs(&proxy, &case), PostParams::default());
    for _ in 0..2 {
        let refused = api.create(&params, &config("a")).await;
        assert!(
            matches!(&refused, Err(kube::Error::Api(status)) if status.code == 409),
            "{refused:?}"
        );
        api.list(&ListParams::default()).await?;
    }
    api.create(&params, &config("a")).await?;
    let quota = "configmaps \"b\" is forbidden: exceeded quota: q";
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden", "message": quota });
    proxy.respond(1, status, |sent| sent.is_about("configmaps", "b"));
    let refused = api.create(&params, &config("b")).await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403 && status.message == quota),
        "{refused:?}"
    );
    Ok(())
}

/// How long to wait for a response that must not come. On a paused clock an hour takes no time.
fn response_timeout(case: &Context) -> Duration {
    match case.cluster().backend() {
        Backend::Embedded => Duration::from_hours(1),
        _ => Duration::from_millis(300),
    }
}

/// A controller that creates the config maps `copy` and `done`, in this order, for a config map `source`.
struct Copies {
    /// Whether it creates each missing object, or both only if `copy` is missing.
    careful: bool,
    allowed: &'static [&'static str],
}

impl Copies {
    async fn copy(careful: bool, request: Request, ctx: Ctx) -> Result<Action, windlass_runtime::Error> {
        if request.key.name() != "source" {
            return Ok(Action::done());
        }
        let api =
            Api::<ConfigMap>::namespaced(ctx.client().clone(), request.key.namespace().unwrap_or_default());
        let begun = api.get_opt("copy").await?.is_some();
        for name in ["copy", "done"] {
            if careful && api.get_opt(name).await?.is_none() || !careful && !begun {
                api.create(&PostParams::default(), &config(name)).await?;
            }
        }
        Ok(Action::done())
    }
}

impl CrashScenario for Copies {
    async fn prepare(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        env.create(config("source")).await?;
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        let careful = self.careful;
        manager.controller(
            Controller::<ConfigMap>::new("copies")
                .reconcile(move |request, ctx| Self::copy(careful, request, ctx)),
        )
    }

    async fn wait_until_done(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        let done = env.wait_for::<ConfigMap>("done", |_| true);
        timeout(Duration::from_secs(5), done)
            .await
            .context("it stays incomplete")?
            .map(drop)
    }

    async fn end_state(&self, env: &TestEnvironment) -> anyhow::Result<Value> {
        Ok(Snapshot::new(env).with::<ConfigMap>(env).await?.finish())
    }

    fn may_write(&self, write: &RecordedRequest) -> bool {
        self.allowed.contains(&write.name())
    }
}

async fn careful_controller_survives_every_crash(case: Context) -> anyhow::Result<()> {
    let scenario = Copies {
        careful: true,
        allowed: &["copy", "done"],
    };
    let report = crash_at_every_request(&case, &scenario).await?;
    assert_eq!(report.requests, 6, "a watch, three reads, two writes");
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(report.crashes, 2 * report.requests);
    }
    Ok(())
}

async fn careless_controller_fails_the_crash_test(case: Context) -> anyhow::Result<()> {
    let scenario = Copies {
        careful: false,
        allowed: &["copy", "done"],
    };
    let error = crash_at_every_request(&case, &scenario)
        .await
        .expect_err("it stays incomplete");
    assert!(format!("{error:?}").contains("it stays incomplete"), "{error:?}");
    Ok(())
}

async fn forbidden_write_fails_the_crash_test(case: Context) -> anyhow::Result<()> {
    let scenario = Copies {
        careful: true,
        allowed: &["done"],
    };
    let error = crash_at_every_request(&case, &scenario)
        .await
        .expect_err("`copy` is forbidden");
    assert!(
        format!("{error:?}").contains("create configmaps/copy"),
        "{error:?}"
    );
    Ok(())
}

async fn manifest_roles_grant_exactly_their_rules(case: Context) -> anyhow::Result<()> {
    let shipped = ManifestRoles::parse(
        "
kind: ClusterRole
apiVersion: rbac.authorization.k8s.io/v1
metadata: { name: reader }
rules: [{ verbs: [get, list], apiGroups: [''], resources: [configmaps] }]
---
kind: Role
apiVersion: rbac.authorization.k8s.io/v1
metadata: { name: writer, namespace: elsewhere }
rules: [{ verbs: [create], apiGroups: [''], resources: [configmaps] }]
",
    )?;
    let client = shipped.client(&case).await?;
    let own = Api::<ConfigMap>::namespaced(client.clone(), case.namespace());
    let others = Api::<ConfigMap>::namespaced(client, "default");
    own.create(&PostParams::default(), &config("a")).await?;
    others.list(&ListParams::default()).await?;
    let unused: Vec<_> = shipped.unused().iter().map(|rule| rule.verbs.clone()).collect();
    assert_eq!(unused, [["get"]]);
    assert!(shipped.forbidden().is_empty());
    others
        .create(&PostParams::default(), &config("a"))
        .await
        .expect_err("forbidden in other namespaces");
    assert_eq!(shipped.forbidden(), ["create configmaps in default"]);
    // On a cluster that outlives the case, they are garbage collected with its namespace.
    let name = format!("reader-{}", case.namespace());
    let role = Api::<ClusterRole>::all(case.client()).get(&name).await?;
    let binding = format!("{name}:robot-{}", case.namespace());
    let binding = Api::<ClusterRoleBinding>::all(case.client())
        .get(&binding)
        .await?;
    assert_eq!(role.owner_references(), [case.owner()]);
    assert_eq!(binding.owner_references(), [case.owner()]);
    Ok(())
}
