//! Upstream's files, used with kubectl.

use windlass::{
    k8s_openapi::{
        api::apps::v1::Deployment,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    },
    kube::Api,
    prelude::*,
    runtime::CrdInstaller,
};
use windlass_foo::Foo;
use windlass_suite::{Context as Case, ManifestRoles, RunningManager, TestEnvironment, suite};

// One case, since a CRD is cluster-wide.
suite!("foo-kubectl", paused, requires(windlass_cluster::matching_kubectl());
    upstream_files_work_unchanged_and_errors_are_shown,
);

/// Upstream's example, unchanged.
const EXAMPLE: &str = "\
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata:
  name: example-foo
spec:
  deploymentName: example-foo
  replicas: 1
";

/// Upstream's CRD without its comments.
const DEFINITION: &str = include_str!("upstream-crd.yaml");

async fn upstream_files_work_unchanged_and_errors_are_shown(case: Case) -> anyhow::Result<()> {
    let rights = ManifestRoles::parse(include_str!("../rbac.yaml"))?;
    let env = TestEnvironment::with_client(&case, &rights.client(&case).await?);
    apply(&env, DEFINITION).await?;
    let established = [
        "wait",
        "--for=condition=Established",
        "crd/foos.samplecontroller.k8s.io",
    ];
    case.kubectl(&established, "").await?;
    let manager = env.manager().install(CrdInstaller::new([Foo::crd()]));
    let running = RunningManager::start(manager.controller(windlass_foo::controller()));
    check_example_with_either_crd(&env).await?;
    check_errors_in_kubectl(&env).await?;
    running.stop().await
}

async fn apply(env: &TestEnvironment, manifest: &str) -> anyhow::Result<String> {
    env.case().kubectl(&["apply", "-f", "-"], manifest).await
}

/// The example works with upstream's CRD, with ours, and while one replaces the other.
async fn check_example_with_either_crd(env: &TestEnvironment) -> anyhow::Result<()> {
    // Upstream's CRD accepts a Foo without a spec. It must not block others.
    let spec = EXAMPLE.find("spec:").unwrap_or_default();
    apply(env, &EXAMPLE[..spec].replace("example-foo", "bare")).await?;
    let output = apply(env, EXAMPLE).await?;
    assert_eq!(output, "foo.samplecontroller.k8s.io/example-foo created\n");
    let made = env.wait_for::<Deployment>("example-foo", |_| true).await?;
    env.wait_for::<Foo>("example-foo", |foo| foo.status.is_some())
        .await?;
    let replicas = [
        "get",
        "deployment",
        "example-foo",
        "-o",
        "jsonpath={.spec.replicas}",
    ];
    assert_eq!(env.case().kubectl(&replicas, "").await?, "1");

    apply(env, &serde_json::to_string(&Foo::crd())?).await?;
    let definitions = Api::<CustomResourceDefinition>::all(env.case().client());
    let now = definitions.get("foos.samplecontroller.k8s.io").await?;
    assert_eq!(now.spec.names.singular.as_deref(), Some("foo"));
    let output = apply(env, EXAMPLE).await?;
    assert_eq!(output, "foo.samplecontroller.k8s.io/example-foo unchanged\n");
    apply(env, &EXAMPLE.replace("replicas: 1", "replicas: 3")).await?;
    let grown = |web: &Deployment| web.spec.as_ref().is_some_and(|spec| spec.replicas == Some(3));
    let grown = env.wait_for::<Deployment>("example-foo", grown).await?;
    assert_eq!(grown.uid(), made.uid());
    Ok(())
}

/// `kubectl apply` rejects an out-of-range value with the field's name; `kubectl describe` shows the controller's events.
async fn check_errors_in_kubectl(env: &TestEnvironment) -> anyhow::Result<()> {
    let refused = apply(env, &EXAMPLE.replace("replicas: 1", "replicas: 11")).await;
    let refused = format!("{:?}", refused.expect_err("eleven"));
    assert!(
        refused.contains("example-foo") && refused.contains("spec.replicas"),
        "{refused}"
    );
    let misnamed = EXAMPLE.replace("deploymentName: example-foo", "deploymentName: Not_Valid!");
    apply(env, &misnamed).await?;
    let foo = env.get::<Foo>("example-foo").await?;
    env.wait_for_event(&foo, |event| event.reason.as_deref() == Some("ErrInvalid"))
        .await?;
    let shown = env
        .case()
        .kubectl(&["describe", "foo", "example-foo"], "")
        .await?;
    let event = shown.lines().find(|line| line.contains("ErrInvalid"));
    let event = event.unwrap_or_else(|| panic!("an event in\n{shown}"));
    assert!(
        event.contains("Warning") && event.contains("sample-controller"),
        "{event}"
    );
    assert!(
        event.contains("Not_Valid!") && event.contains("RFC 1123"),
        "{event}"
    );
    Ok(())
}
