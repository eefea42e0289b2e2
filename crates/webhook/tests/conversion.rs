//! Conversions of an embedded API server's objects, and what they keep.

use kube::{
    Api, Client, CustomResource, CustomResourceExt,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_apiserver::{InProcessWebhook, Server};
use windlass_webhook::{WebhookAddress, Webhooks, convert, convert_spec, moved_fields};

use crate::server;

pub(crate) mod v1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Cone", namespaced)]
    pub(crate) struct ConeSpec {
        pub(crate) balls: u32,
        pub(crate) flavor: Option<String>,
        #[serde(default)]
        pub(crate) extras: Vec<Extra>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    pub(crate) struct Extra {
        pub(crate) label: String,
    }
}

pub(crate) mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v2", kind = "Cone", namespaced)]
    pub(crate) struct ConeSpec {
        pub(crate) scoops: u32,
        pub(crate) flavor: Option<String>,
        #[serde(default)]
        pub(crate) toppings: Vec<Topping>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    pub(crate) struct Topping {
        pub(crate) name: String,
    }
}

/// A version that has more than one flavor, which the others do not.
mod v3 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v3", kind = "Cone", namespaced)]
    pub(super) struct ConeSpec {
        pub(super) scoops: u32,
        #[serde(default)]
        pub(super) flavors: Vec<String>,
        pub(super) size: Option<String>,
    }
}

moved_fields!(v1::Extra, v2::Topping { label => name });
moved_fields!(v1::ConeSpec, v2::ConeSpec { balls => scoops, flavor, each extras => toppings });
convert_spec!(v1::Cone, v2::Cone);

impl From<v3::Cone> for v2::Cone {
    fn from(cone: v3::Cone) -> Self {
        // The metadata need not be carried over.
        Self::new(
            "",
            v2::ConeSpec {
                scoops: cone.spec.scoops,
                flavor: cone.spec.flavors.into_iter().next(),
                toppings: Vec::new(),
            },
        )
    }
}

impl TryFrom<v2::Cone> for v3::Cone {
    type Error = String;

    fn try_from(cone: v2::Cone) -> Result<Self, String> {
        if cone.spec.scoops > 99 {
            return Err("no cone has more than 99 scoops".to_owned());
        }
        Ok(Self::new(
            "",
            v3::ConeSpec {
                scoops: cone.spec.scoops,
                flavors: cone.spec.flavor.into_iter().collect(),
                size: None,
            },
        ))
    }
}

pub(crate) fn webhooks() -> Webhooks {
    let cones = convert::<v2::Cone>().version::<v1::Cone>().version::<v3::Cone>();
    Webhooks::new("cones").with(cones.keep_losses())
}

/// A server that stores cones as v2 and serves all versions.
async fn serve() -> Client {
    let webhooks = webhooks();
    let conversion = webhooks
        .configurations(&WebhookAddress::service("system", "hooks"))
        .conversions
        .remove(0);
    assert_eq!(conversion.0, "cones.example.com");
    let crds = vec![v1::Cone::crd(), v2::Cone::crd(), v3::Cone::crd()];
    let mut crd = kube::core::crd::merge_crds(crds, "v2").expect("the same kind");
    crd.spec.conversion = Some(conversion.1);
    let server = Server::builder()
        .webhook("hooks.system.svc", InProcessWebhook::new(webhooks.service()))
        .build();
    let client = server::client(server);
    Api::all(client.clone())
        .create(&PostParams::default(), &crd)
        .await
        .expect("the CRD is valid");
    client
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([("a".to_owned(), "b".to_owned())].into()),
        finalizers: Some(vec!["example.com/keep".to_owned()]),
        ..ObjectMeta::default()
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_read_in_every_version_with_their_metadata() {
    let client = serve().await;
    let (old, new): (Api<v1::Cone>, Api<v2::Cone>) = (
        Api::default_namespaced(client.clone()),
        Api::default_namespaced(client.clone()),
    );
    let cone = v1::Cone {
        metadata: metadata("a"),
        spec: v1::ConeSpec {
            balls: 2,
            flavor: Some("mango".to_owned()),
            extras: vec![v1::Extra {
                label: "nuts".to_owned(),
            }],
        },
    };
    let created = old.create(&PostParams::default(), &cone).await.expect("created");
    assert_eq!(created.spec, cone.spec);
    let read = new.get("a").await.expect("converted");
    assert_eq!(read.spec.scoops, 2);
    assert_eq!(read.spec.toppings[0].name, "nuts");
    for name in ["b", "c"] {
        let cone = v1::Cone {
            metadata: metadata(name),
            spec: cone.spec.clone(),
        };
        old.create(&PostParams::default(), &cone).await.expect("created");
    }
    let listed = old.list(&ListParams::default()).await.expect("a list");
    assert_eq!(listed.items.len(), 3);
    for cone in &listed {
        assert_eq!(cone.spec, created.spec);
        assert_eq!(cone.metadata.labels, created.metadata.labels);
        assert_eq!(cone.metadata.finalizers, created.metadata.finalizers);
    }
}

#[tokio::test(start_paused = true)]
async fn losses_are_kept_in_an_annotation_and_restored_unless_changed() {
    let client = serve().await;
    let (old, new): (Api<v1::Cone>, Api<v3::Cone>) = (
        Api::default_namespaced(client.clone()),
        Api::default_namespaced(client.clone()),
    );
    let spec = v3::ConeSpec {
        scoops: 3,
        flavors: vec!["mango".to_owned(), "lemon".to_owned()],
        size: Some("big".to_owned()),
    };
    let cone = v3::Cone {
        metadata: metadata("a"),
        spec: spec.clone(),
    };
    let created = new.create(&PostParams::default(), &cone).await.expect("created");
    assert_eq!(created.spec, spec, "stored as v2, which knows neither");
    assert_eq!(
        created.metadata.annotations, None,
        "what is restored is not shown"
    );
    let shown = old.get("a").await.expect("converted");
    assert!(
        shown
            .metadata
            .annotations
            .expect("losses")
            .contains_key("conversion.windlass.dev/v3")
    );

    // A change of what the old version knows keeps the rest.
    let patch = Patch::Merge(json!({"spec": {"balls": 5}}));
    old.patch("a", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    let read = new.get("a").await.expect("converted").spec;
    assert_eq!(
        read,
        v3::ConeSpec {
            scoops: 5,
            ..spec.clone()
        }
    );

    // A change of what was lost wins.
    let patch = Patch::Merge(json!({"spec": {"flavor": "nut"}}));
    old.patch("a", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    let read = new.get("a").await.expect("converted").spec;
    assert_eq!(read.flavors, ["nut"]);
    assert_eq!(read.size.as_deref(), Some("big"));
}

#[tokio::test(start_paused = true)]
async fn failed_conversion_names_the_object() {
    let client = serve().await;
    let (old, new): (Api<v1::Cone>, Api<v3::Cone>) = (
        Api::default_namespaced(client.clone()),
        Api::default_namespaced(client.clone()),
    );
    let spec = v1::ConeSpec {
        balls: 100,
        ..v1::ConeSpec::default()
    };
    let cone = v1::Cone {
        metadata: metadata("tall"),
        spec,
    };
    old.create(&PostParams::default(), &cone).await.expect("created");
    let failed = new.get("tall").await.expect_err("too many scoops");
    assert!(
        failed.to_string().contains(
            "cannot convert Cone default/tall in example.com/v2 to example.com/v3: no cone has more than 99 scoops"
        ),
        "{failed}"
    );
}

#[test]
fn unknown_fields_stay_where_there_is_room() {
    let cones = convert::<v2::Cone>().version::<v1::Cone>();
    let cone = json!({
        "apiVersion": "example.com/v1", "kind": "Cone",
        "metadata": {"name": "a", "unknown": {"x": null}},
        "spec": {"balls": 1, "extras": [], "scoops": "no number", "more": {"x": [1]}},
        "other": true,
    });
    let converted = cones.convert(cone.clone(), "v2").expect("converted");
    // `scoops` is unknown in v1 and known in v2, so an object that has both gets what was converted.
    assert_eq!(
        converted,
        json!({
            "apiVersion": "example.com/v2", "kind": "Cone",
            "metadata": {"name": "a", "unknown": {"x": null}},
            "spec": {"scoops": 1, "toppings": [], "more": {"x": [1]}},
            "other": true,
        })
    );
    let back = cones.convert(converted, "v1").expect("converted");
    let mut wanted = cone;
    wanted["spec"].as_object_mut().expect("a spec").remove("scoops");
    assert_eq!(back, wanted);
}

#[test]
fn hostile_objects_are_errors() {
    let cones = convert::<v2::Cone>().version::<v1::Cone>().keep_losses();
    let lost = |text: &str| json!({"conversion.windlass.dev/v2": text});
    for (object, is_converted) in [
        (Value::Null, false),
        (json!([]), false),
        (json!({"apiVersion": "example.com/v1", "kind": "Other"}), false),
        (
            json!({"apiVersion": "example.com/v9", "kind": "Cone", "spec": {"balls": 1}}),
            false,
        ),
        (
            json!({"apiVersion": "example.com/v1", "kind": "Cone", "spec": {"balls": -1}}),
            false,
        ),
        (
            json!({"apiVersion": "example.com/v1", "kind": "Cone", "metadata": {}, "spec": {"balls": 1}}),
            true,
        ),
    ] {
        assert_eq!(
            cones.convert(object.clone(), "v2").is_ok(),
            is_converted,
            "{object}"
        );
    }
    for text in [
        "x",
        "[]",
        "[{\"path\":\"\",\"seen\":\"\"}]",
        "[{\"path\":\"/metadata/name\",\"seen\":\"e3b0c44298fc1c14\",\"lost\":\"evil\"}]",
        "[{\"path\":\"/spec/flavor\",\"seen\":\"e3b0c44298fc1c14\",\"lost\":{\"no\":\"text\"}}]",
    ] {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Cone",
            "metadata": {"name": "a", "annotations": lost(text)}, "spec": {"balls": 1},
        });
        let converted = cones.convert(object, "v2").expect("converted");
        assert_eq!(converted["metadata"], json!({"name": "a"}), "{text}");
        assert_eq!(converted["spec"]["scoops"], 1);
    }
}
