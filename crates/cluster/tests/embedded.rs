//! The embedded backend's users, over its socket.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, Config, Error,
    api::{ListParams, PostParams},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use windlass_cluster::Cluster;
use windlass_rights::Recorder;

async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// The kubeconfig with other credentials in it.
fn with(mut kubeconfig: Kubeconfig, access: &AuthInfo) -> Kubeconfig {
    kubeconfig.auth_infos[0].auth_info = Some(access.clone());
    kubeconfig
}

/// Who a client is, by name and groups.
async fn who(client: Client) -> Result<(String, Vec<String>), Error> {
    let review = Api::<SelfSubjectReview>::all(client)
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let known = review
        .status
        .and_then(|status| status.user_info)
        .unwrap_or_default();
    Ok((
        known.username.unwrap_or_default(),
        known.groups.unwrap_or_default(),
    ))
}

fn code<T>(answer: Result<T, Error>) -> Option<u16> {
    match answer {
        Err(Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[tokio::test]
async fn a_certificate_is_good_on_the_server_whose_authority_signed_it() -> Result<()> {
    let cluster = Cluster::embedded().start().await?;
    let admin = Kubeconfig::read_from(cluster.kubeconfig()?)?;
    let (name, groups) = who(client(admin.clone()).await?).await?;
    assert_eq!((name.as_str(), groups[0].as_str()), ("admin", "system:masters"));

    let alice = cluster.user("alice", ["makers", "élèves: 3ᵉ"]).await?;
    let expected = (
        "alice".to_owned(),
        ["makers", "élèves: 3ᵉ", "system:authenticated"]
            .map(String::from)
            .to_vec(),
    );
    assert_eq!(who(alice.client()).await?, expected);
    let access = Kubeconfig::read_from(alice.kubeconfig()?)?;
    assert_eq!(who(client(access.clone()).await?).await?, expected);

    // The same certificate says nothing to another server, and is not taken for none.
    let other = Cluster::embedded().start().await?;
    let strange = access.auth_infos[0].auth_info.clone().context("it has a user")?;
    let elsewhere = client(with(Kubeconfig::read_from(other.kubeconfig()?)?, &strange)).await?;
    assert_eq!(code(elsewhere.apiserver_version().await), Some(401));
    Ok(())
}

#[tokio::test]
async fn tokens_are_good_and_nothing_is_anonymous() -> Result<()> {
    let cluster = Cluster::embedded()
        .token("sesame", "robot", ["machines"])
        .start()
        .await?;
    let admin = Kubeconfig::read_from(cluster.kubeconfig()?)?;
    let with_token = |token: &str| {
        let token: AuthInfo =
            serde_json::from_value(serde_json::json!({"token": token})).expect("credentials");
        client(with(admin.clone(), &token))
    };
    let (name, groups) = who(with_token("sesame").await?).await?;
    assert_eq!(name, "robot");
    assert_eq!(groups, ["machines", "system:authenticated"]);
    assert_eq!(code(who(with_token("barley").await?).await), Some(401));

    let nobody = client(with(admin.clone(), &AuthInfo::default())).await?;
    nobody.apiserver_version().await?;
    assert_eq!(code(nobody.list_api_groups().await), Some(403));
    assert_eq!(
        code(Api::<Namespace>::all(nobody).list(&ListParams::default()).await),
        Some(403)
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn users_need_no_socket_and_no_time() -> Result<()> {
    let recorder = Recorder::new();
    let cluster = Cluster::embedded().recorder(recorder.clone()).start().await?;
    let alice = cluster.user("alice", [""; 0]).await?;
    let pods = Api::<Pod>::namespaced(alice.client(), "default");
    assert_eq!(code(pods.list(&ListParams::default()).await), Some(403));
    let role = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "reader"}, "rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}],
    }))?;
    let alice = alice.with_role(&role).await?;
    pods.list(&ListParams::default()).await?;
    let uses = recorder.uses().of("alice");
    let pods = uses
        .all
        .iter()
        .find(|one| one.access.to_string() == "list pods in default");
    let pods = pods.context("it was noted")?;
    assert_eq!((pods.count, pods.refused), (2, 1));
    drop(cluster);
    ensure!(alice.kubeconfig().is_err(), "there is no socket any more");
    Ok(())
}

#[tokio::test]
async fn without_rbac_everybody_may_do_everything() -> Result<()> {
    let cluster = Cluster::embedded().without_rbac().start().await?;
    let alice = cluster.user("alice", [""; 0]).await?;
    Api::<Pod>::all(alice.client())
        .list(&ListParams::default())
        .await?;
    let access = Kubeconfig::read_from(alice.kubeconfig()?)?;
    Api::<Pod>::all(client(access).await?)
        .list(&ListParams::default())
        .await?;
    Ok(())
}

#[tokio::test]
async fn seeded_cluster_has_a_client_and_refuses_a_socket() -> Result<()> {
    let mut uids = Vec::new();
    for _ in 0..2 {
        let cluster = Cluster::seeded(7).start().await?;
        uids.push(
            Api::<Namespace>::all(cluster.client())
                .get("default")
                .await?
                .metadata
                .uid,
        );
        let refused = cluster
            .kubeconfig()
            .err()
            .context("its keys can be guessed")?
            .to_string();
        ensure!(refused.contains("Cluster::embedded()"), "{refused}");
    }
    ensure!(uids[0] == uids[1], "{uids:?}");
    Ok(())
}
