//! Settings of a cache.

use std::{marker::PhantomData, sync::Arc};

use serde_json::Value;

use crate::{
    entry::{AnyObject, Decode},
    kind::Cacheable,
    protocol::WhenUnserved,
};

/// What a cache of `K`s, read as `V`s, stores of each object.
///
/// | policy | stored | cost of a read |
/// |---|---|---|
/// | [`compact`](Settings::compact), the default | packed JSON; recently read objects stay decoded, within a budget | microseconds, or nothing if still decoded |
/// | [`full`](Settings::full) | packed JSON and the decoded object | nothing |
/// | [`projected`](Settings::projected) | only the result of a function of the object | nothing |
///
/// `managedFields` are dropped by default; see [`managed_fields`](Settings::managed_fields).
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_cache::Settings;
///
/// struct PodNode { node: Option<String> }
///
/// let compact = Settings::<Pod>::compact().decoded_budget(64 << 20);
/// let nodes = Settings::projected(|pod: &Pod| PodNode {
///     node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
/// });
/// ```
#[must_use]
pub struct Settings<K, V = K> {
    pub(crate) untyped: UntypedSettings,
    pub(crate) decode: Decode<V>,
    kind: PhantomData<fn() -> K>,
}

/// The part of the settings that does not depend on types.
#[derive(Clone)]
pub(crate) struct UntypedSettings {
    /// Creates the object or projection that stays with each entry.
    pub(crate) pin: Option<MakePinned>,
    /// Whether the JSON is stored.
    pub(crate) keep_json: bool,
    pub(crate) transform: Option<Transform>,
    pub(crate) decoded_budget: usize,
    /// Whether the initial state may be streamed (WatchList).
    pub(crate) watch_list: bool,
    pub(crate) when_unserved: WhenUnserved,
    /// Whether `managedFields` are passed on.
    pub(crate) keep_managed_fields: bool,
}

pub(crate) type MakePinned = Arc<dyn Fn(&[u8]) -> Result<AnyObject, String> + Send + Sync>;
pub(crate) type Transform = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// Default of [`Settings::decoded_budget`].
const DEFAULT_DECODED_BUDGET: usize = 32 << 20;

impl<K: Cacheable> Settings<K> {
    /// Stores packed JSON and decodes it on read. This is the default.
    pub fn compact() -> Self {
        Self {
            untyped: UntypedSettings::default(),
            decode: decode::<K>,
            kind: PhantomData,
        }
    }

    /// Keeps every object decoded. An object that does not decode is logged and skipped: its previous state stays.
    pub fn full() -> Self {
        let mut settings = Self::compact();
        settings.untyped.pin = Some(Arc::new(|text| Ok(Arc::new(decode::<K>(text)?) as AnyObject)));
        settings
    }
}

impl<K: Cacheable, V: Send + Sync + 'static> Settings<K, V> {
    /// Stores only the result of `project`, which is called once for each state that arrives. Queries by field need the
    /// JSON, so they find nothing here; queries by label, owner and functions of `V` work.
    pub fn projected(project: impl Fn(&K) -> V + Send + Sync + 'static) -> Self {
        let pin: MakePinned = Arc::new(move |text| Ok(Arc::new(project(&decode::<K>(text)?)) as AnyObject));
        let untyped = UntypedSettings {
            pin: Some(pin),
            keep_json: false,
            ..UntypedSettings::default()
        };
        Self {
            untyped,
            decode: |_| Err("only a projection of the object is stored".to_owned()),
            kind: PhantomData,
        }
    }

    /// Keeps `managedFields`, for a projection or transform that needs the field managers. Without a projection they
    /// are stored as well, and take most of the memory of a small object. Default: they are removed on arrival.
    pub fn managed_fields(mut self) -> Self {
        self.untyped.keep_managed_fields = true;
        self
    }

    /// Sets a function that changes each object once, when it arrives. It must not change name and namespace. Costs
    /// parsing and serializing the JSON, so use it where it saves memory.
    pub fn transform(mut self, transform: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.untyped.transform = Some(Arc::new(transform));
        self
    }

    /// Sets how many bytes of decoded objects, by estimate, stay in memory for later reads. Default: 32 MiB.
    pub fn decoded_budget(mut self, bytes: usize) -> Self {
        self.untyped.decoded_budget = bytes;
        self
    }

    /// Lists the initial state page by page. Default: it is streamed (WatchList) if the server supports that.
    pub fn without_watch_list(mut self) -> Self {
        self.untyped.watch_list = false;
        self
    }

    /// Keeps the objects while the server answers that it does not serve the kind, until a list succeeds; readers see the last
    /// known state. Default: after two such answers all objects count as deleted.
    ///
    /// For programs that delete something when an object is gone: a CRD that stops serving a version does not delete its objects,
    /// and a proxy may answer 404 for any kind.
    pub fn keep_unserved(mut self) -> Self {
        self.untyped.when_unserved = WhenUnserved::Keep;
        self
    }
}

impl<K, V> Clone for Settings<K, V> {
    fn clone(&self) -> Self {
        Self {
            untyped: self.untyped.clone(),
            decode: self.decode,
            kind: PhantomData,
        }
    }
}

impl Default for UntypedSettings {
    fn default() -> Self {
        Self {
            pin: None,
            keep_json: true,
            transform: None,
            decoded_budget: DEFAULT_DECODED_BUDGET,
            watch_list: true,
            when_unserved: WhenUnserved::default(),
            keep_managed_fields: false,
        }
    }
}

pub(crate) fn decode<K: Cacheable>(text: &[u8]) -> Result<K, String> {
    // One UTF-8 check of the whole text is cheaper than one per string.
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}
