//! `kubectl create`: from files, and from its generators, which send protobuf.

use anyhow::Result;
use windlass_suite::Context;

use crate::kubectl::{command::Kubectl, objects};

pub(crate) async fn generators_create_their_objects(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let other = format!("{}-other", kubectl.namespace);
    let namespace = format!("create namespace {other}");
    let made_namespace = format!("namespace/{other}");
    let made = [
        (
            "create configmap plain --from-literal=a=1 --from-literal=b=2",
            "configmap/plain",
        ),
        (
            "create secret generic hidden --from-literal=key=value",
            "secret/hidden",
        ),
        ("create serviceaccount robot", "serviceaccount/robot"),
        (
            "create deployment web --image=example.com/web:1 --replicas=3 --port=80",
            "deployment.apps/web",
        ),
        ("create service clusterip web --tcp=80:8080", "service/web"),
        (
            "create job once --image=example.com/job:1 -- /bin/run",
            "job.batch/once",
        ),
        (
            "create cronjob often --image=example.com/job:1 --schedule='*/5 * * * *'",
            "cronjob.batch/often",
        ),
        (
            "create role reader --verb=get,list --resource=pods",
            "role.rbac.authorization.k8s.io/reader",
        ),
        (
            "create rolebinding readers --role=reader --serviceaccount=default:robot",
            "rolebinding.rbac.authorization.k8s.io/readers",
        ),
        ("create quota small --hard=pods=2", "resourcequota/small"),
        (
            "create poddisruptionbudget web --selector=app=web --min-available=1",
            "poddisruptionbudget.policy/web",
        ),
        (
            "create ingress web --rule=example.com/*=web:80",
            "ingress.networking.k8s.io/web",
        ),
        (&namespace, &made_namespace),
    ];
    for (line, what) in made {
        // The only argument with spaces.
        let line = line.replace("--schedule='*/5 * * * *'", "'--schedule=*/5 * * * *'");
        assert_eq!(kubectl.ok(&line).await?, format!("{what} created\n"), "{line}");
    }
    let fields = [
        ("configmap plain", "{.data.a}{.data.b}", "12"),
        ("secret hidden", "{.type} {.data.key}", "Opaque dmFsdWU="),
        (
            "deployment web",
            "{.spec.replicas} {.spec.template.spec.containers[0].image} {.spec.strategy.type}",
            "3 example.com/web:1 RollingUpdate",
        ),
        (
            "service web",
            "{.spec.type} {.spec.ports[0].targetPort}",
            "ClusterIP 8080",
        ),
        (
            "job once",
            "{.spec.template.spec.containers[0].command}",
            r#"["/bin/run"]"#,
        ),
        ("cronjob often", "{.spec.schedule}", "*/5 * * * *"),
        ("role reader", "{.rules[0].verbs}", r#"["get","list"]"#),
        ("rolebinding readers", "{.subjects[0].name}", "robot"),
        ("quota small", "{.spec.hard.pods}", "2"),
        ("pdb web", "{.spec.minAvailable}", "1"),
        ("ingress web", "{.spec.rules[0].http.paths[0].pathType}", "Prefix"),
    ];
    for (object, path, value) in fields {
        let output = kubectl.ok(&format!("get {object} -o 'jsonpath={path}'")).await?;
        assert_eq!(output, value, "{object} {path}");
    }
    kubectl
        .ok(&format!("delete namespace {other} --wait=false"))
        .await?;
    Ok(())
}

pub(crate) async fn generators_with_dry_run_create_nothing(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let printed = kubectl
        .ok("create configmap plain --from-literal=a=1 --dry-run=client -o yaml")
        .await?;
    assert!(
        printed.contains("data:\n  a: \"1\"\nkind: ConfigMap\n"),
        "{printed}"
    );
    let printed = kubectl.ok("create configmap plain --from-literal=a=1 --dry-run=server -o 'jsonpath={.data.a}{.metadata.uid}'").await?;
    assert_eq!(
        printed.len(),
        37,
        "a dry run on the server shows a uid: {printed}"
    );
    assert_eq!(
        kubectl
            .ok("get configmaps -o name -l '!x'")
            .await?
            .matches("plain")
            .count(),
        0
    );
    Ok(())
}

pub(crate) async fn file_with_several_objects_is_created_in_order(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let output = kubectl.ok_with_input("create -f -", &objects::both()).await?;
    assert_eq!(
        output,
        "configmap/settings created\ndeployment.apps/web created\n"
    );
    let json = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}},
        {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two"}}]}"#;
    let output = kubectl.ok_with_input("create -f -", json).await?;
    assert_eq!(output, "configmap/one created\nconfigmap/two created\n");
    let generated = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"some-"}}"#;
    let output = kubectl.ok_with_input("create -f - -o name", generated).await?;
    assert_eq!(output.trim_end().len(), "configmap/some-".len() + 5, "{output}");
    Ok(())
}

pub(crate) async fn dry_run_creates_nothing(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let output = kubectl
        .ok_with_input("create -f - --dry-run=server", &objects::both())
        .await?;
    assert_eq!(
        output,
        "configmap/settings created (server dry run)\ndeployment.apps/web created (server dry run)\n"
    );
    kubectl.run("get deployment web").await?.assert_fails(
        1,
        r#"Error from server (NotFound): deployments.apps "web" not found"#,
    );
    Ok(())
}

pub(crate) async fn unknown_field_is_rejected_by_default(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: odd, extra: 1}, dta: {a: b}}";
    kubectl.run_with_input("create -f -", object).await?.assert_fails(
        1,
        "Error from server (BadRequest): error when creating \"STDIN\": ConfigMap in version \"v1\" cannot be handled as \
         a ConfigMap: strict decoding error: unknown field \"dta\", unknown field \"metadata.extra\"",
    );
    let output = kubectl
        .run_with_input("create -f - --validate=warn", object)
        .await?;
    assert_eq!(
        output.stderr,
        "Warning: unknown field \"dta\"\nWarning: unknown field \"metadata.extra\"\n"
    );
    assert_eq!(output.ok()?, "configmap/odd created\n");
    Ok(())
}

pub(crate) async fn create_of_existing_object_is_rejected(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    kubectl.ok("create configmap plain").await?;
    kubectl.run("create configmap plain").await?.assert_fails(
        1,
        "error: failed to create configmap: configmaps \"plain\" already exists",
    );
    kubectl.ok_with_input("create -f -", objects::SETTINGS).await?;
    kubectl.run_with_input("create -f -", objects::SETTINGS).await?.assert_fails(
        1,
        "Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"settings\" already exists",
    );
    Ok(())
}
