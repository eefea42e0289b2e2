//! The set of webhooks of a program.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::Semaphore;
use windlass_cache::{CacheSet, Cacheable, WatchScope};

use crate::{
    admission::{AdmissionWebhook, Declaration, Stage},
    conversion::{Conversion, Converter, Version},
    metrics::WebhookMetrics,
    reads::{ReadCaches, Reads},
    registration::{Configurations, WebhookAddress},
    service::{Endpoint, EndpointKind, Shared, WebhookService, large_reviews},
};

/// Default number of reviews that are handled at a time.
const CONCURRENCY: usize = 256;

/// The admission and conversion webhooks of a program: handlers with all that is said about them. They are served beside the
/// controllers of a manager, or, in a test, by an embedded API server in the process.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_webhook::{FieldErrors, Webhooks, mutate, validate};
///
/// let webhooks = Webhooks::new("settings")
///     .with(mutate::<ConfigMap, _>(|map, _| {
///         map.metadata.labels.get_or_insert_default().insert("checked".to_owned(), "yes".to_owned());
///     }))
///     .with(validate::<ConfigMap, _>(|change, _| {
///         let mut errors = FieldErrors::new();
///         for key in change.new_object().into_iter().flat_map(|map| &map.data).flat_map(|data| data.keys()) {
///             if key.len() > 20 {
///                 errors.invalid("data", key, "keys have at most 20 characters");
///             }
///         }
///         errors
///     }));
/// # let _ = webhooks;
/// ```
#[must_use = "webhooks do nothing until they are served"]
pub struct Webhooks {
    pub(crate) name: String,
    admission: Vec<Declaration>,
    pub(crate) conversions: Vec<Converter>,
    reads: Reads,
    concurrency: usize,
    pub(crate) metrics: WebhookMetrics,
}

/// Something that can be added to [`Webhooks`]: an [`AdmissionWebhook`] or a [`Conversion`].
pub struct Webhook(Part);

enum Part {
    Admission(Box<Declaration>),
    Conversion(Converter),
}

impl<S> From<AdmissionWebhook<S>> for Webhook {
    fn from(webhook: AdmissionWebhook<S>) -> Self {
        Self(Part::Admission(Box::new(webhook.into())))
    }
}

impl<Hub: Version> From<Conversion<Hub>> for Webhook {
    fn from(conversion: Conversion<Hub>) -> Self {
        Self(Part::Conversion(conversion.into_converter()))
    }
}

impl Webhooks {
    /// No webhooks yet. The name is that of the configurations, and the default name of the Service and the Secret; it must
    /// be unique in the cluster, and a DNS label.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            admission: Vec::new(),
            conversions: Vec::new(),
            reads: Reads::default(),
            concurrency: CONCURRENCY,
            metrics: WebhookMetrics::default(),
        }
    }

    /// Adds a webhook. Mutating ones are called in this order.
    ///
    /// # Panics
    ///
    /// If there is one of the same name, or a conversion of the same kind.
    pub fn with(mut self, webhook: impl Into<Webhook>) -> Self {
        match webhook.into().0 {
            Part::Admission(declaration) => self.admission.push(*declaration),
            Part::Conversion(converter) => self.conversions.push(converter),
        }
        let mut names: Vec<_> = self.paths().collect();
        let last = names.pop().unwrap_or_default();
        assert!(
            !names.contains(&last),
            "there are two webhooks {last}: give one another name with `.name(…)`"
        );
        self
    }

    /// Lets the handlers read the objects of a kind from a cache, in the namespaces of the manager, with [`ReviewRequest::lister`](crate::ReviewRequest::lister).
    /// The cache is shared with the controllers of the manager.
    pub fn reads<K: Cacheable<DynamicType: Default + Send + Sync>>(self) -> Self {
        self.read_in::<K>(K::DynamicType::default(), None)
    }

    /// Like [`reads`](Self::reads), for a type that gets its kind at run time, or for some namespaces or labels only.
    pub fn reads_of<K: Cacheable<DynamicType: Send + Sync>>(
        self,
        dynamic: K::DynamicType,
        scope: WatchScope,
    ) -> Self {
        self.read_in::<K>(dynamic, Some(scope))
    }

    fn read_in<K: Cacheable<DynamicType: Send + Sync>>(
        mut self,
        dynamic: K::DynamicType,
        scope: Option<WatchScope>,
    ) -> Self {
        self.reads.add::<K>(dynamic, scope);
        self
    }

    /// How many reviews are handled at a time; further ones wait until their deadline. Default: 256.
    pub fn concurrency(mut self, most: usize) -> Self {
        self.concurrency = most.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// The service that answers reviews, for handlers that read no caches; see [`WebhookService`].
    pub fn service(self) -> WebhookService {
        self.build(ReadCaches::default())
    }

    /// Like [`service`](Self::service), with the caches that handlers read. They start now, so it must be called within a
    /// tokio runtime.
    pub fn service_with(self, caches: &CacheSet) -> WebhookService {
        self.service_within(caches, &WatchScope::all())
    }

    pub(crate) fn service_within(self, caches: &CacheSet, scope: &WatchScope) -> WebhookService {
        let reads = self.reads.start(caches, scope);
        self.build(reads)
    }

    fn build(self, reads: ReadCaches) -> WebhookService {
        let mut endpoints = HashMap::new();
        let paths: Vec<_> = self.paths().collect();
        let kinds = self
            .admission
            .into_iter()
            .map(|declared| EndpointKind::Admission(Box::new(declared)));
        let panics = &self.metrics.panics.conversion;
        let conversions = self.conversions.into_iter().map(|mut converter| {
            converter.panics = panics.clone();
            EndpointKind::Conversion(converter)
        });
        let kinds = kinds.chain(conversions);
        for (path, kind) in paths.into_iter().zip(kinds) {
            let metrics = self.metrics.endpoint(&format!("/{path}"));
            endpoints.insert(path, Endpoint { kind, metrics });
        }
        WebhookService(Arc::new(Shared {
            endpoints,
            reads,
            permits: Arc::new(Semaphore::new(self.concurrency)),
            large: large_reviews(),
            panics: self.metrics.panics.clone(),
        }))
    }

    /// The objects that register these webhooks with an API server, which calls them at this address; without a bundle of
    /// certificates, which is added by who has it. For manifests, and for tests:
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use windlass_webhook::{WebhookAddress, Webhooks, validate};
    ///
    /// let webhooks = Webhooks::new("quota").with(validate::<ConfigMap, _>(|_, _| ()));
    /// let configurations = webhooks.configurations(&WebhookAddress::service("default", "quota"));
    /// let webhook = &configurations.validating.unwrap().webhooks.unwrap()[0];
    /// assert_eq!(webhook.name, "validate.configmaps.quota");
    /// assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
    /// ```
    pub fn configurations(&self, address: &WebhookAddress) -> Configurations {
        Configurations::new(self, address)
    }

    pub(crate) fn of_stage(&self, stage: Stage) -> impl Iterator<Item = &Declaration> {
        self.admission
            .iter()
            .filter(move |declared| declared.stage == stage)
    }

    /// The paths of all webhooks, without the slash: their names.
    fn paths(&self) -> impl Iterator<Item = String> {
        let admission = self
            .admission
            .iter()
            .map(|declared| declared.full_name(&self.name));
        admission.chain(self.conversions.iter().map(Converter::path))
    }
}

impl Converter {
    /// `convert.cones.example.com`
    pub(crate) fn path(&self) -> String {
        format!("convert.{}", self.crd_name())
    }

    /// `cones.example.com`
    pub(crate) fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks")
            .field("name", &self.name)
            .field("webhooks", &self.paths().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
