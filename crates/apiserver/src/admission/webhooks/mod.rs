//! Admission webhooks: which of them a request matches, and their two dispatchers.
//!
//! ```text
//!   storage history ──► WebhookIndex ── rules, selectors, match conditions ──► Matched ──► Review ──► Call
//! ```
//!
//! Like that of policies, the index applies what was written to its table before each request. Mutating webhooks are asked
//! one after the other, ordered by the name of their configuration and their place in it, validating ones all at once.

mod mutating;
mod review;
mod validating;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::RwLock;
use serde_json::{Value, json};

pub(super) use self::mutating::WebhookReinvocation;
use super::{
    evaluation::{Conditions, Evaluation, Inputs, MATCH_CONDITIONS_BUDGET, evaluate_conditions, values},
    expressions::PolicyPrograms,
    matching::MatchResources,
    name_in_errors,
    policies::PolicyKind,
    request::Attributes,
    versions::WholeObjects,
};
use crate::{
    auth::AccessControl,
    object::Object,
    object_store::ObjectStore,
    registry::Resource,
    status::Status,
    storage::{Entry, Storage, TableChanges, TableFollower},
    webhook::{Endpoint, ReviewType},
};

/// The timeout of a webhook that sets none.
const DEFAULT_TIMEOUT_SECONDS: u64 = 10;

/// The admission webhooks of a server.
pub(crate) struct Webhooks {
    store: Arc<ObjectStore>,
    access: Arc<AccessControl>,
    mutating: WebhookIndex,
    validating: WebhookIndex,
}

/// The webhooks of one kind of configuration.
struct WebhookIndex(RwLock<Index>);

struct Index {
    table: TableFollower,
    /// How often something was applied.
    changes: u64,
    /// The webhooks with match conditions that were written since [`Webhooks::catch_up`].
    uncompiled: Vec<Arc<Webhook>>,
    /// By the name of the configuration.
    configurations: BTreeMap<Arc<str>, Vec<Arc<Webhook>>>,
}

/// A webhook of a configuration.
struct Webhook {
    name: Box<str>,
    /// The configuration and the place in it, which identify the webhook.
    id: Arc<str>,
    constraints: MatchResources,
    endpoint: Arc<Endpoint>,
    timeout: Duration,
    review_type: ReviewType,
    /// Whether a request is admitted if the call fails.
    ignores_failures: bool,
    /// Whether it is asked again if something changes the object after it.
    may_reinvoke: bool,
    match_conditions: Value,
    programs: OnceLock<PolicyPrograms>,
}

/// A webhook that a request matches.
struct Matched<'a> {
    webhook: Arc<Webhook>,
    /// The resource as which the request matches.
    resource: &'a Arc<Resource>,
}

/// Why a webhook does not admit a request.
enum HookError {
    /// The call failed, which the failure policy may excuse.
    Call(String),
    /// The answer of the request.
    Status(Status),
}

impl Webhooks {
    pub(super) fn new(access: &Arc<AccessControl>) -> Self {
        let store = &access.store;
        let index = |plural| WebhookIndex::new(&*store.storage, plural);
        Self {
            store: store.clone(),
            access: access.clone(),
            mutating: index("mutatingwebhookconfigurations"),
            validating: index("validatingwebhookconfigurations"),
        }
    }

    /// Applies what was written, and compiles match conditions.
    pub(super) fn catch_up(&self) {
        for index in [&self.mutating, &self.validating] {
            index.is_empty(&self.store);
            // Outside of the lock.
            let uncompiled = std::mem::take(&mut index.0.write().uncompiled);
            for webhook in uncompiled {
                webhook.programs();
            }
        }
    }

    /// Whether what a webhook matches is like this.
    pub(super) fn any(&self, is_like: impl Fn(&MatchResources) -> bool) -> bool {
        [&self.mutating, &self.validating].into_iter().any(|index| {
            let webhooks = index.webhooks(&self.store);
            webhooks.iter().any(|webhook| is_like(&webhook.constraints))
        })
    }

    /// Counts the changes that were applied.
    pub(super) fn changes(&self) -> u64 {
        self.mutating.0.read().changes + self.validating.0.read().changes
    }

    /// Whether there is a mutating webhook.
    pub(super) fn may_mutate(&self) -> bool {
        !self.mutating.is_empty(&self.store)
    }

    /// Whether there is a validating webhook.
    pub(super) fn may_reject(&self) -> bool {
        !self.validating.is_empty(&self.store)
    }

    /// Whether a request matches a webhook.
    fn match_one<'a>(
        &self,
        webhook: &Arc<Webhook>,
        attributes: &'a Attributes<'_>,
        (objects, whole): ([Option<&Object>; 2], &WholeObjects<'_>),
    ) -> Result<Option<Matched<'a>>, Status> {
        let Some(resource) = webhook.constraints.match_rules(&self.store, attributes) else {
            return Ok(None);
        };
        let trees = objects.map(|object| object.map(Object::tree));
        match webhook.constraints.match_labels(&self.store, attributes, trees) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(why) => return Err(Status::internal(why)),
        }
        let matched = Matched {
            webhook: webhook.clone(),
            resource,
        };
        match self.evaluate_conditions(&matched, attributes, whole)? {
            Conditions::Match => Ok(Some(matched)),
            Conditions::Failed(why) if !webhook.ignores_failures => {
                let name = name_in_errors(attributes, objects[0]);
                Err(Status::forbidden(attributes.resource, name, &why))
            }
            Conditions::Differ | Conditions::Failed(_) => Ok(None),
        }
    }

    fn evaluate_conditions(
        &self,
        matched: &Matched<'_>,
        attributes: &Attributes<'_>,
        whole: &WholeObjects<'_>,
    ) -> Result<Conditions, Status> {
        let webhook = &matched.webhook;
        if !webhook.has_match_conditions() {
            return Ok(Conditions::Match);
        }
        let whole = whole.at(attributes, matched.resource)?;
        let [object, old] = &*whole;
        let programs = webhook.programs();
        let request = attributes.to_request(matched.resource);
        let inputs = Inputs {
            object: object.as_ref(),
            old_object: old.as_ref(),
            namespace: &Value::Null,
            request: &request,
            params: None,
        };
        let values = values(programs, &inputs, &self.access, attributes);
        let mut evaluation = Evaluation::new(programs, &values, MATCH_CONDITIONS_BUDGET, &attributes.cost);
        Ok(evaluate_conditions(&programs.match_conditions, &mut evaluation))
    }
}

impl WebhookIndex {
    fn new(storage: &dyn Storage, plural: &str) -> Self {
        Self(RwLock::new(Index {
            table: TableFollower::new(storage, &format!("{plural}.admissionregistration.k8s.io")),
            changes: 0,
            uncompiled: Vec::new(),
            configurations: BTreeMap::new(),
        }))
    }

    /// Whether there is no webhook, so that nothing needs to be prepared for one.
    fn is_empty(&self, store: &ObjectStore) -> bool {
        self.read(store, |index| index.configurations.is_empty())
    }

    /// All webhooks in order.
    fn webhooks(&self, store: &ObjectStore) -> Vec<Arc<Webhook>> {
        self.read(store, |index| {
            index.configurations.values().flatten().cloned().collect()
        })
    }

    fn read<T>(&self, store: &ObjectStore, read: impl FnOnce(&Index) -> T) -> T {
        let index = self.0.read();
        if !index.table.is_behind() {
            return read(&index);
        }
        drop(index);
        let mut index = self.0.write();
        index.catch_up(&*store.storage);
        read(&index)
    }
}

impl Index {
    fn catch_up(&mut self, storage: &dyn Storage) {
        self.changes += 1;
        match self.table.catch_up(storage) {
            TableChanges::Events(written) => {
                for (entry, exists) in written {
                    self.set(&entry, exists);
                }
            }
            TableChanges::Relist(entries) => {
                self.configurations.clear();
                for entry in entries {
                    self.set(&entry, true);
                }
            }
        }
    }

    fn set(&mut self, entry: &Entry, exists: bool) {
        let name = &entry.key.name;
        self.configurations.remove(name);
        let Some(object) = exists.then(|| entry.object.decode().ok()).flatten() else {
            return;
        };
        let webhooks = object.fields().get("webhooks").and_then(Value::as_array);
        let webhooks: Vec<_> = webhooks
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, webhook)| Arc::new(Webhook::parse(name, index, webhook)))
            .collect();
        let conditional = webhooks.iter().filter(|webhook| webhook.has_match_conditions());
        self.uncompiled.extend(conditional.cloned());
        if !webhooks.is_empty() {
            self.configurations.insert(name.clone(), webhooks);
        }
    }
}

impl Webhook {
    /// Parses a valid webhook.
    fn parse(configuration: &str, index: usize, webhook: &Value) -> Self {
        let name = webhook["name"].as_str().unwrap_or_default();
        let seconds = webhook["timeoutSeconds"].as_u64();
        Self {
            name: name.into(),
            id: format!("{configuration}/{index}/{name}").into(),
            constraints: MatchResources::of_webhook(webhook),
            endpoint: Arc::new(Endpoint::parse(&webhook["clientConfig"])),
            timeout: Duration::from_secs(seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS)),
            review_type: ReviewType::admission(&webhook["admissionReviewVersions"]),
            ignores_failures: webhook["failurePolicy"] == "Ignore",
            may_reinvoke: webhook["reinvocationPolicy"] == "IfNeeded",
            match_conditions: webhook["matchConditions"].clone(),
            programs: OnceLock::new(),
        }
    }

    fn has_match_conditions(&self) -> bool {
        self.match_conditions
            .as_array()
            .is_some_and(|conditions| !conditions.is_empty())
    }

    fn programs(&self) -> &PolicyPrograms {
        self.programs.get_or_init(|| {
            let spec = json!({"matchConditions": self.match_conditions});
            PolicyPrograms::compile(&spec, PolicyKind::Validating)
        })
    }

    /// What an error means: `None` if the request is admitted nevertheless.
    fn refuse(&self, error: HookError) -> Option<Status> {
        match error {
            HookError::Status(status) => Some(status),
            HookError::Call(why) if self.ignores_failures => {
                tracing::warn!(
                    webhook = &*self.name,
                    error = why,
                    "the call of an admission webhook failed; its failurePolicy is Ignore, so the request is admitted"
                );
                None
            }
            HookError::Call(why) => Some(Status::internal(format!(
                "failed calling webhook {:?}: {why}",
                self.name
            ))),
        }
    }
}
