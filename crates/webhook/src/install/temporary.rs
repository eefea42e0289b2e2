//! A registration that ends with its program, on a laptop.
//!
//! What it has replaced is in an annotation, which is written together with it. So a program that is killed loses nothing: the
//! next one takes the annotation over. What others have registered meanwhile is left as it is.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CRDS, InstallError, Installer, Write, delete, exact_client, items, merge, to_json};
use crate::{conversion::pending_conversion, registration::WebhookAddress};

/// The annotation of a registration that ends with its program.
pub(super) const ANNOTATION: &str = "windlass.dev/temporary-webhooks";

/// The largest annotation. All annotations of an object may have 256 KiB together.
const MAX_BYTES: usize = 192 * 1024;

/// The annotation's content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Temporary {
    /// Where the program is called.
    pub(super) url: String,
    /// The webhooks of a configuration, or the `spec.conversion` of a CRD; `None` if there was no such object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replaced: Option<Value>,
}

impl Temporary {
    /// That of an object, if it has one.
    pub(super) fn of(object: &Value) -> Option<Self> {
        let text = object["metadata"]["annotations"][ANNOTATION].as_str()?;
        // Whatever it says, it is no registration that lasts.
        Some(serde_json::from_str(text).unwrap_or_default())
    }

    /// The annotation; `None` if it would be too large.
    pub(super) fn into_annotation(self) -> Option<(String, Value)> {
        let text = serde_json::to_string(&self).ok()?;
        (text.len() <= MAX_BYTES).then(|| (ANNOTATION.to_owned(), text.into()))
    }
}

/// Whether another program's temporary registration stands in for one at this address.
pub(crate) fn is_temporary_of_another(address: &WebhookAddress, object: &Value) -> bool {
    Temporary::of(object).is_some_and(|temporary| match address {
        WebhookAddress::Url(url) => temporary.url != *url,
        WebhookAddress::Service { .. } => true,
    })
}

impl Installer {
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self.address, WebhookAddress::Url(_))
    }

    /// Whether another program stands in for this one.
    pub(super) fn is_displaced(&self, before: &Value) -> bool {
        is_temporary_of_another(&self.address, before)
    }

    /// Whether the annotation of an object is as it should be.
    pub(super) fn is_marked(&self, before: &Value) -> bool {
        match &self.address {
            WebhookAddress::Url(url) => Temporary::of(before).is_some_and(|temporary| temporary.url == *url),
            WebhookAddress::Service { .. } => Temporary::of(before).is_none(),
        }
    }

    /// Restores what this program's temporary registration has replaced. Failures are logged: the next run repairs them.
    pub(crate) async fn take_back(&self) {
        if !self.is_temporary() {
            return;
        }
        for registration in &self.registrations {
            let path = &registration.path;
            let done = self
                .change(path, |before| {
                    Ok(before.and_then(|before| self.plan_restore(path, before)))
                })
                .await;
            match done {
                Ok(true) => tracing::info!(path, "took the registration of the webhooks back"),
                Ok(false) => {}
                Err(InstallError::Contended { .. }) => {
                    tracing::warn!(
                        path,
                        "others change it all the time; the registration of the webhooks stays"
                    );
                }
                Err(error) => {
                    tracing::warn!(path, %error, "could not take the registration of the webhooks back");
                }
            }
        }
    }

    fn plan_restore(&self, path: &str, before: &Value) -> Option<Write> {
        let temporary = Temporary::of(before).filter(|_| !self.is_displaced(before))?;
        let unmarked = json!({"annotations": {ANNOTATION: null}});
        let is_ours = if path.starts_with(CRDS) {
            self.address
                .is_called_by(&before["spec"]["conversion"]["webhook"]["clientConfig"])
        } else {
            let mut webhooks = items(&before["webhooks"]).peekable();
            webhooks.peek().is_none()
                || webhooks.any(|webhook| self.address.is_called_by(&webhook["clientConfig"]))
        };
        if !is_ours {
            // It was registered again, by a program that keeps annotations.
            return Some(merge(path, before, json!({"metadata": unmarked})));
        }
        if !path.starts_with(CRDS) {
            return Some(match temporary.replaced {
                None => delete(path, before),
                Some(webhooks) => merge(path, before, json!({"metadata": unmarked, "webhooks": webhooks})),
            });
        }
        let mut conversion = temporary.replaced.unwrap_or_else(|| json!({"strategy": "None"}));
        if conversion["strategy"] != "Webhook" {
            if is_converted(before) {
                // The API server would take the stored fields of one version for those of another.
                conversion = to_json(&pending_conversion());
                tracing::warn!(
                    path,
                    "several versions are served, so requests in versions that are not stored fail until a conversion is registered again"
                );
            } else {
                conversion["webhook"] = Value::Null;
            }
        }
        let change = json!({"metadata": unmarked, "spec": {"conversion": exact_client(conversion)}});
        Some(merge(path, before, change))
    }
}

/// Whether a CRD has objects that need a conversion: several versions are served, or stored.
fn is_converted(crd: &Value) -> bool {
    let served = items(&crd["spec"]["versions"]).filter(|version| version["served"] == true);
    let mut versions: Vec<_> = served.map(|version| &version["name"]).collect();
    versions.extend(items(&crd["status"]["storedVersions"]));
    versions.iter().any(|version| *version != versions[0])
}
