//! What a test's wire notes, refuses and breaks, and what a story with deaths finds.

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
use windlass_suite::{Context, Moment, Sent, Shipped, Snapshot, Story, Wire, World, at_every_request, suite};

suite!("wire", paused;
    what_passes_is_noted,
    the_dead_do_nothing_and_hear_nothing,
    refusals_do_not_reach_the_server,
    a_careful_controller_survives_every_death,
    a_careless_one_is_found_out,
    a_forbidden_write_is_found_out,
    shipped_rights_are_all_there_is,
);

fn config(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a config map")
}

fn configs(wire: &Wire, case: &Context) -> Api<ConfigMap> {
    Api::namespaced(wire.client(), case.namespace())
}

async fn what_passes_is_noted(case: Context) -> anyhow::Result<()> {
    let wire = Wire::new(&case.client());
    let params = PostParams {
        field_manager: Some("me".to_owned()),
        ..PostParams::default()
    };
    configs(&wire, &case).create(&params, &config("a")).await?;
    configs(&wire, &case).list(&ListParams::default()).await?;
    let all: Vec<_> = wire.sent().iter().map(ToString::to_string).collect();
    assert_eq!(all, ["create configmaps/a", "list configmaps"]);
    let [write] = &wire.writes()[..] else {
        anyhow::bail!("one write")
    };
    assert_eq!(
        (write.resource(), write.name(), write.part()),
        ("configmaps", "a", "")
    );
    assert_eq!(write.field_manager.as_deref(), Some("me"));
    assert_eq!(write.body["metadata"]["name"], "a");
    wire.forget();
    assert!(wire.sent().is_empty());
    assert_eq!(wire.requests(), 2);
    Ok(())
}

async fn the_dead_do_nothing_and_hear_nothing(case: Context) -> anyhow::Result<()> {
    for (moment, name, there) in [(Moment::Before, "before", false), (Moment::After, "after", true)] {
        let wire = Wire::that_breaks(&case.client(), 2, moment);
        let api = configs(&wire, &case);
        api.list(&ListParams::default()).await?;
        let (params, object, late) = (PostParams::default(), config(name), config("late"));
        let patience = patience(&case);
        assert!(
            timeout(patience, api.create(&params, &object)).await.is_err(),
            "{name}: an answer"
        );
        timeout(patience, wire.died()).await.context("it lives")?;
        assert!(
            timeout(patience, api.create(&params, &late)).await.is_err(),
            "{name}: the dead speak"
        );
        assert_eq!(wire.requests(), 2);
        assert_eq!(
            case.api::<ConfigMap>().get_opt(name).await?.is_some(),
            there,
            "{name}"
        );
        assert!(case.api::<ConfigMap>().get_opt("late").await?.is_none());
    }
    Ok(())
}

async fn refusals_do_not_reach_the_server(case: Context) -> anyhow::Result<()> {
    let wire = Wire::new(&case.client());
    wire.refuse(2, StatusCode::CONFLICT, |sent| sent.is_about("configmaps", "a"));
    let (api, params) = (configs(&wire, &case), PostParams::default());
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
    wire.answer(1, status, |sent| sent.is_about("configmaps", "b"));
    let refused = api.create(&params, &config("b")).await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403 && status.message == quota),
        "{refused:?}"
    );
    Ok(())
}

/// On a paused clock an hour costs nothing.
fn patience(case: &Context) -> Duration {
    match case.cluster().backend() {
        Backend::Embedded => Duration::from_hours(1),
        _ => Duration::from_millis(300),
    }
}

/// A config map `source` asks for `copy` and `done`, in this order.
struct Copies {
    /// Whether it makes what is missing, or all of it when it sees nothing of it.
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

impl Story for Copies {
    async fn prepare(&self, world: &World) -> anyhow::Result<()> {
        world.create(config("source")).await?;
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        let careful = self.careful;
        manager.controller(
            Controller::<ConfigMap>::new("copies")
                .reconcile(move |request, ctx| Self::copy(careful, request, ctx)),
        )
    }

    async fn done(&self, world: &World) -> anyhow::Result<()> {
        let done = world.wait_for::<ConfigMap>("done", |_| true);
        timeout(Duration::from_secs(5), done)
            .await
            .context("it stays half done")?
            .map(drop)
    }

    async fn state(&self, world: &World) -> anyhow::Result<Value> {
        Ok(Snapshot::new(world).with::<ConfigMap>(world).await?.take())
    }

    fn may_write(&self, write: &Sent) -> bool {
        self.allowed.contains(&write.name())
    }
}

async fn a_careful_controller_survives_every_death(case: Context) -> anyhow::Result<()> {
    let story = Copies {
        careful: true,
        allowed: &["copy", "done"],
    };
    let told = at_every_request(&case, &story).await?;
    assert_eq!(told.requests, 6, "a watch, three looks, two writes");
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(told.deaths, 2 * told.requests);
    }
    Ok(())
}

async fn a_careless_one_is_found_out(case: Context) -> anyhow::Result<()> {
    let story = Copies {
        careful: false,
        allowed: &["copy", "done"],
    };
    let error = at_every_request(&case, &story)
        .await
        .expect_err("it stays half done");
    assert!(format!("{error:?}").contains("it stays half done"), "{error:?}");
    Ok(())
}

async fn a_forbidden_write_is_found_out(case: Context) -> anyhow::Result<()> {
    let story = Copies {
        careful: true,
        allowed: &["done"],
    };
    let error = at_every_request(&case, &story)
        .await
        .expect_err("`copy` is forbidden");
    assert!(
        format!("{error:?}").contains("create configmaps/copy"),
        "{error:?}"
    );
    Ok(())
}

async fn shipped_rights_are_all_there_is(case: Context) -> anyhow::Result<()> {
    let shipped = Shipped::read(
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
    assert!(shipped.refused().is_empty());
    others
        .create(&PostParams::default(), &config("a"))
        .await
        .expect_err("not there");
    assert_eq!(shipped.refused(), ["create configmaps in default"]);
    // On a cluster that outlives the case they go with its namespace.
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
