//! The admission plugins of pods.

use serde_json::{Map, Value, json};

use super::validation::MIRROR_ANNOTATION;
use crate::{
    admission::Admission,
    kinds::Creation,
    object::Object,
    registry::Resource,
    status::Status,
    storage::Key,
    webhook::{Purpose, RequestEnvironment},
};

/// Path at which pods find their service account's token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What the names of the volumes with the token begin with.
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";

/// Built-in priority classes, by name and value.
const SYSTEM_PRIORITIES: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// `ServiceAccount`: a pod runs as a service account that exists, and has its token mounted. A mirror pod has none
/// and stays unchanged, because the kubelet would treat any difference as an error.
pub(super) fn admit_service_account(creation: &Creation<'_>, pod: &mut Object) -> Result<(), Status> {
    let Creation {
        admission,
        resource,
        caller,
    } = *creation;
    if pod.tree()["metadata"]["annotations"]
        .get(MIRROR_ANNOTATION)
        .is_some()
    {
        if pod.text_at("spec.serviceAccountName").is_empty() {
            return Ok(());
        }
        let why = "a mirror pod may not reference service accounts";
        return Err(Status::forbidden(resource, name_or_generate_name(pod), why));
    }
    let namespace = pod.namespace().to_owned();
    let name = match pod.text_at("spec.serviceAccountName") {
        empty if empty.is_empty() => "default".to_owned(),
        name => name,
    };
    let Some(account) = admission
        .store
        .builtin_entry(("", "serviceaccounts"), &Key::new(&namespace, &name))
    else {
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        );
        return Err(Status::forbidden(resource, name_or_generate_name(pod), &why));
    };
    // Most accounts set neither field, so a byte search saves the decoding.
    let says = |key: &str| memchr::memmem::find(account.object.json(), key.as_bytes()).is_some();
    let account = (says("imagePullSecrets") || says("automount")).then(|| account.object.decode());
    let account = account.transpose()?;
    let own = |key: &str| {
        account
            .as_ref()
            .and_then(|account| account.fields().get(key).cloned())
    };
    let Some(spec) = pod.fields_mut().get_mut("spec") else {
        return Ok(());
    };
    spec["serviceAccountName"] = name.clone().into();
    spec["serviceAccount"] = name.into();
    if spec["imagePullSecrets"].is_null()
        && let Some(secrets) = own("imagePullSecrets")
    {
        spec["imagePullSecrets"] = secrets;
    }
    let wanted = match &spec["automountServiceAccountToken"] {
        Value::Bool(wanted) => *wanted,
        _ => own("automountServiceAccountToken") != Some(Value::Bool(false)),
    };
    if wanted {
        mount_token(
            spec,
            &format!(
                "{TOKEN_VOLUME_PREFIX}{}",
                RequestEnvironment::new(&admission.store.environment, caller)
                    .name_suffix(Purpose::TokenVolume)
            ),
        );
    }
    Ok(())
}

/// `Priority`: a pod's priority is that of its class, or of the cluster's default class.
pub(super) fn admit_priority(
    admission: &Admission,
    resource: &Resource,
    pod: &mut Object,
) -> Result<(), Status> {
    let name = pod.text_at("spec.priorityClassName");
    let (class, value, policy) = if name.is_empty() {
        let default = default_priority_class(admission);
        let class = default.as_ref().map_or("", |class| class.name()).to_owned();
        let (value, policy) = default.as_ref().map_or((0, None), class_priority);
        (class, value, policy)
    } else {
        let system = SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name);
        match (
            admission
                .store
                .builtin_entry(("scheduling.k8s.io", "priorityclasses"), &Key::new("", &name)),
            system,
        ) {
            (Some(entry), _) => {
                let (value, policy) = class_priority(&entry.object.decode()?);
                (name, value, policy)
            }
            (None, Some((_, value))) => (name, *value, None),
            (None, None) => {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(Status::forbidden(resource, name_or_generate_name(pod), &why));
            }
        }
    };
    let policy = policy.unwrap_or_else(|| "PreemptLowerPriority".to_owned());
    let shown = name_or_generate_name(pod).to_owned();
    let Some(spec) = pod.fields_mut().get_mut("spec") else {
        return Ok(());
    };
    if let Some(said) = spec["priority"].as_i64().filter(|said| *said != value) {
        let why = format!(
            "the integer value of priority ({said}) must not be provided in pod spec; priority admission \
             controller computed {value} from the given PriorityClass name"
        );
        return Err(Status::forbidden(resource, &shown, &why));
    }
    if let Some(said) = spec["preemptionPolicy"].as_str().filter(|said| *said != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({said}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(Status::forbidden(resource, &shown, &why));
    }
    if !class.is_empty() {
        spec["priorityClassName"] = class.into();
    }
    spec["priority"] = value.into();
    spec["preemptionPolicy"] = policy.into();
    Ok(())
}

/// `Priority`: an update that leaves them out keeps the priority and the preemption policy.
pub(super) fn keep_priority(pod: &mut Object, old: &Object) {
    let before = &old.tree()["spec"];
    let Some(spec) = pod.tree_mut()["spec"].as_object_mut() else {
        return;
    };
    for key in ["priority", "preemptionPolicy"] {
        if !before[key].is_null() && spec.get(key).is_none_or(Value::is_null) {
            spec.insert(key.to_owned(), before[key].clone());
        }
    }
}

fn default_priority_class(admission: &Admission) -> Option<Object> {
    let classes = admission
        .store
        .builtin_objects(("scheduling.k8s.io", "priorityclasses"));
    let defaults = classes.filter(|class| class.fields().get("globalDefault") == Some(&Value::Bool(true)));
    // If several are marked as the default, the one with the lowest value wins.
    defaults.min_by_key(|class| class_priority(class).0)
}

/// The name for messages: plugins run before a name is generated.
fn name_or_generate_name(object: &Object) -> &str {
    if object.name().is_empty() {
        object.meta("generateName")
    } else {
        object.name()
    }
}

fn class_priority(class: &Object) -> (i64, Option<String>) {
    let value = class.fields().get("value").and_then(Value::as_i64).unwrap_or(0);
    let policy = class.fields().get("preemptionPolicy").and_then(Value::as_str);
    (value, policy.map(str::to_owned))
}

/// Adds the token volume and mounts it in every container that has nothing mounted at that path.
fn mount_token(spec: &mut Value, volume: &str) {
    let Value::Object(spec) = spec else { return };
    let volumes = spec
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    // There is one already if a policy has changed the pod since the plugin ran first.
    let existing = names
        .find(|name| name.starts_with(TOKEN_VOLUME_PREFIX))
        .map(str::to_owned);
    let (volume, has_volume) = (existing.as_deref().unwrap_or(volume), existing.is_some());
    let mut used = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let mounts = list_or_insert(container, "volumeMounts");
            if mounts.iter().all(|mount| mount["mountPath"] != TOKEN_PATH) {
                used = true;
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
            }
        }
    }
    if used && !has_volume {
        list_or_insert(spec, "volumes").push(json!({"name": volume, "projected": {"defaultMode": 0o644, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
    }
}

/// Returns the list at `name`, inserting an empty one if there is none.
fn list_or_insert<'a>(fields: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let place = fields.entry(name).or_insert(Value::Null);
    if !place.is_array() {
        *place = Value::Array(Vec::new());
    }
    place.as_array_mut().expect("set above")
}

/// `DefaultTolerationSeconds`: a pod tolerates a not-ready or unreachable node for five minutes unless it has
/// tolerations of its own for them.
pub(super) fn add_default_tolerations(pod: &mut Object) {
    let Some(spec) = pod.fields_mut().get_mut("spec") else {
        return;
    };
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            let says = |field: &str, value: &str| {
                toleration[field]
                    .as_str()
                    .is_none_or(|text| text.is_empty() || text == value)
            };
            says("key", key) && says("effect", "NoExecute")
        };
        if !tolerations.iter().any(covers) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    spec["tolerations"] = tolerations.into();
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::Server;

    async fn create_pod(server: Server) -> u16 {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let request = Request::post("/api/v1/namespaces/default/pods")
            .body(pod.to_string())
            .expect("a request");
        let response = server.oneshot(request).await.expect("infallible");
        response.status().as_u16()
    }

    #[tokio::test]
    async fn pods_need_a_service_account_unless_the_plugin_is_disabled() {
        assert_eq!(create_pod(Server::new()).await, 403);
        assert_eq!(
            create_pod(Server::builder().without_service_accounts().build()).await,
            201
        );
    }
}
