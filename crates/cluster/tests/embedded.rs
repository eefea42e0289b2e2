//! Users of the embedded backend: certificates, tokens and RBAC.

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

/// Replaces the credentials of a kubeconfig.
fn with_credentials(mut kubeconfig: Kubeconfig, access: &AuthInfo) -> Kubeconfig {
    kubeconfig.auth_infos[0].auth_info = Some(access.clone());
    kubeconfig
}

/// Returns name and groups of a client's user.
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
async fn client_certificate_is_accepted_only_by_its_own_server() -> Result<()> {
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

    // Another server rejects the certificate, and does not treat the request as anonymous.
    let other = Cluster::embedded().start().await?;
    let strange = access.auth_infos[0].auth_info.clone().context("it has a user")?;
    let elsewhere = client(with_credentials(
        Kubeconfig::read_from(other.kubeconfig()?)?,
        &strange,
    ))
    .await?;
    assert_eq!(code(elsewhere.apiserver_version().await), Some(401));
    Ok(())
}

#[tokio::test]
async fn tokens_authenticate_and_anonymous_requests_are_forbidden() -> Result<()> {
    let cluster = Cluster::embedded()
        .token("sesame", "robot", ["machines"])
        .start()
        .await?;
    let admin = Kubeconfig::read_from(cluster.kubeconfig()?)?;
    let with_token = |token: &str| {
        let token: AuthInfo =
            serde_json::from_value(serde_json::json!({"token": token})).expect("credentials");
        client(with_credentials(admin.clone(), &token))
    };
    let (name, groups) = who(with_token("sesame").await?).await?;
    assert_eq!(name, "robot");
    assert_eq!(groups, ["machines", "system:authenticated"]);
    assert_eq!(code(who(with_token("barley").await?).await), Some(401));

    let unauthenticated = client(with_credentials(admin.clone(), &AuthInfo::default())).await?;
    unauthenticated.apiserver_version().await?;
    assert_eq!(code(unauthenticated.list_api_groups().await), Some(403));
    assert_eq!(
        code(
            Api::<Namespace>::all(unauthenticated)
                .list(&ListParams::default())
                .await
        ),
        Some(403)
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn user_clients_need_no_socket() -> Result<()> {
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
    let uses = recorder.records().for_user("alice");
    let pods = uses
        .records
        .iter()
        .find(|one| one.access.to_string() == "list pods in default");
    let pods = pods.context("the request was recorded")?;
    assert_eq!((pods.count, pods.forbidden), (2, 1));
    drop(cluster);
    ensure!(alice.kubeconfig().is_err(), "the cluster was dropped");
    Ok(())
}

#[tokio::test]
async fn without_rbac_every_authenticated_user_may_do_everything() -> Result<()> {
    let cluster = Cluster::embedded().without_rbac().start().await?;
    let alice = cluster.user("alice", [""; 0]).await?;
    Api::<Pod>::all(alice.client())
        .list(&ListParams::default())
        .await?;
    let access = Kubeconfig::read_from(alice.kubeconfig()?)?;
    Api::<Pod>::all(client(access.clone()).await?)
        .list(&ListParams::default())
        .await?;
    // Anyone who reaches the socket could otherwise be a user.
    let unauthenticated = client(with_credentials(access, &AuthInfo::default())).await?;
    let pods = Api::<Pod>::all(unauthenticated)
        .list(&ListParams::default())
        .await;
    assert_eq!(code(pods), Some(401));
    Ok(())
}

#[tokio::test]
async fn seeded_cluster_has_a_client_but_no_socket() -> Result<()> {
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
