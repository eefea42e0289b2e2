//! Discovery: resources, versions, `explain`, and raw paths.

use anyhow::{Context as _, Result};
use http_body_util::Full;
use windlass_runtime::http_client::{HttpClient, read_body};
use windlass_suite::Context;

use crate::kubectl::command::{Kubectl, cells};

pub(crate) async fn api_resources_and_versions_are_listed(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let output = kubectl.ok("api-resources --no-headers").await?;
    let lines: Vec<_> = output
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "configmaps cm v1 true ConfigMap",
        "namespaces ns v1 false Namespace",
        "deployments deploy apps/v1 true Deployment",
        "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition",
        "leases coordination.k8s.io/v1 true Lease",
    ] {
        assert!(
            lines.iter().any(|output| output == line),
            "no `{line}` in:\n{output}"
        );
    }
    let output = kubectl
        .ok("api-resources --api-group=apps -o name --sort-by=name")
        .await?;
    assert_eq!(
        output,
        "controllerrevisions.apps\ndaemonsets.apps\ndeployments.apps\nreplicasets.apps\nstatefulsets.apps\n"
    );
    let output = kubectl
        .ok("api-resources --verbs=list,watch --namespaced=false --api-group= -o wide --no-headers")
        .await?;
    assert!(
        output
            .lines()
            .any(|line| line.contains("create,delete,deletecollection,get,list,patch,update,watch")),
        "{output}"
    );
    let output = kubectl.ok("api-versions").await?;
    for version in ["v1", "apps/v1", "batch/v1", "policy/v1", "autoscaling/v2"] {
        assert!(
            output.lines().any(|line| line == version),
            "no `{version}` in:\n{output}"
        );
    }
    Ok(())
}

pub(crate) async fn explain_shows_built_in_fields(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let output = kubectl.ok("explain deployment.spec.replicas").await?;
    assert!(
        output.starts_with(
            "GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n\nFIELD: replicas <integer>\n"
        ),
        "{output}"
    );
    let output = kubectl.ok("explain pod --recursive").await?;
    for line in [
        "  spec\t<PodSpec>",
        "    containers\t<[]Container> -required-",
        "      image\t<string>",
    ] {
        assert!(
            output.lines().any(|output| output == line),
            "no `{line}` in:\n{output}"
        );
    }
    kubectl
        .run("explain deployment.spec.nope")
        .await?
        .assert_fails(1, "error: field \"nope\" does not exist");
    Ok(())
}

pub(crate) async fn custom_kind_is_served_explained_and_printed(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let group = format!("{}.example.com", kubectl.namespace);
    let definition = format!(
        r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}, scale: {{specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}}}
    additionalPrinterColumns:
    - {{name: Size, type: integer, jsonPath: .spec.size}}
    - {{name: Colour, type: string, jsonPath: .spec.colour, priority: 1}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {{type: integer, minimum: 1, description: How large it is.}}
              colour: {{type: string, default: grey}}
              replicas: {{type: integer}}
          status:
            type: object
            properties: {{replicas: {{type: integer}}}}
"
    );
    let kind = format!("widgets.{group}");
    kubectl.ok_with_input("create -f -", &definition).await?;
    kubectl
        .ok(&format!(
            "wait crd/{kind} --for=condition=Established --timeout=30s"
        ))
        .await?;
    let widget = format!(
        "{{apiVersion: {group}/v1, kind: Widget, metadata: {{name: one}}, spec: {{size: 3, replicas: 1}}}}"
    );
    // The real server publishes the schema, which kubectl needs for validation, a moment later.
    let mut explained = kubectl.run(&format!("explain {kind}.spec.size")).await?;
    for _ in 0..50 {
        if explained.code == Some(0) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        explained = kubectl.run(&format!("explain {kind}.spec.size")).await?;
    }
    let explained = explained.ok()?;
    assert!(
        explained.contains("FIELD: size <integer>\n\n\nDESCRIPTION:\n    How large it is.\n"),
        "{explained}"
    );
    assert_eq!(
        kubectl.ok_with_input("create -f -", &widget).await?,
        format!("widget.{group}/one created\n")
    );
    assert_eq!(
        cells(&kubectl.ok(&format!("get {kind}")).await?),
        [["NAME", "SIZE"], ["one", "3"]]
    );
    assert_eq!(
        cells(&kubectl.ok(&format!("get {kind} -o wide")).await?),
        [["NAME", "SIZE", "COLOUR"], ["one", "3", "grey"]]
    );
    assert_eq!(
        kubectl.ok(&format!("scale {kind} one --replicas=5")).await?,
        format!("widget.{group}/one scaled\n")
    );
    assert_eq!(
        kubectl
            .ok_with_input("apply -f -", &widget.replace("size: 3", "size: 4"))
            .await?,
        format!("widget.{group}/one configured\n")
    );
    let output = kubectl
        .run_with_input("apply -f -", &widget.replace("size: 3", "size: 0"))
        .await?;
    assert_eq!(output.code, Some(1));
    assert!(
        output.stderr.contains(
            "The Widget \"one\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"
        ),
        "{}",
        output.stderr
    );
    kubectl.ok(&format!("delete crd {kind} --timeout=30s")).await?;
    Ok(())
}

/// The metrics that dashboards and alerts about API servers use, directly and through `kubectl proxy`.
pub(crate) async fn proxy_forwards_requests_and_metrics(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    // An open watch: the second line can only come from it.
    kubectl.ok("create configmap first").await?;
    let mut watch = kubectl
        .follow("get configmaps --watch --no-headers --field-selector=metadata.name!=kube-root-ca.crt")?;
    watch.next().await?;
    kubectl.ok("create configmap proxied --from-literal=a=1").await?;
    watch.next().await?;
    let mut proxy = kubectl.follow("proxy --port=0")?;
    let line = proxy.next().await?;
    let address = line.strip_prefix("Starting to serve on ");
    let address = address.with_context(|| format!("no address in {line:?}"))?;
    let url: http::Uri = format!("http://{address}/").parse()?;
    let client = HttpClient::new(&url, None)?;
    let get = async |path: &str| {
        let request = http::Request::get(format!("http://{address}{path}")).body(Full::default())?;
        let (head, body) = client.send(request).await?.into_parts();
        let body = read_body(body, 16 << 20).await?;
        anyhow::Ok((head.status.as_u16(), String::from_utf8(body.to_vec())?))
    };
    let path = format!("/api/v1/namespaces/{}/configmaps/proxied", kubectl.namespace);
    let (status, object) = get(&path).await?;
    let object: serde_json::Value = serde_json::from_str(&object)?;
    assert_eq!((status, &object["data"]["a"]), (200, &"1".into()));
    let (status, proxied) = get("/metrics").await?;
    assert_eq!(status, 200);
    for metrics in [proxied, kubectl.ok("get --raw /metrics").await?] {
        for name in [
            "apiserver_request_total{",
            "apiserver_request_duration_seconds_bucket{",
            "apiserver_longrunning_requests{",
            "apiserver_current_inflight_requests{",
            "apiserver_resource_objects{",
        ] {
            assert!(metrics.lines().any(|line| line.starts_with(name)), "{name}");
        }
    }
    Ok(())
}

pub(crate) async fn raw_requests_work_for_every_verb(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    assert_eq!(kubectl.ok("get --raw /readyz").await?, "ok");
    assert_eq!(kubectl.ok("get --raw /livez").await?, "ok");
    let path = format!("/api/v1/namespaces/{}/configmaps", kubectl.namespace);
    let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"raw"},"data":{"a":"1"}}"#;
    let created = kubectl
        .ok_with_input(&format!("create --raw {path} -f -"), object)
        .await?;
    let created: serde_json::Value = serde_json::from_str(&created)?;
    assert_eq!(created["data"]["a"], "1");
    kubectl
        .ok_with_input(
            &format!("replace --raw {path}/raw -f -"),
            &object.replace("\"1\"", "\"2\""),
        )
        .await?;
    let read: serde_json::Value = serde_json::from_str(&kubectl.ok(&format!("get --raw {path}/raw")).await?)?;
    assert_eq!(read["data"]["a"], "2");
    let deleted: serde_json::Value =
        serde_json::from_str(&kubectl.ok(&format!("delete --raw {path}/raw")).await?)?;
    assert_eq!(deleted["status"], "Success");
    kubectl
        .run(&format!("get --raw {path}/raw"))
        .await?
        .assert_fails(1, "Error from server (NotFound): configmaps \"raw\" not found");
    kubectl.run("get --raw /nowhere").await?.assert_fails(
        1,
        "Error from server (NotFound): the server could not find the requested resource",
    );
    Ok(())
}

pub(crate) async fn version_and_cluster_info_are_answered(ctx: Context) -> Result<()> {
    let kubectl = Kubectl::new(&ctx)?;
    let output: serde_json::Value = serde_json::from_str(&kubectl.ok("version -o json").await?)?;
    assert_eq!(output["serverVersion"]["gitVersion"], ctx.cluster().version());
    let output = kubectl.ok("cluster-info").await?;
    assert!(output.contains("is running at"), "{output}");
    Ok(())
}
