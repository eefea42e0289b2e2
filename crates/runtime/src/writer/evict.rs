//! Pod eviction, which honours `PodDisruptionBudgets`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    api::{DeleteParams, PostParams},
    core::Status,
};
use serde_json::{Value, json};
use windlass_api::status::StatusClass;

use super::{WriteError, Writer, bytes};

/// The server's message if more than one `PodDisruptionBudget` covers the pod; it never evicts such a pod.
const MULTIPLE_PDBS_MESSAGE: &str = "This pod has more than one PodDisruptionBudget";

/// Result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictOutcome {
    /// The server accepted it. The pod terminates within its grace period.
    Accepted,
    /// The pod did not exist any more. A recreated pod of the same name is left alone.
    AlreadyGone,
    /// A `PodDisruptionBudget` does not allow it at the moment. Nothing was changed.
    Blocked {
        /// The PDB's name if the server gives it, which it does not if several PDBs cover the pod.
        budget: Option<String>,
        /// The server's message.
        message: String,
        /// The delay that the server asks for. If `None`, use 5 s like `kubectl drain`.
        retry_after: Option<Duration>,
    },
}

impl Writer {
    /// Evicts the pod, with the options' grace period and preconditions, but not a recreated pod of the same name.
    ///
    /// `kube::Api::evict` sends its options in a field that the server does not know, so they are ignored; here they are not. A
    /// PDB that does not allow the eviction is a result, not an error; an overloaded server (also code 429) is an error with
    /// [`retry_after`](WriteError::retry_after).
    ///
    /// A client from `kube::Config` retries code 429 up to 15 times, even if it comes from a PDB;
    /// [`Options::client`](crate::Options::client) returns a client that does not.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::api::DeleteParams;
    /// # use windlass_runtime::{EvictOutcome, Writer, WriteError};
    /// # async fn example(writer: Writer, pod: Pod) -> Result<(), WriteError> {
    /// match writer.evict(&pod, &DeleteParams::default().grace_period(10)).await? {
    ///     EvictOutcome::Accepted | EvictOutcome::AlreadyGone => {}
    ///     EvictOutcome::Blocked { message, .. } => println!("not yet: {message}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn evict(&self, pod: &Pod, options: &DeleteParams) -> Result<EvictOutcome, WriteError> {
        let target = self.target("evict", pod);
        let options = self.with_uid_precondition(pod, options);
        let (path, name) = (target.path()?, target.key.name());
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": name, "namespace": target.key.namespace() },
            "deleteOptions": options,
        });
        let post = PostParams {
            dry_run: options.dry_run,
            ..self.post()
        };
        let request =
            kube::core::Request::new(path).create_subresource("eviction", name, &post, bytes(&body));
        match self.send::<Value>(&target, request).await {
            Ok(_) => Ok(EvictOutcome::Accepted),
            Err(error) if error.is_not_found() => Ok(EvictOutcome::AlreadyGone),
            Err(error) if error.is_conflict() || error.is_uid_mismatch() => {
                let replaced = self.is_gone_or_recreated(&target, pod).await?;
                if replaced {
                    Ok(EvictOutcome::AlreadyGone)
                } else {
                    Err(error)
                }
            }
            Err(error) => match error.status().and_then(blocking_budget) {
                Some((budget, message)) => Ok(EvictOutcome::Blocked {
                    budget,
                    message,
                    retry_after: error.retry_after(),
                }),
                None => Err(error),
            },
        }
    }
}

/// The PDB that blocked the eviction, and the message. `None` for any other answer, such as that of an overloaded server.
fn blocking_budget(status: &Status) -> Option<(Option<String>, String)> {
    // Only the message distinguishes this 500 from others.
    if StatusClass::of(status) == StatusClass::ServerError
        && status.message.starts_with(MULTIPLE_PDBS_MESSAGE)
    {
        return Some((None, status.message.clone()));
    }
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let cause = causes.find(|cause| cause.reason == "DisruptionBudget")?;
    // The name is only in the message.
    let name = cause
        .message
        .strip_prefix("The disruption budget ")
        .and_then(|rest| rest.split(' ').next());
    let message = if cause.message.is_empty() {
        status.message.clone()
    } else {
        cause.message.clone()
    };
    Some((name.map(ToOwned::to_owned), message))
}
