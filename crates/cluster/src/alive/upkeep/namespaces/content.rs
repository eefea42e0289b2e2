//! Deletes what is in a namespace, kind by kind, pods first.

use std::{cmp::max, collections::BTreeMap, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, ListParams},
    discovery::verbs,
};

use super::{
    super::{
        kinds::{Kind, Served},
        objects::Objects,
    },
    conditions::Findings,
};

/// How long objects with finalizers are expected to stay.
const FINALIZERS: Duration = Duration::from_secs(15);

/// What is left of one kind.
#[derive(Default)]
struct Left {
    objects: usize,
    finalizers: BTreeMap<String, usize>,
    estimate: Duration,
}

/// What became of a namespace's content.
#[derive(Default)]
pub(super) struct Emptied {
    pub(super) findings: Findings,
    /// How long what is left is expected to take; zero if nothing is.
    pub(super) estimate: Duration,
    /// Pods are left, and nothing else was touched because of them.
    pub(super) pods_left: bool,
}

/// Asks for everything's deletion. `age` is how long ago the namespace was deleted.
pub(super) async fn delete_all(client: &Client, namespace: &str, age: Duration) -> Emptied {
    let mut emptied = Emptied::default();
    let Emptied {
        findings,
        estimate,
        pods_left,
    } = &mut emptied;
    let served = match Served::discover(client).await {
        Ok(served) => served,
        Err(error) => {
            findings.discovery = Some(told(error));
            return emptied;
        }
    };
    let (pods, others): (Vec<_>, Vec<_>) = served.namespaced().partition(|kind| kind.is("", "pods"));
    for kind in pods {
        match delete(client, kind, namespace, age).await {
            Ok(left) if left.objects == 0 => {}
            // They may need what else there is until their end. Also a real controller does not count them.
            Ok(left) => {
                *estimate = left.estimate;
                *pods_left = true;
                return emptied;
            }
            Err(why) => {
                findings.failures.push(why);
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
                    findings.left.insert(name, left.objects);
                }
                for (finalizer, count) in left.finalizers {
                    *findings.finalizers.entry(finalizer).or_default() += count;
                }
            }
            Err(why) => findings.failures.push(why),
        }
    }
    emptied
}

async fn delete(client: &Client, kind: &Kind, namespace: &str, age: Duration) -> Result<Left, String> {
    let objects = kind.objects(client, Some(namespace));
    if list(&objects, kind).await.map_err(told)?.is_empty() {
        return Ok(Left::default());
    }
    let mut estimate = Duration::ZERO;
    if kind.is("", "pods") {
        estimate = grace(client, namespace).await.map_err(told)?;
        if age >= estimate {
            estimate = Duration::ZERO;
        }
    }
    let background = DeleteParams::background();
    // The answer to a collection's deletion shows objects as they were before. Of pods, which end later, that says too little to
    // a cache that takes it for their end.
    if kind.can(verbs::DELETE_COLLECTION) && !kind.is("", "pods") {
        let answer = objects.delete_all(&background).await;
        unless_gone(answer).map_err(told)?;
    } else {
        for object in list(&objects, kind).await.map_err(told)? {
            let name = object.name.unwrap_or_default();
            unless_gone(objects.delete(&name, &background).await).map_err(told)?;
        }
    }
    let left = list(&objects, kind).await.map_err(told)?;
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
        estimate = FINALIZERS;
    }
    Ok(Left {
        objects: left.len(),
        finalizers,
        estimate,
    })
}

/// What is there, if the kind can be listed.
async fn list(objects: &Objects, kind: &Kind) -> Result<Vec<ObjectMeta>, Error> {
    if !kind.can(verbs::LIST) {
        return Ok(Vec::new());
    }
    let list = unless_gone(objects.list().await)?;
    Ok(list.unwrap_or_default())
}

/// `None` for what went in the meantime: an object, or its whole kind.
fn unless_gone<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(None),
        other => other.map(Some),
    }
}

/// An error in the server's words, if it has any.
fn told(error: Error) -> String {
    match error {
        Error::Api(status) if !status.message.is_empty() => status.message,
        other => other.to_string(),
    }
}

/// The longest grace period of the pods that have not ended.
async fn grace(client: &Client, namespace: &str) -> Result<Duration, Error> {
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
