//! Secrets of every kind: immutable ones, types that the server validates, types that are never copied.

use anyhow::Context as _;
use windlass::{
    k8s_openapi::{
        ByteString,
        api::core::v1::{Event, Secret},
    },
    kube::ResourceExt,
    prelude::*,
    serde_json::Value,
};
use windlass_secretsync::{SecretSync, api::SYNC_ANNOTATION};
use windlass_suite::Context as Case;

use crate::secretsync::test_cluster::{HOME, TestCluster, condition, consent, describe_request, secret};

fn typed(name: &str, of: &str, data: &Value) -> anyhow::Result<Secret> {
    let object = json!({
        "metadata": { "name": name, "annotations": { SYNC_ANNOTATION: "" }, "labels": { "shared": "yes" } },
        "type": of, "stringData": data,
    });
    Ok(from_value(object)?)
}

/// Types that the server validates, and a Secret of maximum size with a name of maximum length.
pub(crate) async fn secrets_of_every_type_are_copied_unchanged(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.consenting(&["asks"]).await?;
    let long = format!("{}.x", "n".repeat(251));
    assert_eq!(long.len(), 253);
    let home = env.in_namespace(HOME);
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
    large
        .annotations_mut()
        .insert(SYNC_ANNOTATION.to_owned(), String::new());
    home.create(large).await?;
    let running = env.start().await?;
    for name in ["tls", "docker", "ssh", "basic", "own", &long, "large"] {
        let source = home.get::<Secret>(name).await?;
        let same = |copy: &Secret| copy.data == source.data && copy.type_ == source.type_;
        env.in_namespace("asks").wait_for::<Secret>(name, same).await?;
    }
    running.stop().await
}

/// The server requires certain keys of some types. A copy without them is `Opaque`, such as a certificate without its
/// key; a copy with all of them keeps its type.
pub(crate) async fn copy_without_a_required_key_is_opaque(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("team-a", json!({})).await?;
    env.namespace("asks", consent("team-a")).await?;
    let team = env.in_namespace("team-a");
    let pem = |what: &str| format!("-----BEGIN {what}-----\n");
    let running = env.start().await?;
    for (name, of, data, exclude, expected) in [
        (
            "tls",
            "kubernetes.io/tls",
            json!({ "tls.crt": pem("CERTIFICATE"), "tls.key": pem("KEY") }),
            "tls.key",
            "Opaque",
        ),
        (
            "whole",
            "kubernetes.io/tls",
            json!({ "tls.crt": pem("CERTIFICATE"), "tls.key": pem("KEY"), "more": "x" }),
            "more",
            "kubernetes.io/tls",
        ),
        (
            "basic",
            "kubernetes.io/basic-auth",
            json!({ "username": "u", "password": "p" }),
            "password",
            "kubernetes.io/basic-auth",
        ),
        (
            "nobody",
            "kubernetes.io/basic-auth",
            json!({ "username": "u", "note": "n" }),
            "username",
            "Opaque",
        ),
        (
            "ssh",
            "kubernetes.io/ssh-auth",
            json!({ "ssh-privatekey": pem("KEY"), "note": "n" }),
            "ssh-*",
            "Opaque",
        ),
        (
            "docker",
            "kubernetes.io/dockerconfigjson",
            json!({ ".dockerconfigjson": "{\"auths\":{}}", "note": "n" }),
            ".docker*",
            "Opaque",
        ),
    ] {
        team.create(typed(name, of, &data)?).await?;
        env.sync(
            "team-a",
            name,
            json!({ "names": [name], "keys": { "exclude": [exclude] } }),
        )
        .await?;
        let is_so = |copy: &Secret| copy.type_.as_deref() == Some(expected);
        env.in_namespace("asks")
            .wait_for::<Secret>(name, is_so)
            .await
            .with_context(|| name.to_owned())?;
        env.wait_for_status("team-a", name, |status| condition(status, "Ready", "True"))
            .await?;
    }
    running.stop().await
}

/// An immutable source has immutable copies; when it is replaced, they are recreated if the sync allows that.
pub(crate) async fn immutable_copy_is_recreated_only_if_allowed(case: Case) -> anyhow::Result<()> {
    for immutable in [true, false] {
        let case = case.fresh().await?;
        let env = TestCluster::new(&case).await?;
        env.namespace("team-a", json!({})).await?;
        env.namespace("asks", consent("team-a")).await?;
        env.namespace("two", consent("team-a")).await?;
        let team = env.in_namespace("team-a");
        let mut source = secret("token", "1");
        source.immutable = immutable.then_some(true);
        team.create(source).await?;
        let running = env.start().await?;
        env.sync("team-a", "shared", json!({ "names": ["token"] }))
            .await?;
        env.wait_for_copy("two", "token", "1").await?;
        let first = env.wait_for_copy("asks", "token", "1").await?;
        assert_eq!(first.immutable, immutable.then_some(true));
        // The source was recreated, as it has to be; the copy stays the same object unless it may be recreated.
        team.delete::<Secret>("token").await?;
        let mut source = secret("token", "2");
        source.immutable = immutable.then_some(true);
        if !immutable {
            source.type_ = Some("example.com/other".to_owned());
        }
        // While no process runs, so that the old copy exists together with the new source.
        team.create(source).await?;
        let _ = env
            .in_namespace("asks")
            .wait_until::<Secret>("token", |copy| copy.is_none_or(|copy| copy.uid() != first.uid()))
            .await?;
        env.wait_for_copy("asks", "token", "2").await?;
        env.wait_for_copy("two", "token", "2").await?;
        // The same source, with copies that another client made immutable: they cannot be updated.
        let stuck = json!({ "immutable": true, "data": secret("token", "own").data });
        if !immutable {
            env.in_namespace("asks").patch::<Secret>("token", stuck).await?;
            env.wait_for_status("team-a", "shared", |status| {
                status.failed == 1 && status.synced == 1 && condition(status, "Ready", "False")
            })
            .await?;
            env.settle().await;
            let allowed = json!({ "spec": { "recreatePolicy": "IfNeeded" } });
            env.proxy().clear();
            team.patch::<SecretSync>("shared", allowed).await?;
            let replaced = env.wait_for_copy("asks", "token", "2").await?;
            assert_eq!(replaced.immutable, None);
            env.wait_for_status("team-a", "shared", |status| status.synced == 2)
                .await?;
            let writes = env.proxy().writes();
            let delete = writes
                .iter()
                .find(|write| describe_request(write) == "delete asks/token")
                .expect("a deletion");
            assert!(delete.body["preconditions"]["uid"].is_string(), "{}", delete.body);
        }
        running.stop().await?;
    }
    Ok(())
}

/// Tokens and Helm releases: reported if they are named, skipped if they are only selected.
pub(crate) async fn tokens_and_helm_releases_are_never_copied(case: Case) -> anyhow::Result<()> {
    let env = TestCluster::new(&case).await?;
    env.namespace("asks", consent("*")).await?;
    env.namespace("team-a", json!({})).await?;
    env.patch_namespace("team-a", json!({})).await?;
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
        let robot = env
            .in_namespace(home)
            .create::<windlass::k8s_openapi::api::core::v1::ServiceAccount>(from_value(account.clone())?)
            .await;
        assert!(robot.is_ok() || prefix == "named-", "{robot:?}");
        for mut object in forbidden(prefix)? {
            if prefix == "named-" {
                object.metadata.labels = None;
            }
            env.in_namespace(home).create(object).await?;
        }
    }
    env.in_namespace("team-a")
        .create(typed("harmless", "Opaque", &json!({ "k": "v" }))?)
        .await?;
    let running = env.start().await?;
    env.sync(
        "team-a",
        "selects",
        json!({ "sourceSelector": { "matchLabels": { "shared": "yes" } } }),
    )
    .await?;
    let named = env
        .sync(
            "team-a",
            "names",
            json!({ "names": ["named-token", "named-release", "named-boot", "sh.helm.release.v1.named-v1"] }),
        )
        .await?;
    env.in_namespace("asks")
        .wait_for::<Secret>("harmless", |_| true)
        .await?;
    let selects = env
        .wait_for_status("team-a", "selects", |status| status.excluded == 4)
        .await?;
    assert!(
        selects.status.as_ref().is_some_and(|status| status.sources == 1),
        "{:?}",
        selects.status
    );
    env.wait_for_status("team-a", "names", |status| {
        status.failed == 4 && condition(status, "Ready", "False")
    })
    .await?;
    let warned = |event: &Event| event.type_.as_deref() == Some("Warning");
    env.in_namespace("team-a").wait_for_event(&named, warned).await?;
    let annotated = env.in_namespace(HOME).get::<Secret>("home-token").await?;
    env.in_namespace(HOME).wait_for_event(&annotated, warned).await?;
    env.settle().await;
    assert_eq!(env.names::<Secret>("asks").await?, ["harmless"]);
    running.stop().await
}
