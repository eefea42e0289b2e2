//! Eviction: a deletion that asks the disruption budgets first.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    api::{DeleteParams, PostParams},
    core::Status,
};
use serde_json::{Value, json};

use super::{WriteError, Writer, bytes};

/// How the server says no if more than one budget covers the pod, whatever they allow.
const SEVERAL_BUDGETS: &str = "This pod has more than one PodDisruptionBudget";

/// What became of a pod that was to be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The server agreed. The pod goes when its grace period is over.
    Agreed,
    /// It had gone before; if there is another one of its name, that one stays.
    Before,
    /// A disruption budget does not allow it at the moment. Nothing happened.
    Blocked {
        /// The budget's name, where the server gives it: not where several of them cover the pod, which it does not
        /// know how to ask.
        budget: Option<String>,
        /// Why, in the server's words.
        message: String,
        /// How long the server asks to wait. Without it, 5 s is what `kubectl drain` waits.
        retry_after: Option<Duration>,
    },
}

impl Writer {
    /// Evicts this very pod, with a grace period or preconditions if the options have them.
    ///
    /// It does what `kube::Api::evict` should: that one puts its options under a name that the server does not know,
    /// so that they are ignored. A budget that says no is an outcome here, not an error; a server that has too much
    /// to do (also code 429) is an error with [`retry_after`](WriteError::retry_after).
    ///
    /// A client from `kube::Config` repeats a request with that answer by itself, up to 15 times, also when a budget
    /// said no; [`Options::client`](crate::Options::client) makes one that does not.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::api::DeleteParams;
    /// # use windlass_runtime::{Evicted, Writer, WriteError};
    /// # async fn example(writer: Writer, pod: Pod) -> Result<(), WriteError> {
    /// match writer.evict(&pod, &DeleteParams::default().grace_period(10)).await? {
    ///     Evicted::Agreed | Evicted::Before => {}
    ///     Evicted::Blocked { message, .. } => println!("not yet: {message}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn evict(&self, pod: &Pod, options: &DeleteParams) -> Result<Evicted, WriteError> {
        let target = self.target("evict", pod);
        let options = self.of_this_object(pod, options);
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
            Ok(_) => Ok(Evicted::Agreed),
            Err(error) if error.is_not_found() => Ok(Evicted::Before),
            Err(error) if error.is_conflict() => {
                let replaced = self.is_replaced(&target, pod).await?;
                if replaced { Ok(Evicted::Before) } else { Err(error) }
            }
            Err(error) => match error.status().and_then(budget) {
                Some((budget, message)) => Ok(Evicted::Blocked {
                    budget,
                    message,
                    retry_after: error.retry_after(),
                }),
                None => Err(error),
            },
        }
    }
}

/// Which budget said no, and why. `None` for any other answer, such as that of a server with too much to do.
fn budget(status: &Status) -> Option<(Option<String>, String)> {
    // Its prose is all that tells this 500 from any other.
    if status.code == 500 && status.message.starts_with(SEVERAL_BUDGETS) {
        return Some((None, status.message.clone()));
    }
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let cause = causes.find(|cause| cause.reason == "DisruptionBudget")?;
    // The name stands nowhere else.
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
