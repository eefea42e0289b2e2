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

mod refusing {
    use super::{CustomResource, Deserialize, JsonSchema, Serialize, v1};

    /// Refuses to be converted back, if it is large.
    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "example.com", version = "v3", kind = "Cone", namespaced)]
    pub(super) struct ConeSpec {
        pub(super) flavor: Option<String>,
        pub(super) size: u8,
    }

    impl From<v1::Cone> for Cone {
        fn from(cone: v1::Cone) -> Self {
            assert!(cone.spec.flavor.as_deref() != Some(""), "no flavor");
            Self::new(
                "",
                ConeSpec {
                    flavor: cone.spec.flavor,
                    size: cone.spec.size,
                },
            )
        }
    }

    impl TryFrom<Cone> for v1::Cone {
        type Error = String;

        fn try_from(cone: Cone) -> Result<Self, String> {
            if cone.spec.size > 100 {
                return Err("too large".to_owned());
            }
            Ok(Self::new(
                "",
                v1::ConeSpec {
                    flavor: cone.spec.flavor,
                    size: cone.spec.size,
                },
            ))
        }
    }
}

fn trip(content: &Value, from: &str, to: &str) -> Trip {
    let conversion = convert::<v1::Cone>().version::<refusing::Cone>();
    round_trip(&conversion, content, from, to)
}

#[test]
fn panics_and_refusals_on_the_way_back_are_failures() {
    let large = json!({"spec": {"size": 200}});
    assert!(matches!(trip(&large, "v1", "v3"), Trip::NotBack(why) if why == "too large"));
    assert!(matches!(trip(&large, "v3", "v1"), Trip::Refused(_)));
    let empty = json!({"spec": {"size": 2, "flavor": ""}});
    assert!(matches!(trip(&empty, "v1", "v3"), Trip::Panicked));
    assert!(matches!(trip(&empty, "v3", "v1"), Trip::Panicked));
    assert!(matches!(
        trip(&json!({"spec": {"size": 2}}), "v1", "v3"),
        Trip::Same
    ));
}

#[test]
#[should_panic(expected = "Cone v1 → v3 → v1")]
fn conversion_that_panics_fails_the_test() {
    round_trips::<v1::Cone, refusing::Cone>();
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
