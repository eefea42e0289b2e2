//! Namespaces that terminate: emptied, told about in their conditions, and given free.
//!
//! Whatever stays (a finalizer that nobody removes, a pod whose node does not answer) is shown in the conditions, and the
//! namespace is looked at again after ever longer waits.

mod conditions;
mod content;

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Namespace, NamespaceStatus, Pod},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{PostParams, Request as ApiRequest},
};
use tokio::time::Instant;
use windlass_cache::{ObjectKey, Query};
use windlass_runtime::{
    Action, Clock, Context, Controller, Error, Manager, Predicate, Reconciler, Request, Watch,
};

use self::{conditions::Findings, content::Emptied};
use super::{FIELD_MANAGER, Settings};

/// How many namespaces are emptied at the same time; as many as by a real controller.
const WORKERS: NonZeroUsize = NonZeroUsize::new(10).expect("not zero");

/// The finalizer of this controller, in a namespace's spec.
const FINALIZER: &str = "kubernetes";

/// How long a real controller waits before it begins, for API servers that have not heard of the deletion.
const HEARSAY: Duration = Duration::from_secs(5);

/// The first wait after a failure, and the longest one.
const RETRY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_mins(1));

/// The first wait for content where waits are not as long as real ones.
const IMPATIENCE: Duration = Duration::from_millis(100);

pub(super) fn add(manager: Manager, settings: &Settings) -> Manager {
    let emptying = Emptying {
        clock: Clock::starting_at(Timestamp::now()),
        speed: settings.speed,
        waits: Mutex::default(),
    };
    // A pod that goes may be the last one that a namespace waits for; other changes of pods mean nothing.
    let pods = Watch::<Pod>::new()
        .mapped(|pod| {
            let namespace = pod.metadata.namespace.as_deref();
            namespace.map(ObjectKey::cluster).into_iter().collect()
        })
        .when(Predicate::new(|_, _| false));
    let namespaces = Watch::<Namespace>::new().when(Predicate::new(|_, new| new.meta().is_deleting()));
    let controller = Controller::of("namespace", namespaces)
        .watch(pods)
        .component(FIELD_MANAGER)
        .concurrency(WORKERS)
        .reconcile(emptying);
    manager.controller(controller)
}

struct Emptying {
    clock: Clock,
    speed: f64,
    /// The namespaces that terminate. Locked for one step at a time, never across a wait.
    waits: Mutex<HashMap<ObjectKey, Wait>>,
}

/// When a namespace is looked at next.
struct Wait {
    uid: Option<String>,
    due: Instant,
    tries: u32,
    /// Only pods are in the way.
    for_pods: bool,
}

impl Reconciler for Emptying {
    async fn reconcile(&self, request: Request, ctx: Context) -> Result<Action, Error> {
        let key = request.key;
        let known = ctx.lister::<Namespace>()?.get(&key);
        let Some(known) = known.filter(|namespace| is_ours(namespace)) else {
            self.waits().remove(&key);
            return Ok(Action::done());
        };
        if let Some(rest) = self.rest(&key, &known, &ctx)? {
            return Ok(Action::requeue_after(rest));
        }
        let api = Api::<Namespace>::all(ctx.client().clone());
        let Some(namespace) = api.get_opt(key.name()).await?.filter(is_ours) else {
            self.waits().remove(&key);
            return Ok(Action::done());
        };
        let age = namespace
            .metadata
            .deletion_timestamp
            .as_ref()
            .map_or(0, |at| self.clock.now().as_second() - at.0.as_second());
        let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
        let emptied = content::delete_all(ctx.client(), key.name(), age).await;
        let Emptied {
            findings,
            estimate,
            pods_left,
        } = emptied;
        let namespace = self.tell(&api, namespace, &findings).await?;
        if findings.is_failure() {
            tracing::debug!(namespace = %key, ?findings, "cannot be emptied");
            let time = |tries| growing(RETRY.0, tries).min(RETRY.1);
            return Ok(self.wait(&key, time, pods_left));
        }
        if estimate.is_zero() {
            finalize(&ctx, namespace).await?;
            self.waits().remove(&key);
            return Ok(Action::done());
        }
        Ok(self.wait(&key, |tries| self.patience(estimate, tries), pods_left))
    }
}

impl Emptying {
    fn waits(&self) -> MutexGuard<'_, HashMap<ObjectKey, Wait>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the namespace has to wait yet, since its own conditions are changes too.
    fn rest(&self, key: &ObjectKey, known: &Namespace, ctx: &Context) -> Result<Option<Duration>, Error> {
        let now = Instant::now();
        let mut waits = self.waits();
        let wait = waits.entry(key.clone()).or_insert_with(|| Wait {
            uid: None,
            due: now,
            tries: 0,
            for_pods: false,
        });
        if wait.uid != known.metadata.uid {
            *wait = Wait {
                uid: known.metadata.uid.clone(),
                due: now + self.scaled(HEARSAY),
                tries: 0,
                for_pods: false,
            };
        }
        let rest = wait.due.saturating_duration_since(now);
        if rest.is_zero() {
            return Ok(None);
        }
        if wait.for_pods {
            let any = Query::all().namespace(key.name()).limit(1);
            if ctx.lister::<Pod>()?.list_stored(&any).is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(rest))
    }

    fn wait(&self, key: &ObjectKey, time: impl FnOnce(u32) -> Duration, for_pods: bool) -> Action {
        let mut waits = self.waits();
        let Some(wait) = waits.get_mut(key) else {
            return Action::done();
        };
        let time = time(wait.tries);
        wait.due = Instant::now() + time;
        wait.tries = wait.tries.saturating_add(1);
        wait.for_pods = for_pods;
        Action::requeue_after(time)
    }

    /// How long to wait for content that is expected to take so long. Where everything happens at once that is less, at
    /// first.
    fn patience(&self, estimate: Duration, tries: u32) -> Duration {
        let real = estimate / 2 + Duration::from_secs(1);
        growing(IMPATIENCE, tries).max(self.scaled(real)).min(real)
    }

    fn scaled(&self, real: Duration) -> Duration {
        Duration::try_from_secs_f64(real.as_secs_f64() / self.speed).unwrap_or(real)
    }

    /// Writes the conditions if they have something new to say.
    async fn tell(
        &self,
        api: &Api<Namespace>,
        mut namespace: Namespace,
        findings: &Findings,
    ) -> Result<Namespace, Error> {
        let status = namespace.status.get_or_insert_with(NamespaceStatus::default);
        let before = status.conditions.as_deref().unwrap_or_default();
        let told = findings.told(before, self.clock.now());
        if told.is_none() && status.phase.as_deref() == Some("Terminating") {
            return Ok(namespace);
        }
        if told.is_some() {
            status.conditions = told;
        }
        status.phase = Some("Terminating".to_owned());
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let name = namespace.name_any();
        Ok(api.replace_status(&name, &params, &namespace).await?)
    }
}

/// Whether it terminates and waits for this controller.
fn is_ours(namespace: &Namespace) -> bool {
    let finalizers = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.as_deref());
    namespace.metadata.deletion_timestamp.is_some()
        && finalizers.is_some_and(|finalizers| finalizers.iter().any(|one| one == FINALIZER))
}

fn growing(first: Duration, tries: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(tries.min(20)))
}

/// Gives the namespace free, as far as this controller is concerned.
async fn finalize(ctx: &Context, mut namespace: Namespace) -> Result<(), Error> {
    if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    let name = namespace.name_any();
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let request = ApiRequest::new("/api/v1/namespaces").replace_subresource(
        "finalize",
        &name,
        &params,
        serde_json::to_vec(&namespace)?,
    );
    let request = request.map_err(kube::Error::BuildRequest)?;
    match ctx.client().request::<Namespace>(request).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => {
            other?;
            Ok(())
        }
    }
}
