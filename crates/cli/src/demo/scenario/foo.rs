//! One Foo: it gets its Deployment, which is kept in sync.

use futures::FutureExt;
use windlass::{
    k8s_openapi::api::apps::v1::Deployment,
    kube::{
        ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    prelude::json,
};
use windlass_foo::{Foo, FooSpec};

use super::{Chapter, CheckResult, Scenario};

const FOO: &str = "example-foo";
const RENAMED: &str = "renamed-foo";

const DEPLOYMENT_CREATED: &str = "the Foo got a Deployment with 2 replicas";
const OWNED: &str = "the Deployment is controlled by the Foo, by UID";
const REPORTED: &str = "its 2 pods run, and the Foo's status reports them";
const FOLLOWED: &str = "the Deployment followed, and 3 replicas are available";
const REPAIRED: &str = "the drift was repaired: 3 replicas of nginx again";
const RECREATED: &str = "the Deployment was recreated";
const OLD_REMOVED: &str = "only the Deployment with the new name is left";

pub(super) const CHAPTER: Chapter = Chapter {
    title: "foo: a Foo gets its Deployment, and keeps it",
    claims: &[
        DEPLOYMENT_CREATED,
        OWNED,
        REPORTED,
        FOLLOWED,
        REPAIRED,
        RECREATED,
        OLD_REMOVED,
    ],
    run: |scenario| run(scenario).boxed_local(),
};

async fn run(scenario: &Scenario) -> anyhow::Result<()> {
    let (foos, deployments) = (scenario.api::<Foo>(), scenario.api::<Deployment>());
    let merge = |change| Patch::Merge(change);
    let (post, patch) = (PostParams::default(), PatchParams::default());

    let spec = FooSpec {
        deployment_name: FOO.to_owned(),
        replicas: Some(2),
    };
    let foo = Foo::new(FOO, spec);
    let creating = foos.create(&post, &foo);
    let foo = scenario
        .perform("create Foo demo/example-foo with 2 replicas", creating)
        .await?;
    let uid = foo.uid().unwrap_or_default();
    scenario
        .check_claim(DEPLOYMENT_CREATED, async || {
            Ok(check_replicas(deployments.get_opt(FOO).await?.as_ref(), 2))
        })
        .await?;
    let owned = async || {
        let deployment = deployments.get_opt(FOO).await?;
        let owners = deployment.as_ref().map_or(&[][..], ResourceExt::owner_references);
        let owned = owners
            .iter()
            .any(|owner| owner.uid == uid && owner.controller == Some(true));
        anyhow::Ok(owned.then_some(()).ok_or(format!("its owners are {owners:?}")))
    };
    scenario.check_claim(OWNED, owned).await?;
    scenario
        .check_claim(REPORTED, async || Ok(check_available(&foos.get(FOO).await?, 2)))
        .await?;

    let more = merge(json!({ "spec": { "replicas": 3 } }));
    let scaling = foos.patch(FOO, &patch, &more);
    scenario.perform("scale the Foo to 3 replicas", scaling).await?;
    let followed = async || {
        let deployment = deployments.get_opt(FOO).await?;
        let deployment = check_replicas(deployment.as_ref(), 3);
        anyhow::Ok(deployment.and(check_available(&foos.get(FOO).await?, 3)))
    };
    scenario.check_claim(FOLLOWED, followed).await?;

    let httpd = json!([{ "name": "nginx", "image": "httpd:latest" }]);
    let drift = json!({ "spec": { "replicas": 7, "template": { "spec": { "containers": httpd } } } });
    let drift = Patch::Strategic(drift);
    let drifting = deployments.patch(FOO, &patch, &drift);
    scenario
        .perform("change the Deployment by hand: 7 replicas of httpd", drifting)
        .await?;
    let repaired = async || {
        let deployment = deployments.get_opt(FOO).await?;
        let image = deployment.as_ref().and_then(image);
        let image = match image.as_deref() {
            Some("nginx:latest") => Ok(()),
            image => Err(format!("its image is {image:?}")),
        };
        anyhow::Ok(check_replicas(deployment.as_ref(), 3).and(image))
    };
    scenario.check_claim(REPAIRED, repaired).await?;

    let before = deployments.get(FOO).await?.uid();
    let delete = DeleteParams::default();
    let deleting = deployments.delete(FOO, &delete);
    scenario
        .perform("delete the Deployment by hand", deleting)
        .await?;
    let recreated = async || {
        let deployment = deployments.get_opt(FOO).await?;
        let same = deployment.as_ref().is_some_and(|found| found.uid() == before);
        anyhow::Ok(if same {
            Err("the old one still exists".to_owned())
        } else {
            check_replicas(deployment.as_ref(), 3)
        })
    };
    scenario.check_claim(RECREATED, recreated).await?;

    let rename = merge(json!({ "spec": { "deploymentName": RENAMED } }));
    let renaming = foos.patch(FOO, &patch, &rename);
    scenario
        .perform("rename the Foo's Deployment to renamed-foo", renaming)
        .await?;
    let moved = async || {
        if deployments.get_opt(FOO).await?.is_some() {
            return Ok(Err(format!("Deployment demo/{FOO} still exists")));
        }
        let renamed = deployments.get_opt(RENAMED).await?;
        anyhow::Ok(check_replicas(renamed.as_ref(), 3).and(check_available(&foos.get(FOO).await?, 3)))
    };
    scenario.check_claim(OLD_REMOVED, moved).await
}

fn check_replicas(deployment: Option<&Deployment>, wanted: i32) -> CheckResult {
    let Some(deployment) = deployment else {
        return Err("there is no Deployment".to_owned());
    };
    match deployment.spec.as_ref().and_then(|spec| spec.replicas) {
        Some(replicas) if replicas == wanted => Ok(()),
        replicas => Err(format!(
            "Deployment demo/{} has {} replicas",
            deployment.name_any(),
            replicas.unwrap_or_default()
        )),
    }
}

fn image(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.clone()
}

/// Whether a Foo reports this many available replicas.
pub(super) fn check_available(foo: &Foo, wanted: i32) -> CheckResult {
    match foo.status.as_ref().map(|status| status.available_replicas) {
        Some(available) if available == wanted => Ok(()),
        available => Err(format!(
            "Foo demo/{} reports {} available replicas",
            foo.name_any(),
            available.unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use windlass::prelude::from_value;

    use super::*;

    #[test]
    fn failed_checks_say_what_was_found() {
        assert_eq!(check_replicas(None, 3), Err("there is no Deployment".to_owned()));
        let deployment = json!({
            "metadata": { "name": "web" },
            "spec": { "replicas": 7, "selector": {}, "template": { "spec": { "containers": [{ "name": "a", "image": "httpd" }] } } },
        });
        let deployment: Deployment = from_value(deployment).expect("a Deployment");
        assert_eq!(check_replicas(Some(&deployment), 7), Ok(()));
        assert_eq!(
            check_replicas(Some(&deployment), 3),
            Err("Deployment demo/web has 7 replicas".to_owned())
        );
        assert_eq!(image(&deployment).as_deref(), Some("httpd"));
        let foo = Foo::new(
            "a",
            FooSpec {
                deployment_name: String::new(),
                replicas: None,
            },
        );
        assert_eq!(
            check_available(&foo, 2),
            Err("Foo demo/a reports 0 available replicas".to_owned())
        );
    }
}
