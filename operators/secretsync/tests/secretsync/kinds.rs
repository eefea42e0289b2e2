//! Secrets of every kind: those that cannot be changed, those that have a form, those that must never leave.

use windlass::{
    k8s_openapi::{
        ByteString,
        api::core::v1::{Event, Secret},
    },
    kube::ResourceExt,
    prelude::*,
    serde_json::Value,
};
use windlass_secretsync::{SecretSync, api::SYNC};
use windlass_suite::Context as Case;

use crate::world::{HOME, World, condition, consent, secret, spelled};

fn typed(name: &str, of: &str, data: &Value) -> anyhow::Result<Secret> {
    let object = json!({
        "metadata": { "name": name, "annotations": { SYNC: "" }, "labels": { "shared": "yes" } },
        "type": of, "stringData": data,
    });
    Ok(from_value(object)?)
}

/// Those whose form the server checks, and one as large as it can be, under a name as long as it can be.
pub(crate) async fn secrets_of_every_type_are_copied_as_they_are(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.consenting(&["asks"]).await?;
    let long = format!("{}.x", "n".repeat(251));
    assert_eq!(long.len(), 253);
    let home = world.within(HOME);
    let pem = |what: &str| format!("-----BEGIN {what}-----\n");
    let sources = [
        typed(
            "tls",
            "kubernetes.io/tls",
            &json!({ "tls.crt": pem("CERTIFICATE"), "tls.key": pem("KEY"), "ca.crt": "" }),
        )?,
        typed(
            "docker",
            "kubernetes.io/dockerconfigjson",
            &json!({ ".dockerconfigjson": "{\"auths\":{}}" }),
        )?,
        typed(
            "ssh",
            "kubernetes.io/ssh-auth",
            &json!({ "ssh-privatekey": pem("KEY") }),
        )?,
        typed(
            "basic",
            "kubernetes.io/basic-auth",
            &json!({ "username": "u", "password": "p" }),
        )?,
        typed("own", "example.com/own", &json!({}))?,
        typed(&long, "Opaque", &json!({ "k": "v" }))?,
    ];
    for source in sources {
        home.create(source).await?;
    }
    let mut large = secret("large", "1");
    let most = 1024 * 1024;
    large.data = Some([("k".to_owned(), ByteString(vec![7; most]))].into());
    large.annotations_mut().insert(SYNC.to_owned(), String::new());
    home.create(large).await?;
    let running = world.start().await?;
    for name in ["tls", "docker", "ssh", "basic", "own", &long, "large"] {
        let source = home.get::<Secret>(name).await?;
        let same = |copy: &Secret| copy.data == source.data && copy.type_ == source.type_;
        world.within("asks").wait_for::<Secret>(name, same).await?;
    }
    running.stop().await
}

/// An immutable source has immutable copies; when it is replaced, they are replaced if the sync allows that.
pub(crate) async fn what_cannot_be_changed_is_replaced_only_if_that_is_allowed(
    case: Case,
) -> anyhow::Result<()> {
    for immutable in [true, false] {
        let case = case.anew().await?;
        let world = World::new(&case).await?;
        world.namespace("team-a", json!({})).await?;
        world.namespace("asks", consent("team-a")).await?;
        world.namespace("two", consent("team-a")).await?;
        let team = world.within("team-a");
        let mut source = secret("token", "1");
        source.immutable = immutable.then_some(true);
        team.create(source).await?;
        let running = world.start().await?;
        world
            .sync("team-a", "shared", json!({ "names": ["token"] }))
            .await?;
        world.copied("two", "token", "1").await?;
        let first = world.copied("asks", "token", "1").await?;
        assert_eq!(first.immutable, immutable.then_some(true));
        // The source is another one by now, as it must be; but the copy stays the same object unless it may be replaced.
        team.delete::<Secret>("token").await?;
        let mut source = secret("token", "2");
        source.immutable = immutable.then_some(true);
        if !immutable {
            source.type_ = Some("example.com/other".to_owned());
        }
        // While nobody looks, so that the old copy is there when the new source is.
        team.create(source).await?;
        let _ = world
            .within("asks")
            .wait::<Secret>("token", |copy| copy.is_none_or(|copy| copy.uid() != first.uid()))
            .await?;
        world.copied("asks", "token", "2").await?;
        world.copied("two", "token", "2").await?;
        // Now the same source, with copies that somebody made immutable: nothing can be written to them.
        let stuck = json!({ "immutable": true, "data": secret("token", "own").data });
        if !immutable {
            world.within("asks").patch::<Secret>("token", stuck).await?;
            world
                .says("team-a", "shared", |status| {
                    status.failed == 1 && status.synced == 1 && condition(status, "Ready", "False")
                })
                .await?;
            world.settle().await;
            let allowed = json!({ "spec": { "recreate": "IfNeeded" } });
            world.wire().forget();
            team.patch::<SecretSync>("shared", allowed).await?;
            let replaced = world.copied("asks", "token", "2").await?;
            assert_eq!(replaced.immutable, None);
            world
                .says("team-a", "shared", |status| status.synced == 2)
                .await?;
            let writes = world.wire().writes();
            let delete = writes
                .iter()
                .find(|write| spelled(write) == "delete asks/token")
                .expect("a deletion");
            assert!(delete.body["preconditions"]["uid"].is_string(), "{}", delete.body);
        }
        running.stop().await?;
    }
    Ok(())
}

/// Tokens and releases: told when they are named, passed over when they are only selected.
pub(crate) async fn tokens_and_releases_never_leave_their_namespace(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    world.namespace("asks", consent("*")).await?;
    world.namespace("team-a", json!({})).await?;
    world.patch_namespace("team-a", json!({})).await?;
    let account = json!({ "metadata": { "name": "robot" } });
    let forbidden = |prefix: &str| -> anyhow::Result<Vec<Secret>> {
        let mut token = typed(
            &format!("{prefix}token"),
            "kubernetes.io/service-account-token",
            &json!({}),
        )?;
        token.annotations_mut().insert(
            "kubernetes.io/service-account.name".to_owned(),
            "robot".to_owned(),
        );
        Ok(vec![
            token,
            typed(
                &format!("{prefix}release"),
                "helm.sh/release.v1",
                &json!({ "release": "x" }),
            )?,
            typed(
                &format!("sh.helm.release.v1.{prefix}v1"),
                "Opaque",
                &json!({ "release": "x" }),
            )?,
            typed(
                &format!("{prefix}boot"),
                "bootstrap.kubernetes.io/token",
                &json!({ "token-id": "abcdef" }),
            )?,
        ])
    };
    for (home, prefix) in [(HOME, "home-"), ("team-a", "a-"), ("team-a", "named-")] {
        let robot = world
            .within(home)
            .create::<windlass::k8s_openapi::api::core::v1::ServiceAccount>(from_value(account.clone())?)
            .await;
        assert!(robot.is_ok() || prefix == "named-", "{robot:?}");
        for mut object in forbidden(prefix)? {
            if prefix == "named-" {
                object.metadata.labels = None;
            }
            world.within(home).create(object).await?;
        }
    }
    world
        .within("team-a")
        .create(typed("harmless", "Opaque", &json!({ "k": "v" }))?)
        .await?;
    let running = world.start().await?;
    world
        .sync(
            "team-a",
            "selects",
            json!({ "secretSelector": { "matchLabels": { "shared": "yes" } } }),
        )
        .await?;
    let named = world
        .sync(
            "team-a",
            "names",
            json!({ "names": ["named-token", "named-release", "named-boot", "sh.helm.release.v1.named-v1"] }),
        )
        .await?;
    world
        .within("asks")
        .wait_for::<Secret>("harmless", |_| true)
        .await?;
    let selects = world
        .says("team-a", "selects", |status| status.excluded == 4)
        .await?;
    assert!(
        selects.status.as_ref().is_some_and(|status| status.matched == 1),
        "{:?}",
        selects.status
    );
    world
        .says("team-a", "names", |status| {
            status.failed == 4 && condition(status, "Ready", "False")
        })
        .await?;
    let warned = |event: &Event| event.type_.as_deref() == Some("Warning");
    world.within("team-a").told(&named, warned).await?;
    let annotated = world.within(HOME).get::<Secret>("home-token").await?;
    world.within(HOME).told(&annotated, warned).await?;
    world.settle().await;
    assert_eq!(world.names::<Secret>("asks").await?, ["harmless"]);
    running.stop().await
}
