//! How a cache keeps its objects.

use std::{marker::PhantomData, sync::Arc};

use serde_json::Value;

use crate::{
    entry::{AnyObject, Decode},
    kind::Cacheable,
};

/// What is kept of each object of a cache of `K`s that are read as `V`s.
///
/// | policy | kept | reading costs |
/// |---|---|---|
/// | [`compact`](Settings::compact), the default | packed JSON; decoded objects that were read lately, within a budget | microseconds, or nothing if it is hot |
/// | [`full`](Settings::full) | packed JSON and the decoded object | nothing |
/// | [`projected`](Settings::projected) | only what a function makes of the object | nothing |
///
/// `managedFields` are never kept; a projection can [see](Settings::managed_fields) them.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_cache::Settings;
///
/// struct Place { node: Option<String> }
///
/// let everything = Settings::<Pod>::compact().hot_bytes(64 << 20);
/// let places = Settings::projected(|pod: &Pod| Place {
///     node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
/// });
/// ```
#[must_use]
pub struct Settings<K, V = K> {
    pub(crate) keeping: Keeping,
    pub(crate) decode: Decode<V>,
    kind: PhantomData<fn() -> K>,
}

/// The part of the settings that does not depend on types.
#[derive(Clone)]
pub(crate) struct Keeping {
    /// Makes what stays with each entry.
    pub(crate) pin: Option<Pin>,
    /// Whether the JSON stays.
    pub(crate) text: bool,
    pub(crate) transform: Option<Transform>,
    pub(crate) hot_bytes: usize,
    /// Whether the initial state may be streamed.
    pub(crate) streaming: bool,
    /// Whether a projection sees `managedFields`.
    pub(crate) managed_fields: bool,
}

pub(crate) type Pin = Arc<dyn Fn(&[u8]) -> Result<AnyObject, String> + Send + Sync>;
pub(crate) type Transform = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// What a cache keeps decoded if nobody says otherwise.
const HOT_BYTES: usize = 32 << 20;

impl<K: Cacheable> Settings<K> {
    /// Packed JSON, decoded when it is read. This is the default.
    pub fn compact() -> Self {
        Self {
            keeping: Keeping::default(),
            decode: decode::<K>,
            kind: PhantomData,
        }
    }

    /// Every object stays decoded. An object that does not decode is reported and not taken: what was known of it
    /// before stays.
    pub fn full() -> Self {
        let mut settings = Self::compact();
        settings.keeping.pin = Some(Arc::new(|text| Ok(Arc::new(decode::<K>(text)?) as AnyObject)));
        settings
    }
}

impl<K: Cacheable, V: Send + Sync + 'static> Settings<K, V> {
    /// Only what `project` makes of each object stays; it is called once for each state that arrives. Queries by
    /// field need the JSON, so they find nothing here; labels, owners and functions of `V` do.
    pub fn projected(project: impl Fn(&K) -> V + Send + Sync + 'static) -> Self {
        let pin: Pin = Arc::new(move |text| Ok(Arc::new(project(&decode::<K>(text)?)) as AnyObject));
        let keeping = Keeping {
            pin: Some(pin),
            text: false,
            ..Keeping::default()
        };
        Self {
            keeping,
            decode: |_| Err("only a projection of it is kept".to_owned()),
            kind: PhantomData,
        }
    }

    /// Shows `managedFields` to the projection, or to a transform: for whoever wants to know who wrote what. Without a
    /// projection they are kept with the rest, which is most of the memory that a small object takes. Default: they are cut
    /// out before anything looks.
    pub fn managed_fields(mut self) -> Self {
        self.keeping.managed_fields = true;
        self
    }

    /// Changes each object when it arrives, once, before anything is made of it. It must leave name and namespace
    /// alone. Takes parsing and writing of the JSON, so use it where it saves memory.
    pub fn transform(mut self, transform: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.keeping.transform = Some(Arc::new(transform));
        self
    }

    /// How many bytes of decoded objects stay for the next reader, as far as can be told. Default: 32 MiB.
    pub fn hot_bytes(mut self, bytes: usize) -> Self {
        self.keeping.hot_bytes = bytes;
        self
    }

    /// Lists the initial state page by page. Default: a server that can stream it is asked to.
    pub fn listing(mut self) -> Self {
        self.keeping.streaming = false;
        self
    }
}

impl<K, V> Clone for Settings<K, V> {
    fn clone(&self) -> Self {
        Self {
            keeping: self.keeping.clone(),
            decode: self.decode,
            kind: PhantomData,
        }
    }
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            pin: None,
            text: true,
            transform: None,
            hot_bytes: HOT_BYTES,
            streaming: true,
            managed_fields: false,
        }
    }
}

pub(crate) fn decode<K: Cacheable>(text: &[u8]) -> Result<K, String> {
    // Checked once as a whole, which is cheaper than text by text.
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}
