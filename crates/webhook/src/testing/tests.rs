//! Tests of the generator and of what a failed round trip shows.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

mod v1 {
    use super::{CustomResource, Deserialize, JsonSchema, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Cone", namespaced)]
    pub(super) struct ConeSpec {
        pub(super) flavor: Option<String>,
        pub(super) size: u8,
    }
}

mod v2 {
    use super::{CustomResource, Deserialize, JsonSchema, Serialize};

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v2", kind = "Cone", namespaced)]
    pub(super) struct ConeSpec {
        pub(super) flavors: Vec<String>,
        pub(super) size: u8,
    }
}

impl From<v1::Cone> for v2::Cone {
    fn from(cone: v1::Cone) -> Self {
        let flavors = cone.spec.flavor.into_iter().collect();
        Self::new(
            "",
            v2::ConeSpec {
                flavors,
                size: cone.spec.size,
            },
        )
    }
}

impl From<v2::Cone> for v1::Cone {
    fn from(cone: v2::Cone) -> Self {
        let flavor = cone.spec.flavors.into_iter().next();
        Self::new(
            "",
            v1::ConeSpec {
                flavor,
                size: cone.spec.size,
            },
        )
    }
}

#[test]
#[should_panic(
    expected = "Cone v2 → v1 → v2 changes `/spec/flavors` from `[\"\",\"\"]` to `[\"\"]`, for example for \
                {\"spec\":{\"flavors\":[\"\",\"\"],\"size\":0}}"
)]
fn lossy_conversion_is_shown_with_the_smallest_object() {
    round_trips::<v1::Cone, v2::Cone>();
}

#[test]
fn kept_losses_are_no_losses() {
    let conversion = convert::<v1::Cone>().version::<v2::Cone>().keep_losses();
    conversion_round_trips::<_, v1::Cone, v2::Cone>(&conversion);
}

#[test]
fn generated_objects_have_every_field_sometimes() {
    let schema = schema_of(&v1::Cone::crd(), "v1");
    let objects: Vec<_> = (0..100)
        .map(|seed| Generator::new(seed).object(&schema))
        .collect();
    let count = |test: fn(&Value) -> bool| objects.iter().filter(|object| test(object)).count();
    assert!(count(|object| object["spec"]["flavor"].is_string()) > 20);
    assert!(count(|object| object["spec"]["flavor"].is_null()) > 20);
    assert!(count(|object| object["spec"]["size"] == 255) > 5);
    let seven = Generator::new(7).object(&schema);
    assert_eq!(seven, objects[7], "the same seed is the same object");
}
