//! Calls the author's function with decoded objects.

use std::{any::type_name, panic::AssertUnwindSafe};

use futures::{FutureExt, future::BoxFuture};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use windlass_api::field_error::cut;
use windlass_runtime::Error;

use super::{
    AdmissionWebhook, Change, Decision, IntoVerdict, Mutating, Operation, Review, ReviewRequest, Target,
    Validating, Verdict, declaration::Stage,
};
use crate::patch::{Lists, Patch, is_reached};

/// A validator of a type: it sees what is created or updated, and allows or refuses it. It may return nothing,
/// [`FieldErrors`](super::FieldErrors), a [`Verdict`] or a `Result` with one of these; see [`IntoVerdict`].
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_webhook::{Change, FieldErrors, validate};
///
/// let webhook = validate::<ConfigMap, _>(|change, request| {
///     let mut errors = FieldErrors::new();
///     if let Change::Updated { old, new } = change {
///         errors.immutable("data", &old.data, &new.data);
///     }
///     errors
/// });
/// # let _ = webhook;
/// ```
///
/// An object that does not decode as a `T` is refused with status 400. If only the stored object does not, the update is
/// [`Created`](Change::Created), so that it can be repaired, and a deletion is allowed without a check.
pub fn validate<T, R>(
    check: impl Fn(Change<'_, T>, &ReviewRequest) -> R + Send + Sync + 'static,
) -> AdmissionWebhook<Validating>
where
    T: Resource<DynamicType: Default, Scope: 'static> + DeserializeOwned,
    R: IntoVerdict,
{
    validate_target(Target::of::<T>(), check)
}

/// Like [`validate`], for any resource and type: dynamic kinds as `DynamicObject`, subresources such as `scale` with a type of
/// their own, connections such as `pods/exec` (whose operation is [`Connect`](Operation::Connect)), or JSON.
///
/// ```
/// use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v1::Scale};
/// use windlass_webhook::{Change, Target, Verdict, validate_target};
///
/// let target = Target::of::<Deployment>().subresource("scale");
/// let webhook = validate_target(target, |change: Change<'_, Scale>, _| {
///     let replicas = change.new_object().and_then(|scale| scale.spec.as_ref()?.replicas);
///     if replicas > Some(10) { Verdict::deny("at most 10 replicas") } else { Verdict::allow() }
/// });
/// # let _ = webhook;
/// ```
pub fn validate_target<T, R>(
    target: Target,
    check: impl Fn(Change<'_, T>, &ReviewRequest) -> R + Send + Sync + 'static,
) -> AdmissionWebhook<Validating>
where
    T: DeserializeOwned,
    R: IntoVerdict,
{
    let handler = move |review: &Review<'_>| {
        let objects = match Objects::<T>::decode(review) {
            Ok(objects) => objects,
            Err(refused) => return Reply::Ready(Ok(refused.into())),
        };
        let verdict = objects.change().map_or_else(
            || Ok(Verdict::allow()),
            |change| check(change, &review.request).into_verdict(),
        );
        Reply::Ready(verdict.map(Decision::from).map_err(HandlerError::Failed))
    };
    AdmissionWebhook::declare(Stage::Validating, target, Box::new(handler))
}

/// Like [`validate_target`], for a check that waits for something, such as a request to another server. It is cancelled at
/// the [deadline](ReviewRequest::deadline). It owns the objects: the old one, if any, and the new one, unless it is deleted.
pub fn validate_async<T, Fut>(
    target: Target,
    check: impl Fn(Option<T>, Option<T>, ReviewRequest) -> Fut + Send + Sync + 'static,
) -> AdmissionWebhook<Validating>
where
    T: DeserializeOwned,
    Fut: Future<Output: IntoVerdict> + Send + 'static,
{
    let handler = move |review: &Review<'_>| {
        let objects = match Objects::<T>::decode(review) {
            Ok(objects) => objects,
            Err(refused) => return Reply::Ready(Ok(refused.into())),
        };
        let verdict = check(objects.old, objects.new, review.request.clone());
        Reply::Waiting(
            async move {
                let verdict = verdict.await.into_verdict();
                verdict.map(Decision::from).map_err(HandlerError::Failed)
            }
            .boxed(),
        )
    };
    AdmissionWebhook::declare(Stage::Validating, target, Box::new(handler))
}

/// A webhook that changes objects before they are validated and stored, such as to fill in defaults. It changes the object in
/// place; the patch is computed: only what the function has changed, and nothing that the type does not know. It may refuse
/// the request too.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_webhook::mutate;
///
/// let webhook = mutate::<Pod, _>(|pod, _| {
///     pod.metadata.labels.get_or_insert_default().entry("team".to_owned()).or_insert_with(|| "unknown".to_owned());
/// });
/// # let _ = webhook;
/// ```
///
/// What `T` fills in itself when it decodes, with `#[serde(default)]`, is no change: to set a default that is stored, let the
/// field be an `Option`. If the CRD's schema can say the default, say it there.
pub fn mutate<T, R>(
    change: impl Fn(&mut T, &ReviewRequest) -> R + Send + Sync + 'static,
) -> AdmissionWebhook<Mutating>
where
    T: Resource<DynamicType: Default, Scope: 'static> + DeserializeOwned + Serialize,
    R: IntoVerdict,
{
    mutate_target(Target::of::<T>(), change)
}

/// Like [`mutate`], for any resource and type; see [`validate_target`].
pub fn mutate_target<T, R>(
    target: Target,
    change: impl Fn(&mut T, &ReviewRequest) -> R + Send + Sync + 'static,
) -> AdmissionWebhook<Mutating>
where
    T: DeserializeOwned + Serialize,
    R: IntoVerdict,
{
    let handler = move |review: &Review<'_>| {
        let (mut object, before, raw) = match to_mutate::<T>(review) {
            Ok(decoded) => decoded,
            Err(decided) => return Reply::Ready(*decided),
        };
        let verdict = change(&mut object, &review.request).into_verdict();
        Reply::Ready(verdict.map_err(HandlerError::Failed).and_then(|verdict| {
            let patch = difference(raw, &before, &object)?;
            Ok(Decision { verdict, patch })
        }))
    };
    AdmissionWebhook::declare(Stage::Mutating, target, Box::new(handler))
}

/// Like [`mutate_target`], for a change that waits for something. It gets the object, and returns the changed one; an error is
/// a failure, by the [policy](super::FailurePolicy). It is cancelled at the [deadline](ReviewRequest::deadline).
pub fn mutate_async<T, Fut>(
    target: Target,
    change: impl Fn(T, ReviewRequest) -> Fut + Send + Sync + 'static,
) -> AdmissionWebhook<Mutating>
where
    T: DeserializeOwned + Serialize,
    Fut: Future<Output = Result<T, Error>> + Send + 'static,
{
    let handler = move |review: &Review<'_>| {
        let (object, before, raw) = match to_mutate::<T>(review) {
            Ok(decoded) => decoded,
            Err(decided) => return Reply::Ready(*decided),
        };
        // The review ends before the function does.
        let raw = raw.to_owned();
        let changed = change(object, review.request.clone());
        Reply::Waiting(
            async move {
                let object = changed.await.map_err(HandlerError::Failed)?;
                let patch = difference(&raw, &before, &object)?;
                Ok(Decision {
                    verdict: Verdict::allow(),
                    patch,
                })
            }
            .boxed(),
        )
    };
    AdmissionWebhook::declare(Stage::Mutating, target, Box::new(handler))
}

/// The function of a webhook, behind any type.
pub(crate) struct Handler {
    pub(super) function: HandlerFn,
    /// Whether it is called for updates of objects that are being deleted.
    pub(super) sees_terminating: bool,
}

pub(super) type HandlerFn = Box<dyn Fn(&Review<'_>) -> Reply + Send + Sync>;

/// A decision, now or later. Most handlers wait for nothing, and need neither a box nor a timer.
pub(crate) enum Reply {
    Ready(Result<Decision, HandlerError>),
    Waiting(BoxFuture<'static, Result<Decision, HandlerError>>),
}

/// Why there is no decision. The server acts by the failure policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandlerError {
    #[error("{0}")]
    Failed(Error),
    #[error("the handler panicked: {0}")]
    Panicked(String),
    #[error("the handler has not answered in time")]
    TimedOut,
    #[error("the caches of the handler have not synced in time")]
    NotSynced,
    #[error("cannot compute the patch: {0}")]
    Patch(String),
}

impl Handler {
    /// Decides about a review. Does not panic.
    pub(crate) fn call(&self, review: &Review<'_>) -> Reply {
        if !self.sees_terminating && is_terminating_update(review) {
            return Reply::Ready(Ok(Verdict::allow().into()));
        }
        let called = std::panic::catch_unwind(AssertUnwindSafe(|| (self.function)(review)));
        match called {
            Ok(Reply::Waiting(decision)) => Reply::Waiting(
                AssertUnwindSafe(decision)
                    .catch_unwind()
                    .map(|decision| decision.unwrap_or_else(|panic| Err(panicked(&*panic))))
                    .boxed(),
            ),
            Ok(ready) => ready,
            Err(panic) => Reply::Ready(Err(panicked(&*panic))),
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> HandlerError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    HandlerError::Panicked(text.unwrap_or("without a message").to_owned())
}

/// Whether a request updates an object that is being deleted already.
fn is_terminating_update(review: &Review<'_>) -> bool {
    #[derive(serde::Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        deletion_timestamp: Option<serde::de::IgnoredAny>,
    }
    let Some(old) = review.old_object else {
        return false;
    };
    // Nearly no object has it, and to look for the word is cheaper than to read the object.
    review.request.operation == Operation::Update
        && old.get().contains("\"deletionTimestamp\"")
        && serde_json::from_str::<Object>(old.get())
            .is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
}

/// The objects of a review.
struct Objects<T> {
    old: Option<T>,
    new: Option<T>,
}

impl<T: DeserializeOwned> Objects<T> {
    /// Decodes them, or refuses the request.
    fn decode(review: &Review<'_>) -> Result<Self, Verdict> {
        let new = review.object.map(decode::<T>).transpose()?;
        let old = match review.old_object.map(decode::<T>).transpose() {
            Ok(old) => old,
            // A stored object of another time must not prevent its own repair.
            Err(refused) if new.is_some() => {
                let (name, why) = (&review.request.name, refused.message(&review.request));
                tracing::warn!(%name, why, "the stored object does not decode; the update is handled like a create");
                None
            }
            // It can still be deleted.
            Err(refused) => {
                let (name, why) = (&review.request.name, refused.message(&review.request));
                tracing::warn!(%name, why, "the stored object does not decode; its deletion is allowed without a check");
                let warning = "the deletion was not checked: the stored object is not valid for the webhook";
                return Err(Verdict::allow().warn(warning));
            }
        };
        Ok(Self { old, new })
    }
}

impl<T> Objects<T> {
    /// `None` if the review has no objects, as for some connections.
    fn change(&self) -> Option<Change<'_, T>> {
        Some(match (&self.old, &self.new) {
            (Some(old), Some(new)) => Change::Updated { old, new },
            (None, Some(new)) => Change::Created(new),
            (Some(old), None) => Change::Deleted(old),
            (None, None) => return None,
        })
    }
}

/// What is decided before the author's function is called.
type Decided = Box<Result<Decision, HandlerError>>;

/// The object to change, and its JSON as the type writes it; or the decision if there is none.
fn to_mutate<'a, T: DeserializeOwned + Serialize>(
    review: &Review<'a>,
) -> Result<(T, Value, &'a RawValue), Decided> {
    let Some(raw) = review.object else {
        return Err(Box::new(Ok(Decision::default())));
    };
    let object = decode::<T>(raw).map_err(|refused| Box::new(Ok(refused.into())))?;
    let before = encode(&object).map_err(|error| Box::new(Err(error)))?;
    Ok((object, before, raw))
}

pub(crate) fn difference<T: DeserializeOwned + Serialize>(
    raw: &RawValue,
    before: &Value,
    object: &T,
) -> Result<Patch, HandlerError> {
    let after = encode(object)?;
    let between = |lists| {
        Patch::between(raw, before, &after, lists).map_err(|error| HandlerError::Patch(error.to_string()))
    };
    let patch = between(Lists::Edited)?;
    // A type may do anything with a list: sort it, merge its items, drop some.
    let read = |value| serde_json::to_value(serde_json::from_value::<T>(value).ok()?).ok();
    if patch.edits_lists() && !is_reached(raw, before, &after, read) {
        return between(Lists::Replaced);
    }
    Ok(patch)
}

fn encode<T: Serialize>(object: &T) -> Result<Value, HandlerError> {
    serde_json::to_value(object).map_err(|error| HandlerError::Patch(error.to_string()))
}

/// The longest text of a decoder that is shown and logged.
const MAX_QUOTED: usize = 1024;

/// Decodes an object, or refuses the request.
fn decode<T: DeserializeOwned>(raw: &RawValue) -> Result<T, Verdict> {
    serde_json::from_str(raw.get()).map_err(|error| {
        let text = error.to_string();
        // The position is one in the review, which the user has not written.
        let why = text.rsplit_once(" at line ").map_or(&*text, |(why, _)| why);
        // It may quote a value of any length.
        let why = cut(why, MAX_QUOTED);
        let ty = type_name::<T>().rsplit("::").next().unwrap_or_default();
        Verdict::refuse(
            400,
            "BadRequest",
            format!("cannot decode the object as {ty}: {why}"),
        )
    })
}
