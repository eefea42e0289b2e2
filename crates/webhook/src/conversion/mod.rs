//! Conversion between the versions of a kind.
//!
//! ```text
//!   object in v1 ─► decode ─► V1 ─ From ─► Hub ─ From ─► V2 ─► encode ─► object in v2
//!        │                                                                  ▲
//!        ├── metadata ──────────────────────────────────────────────────────┤ as it is
//!        ├── fields that V1 does not know ──────────────────────────────────┤ if V2 does not know them either
//!        └── fields that V2 cannot express ─► annotation ───────────────────┘ on request: `losses`
//! ```
//!
//! A version is a type, and a conversion is Rust's `From` or `TryFrom` between two of them: either each with one version, the
//! hub, or directly. The shortest way is taken.

mod losses;
mod moved;
mod overlay;
mod pending;
mod review;

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    fmt::Display,
    marker::PhantomData,
    panic::AssertUnwindSafe,
};

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use windlass_runtime::metrics::prometheus_client::metrics::counter::Counter;

pub(crate) use self::pending::pending_conversion;
pub use self::{moved::ConvertEach, pending::await_conversion};

/// The error of a conversion that has panicked.
pub(crate) const PANICKED: &str = "the conversion panicked";

/// A version of a kind. Every type of a custom resource is one.
pub trait Version:
    Resource<DynamicType: Default, Scope: 'static> + Serialize + DeserializeOwned + Send + 'static
{
}

impl<V> Version for V where
    V: Resource<DynamicType: Default, Scope: 'static> + Serialize + DeserializeOwned + Send + 'static
{
}

/// Starts the conversion of a kind, from and to the version `Hub`, usually the stored one. Further versions are added with
/// [`version`](Conversion::version); add the result with [`Webhooks::with`](crate::Webhooks::with).
///
/// ```
/// mod v1 {
///     use kube::CustomResource;
///     use schemars::JsonSchema;
///     use serde::{Deserialize, Serialize};
///
///     #[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
///     #[kube(group = "example.com", version = "v1", kind = "Cone", namespaced)]
///     pub struct ConeSpec {
///         pub balls: u32,
///     }
/// }
/// mod v2 {
///     use kube::CustomResource;
///     use schemars::JsonSchema;
///     use serde::{Deserialize, Serialize};
///
///     #[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
///     #[kube(group = "example.com", version = "v2", kind = "Cone", namespaced)]
///     pub struct ConeSpec {
///         pub scoops: u32,
///     }
/// }
///
/// // Only the content is converted: metadata stays as it is.
/// windlass_webhook::moved_fields!(v1::ConeSpec, v2::ConeSpec { balls => scoops });
/// windlass_webhook::convert_spec!(v1::Cone, v2::Cone);
///
/// let webhooks = windlass_webhook::Webhooks::new("cones")
///     .with(windlass_webhook::convert::<v2::Cone>().version::<v1::Cone>());
/// windlass_webhook::testing::round_trips::<v1::Cone, v2::Cone>();
/// # let _ = webhooks;
/// ```
pub fn convert<Hub: Version>() -> Conversion<Hub> {
    let dynamic = Hub::DynamicType::default();
    let mut conversion = Conversion {
        converter: Converter {
            group: Hub::group(&dynamic).into_owned(),
            kind: Hub::kind(&dynamic).into_owned(),
            plural: Hub::plural(&dynamic).into_owned(),
            versions: BTreeMap::new(),
            keeps_losses: false,
            panics: Counter::default(),
        },
        hub: PhantomData,
    };
    conversion.converter.add::<Hub>();
    conversion
}

/// The conversion of a kind between its versions; see [`convert`].
#[must_use = "a conversion does nothing until it is added to `Webhooks`"]
pub struct Conversion<Hub> {
    converter: Converter,
    hub: PhantomData<Hub>,
}

impl<Hub: Version> Conversion<Hub> {
    /// Adds a version that converts from and to the hub.
    ///
    /// # Panics
    ///
    /// If it is of another kind.
    pub fn version<V>(self) -> Self
    where
        V: Version + TryFrom<Hub, Error: Display>,
        Hub: TryFrom<V, Error: Display>,
    {
        self.between::<Hub, V>()
    }

    /// Adds a conversion between two versions of which none needs to be the hub.
    ///
    /// # Panics
    ///
    /// If one is of another kind.
    pub fn between<A, B>(mut self) -> Self
    where
        A: Version + TryFrom<B, Error: Display>,
        B: Version + TryFrom<A, Error: Display>,
    {
        let (a, b) = (self.converter.add::<A>(), self.converter.add::<B>());
        self.converter.connect::<A, B>(&a, &b);
        self.converter.connect::<B, A>(&b, &a);
        self
    }

    /// Keeps what a version cannot express in an annotation of the converted object, and restores it when the object is
    /// converted back, as far as it was not changed meanwhile. The annotation is
    /// `conversion.windlass.dev/` and the version that could express it. A list is kept as a whole.
    ///
    /// An object whose losses are too large for an annotation cannot be converted; the error says so. Default: losses are lost.
    pub fn keep_losses(mut self) -> Self {
        self.converter.keeps_losses = true;
        self
    }

    /// Converts an object, as JSON, to this version. For tests of a conversion with all that the server's webhook does.
    pub fn convert(&self, object: Value, version: &str) -> Result<Value, String> {
        self.converter
            .convert(object, &self.converter.api_version(version))
    }

    pub(crate) fn converter(&self) -> &Converter {
        &self.converter
    }

    pub(crate) fn into_converter(self) -> Converter {
        self.converter
    }
}

type Erased = Box<dyn Any + Send>;

/// Converts an object of one version to another.
type Edge = fn(Erased) -> Result<Erased, String>;

/// The versions of a kind, and how to convert between them.
pub(crate) struct Converter {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    /// By API version.
    versions: BTreeMap<String, Codec>,
    keeps_losses: bool,
    /// Counts panics.
    pub(crate) panics: Counter,
}

/// One version: how it is read and written, and the versions that it converts to.
struct Codec {
    decode: fn(&Value) -> Result<Erased, String>,
    encode: fn(Erased) -> Result<Value, String>,
    edges: BTreeMap<String, Edge>,
}

fn decode<V: Version>(object: &Value) -> Result<Erased, String> {
    let object = V::deserialize(object).map_err(|error| error.to_string())?;
    Ok(Box::new(object))
}

fn encode<V: Version>(object: Erased) -> Result<Value, String> {
    let object: Box<V> = object
        .downcast()
        .map_err(|_| "a conversion mixes up types".to_owned())?;
    serde_json::to_value(object).map_err(|error| error.to_string())
}

fn convert_erased<A: Version, B>(object: Erased) -> Result<Erased, String>
where
    B: Version + TryFrom<A, Error: Display>,
{
    let object: Box<A> = object
        .downcast()
        .map_err(|_| "a conversion mixes up types".to_owned())?;
    let converted = B::try_from(*object).map_err(|error| error.to_string())?;
    Ok(Box::new(converted))
}

impl Converter {
    fn add<V: Version>(&mut self) -> String {
        let dynamic = V::DynamicType::default();
        let (group, kind) = (V::group(&dynamic), V::kind(&dynamic));
        assert!(
            *group == *self.group && *kind == *self.kind,
            "a conversion of {}.{} cannot have a version of {kind}.{group}",
            self.kind,
            self.group
        );
        let version = V::api_version(&dynamic).into_owned();
        self.versions.entry(version.clone()).or_insert(Codec {
            decode: decode::<V>,
            encode: encode::<V>,
            edges: BTreeMap::new(),
        });
        version
    }

    fn connect<A: Version, B>(&mut self, from: &str, to: &str)
    where
        B: Version + TryFrom<A, Error: Display>,
    {
        if let Some(codec) = self.versions.get_mut(from) {
            codec.edges.insert(to.to_owned(), convert_erased::<A, B>);
        }
    }

    /// `example.com/v1`
    fn api_version(&self, version: &str) -> String {
        format!("{}/{version}", self.group)
    }

    fn codec(&self, version: &str) -> Result<&Codec, String> {
        self.versions.get(version).ok_or_else(|| {
            let known: Vec<_> = self.versions.keys().map(String::as_str).collect();
            format!("unknown version {version:.200}: known are {}", known.join(", "))
        })
    }

    /// The steps from a version to another, the fewest that there are.
    fn way(&self, from: &str, to: &str) -> Result<Vec<&str>, String> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(version) = queue.pop_front() {
            if version == to {
                let mut way = Vec::new();
                let mut step = to;
                while step != from {
                    let (known, _) = self.versions.get_key_value(step).ok_or("no way")?;
                    way.push(known.as_str());
                    step = came_from.get(step).ok_or("no way")?;
                }
                way.reverse();
                return Ok(way);
            }
            for next in self.codec(version)?.edges.keys() {
                if next != from && !came_from.contains_key(next.as_str()) {
                    came_from.insert(next, version);
                    queue.push_back(next);
                }
            }
        }
        Err(format!("there is no conversion from {from:.200} to {to:.200}"))
    }

    /// Converts what the types know, without metadata.
    fn convert_known(&self, object: &Value, from: &str, to: &str) -> Result<Value, String> {
        let codec = self.codec(from)?;
        self.codec(to)?;
        let mut typed = (codec.decode)(object)?;
        let mut version = from;
        for step in self.way(from, to)? {
            let edge = self.codec(version)?.edges.get(step).ok_or("no way")?;
            typed = edge(typed)?;
            version = step;
        }
        self.write(typed, to)
    }

    /// What a version's type knows of an object.
    pub(crate) fn reencode(&self, object: &Value, version: &str) -> Result<Value, String> {
        self.write((self.codec(version)?.decode)(object)?, version)
    }

    /// Writes a typed object. A `null` is an absent value, unless the type says otherwise.
    fn write(&self, typed: Erased, version: &str) -> Result<Value, String> {
        let codec = self.codec(version)?;
        let written = (codec.encode)(typed)?;
        if !overlay::has_null(&written) {
            return Ok(written);
        }
        let pruned = overlay::without_nulls(&written);
        let is_same = (codec.decode)(&pruned)
            .and_then(codec.encode)
            .is_ok_and(|again| again == written);
        Ok(if is_same { pruned } else { written })
    }

    /// Converts an object to this API version.
    pub(crate) fn convert(&self, object: Value, to: &str) -> Result<Value, String> {
        let caught = std::panic::catch_unwind(AssertUnwindSafe(|| self.convert_object(object, to)));
        caught.unwrap_or_else(|_| {
            self.panics.inc();
            Err(PANICKED.to_owned())
        })
    }

    fn convert_object(&self, object: Value, to: &str) -> Result<Value, String> {
        let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind != self.kind {
            return Err(format!(
                "expected an object of kind {}, got {kind:.200}",
                self.kind
            ));
        }
        self.codec(to)?;
        if from == to {
            return Ok(object);
        }
        let known = self.reencode(&object, &from)?;
        let mut converted = self.convert_known(&object, &from, to)?;
        let mut metadata = object["metadata"].clone();
        if self.keeps_losses {
            if let Some(lost) = losses::take(&mut metadata, to) {
                let restored = losses::restore(&converted, &lost);
                // The annotation can be written by users: what does not decode is ignored.
                if let Ok(restored) = self.reencode(&restored, to) {
                    converted = restored;
                }
            }
            let back = self.convert_known(&converted, to, &from)?;
            losses::put(&mut metadata, &from, &losses::between(&known, &back))?;
        }
        let content = overlay::with_unknown(&object, &known, &converted);
        if self.reencode(&content, to).is_ok_and(|again| again == converted) {
            converted = content;
        }
        converted["apiVersion"] = to.into();
        converted["kind"] = self.kind.as_str().into();
        converted["metadata"] = metadata;
        Ok(converted)
    }
}
