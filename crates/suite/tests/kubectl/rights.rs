//! `kubectl auth` and tokens: identity and rights.

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::Role;
use serde_json::{from_value, json};
use windlass_cluster::User;
use windlass_suite::Context;

use crate::kubectl::command::{Kubectl, cells};

/// A user who may read pods and watch one secret in the case's namespace.
async fn reader(ctx: &Context) -> Result<User> {
    let role: Role = from_value(json!({
        "metadata": {"name": "reader", "namespace": ctx.namespace()},
        "rules": [
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
            {"verbs": ["watch"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"]},
        ],
    }))?;
    let name = format!("{}-reader", ctx.namespace());
    Ok(ctx
        .cluster()
        .user(&name, ["readers"])
        .await?
        .with_role(&role)
        .await?)
}

pub(crate) async fn can_i_works_for_oneself_and_others(ctx: Context) -> Result<()> {
    let user = reader(&ctx).await?;
    let as_other = format!("--as={}", user.name());
    let own = Kubectl::new(&ctx)?.for_user(&user)?;
    let admin = Kubectl::new(&ctx)?;
    let questions = [
        ("get pods", "yes"),
        ("list pods", "yes"),
        ("get pods --subresource=log", "yes"),
        ("delete pods", "no"),
        ("get deployments.apps", "no"),
        ("watch secrets/one", "yes"),
        ("watch secrets/two", "no"),
        ("get /version", "yes"),
        ("get /metrics", "no"),
    ];
    for (question, answer) in questions {
        assert_eq!(
            own.run(&format!("auth can-i {question}"))
                .await?
                .stdout
                .trim_end(),
            answer,
            "{question}"
        );
        let other = admin.run(&format!("auth can-i {question} {as_other}")).await?;
        assert_eq!(other.stdout.trim_end(), answer, "{question} {as_other}");
    }
    assert_eq!(
        own.run("auth can-i get pods --all-namespaces").await?.code,
        Some(1)
    );
    assert_eq!(admin.ok("auth can-i * *").await?, "yes\n");
    Ok(())
}

pub(crate) async fn can_i_list_shows_rights(ctx: Context) -> Result<()> {
    let user = reader(&ctx).await?;
    let own = Kubectl::new(&ctx)?.for_user(&user)?;
    let table = own.ok("auth can-i --list").await?;
    let rows = cells(&table);
    assert_eq!(
        rows[0],
        ["Resources", "Non-Resource URLs", "Resource Names", "Verbs"]
    );
    for row in [
        vec!["pods", "[]", "[]", "[get list]"],
        vec!["pods/log", "[]", "[]", "[get list]"],
        vec!["secrets", "[]", "[one]", "[watch]"],
        vec!["selfsubjectreviews.authentication.k8s.io", "[]", "[]", "[create]"],
        vec!["[/version]", "[]", "[get]"],
    ] {
        assert!(rows.contains(&row), "{row:?} in {table}");
    }
    // The administrator also has the rules of every authenticated user.
    let table = Kubectl::new(&ctx)?.ok("auth can-i --list").await?;
    for row in [
        vec!["*.*", "[]", "[]", "[*]"],
        vec!["selfsubjectreviews.authentication.k8s.io", "[]", "[]", "[create]"],
    ] {
        assert!(cells(&table).contains(&row), "{row:?} in {table}");
    }
    Ok(())
}

pub(crate) async fn whoami_shows_users_and_service_accounts(ctx: Context) -> Result<()> {
    let name = format!("{}-somebody", ctx.namespace());
    let user = ctx.cluster().user(&name, ["makers", "menders"]).await?;
    let own = Kubectl::new(&ctx)?.for_user(&user)?;
    let output = own
        .ok("auth whoami -o 'jsonpath={.status.userInfo.username} {.status.userInfo.groups}'")
        .await?;
    assert_eq!(
        output,
        format!(r#"{name} ["makers","menders","system:authenticated"]"#)
    );

    let admin = Kubectl::new(&ctx)?;
    admin.ok("create serviceaccount robot").await?;
    let token = admin.ok("create token robot --duration=20m").await?;
    let robot = Kubectl::new(&ctx)?.with_token(token.trim_end())?;
    let output = robot
        .ok("auth whoami -o 'jsonpath={.status.userInfo.username}'")
        .await?;
    assert_eq!(output, format!("system:serviceaccount:{}:robot", ctx.namespace()));
    robot.run("get pods").await?.assert_fails(
        1,
        &format!(
            "Error from server (Forbidden): pods is forbidden: User \"system:serviceaccount:{0}:robot\" cannot list \
             resource \"pods\" in API group \"\" in the namespace \"{0}\"",
            ctx.namespace()
        ),
    );
    admin
        .ok(&format!(
            "create rolebinding robots --clusterrole=system:aggregate-to-view --serviceaccount={}:robot",
            ctx.namespace()
        ))
        .await?;
    let mut left = 200;
    // A real server observes the binding a little later.
    while robot.run("get configmaps -o name").await?.code != Some(0) {
        left -= 1;
        anyhow::ensure!(left > 0, "the binding has no effect");
    }
    let stranger = Kubectl::new(&ctx)?.with_token("not.a.token")?;
    let output = stranger.run("get pods").await?;
    assert_eq!(output.code, Some(1));
    let complaint = output.stderr.lines().last().context("an error message")?;
    assert_eq!(
        complaint,
        "error: You must be logged in to the server (the server has asked for the client to provide credentials)"
    );
    Ok(())
}

pub(crate) async fn forbidden_request_is_explained(ctx: Context) -> Result<()> {
    let user = reader(&ctx).await?;
    let own = Kubectl::new(&ctx)?.for_user(&user)?;
    let refusal = |verb: &str, what: &str, group: &str| {
        format!(
            "User \"{}\" cannot {verb} resource \"{what}\" in API group \"{group}\" in the namespace \"{}\"",
            user.name(),
            ctx.namespace()
        )
    };
    assert_eq!(own.ok("get pods -o name").await?, "");
    own.run("create configmap plain").await?.assert_fails(
        1,
        &format!(
            "error: failed to create configmap: configmaps is forbidden: {}",
            refusal("create", "configmaps", "")
        ),
    );
    own.run("delete deployment web").await?.assert_fails(
        1,
        &format!(
            "Error from server (Forbidden): deployments.apps \"web\" is forbidden: {}",
            refusal("delete", "deployments", "apps")
        ),
    );
    own.run("create role more --verb=get --resource=secrets")
        .await?
        .assert_fails(
            1,
            &format!(
                "Error from server (Forbidden): roles.rbac.authorization.k8s.io is forbidden: {}",
                refusal("create", "roles", "rbac.authorization.k8s.io")
            ),
        );
    Ok(())
}
