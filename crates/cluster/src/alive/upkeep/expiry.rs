//! Events go an hour after they were last written, as a real API server's do.

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
use windlass_cache::ObjectKey;
use windlass_runtime::{Action, Context, Controller, Error, Manager, Reconciler, Request, Watch};

/// How long an event lives; the default of kube-apiserver's `--event-ttl`.
const LIFE: Duration = Duration::from_hours(1);

pub(super) fn add(manager: Manager) -> Manager {
    let events = Watch::<PartialObjectMeta<Event>>::new().metadata_only();
    let controller = Controller::of("event-expiry", events).reconcile(Expiry::default());
    manager.controller(controller)
}

#[derive(Default)]
struct Expiry(Mutex<HashMap<ObjectKey, Written>>);

/// An event's last state, and when it expires.
struct Written {
    version: Option<String>,
    due: Instant,
}

impl Reconciler for Expiry {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = request.key;
        let Some(event) = ctx.lister::<PartialObjectMeta<Event>>()?.get(&key) else {
            self.known().remove(&key);
            return Ok(Action::done());
        };
        let metadata = &event.metadata;
        let rest = self.rest(&key, metadata.resource_version.as_ref());
        if !rest.is_zero() {
            return Ok(Action::requeue_after(rest));
        }
        let api = Api::<Event>::namespaced(ctx.client().clone(), key.namespace().unwrap_or_default());
        let options = DeleteParams {
            // One that was written again lives on.
            preconditions: Some(Preconditions {
                uid: metadata.uid.clone(),
                resource_version: metadata.resource_version.clone(),
            }),
            ..DeleteParams::default()
        };
        match api.delete(key.name(), &options).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            other => drop(other?),
        }
        Ok(Action::done())
    }
}

impl Expiry {
    fn known(&self) -> MutexGuard<'_, HashMap<ObjectKey, Written>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the event has yet, in this version.
    fn rest(&self, key: &ObjectKey, version: Option<&String>) -> Duration {
        let now = Instant::now();
        let mut known = self.known();
        let written = known.entry(key.clone()).or_insert_with(|| Written {
            version: None,
            due: now,
        });
        if written.version.as_ref() != version {
            *written = Written {
                version: version.cloned(),
                due: now + LIFE,
            };
        }
        written.due.saturating_duration_since(now)
    }
}
