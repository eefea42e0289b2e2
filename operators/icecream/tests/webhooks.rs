//! The webhooks, called over TLS at a URL of this machine.

use windlass::{
    k8s_openapi::{
        api::apps::v1::Deployment,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::{
            CustomResourceConversion, CustomResourceDefinition,
        },
    },
    kube::{self, Api},
    prelude::*,
    runtime::CrdInstaller,
    webhook::{OptionalWebhooks, Webhooks, await_conversion},
};
use windlass_icecream::{Icecream, IcecreamSpec, add_webhooks, controller, crd, v1beta1};
use windlass_suite::{Context as Case, RunningManager, TestEnvironment, suite};

suite!("icecream-webhooks", cluster_per_case;
    both_versions_are_served_and_mistakes_are_refused,
);

/// The program with `--install --webhooks`.
fn start(env: &TestEnvironment) -> RunningManager {
    let mut webhooks = OptionalWebhooks::default();
    webhooks.enabled = true;
    let install = CrdInstaller::new([crd(true)]).apply();
    let manager = env.manager().install(install).controller(controller());
    RunningManager::start(webhooks.add_to(manager, add_webhooks(Webhooks::new("icecream"))))
}

fn newer(name: &str, deployment: &str, replicas: i32) -> v1beta1::Icecream {
    let deployment = v1beta1::DeploymentSpec {
        name: deployment.to_owned(),
        replicas: Some(replicas),
    };
    let flavor = Some("mint".to_owned());
    v1beta1::Icecream::new(name, v1beta1::IcecreamSpec { deployment, flavor })
}

async fn conversion(case: &Case) -> anyhow::Result<Option<CustomResourceConversion>> {
    let crds = Api::<CustomResourceDefinition>::all(case.client());
    let crd = crds.get("icecreams.controller.nicoleh.io").await?;
    Ok(crd.spec.conversion)
}

/// Creates an object as soon as the API server calls the webhooks.
async fn create_once_served<K: windlass_suite::Namespaced>(
    env: &TestEnvironment,
    object: &K,
) -> anyhow::Result<K> {
    let deadline = windlass::tokio::time::Instant::now() + windlass_suite::STEP_TIMEOUT;
    loop {
        match env.create(object.clone()).await {
            Ok(created) => return Ok(created),
            Err(error) if windlass::tokio::time::Instant::now() >= deadline => return Err(error.into()),
            Err(_) => windlass::tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

async fn both_versions_are_served_and_mistakes_are_refused(case: Case) -> anyhow::Result<()> {
    let env = TestEnvironment::new(&case);
    let running = start(&env);
    // Before the registration, v1beta1 fails: nothing is stored unconverted.
    let created = create_once_served(&env, &newer("sundae", "", 2)).await?;
    assert_eq!(created.spec.deployment.name, "sundae", "the default");
    let stored = env.get::<Icecream>("sundae").await?;
    let expected = IcecreamSpec {
        deployment_name: "sundae".to_owned(),
        replicas: Some(2),
        flavor: Some("mint".to_owned()),
    };
    assert_eq!(stored.spec, expected);
    env.wait_for::<Deployment>("sundae", |_| true).await?;

    // All mistakes at once, in the fields of the stored version.
    let mut wrong = newer("wrong", "Not a name", 1);
    wrong.spec.flavor = Some("salted caramel".to_owned());
    let Err(kube::Error::Api(refused)) = env.create(wrong).await else {
        anyhow::bail!("it is not refused");
    };
    assert_eq!((refused.code, &*refused.reason), (422, "Invalid"));
    for expected in [
        r#"admission webhook "validate.icecreams.controller.nicoleh.io" denied the request"#,
        r#"spec.deploymentName: Invalid value: "Not a name": use at most 253 "#,
        r#"spec.flavor: Invalid value: "salted caramel": use at most 63 "#,
    ] {
        assert!(refused.message.contains(expected), "{refused}");
    }

    // An update in one version shows in the other, and keeps what the first cannot express: nothing here.
    let patch = json!({ "spec": { "deployment": { "replicas": 3 } } });
    env.patch::<v1beta1::Icecream>("sundae", patch).await?;
    assert_eq!(env.get::<Icecream>("sundae").await?.spec.replicas, Some(3));
    env.wait_for::<Deployment>("sundae", |deployment| {
        deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(3)
    })
    .await?;
    let shown = env
        .wait_for::<v1beta1::Icecream>("sundae", |icecream| icecream.status.is_some())
        .await?;
    assert_eq!(shown.status, env.get::<Icecream>("sundae").await?.status);

    // A second start installs the CRD again, and leaves the registration of the first as it is.
    let registered = conversion(&case).await?;
    let writer = windlass::runtime::Writer::new(case.client(), "icecream");
    CrdInstaller::new([crd(true)]).apply().run(&writer).await?;
    assert_eq!(conversion(&case).await?, registered);

    // At the end v1beta1 is not served, rather than without its conversion.
    running.stop().await?;
    assert_eq!(
        conversion(&case).await?.map(|conversion| conversion.strategy),
        await_conversion(crd(true))
            .spec
            .conversion
            .map(|conversion| conversion.strategy)
    );
    assert!(env.get::<v1beta1::Icecream>("sundae").await.is_err());
    assert_eq!(env.get::<Icecream>("sundae").await?.spec.replicas, Some(3));
    Ok(())
}
