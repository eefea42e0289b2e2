//! Conversion of a real CRD's objects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResource, CustomResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass_suite::Context;
use windlass_webhook::{Webhooks, convert};

use super::fixture::{eventually, run};

mod v1 {
    use super::{CustomResource, Deserialize, JsonSchema, Serialize};

    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "webhooks.windlass.dev", version = "v1", kind = "Cone", namespaced)]
    pub(super) struct ConeSpec {
        pub(super) balls: u32,
        pub(super) flavor: Option<String>,
    }
}

mod v2 {
    use super::{CustomResource, Deserialize, JsonSchema, Serialize};

    #[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "webhooks.windlass.dev", version = "v2", kind = "Cone", namespaced)]
    pub(super) struct ConeSpec {
        pub(super) scoops: u32,
        #[serde(default)]
        pub(super) flavors: Vec<String>,
    }
}

impl From<v1::Cone> for v2::Cone {
    fn from(cone: v1::Cone) -> Self {
        let (scoops, flavors) = (cone.spec.balls, cone.spec.flavor.into_iter().collect());
        Self::new("", v2::ConeSpec { scoops, flavors })
    }
}

impl From<v2::Cone> for v1::Cone {
    fn from(cone: v2::Cone) -> Self {
        let (balls, flavor) = (cone.spec.scoops, cone.spec.flavors.into_iter().next());
        Self::new("", v1::ConeSpec { balls, flavor })
    }
}

pub(super) async fn objects_are_converted_and_losses_are_restored(ctx: Context) -> anyhow::Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(ctx.client());
    let crd = kube::core::crd::merge_crds(vec![v1::Cone::crd(), v2::Cone::crd()], "v1")?;
    crds.create(&PostParams::default(), &crd).await?;
    let (old, new) = (ctx.api::<v1::Cone>(), ctx.api::<v2::Cone>());
    eventually("the CRD is served", async || {
        Ok(new.list(&ListParams::default()).await.is_ok())
    })
    .await?;
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([("a".to_owned(), "b".to_owned())].into()),
        ..ObjectMeta::default()
    };
    let probe = v1::Cone {
        metadata: metadata("probe"),
        spec: v1::ConeSpec {
            balls: 3,
            flavor: Some("mango".to_owned()),
        },
    };
    eventually("a cone is created", async || {
        old.create(&PostParams::default(), &probe).await?;
        Ok(true)
    })
    .await?;

    let webhooks =
        Webhooks::new("suite-versions").with(convert::<v1::Cone>().version::<v2::Cone>().keep_losses());
    let running = run(&ctx, webhooks, async || {
        Ok(new.get("probe").await?.spec.scoops == 3)
    })
    .await?;
    let spec = v2::ConeSpec {
        scoops: 2,
        flavors: vec!["mango".to_owned(), "lemon".to_owned()],
    };
    let cone = v2::Cone {
        metadata: metadata("a"),
        spec: spec.clone(),
    };
    let created = new.create(&PostParams::default(), &cone).await?;
    assert_eq!(created.spec, spec);
    let shown = old.get("a").await?;
    assert_eq!(
        shown.spec,
        v1::ConeSpec {
            balls: 2,
            flavor: Some("mango".to_owned())
        }
    );
    assert_eq!(shown.metadata.labels, cone.metadata.labels);
    let patch = Patch::Merge(json!({"spec": {"balls": 5}}));
    old.patch("a", &PatchParams::default(), &patch).await?;
    assert_eq!(new.get("a").await?.spec, v2::ConeSpec { scoops: 5, ..spec });
    let listed = new.list(&ListParams::default()).await?;
    assert_eq!(
        listed
            .items
            .iter()
            .map(|cone| cone.spec.scoops)
            .collect::<Vec<_>>(),
        [5, 3]
    );

    // Both versions are still served, so they are not taken for each other: requests in the other version fail.
    running.stop().await?;
    let name = crd.metadata.name.clone().unwrap_or_default();
    let conversion = crds.get(&name).await?.spec.conversion;
    let client = conversion.and_then(|conversion| conversion.webhook?.client_config);
    let url = client.and_then(|client| client.url).unwrap_or_default();
    assert!(
        url.ends_with("the-conversion-webhook-is-not-registered-yet"),
        "{url}"
    );
    crds.delete(&crd.metadata.name.unwrap_or_default(), &DeleteParams::default())
        .await?;
    Ok(())
}
