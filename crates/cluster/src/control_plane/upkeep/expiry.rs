//! Deletes events an hour after they were last written, like the event TTL of a real API server.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
    core::PartialObjectMeta,
};
use tokio::time::Instant;
use windlass_api::status::StatusClass;
use windlass_cache::ObjectKey;
use windlass_runtime::{Action, Context, Controller, Error, Manager, Reconciler, Request, Watch};

/// The default of kube-apiserver's `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_hours(1);

pub(super) fn add(manager: Manager) -> Manager {
    let events = Watch::<PartialObjectMeta<Event>>::new().metadata_only();
    let controller = Controller::from_watch("event-expiry", events).reconcile(EventExpiry::default());
    manager.controller(controller)
}

#[derive(Default)]
struct EventExpiry(Mutex<HashMap<ObjectKey, TrackedEvent>>);

/// The last resource version of an event, and when it expires.
struct TrackedEvent {
    version: Option<String>,
    due: Instant,
}

impl Reconciler for EventExpiry {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = request.key;
        let Some(event) = ctx.lister::<PartialObjectMeta<Event>>()?.get(&key) else {
            self.lock().remove(&key);
            return Ok(Action::done());
        };
        let metadata = &event.metadata;
        let rest = self.time_left(&key, metadata.resource_version.as_ref());
        if !rest.is_zero() {
            return Ok(Action::requeue_after(rest));
        }
        let api = Api::<Event>::namespaced(ctx.client().clone(), key.namespace().unwrap_or_default());
        let options = DeleteParams {
            // An event that was written again stays.
            preconditions: Some(Preconditions {
                uid: metadata.uid.clone(),
                resource_version: metadata.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        let is_gone = |class| matches!(class, StatusClass::NotFound | StatusClass::Conflict);
        match api.delete(key.name(), &options).await {
            Err(kube::Error::Api(status)) if is_gone(StatusClass::of(&status)) => {}
            other => drop(other?),
        }
        Ok(Action::done())
    }
}

impl EventExpiry {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, TrackedEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the remaining time of the event in this version.
    fn time_left(&self, key: &ObjectKey, version: Option<&String>) -> Duration {
        let now = Instant::now();
        let mut known = self.lock();
        let written = known.entry(key.clone()).or_insert_with(|| TrackedEvent {
            version: None,
            due: now,
        });
        if written.version.as_ref() != version {
            *written = TrackedEvent {
                version: version.cloned(),
                due: now + EVENT_TTL,
            };
        }
        written.due.saturating_duration_since(now)
    }
}
