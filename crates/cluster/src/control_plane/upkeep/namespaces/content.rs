//! Deletes the content of a namespace, kind by kind, pods first.

use std::{cmp::max, collections::BTreeMap, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, ListParams},
    discovery::verbs,
};
use windlass_api::status::StatusClass;

use super::{
    super::{
        kinds::{Kind, ServedKinds},
        objects::MetadataApi,
    },
    conditions::DeletionResult,
};

/// Estimate of how long finalizers take.
const FINALIZER_ESTIMATE: Duration = Duration::from_secs(15);

/// The remaining objects of one kind.
#[derive(Default)]
struct Remaining {
    objects: usize,
    finalizers: BTreeMap<String, usize>,
    estimate: Duration,
}

/// The result of one attempt to delete a namespace's content.
#[derive(Default)]
pub(super) struct DeletionAttempt {
    pub(super) result: DeletionResult,
    /// Estimate of how long the remaining content takes; zero if there is none.
    pub(super) estimate: Duration,
    /// Pods remain, so nothing else was deleted yet.
    pub(super) pods_left: bool,
}

/// Requests the deletion of all content. `age` is the time since the namespace's deletion.
pub(super) async fn delete_all(client: &Client, namespace: &str, age: Duration) -> DeletionAttempt {
    let mut emptied = DeletionAttempt::default();
    let DeletionAttempt {
        result,
        estimate,
        pods_left,
    } = &mut emptied;
    let served = match ServedKinds::discover(client).await {
        Ok(served) => served,
        Err(error) => {
            result.discovery = Some(error_message(error));
            return emptied;
        }
    };
    let (pods, others): (Vec<_>, Vec<_>) = served.namespaced().partition(|kind| kind.is("", "pods"));
    for kind in pods {
        match delete(client, kind, namespace, age).await {
            Ok(left) if left.objects == 0 => {}
            // Running pods may need the other objects. As in Kubernetes, the pods are not counted.
            Ok(left) => {
                *estimate = left.estimate;
                *pods_left = true;
                return emptied;
            }
            Err(why) => {
                result.failures.push(why);
                *pods_left = true;
                return emptied;
            }
        }
    }
    for kind in others {
        match delete(client, kind, namespace, age).await {
            Ok(left) => {
                *estimate = max(*estimate, left.estimate);
                if left.objects > 0 {
                    let resource = &kind.resource;
                    let name = format!("{}.{}", resource.plural, resource.group);
                    result.remaining.insert(name, left.objects);
                }
                for (finalizer, count) in left.finalizers {
                    *result.finalizers.entry(finalizer).or_default() += count;
                }
            }
            Err(why) => result.failures.push(why),
        }
    }
    emptied
}

async fn delete(client: &Client, kind: &Kind, namespace: &str, age: Duration) -> Result<Remaining, String> {
    let objects = kind.objects(client, Some(namespace));
    if list(&objects, kind).await.map_err(error_message)?.is_empty() {
        return Ok(Remaining::default());
    }
    let mut estimate = Duration::ZERO;
    if kind.is("", "pods") {
        estimate = longest_grace_period(client, namespace)
            .await
            .map_err(error_message)?;
        if age >= estimate {
            estimate = Duration::ZERO;
        }
    }
    let background = DeleteParams::background();
    // A delete-collection response shows objects as they were before. Pods terminate later, so a cache must not take the
    // response for their deletion.
    if kind.supports(verbs::DELETE_COLLECTION) && !kind.is("", "pods") {
        let answer = objects.delete_all(&background).await;
        ignore_gone(answer).map_err(error_message)?;
    } else {
        for object in list(&objects, kind).await.map_err(error_message)? {
            let name = object.name.unwrap_or_default();
            ignore_gone(objects.delete(&name, &background).await).map_err(error_message)?;
        }
    }
    let left = list(&objects, kind).await.map_err(error_message)?;
    let mut finalizers = BTreeMap::new();
    for object in &left {
        for finalizer in object.finalizers.iter().flatten() {
            *finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }
    if left.is_empty() {
        estimate = Duration::ZERO;
    } else if estimate.is_zero() {
        if finalizers.is_empty() {
            let resource = &kind.resource;
            return Err(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {}/{}, Resource={}",
                resource.group, resource.version, resource.plural
            ));
        }
        estimate = FINALIZER_ESTIMATE;
    }
    Ok(Remaining {
        objects: left.len(),
        finalizers,
        estimate,
    })
}

/// Lists the objects, if the kind supports it.
async fn list(objects: &MetadataApi, kind: &Kind) -> Result<Vec<ObjectMeta>, Error> {
    if !kind.supports(verbs::LIST) {
        return Ok(Vec::new());
    }
    let list = ignore_gone(objects.list().await)?;
    Ok(list.unwrap_or_default())
}

/// Returns `None` if the object or its kind no longer exists.
fn ignore_gone<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) => match StatusClass::of_error(&error) {
            Some(StatusClass::NotFound | StatusClass::Unsupported) => Ok(None),
            _ => Err(error),
        },
        Ok(answer) => Ok(Some(answer)),
    }
}

/// Returns the server's message, if the error has one.
fn error_message(error: Error) -> String {
    match error {
        Error::Api(status) if !status.message.is_empty() => status.message,
        other => other.to_string(),
    }
}

/// Returns the longest grace period of the unfinished pods.
async fn longest_grace_period(client: &Client, namespace: &str) -> Result<Duration, Error> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default()).await?;
    let running = pods.items.into_iter().filter(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    });
    let graces = running.filter_map(|pod| pod.spec?.termination_grace_period_seconds);
    let longest = graces.max().unwrap_or(0);
    Ok(Duration::from_secs(u64::try_from(longest).unwrap_or(0)))
}
