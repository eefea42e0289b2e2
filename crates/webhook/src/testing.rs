//! Tools for tests of webhooks.
//!
//! Handlers are functions, so most tests call them, with a [`ReviewRequest`] that has what the handler looks at:
//!
//! ```
//! use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use windlass_runtime::Error;
//! use windlass_webhook::{Change, FieldErrors, ReviewRequest, testing};
//!
//! fn check(_: Change<'_, ConfigMap>, request: &ReviewRequest) -> Result<FieldErrors, Error> {
//!     let mut errors = FieldErrors::new();
//!     if request.lister::<Namespace>()?.is_empty() && request.username() != "alice" {
//!         errors.forbidden("metadata.namespace", "there are no namespaces");
//!     }
//!     Ok(errors)
//! }
//!
//! # fn main() -> Result<(), Error> {
//! let mut request = testing::request().objects::<Namespace>([])?.build();
//! request.user.username = Some("bob".to_owned());
//! let errors = check(Change::Created(&ConfigMap::default()), &request)?;
//! assert_eq!(errors.iter().collect::<Vec<_>>(), ["metadata.namespace: Forbidden: there are no namespaces"]);
//! # Ok(()) }
//! ```
//!
//! What a whole webhook does is tested on an embedded API server, which
//! calls a [`WebhookService`](crate::WebhookService) in the process. This module has what conversions need:
//! [`round_trips`] generates objects from the schemas of two versions, and finds what is lost between them.

mod generate;
mod shrink;

use std::{fmt::Display, sync::Arc};

use kube::CustomResourceExt;
use serde::Serialize;
use serde_json::{Value, json};
use windlass_cache::{Cacheable, Lister};
use windlass_runtime::Error;

use self::generate::{Generator, schema_of};
use crate::{
    ReviewRequest,
    conversion::{Conversion, PANICKED, Version, convert},
    reads::Listers,
};

/// Starts to build a [`ReviewRequest`] for a unit test of a handler; the module's documentation has an example.
pub fn request() -> RequestBuilder {
    RequestBuilder(Listers::default())
}

/// Builds a [`ReviewRequest`] for unit tests, from [`request`].
#[must_use = "call `build`"]
#[derive(Debug)]
pub struct RequestBuilder(Listers);

impl RequestBuilder {
    /// Adds a lister of exactly these objects. Call it once for each kind that the handler reads.
    pub fn objects<K>(mut self, objects: impl IntoIterator<Item = K>) -> Result<Self, Error>
    where
        K: Cacheable<DynamicType: Default> + Serialize,
    {
        self.0.add(Lister::fixed(objects)?);
        Ok(self)
    }

    /// The request. Its fields are public, and have no values yet.
    pub fn build(self) -> ReviewRequest {
        ReviewRequest {
            listers: Arc::new(self.0),
            ..ReviewRequest::default()
        }
    }
}

/// How many objects are generated for each direction.
const CASES: u64 = 300;

/// Checks that conversions between two versions lose nothing: that `A` to `B` to `A`, and `B` to `A` to `B`, yield the same
/// object, for hundreds of objects that are generated from the schemas of both CRDs. The same objects are generated each
/// time.
///
/// ```should_panic
/// # mod v1 {
/// #     #[derive(kube::CustomResource, Clone, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
/// #     #[kube(group = "example.com", version = "v1", kind = "Cone", namespaced)]
/// #     pub struct ConeSpec { pub flavor: String }
/// # }
/// # mod v2 {
/// #     #[derive(kube::CustomResource, Clone, Debug, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
/// #     #[kube(group = "example.com", version = "v2", kind = "Cone", namespaced)]
/// #     pub struct ConeSpec { pub flavors: Vec<String> }
/// # }
/// impl From<v1::Cone> for v2::Cone {
///     fn from(cone: v1::Cone) -> Self {
///         Self { metadata: cone.metadata, spec: v2::ConeSpec { flavors: vec![cone.spec.flavor] } }
///     }
/// }
/// impl From<v2::Cone> for v1::Cone {
///     fn from(cone: v2::Cone) -> Self {
///         Self { metadata: cone.metadata, spec: v1::ConeSpec { flavor: cone.spec.flavors.join(" ") } }
///     }
/// }
/// // example.com/v2 → example.com/v1 → example.com/v2 changes `/spec/flavors` from `[]` to `[""]`
/// windlass_webhook::testing::round_trips::<v1::Cone, v2::Cone>();
/// ```
///
/// A conversion with [losses](Conversion::keep_losses) that are kept is tested as a whole, with its annotations:
/// [`conversion_round_trips`]. An object that the conversion refuses is not a loss, as long as some are converted; one
/// that it cannot convert back, or a panic, is.
///
/// # Panics
///
/// If something is lost or changed, with the smallest object that shows it.
pub fn round_trips<A, B>()
where
    A: Version + CustomResourceExt + TryFrom<B, Error: Display>,
    B: Version + CustomResourceExt + TryFrom<A, Error: Display>,
{
    let conversion = convert::<A>().version::<B>();
    conversion_round_trips::<_, A, B>(&conversion);
}

/// Like [`round_trips`], for two versions of a declared conversion, with all that it does: several steps, unknown fields, and
/// [losses](Conversion::keep_losses) that are kept.
///
/// # Panics
///
/// If something is lost or changed, with the smallest object that shows it.
pub fn conversion_round_trips<Hub, A, B>(conversion: &Conversion<Hub>)
where
    Hub: Version,
    A: Version + CustomResourceExt,
    B: Version + CustomResourceExt,
{
    for (from, to, schema) in [
        (
            version::<A>(),
            version::<B>(),
            schema_of(&A::crd(), &version::<A>()),
        ),
        (
            version::<B>(),
            version::<A>(),
            schema_of(&B::crd(), &version::<B>()),
        ),
    ] {
        check(conversion, &from, &to, &schema);
    }
}

fn version<V: Version>() -> String {
    V::version(&V::DynamicType::default()).into_owned()
}

/// What a round trip has changed.
struct Loss {
    path: String,
    before: Option<Value>,
    after: Option<Value>,
}

fn check<Hub: Version>(conversion: &Conversion<Hub>, from: &str, to: &str, schema: &Value) {
    let (mut valid, mut refused) = (0, None);
    for seed in 0..CASES {
        let object = Generator::new(seed).object(schema);
        match round_trip(conversion, &object, from, to) {
            Trip::Same => valid += 1,
            // The schema allows it and the type does not, or the conversion refuses it.
            Trip::Refused(why) => refused = Some(why),
            trip => {
                let is_like = |object: &Value| {
                    let other = round_trip(conversion, object, from, to);
                    std::mem::discriminant(&other) == std::mem::discriminant(&trip)
                };
                let smallest = shrink::shrink(object, is_like);
                let kind = conversion.kind();
                match round_trip(conversion, &smallest, from, to) {
                    Trip::Panicked => {
                        panic!("{kind} {from} → {to} → {from} panics, for example for {smallest}")
                    }
                    Trip::NotBack(why) => panic!(
                        "{kind} {from} → {to} → {from} cannot convert back: {why}, for example for {smallest}"
                    ),
                    Trip::Changed(loss) => {
                        let shown = |value: &Option<Value>| {
                            let text = value.as_ref().map(Value::to_string);
                            text.unwrap_or_else(|| "nothing".to_owned())
                        };
                        panic!(
                            "{kind} {from} → {to} → {from} changes `{}` from `{}` to `{}`, for example for {smallest}",
                            loss.path,
                            shown(&loss.before),
                            shown(&loss.after)
                        );
                    }
                    Trip::Same | Trip::Refused(_) => {}
                }
            }
        }
    }
    let kind = conversion.kind();
    assert!(
        valid > 0,
        "no object that was generated from the schema of {kind} {from} can be converted to {to}: {}",
        refused.unwrap_or_default()
    );
    tracing::info!(
        kind,
        from,
        to,
        valid,
        refused = CASES - valid,
        "checked round trips"
    );
}

/// How a round trip ends.
enum Trip {
    Same,
    Changed(Loss),
    /// The object cannot be converted.
    Refused(String),
    /// What it was converted to cannot be converted back.
    NotBack(String),
    Panicked,
}

/// Converts there and back.
fn round_trip<Hub: Version>(conversion: &Conversion<Hub>, content: &Value, from: &str, to: &str) -> Trip {
    let is_panic = |why: &str| why == PANICKED;
    let object = conversion.object(content, from);
    // What the type does not keep is no matter of the conversion.
    let known = match conversion.known(&object) {
        Ok(known) => known,
        Err(why) => return Trip::Refused(why),
    };
    let there = match conversion.convert(object, to) {
        Ok(there) => there,
        Err(why) if is_panic(&why) => return Trip::Panicked,
        Err(why) => return Trip::Refused(why),
    };
    let back = conversion.convert(there, from);
    match back.and_then(|back| conversion.known(&back)) {
        Ok(back) => first_difference(&known, &back, "").map_or(Trip::Same, Trip::Changed),
        Err(why) if is_panic(&why) => Trip::Panicked,
        Err(why) => Trip::NotBack(why),
    }
}

fn first_difference(before: &Value, after: &Value, path: &str) -> Option<Loss> {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
            keys.into_iter().find_map(|key| {
                let path = format!("{path}/{key}");
                match (old.get(key), new.get(key)) {
                    (Some(old), Some(new)) => first_difference(old, new, &path),
                    (before, after) => Some(Loss {
                        path,
                        before: before.cloned(),
                        after: after.cloned(),
                    }),
                }
            })
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let mut pairs = old.iter().zip(new).enumerate();
            pairs.find_map(|(index, (old, new))| first_difference(old, new, &format!("{path}/{index}")))
        }
        _ if before == after => None,
        _ => Some(Loss {
            path: path.to_owned(),
            before: Some(before.clone()),
            after: Some(after.clone()),
        }),
    }
}

impl<Hub: Version> Conversion<Hub> {
    fn kind(&self) -> &str {
        &self.converter().kind
    }

    fn object(&self, content: &Value, version: &str) -> Value {
        let mut object = content.clone();
        object["apiVersion"] = format!("{}/{version}", self.converter().group).into();
        object["kind"] = self.kind().into();
        object["metadata"] =
            json!({"name": "generated", "labels": {"a": "b"}, "finalizers": ["example.com/x"]});
        object
    }

    fn known(&self, object: &Value) -> Result<Value, String> {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        self.converter().reencode(object, version)
    }
}

#[cfg(test)]
mod tests;
