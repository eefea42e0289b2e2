//! Commands that change objects: apply, patch, label, annotate, scale, set, replace, edit, rollout, diff.

use anyhow::Result;
use windlass_suite::Context;

use crate::kubectl::{command::Kubectl, objects};

pub(crate) async fn apply_creates_changes_and_keeps_objects(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let both = objects::both();
    assert_eq!(
        kubectl.ok_with_input("apply -f -", &both).await?,
        "configmap/settings created\ndeployment.apps/web created\n"
    );
    let version = "get deployment web -o 'jsonpath={.metadata.resourceVersion} {.metadata.generation}'";
    let before = kubectl.ok(version).await?;
    assert_eq!(
        kubectl.ok_with_input("apply -f -", &both).await?,
        "configmap/settings unchanged\ndeployment.apps/web unchanged\n"
    );
    assert_eq!(kubectl.ok(version).await?, before);
    let changed = both
        .replace("replicas: 2", "replicas: 5")
        .replace("web:1", "web:2");
    assert_eq!(
        kubectl.ok_with_input("apply -f -", &changed).await?,
        "configmap/settings unchanged\ndeployment.apps/web configured\n"
    );
    let output = kubectl
        .ok("get deployment web -o 'jsonpath={.spec.replicas} {.spec.template.spec.containers[*].image} {.metadata.generation}'")
        .await?;
    assert_eq!(output, "5 example.com/web:2 2");
    assert_eq!(
        kubectl
            .ok_with_input("apply -f - --dry-run=server", &both)
            .await?,
        "configmap/settings unchanged (server dry run)\ndeployment.apps/web configured (server dry run)\n"
    );
    Ok(())
}

pub(crate) async fn apply_removes_previously_applied_fields(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let first = objects::DEPLOYMENT.replace(
        "ports: [",
        "env: [{name: A, value: '1'}, {name: B, value: '2'}], ports: [",
    );
    kubectl.ok_with_input("apply -f -", &first).await?;
    // Changes of others stay; fields that were applied before and are missing now are removed.
    kubectl.ok("set env deployment/web C=3").await?;
    let second = objects::DEPLOYMENT.replace("ports: [", "env: [{name: B, value: '9'}], ports: [");
    assert_eq!(
        kubectl.ok_with_input("apply -f -", &second).await?,
        "deployment.apps/web configured\n"
    );
    let output = kubectl
        .ok("get deployment web -o 'jsonpath={range .spec.template.spec.containers[0].env[*]}{.name}={.value} {end}'")
        .await?;
    let mut env: Vec<_> = output.split_whitespace().collect();
    env.sort_unstable();
    assert_eq!(env, ["B=9", "C=3"]);
    let applied = kubectl
        .ok_with_input("apply view-last-applied deployment web", "")
        .await?;
    assert!(applied.contains("value: \"9\""), "{applied}");
    Ok(())
}

pub(crate) async fn apply_of_several_objects_prunes_by_label(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("apply -f -", &objects::both()).await?;
    let output = kubectl
        .ok_with_input(
            "apply -f - --prune -l app=web --prune-allowlist=core/v1/ConfigMap",
            objects::DEPLOYMENT,
        )
        .await?;
    assert_eq!(
        output,
        "deployment.apps/web unchanged\nconfigmap/settings pruned\n"
    );
    Ok(())
}

pub(crate) async fn patch_takes_three_types(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::DEPLOYMENT).await?;
    let images =
        "get deployment web -o 'jsonpath={range .spec.template.spec.containers[*]}{.name}={.image} {end}'";
    let steps = [
        (
            // Strategic: containers are merged by name.
            r#"patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s:1"}]}}}}'"#,
            "side=s:1 main=example.com/web:1 ",
        ),
        (
            r#"patch deployment web --type=strategic -p '{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"m:2"}]}}}}'"#,
            "side=s:1 main=m:2 ",
        ),
        (
            r#"patch deployment web --type=json -p '[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"s:2"}]'"#,
            "side=s:2 main=m:2 ",
        ),
        (
            // Merge: lists are replaced.
            r#"patch deployment web --type=merge -p '{"spec":{"template":{"spec":{"containers":[{"name":"only","image":"o:1"}]}}}}'"#,
            "only=o:1 ",
        ),
    ];
    for (line, expected) in steps {
        assert_eq!(kubectl.ok(line).await?, "deployment.apps/web patched\n", "{line}");
        assert_eq!(kubectl.ok(images).await?, expected, "{line}");
    }
    assert_eq!(
        kubectl
            .ok(r#"patch deployment web -p '{"spec":{"paused":false}}'"#)
            .await?,
        "deployment.apps/web patched (no change)\n"
    );
    let output = kubectl
        .ok(r#"patch deployment web --subresource=status --type=merge -p '{"status":{"replicas":7},"spec":{"replicas":9}}' -o 'jsonpath={.spec.replicas} {.status.replicas}'"#)
        .await?;
    assert_eq!(output, "2 7");
    kubectl
        .run(r#"patch deployment web --type=json -p '[{"op":"test","path":"/spec/replicas","value":3}]'"#)
        .await?
        .assert_fails(
            1,
            "The request is invalid: the server rejected our request due to an error in our request",
        );
    Ok(())
}

pub(crate) async fn labels_and_annotations_are_set_and_removed(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::SETTINGS).await?;
    assert_eq!(
        kubectl.ok("label configmap settings tier=front").await?,
        "configmap/settings labeled\n"
    );
    assert_eq!(
        kubectl.ok("label configmap settings tier=front").await?,
        "configmap/settings not labeled\n"
    );
    kubectl
        .run("label configmap settings tier=back")
        .await?
        .assert_fails(
            1,
            "error: 'tier' already has a value (front), and --overwrite is false",
        );
    assert_eq!(
        kubectl
            .ok("label configmap settings tier=back --overwrite")
            .await?,
        "configmap/settings labeled\n"
    );
    assert_eq!(
        kubectl.ok("label configmap settings tier-").await?,
        "configmap/settings unlabeled\n"
    );
    assert_eq!(
        kubectl.ok("label cm -l app=web new=1").await?,
        "configmap/settings labeled\n"
    );
    assert_eq!(
        kubectl.ok("annotate configmap settings 'note=two words'").await?,
        "configmap/settings annotated\n"
    );
    assert_eq!(
        kubectl
            .ok("get configmap settings -o 'jsonpath={.metadata.labels} {.metadata.annotations.note}'")
            .await?,
        r#"{"app":"web","new":"1"} two words"#
    );
    kubectl
        .run("label configmap settings 'bad key=1'")
        .await?
        .assert_fails(1, "The ConfigMap \"settings\" is invalid: metadata.labels: Invalid value: \"bad key\": name part must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  \
             or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')");
    Ok(())
}

pub(crate) async fn scale_changes_replicas_with_precondition(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::DEPLOYMENT).await?;
    assert_eq!(
        kubectl.ok("scale deployment web --replicas=4").await?,
        "deployment.apps/web scaled\n"
    );
    kubectl
        .run("scale deployment web --replicas=1 --current-replicas=9")
        .await?
        .assert_fails(1, "error: Expected replicas to be 9, was 4");
    assert_eq!(
        kubectl
            .ok("scale deployment web --replicas=1 --current-replicas=4")
            .await?,
        "deployment.apps/web scaled\n"
    );
    assert_eq!(
        kubectl
            .ok("get deployment web -o 'jsonpath={.spec.replicas}'")
            .await?,
        "1"
    );
    assert_eq!(
        kubectl.ok("autoscale deployment web --min=1 --max=3").await?,
        "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    );
    Ok(())
}

pub(crate) async fn set_changes_images_and_environments(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::DEPLOYMENT).await?;
    assert_eq!(
        kubectl
            .ok("set image deployment/web main=example.com/web:3")
            .await?,
        "deployment.apps/web image updated\n"
    );
    assert_eq!(
        kubectl.ok("set env deployment/web MODE=fast").await?,
        "deployment.apps/web env updated\n"
    );
    assert_eq!(
        kubectl
            .ok("set resources deployment/web --limits=cpu=200m,memory=64Mi")
            .await?,
        "deployment.apps/web resource requirements updated\n"
    );
    assert_eq!(
        kubectl
            .ok("get deployment web -o 'jsonpath={range .spec.template.spec.containers[0]}{.image} {.env} {.resources.limits}{end}'")
            .await?,
        r#"example.com/web:3 [{"name":"MODE","value":"fast"}] {"cpu":"200m","memory":"64Mi"}"#
    );
    kubectl
        .run("set image deployment/web nope=x")
        .await?
        .assert_fails(1, "error: unable to find container named \"nope\"");
    Ok(())
}

pub(crate) async fn replace_requires_the_current_version(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::SETTINGS).await?;
    let read = kubectl.ok("get configmap settings -o yaml").await?;
    let fast = read.replace("mode: slow", "mode: fast");
    assert_eq!(
        kubectl.ok_with_input("replace -f -", &fast).await?,
        "configmap/settings replaced\n"
    );
    kubectl.run_with_input("replace -f -", &read).await?.assert_fails(
        1,
        "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on configmaps \
         \"settings\": the object has been modified; please apply your changes to the latest version and try again",
    );
    assert_eq!(
        kubectl.ok_with_input("replace -f -", objects::SETTINGS).await?,
        "configmap/settings replaced\n"
    );
    assert_eq!(
        kubectl
            .ok_with_input("replace --force -f -", objects::SETTINGS)
            .await?,
        "configmap \"settings\" deleted from namespace\nconfigmap/settings replaced\n"
            .replace("namespace", &format!("{} namespace", kubectl.namespace))
    );
    Ok(())
}

pub(crate) async fn edit_changes_an_object(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?.editor("sed -i s/slow/quick/");
    kubectl.ok_with_input("create -f -", objects::SETTINGS).await?;
    assert_eq!(
        kubectl.ok("edit configmap settings").await?,
        "configmap/settings edited\n"
    );
    assert_eq!(
        kubectl
            .ok("get configmap settings -o 'jsonpath={.data.mode}'")
            .await?,
        "quick"
    );
    let output = kubectl.run("edit configmap settings").await?;
    assert_eq!(output.stderr, "Edit cancelled, no changes made.\n");
    Ok(())
}

pub(crate) async fn rollouts_are_paused_and_resumed_and_have_a_history(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("create -f -", objects::DEPLOYMENT).await?;
    assert_eq!(
        kubectl.ok("rollout pause deployment/web").await?,
        "deployment.apps/web paused\n"
    );
    kubectl
        .run("rollout pause deployment/web")
        .await?
        .assert_fails(1, "error: deployments.apps \"web\" is already paused");
    assert_eq!(
        kubectl.ok("rollout resume deployment/web").await?,
        "deployment.apps/web resumed\n"
    );
    assert_eq!(
        kubectl.ok("rollout restart deployment/web").await?,
        "deployment.apps/web restarted\n"
    );
    let output = kubectl
        .ok(r"get deployment web -o 'jsonpath={.spec.template.metadata.annotations.kubectl\.kubernetes\.io/restartedAt}'")
        .await?;
    assert_eq!(&output[4..5], "-", "a time: {output}");
    let output = kubectl.ok("rollout history deployment/web").await?;
    assert_eq!(output, "deployment.apps/web \nNo rollout history found.\n");
    Ok(())
}

pub(crate) async fn diff_shows_what_apply_would_do(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok_with_input("apply -f -", objects::SETTINGS).await?;
    assert_eq!(kubectl.ok_with_input("diff -f -", objects::SETTINGS).await?, "");
    let output = kubectl
        .run_with_input(
            "diff -f -",
            &objects::SETTINGS.replace("mode: slow", "mode: fast"),
        )
        .await?;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    let changes: Vec<_> = output
        .stdout
        .lines()
        .filter(|line| line.starts_with(['-', '+']) && !line.starts_with("---") && !line.starts_with("+++"))
        .collect();
    assert_eq!(changes, ["-  mode: slow", "+  mode: fast"], "{}", output.stdout);
    Ok(())
}
