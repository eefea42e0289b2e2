//! The mutating and validating admission plugins that a real server enables by default, as far as a client can see
//! them.
//!
//! ```text
//!   NamespaceLifecycle ─► ServiceAccount ─► TaintNodesByCondition ─► Priority ─► DefaultTolerationSeconds
//!                     ─► DefaultStorageClass, StorageObjectInUseProtection ─► RuntimeClass ─► DefaultIngressClass
//! ```

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::{
    admission_plugins::{AdmissionPlugin, AdmissionPlugins},
    built_in_strategies::admit_runtime_class,
    object::Object,
    object_store::ObjectStore,
    registry::Resource,
    rules::MIRROR_ANNOTATION,
    status::Status,
    storage::Key,
};

/// Path at which pods find their service account's token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Built-in priority classes, by name and value.
const SYSTEM_PRIORITIES: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// The admission plugins.
pub(crate) struct Admission {
    pub(crate) store: Arc<ObjectStore>,
    pub(crate) plugins: AdmissionPlugins,
}

impl Admission {
    /// Applies the admission plugins to a new object: completes it, or rejects it.
    pub(crate) fn admit(&self, resource: &Resource, object: &mut Object) -> Result<(), Status> {
        if resource.crd.as_ref().is_some_and(|defined| defined.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(resource, object.name(), why));
        }
        let has = |plugin| self.plugins.has(plugin);
        if resource.namespaced && has(AdmissionPlugin::NamespaceLifecycle) {
            self.check_namespace(resource, object)?;
        }
        if resource.is_custom {
            return Ok(());
        }
        match (&*resource.group, &*resource.kind) {
            ("", "Pod") => {
                if has(AdmissionPlugin::ServiceAccount) {
                    self.admit_service_account(resource, object)?;
                }
                if has(AdmissionPlugin::Priority) {
                    self.admit_priority(resource, object)?;
                }
                if has(AdmissionPlugin::DefaultTolerationSeconds) {
                    add_default_tolerations(object);
                }
                if has(AdmissionPlugin::RuntimeClass) {
                    admit_runtime_class(&self.store, resource, object)?;
                }
            }
            ("", "Node") if has(AdmissionPlugin::TaintNodesByCondition) => add_not_ready_taint(object),
            ("", "PersistentVolume") if has(AdmissionPlugin::StorageObjectInUseProtection) => {
                add_finalizer(object, "kubernetes.io/pv-protection");
            }
            ("", "PersistentVolumeClaim") => {
                if has(AdmissionPlugin::StorageObjectInUseProtection) {
                    add_finalizer(object, "kubernetes.io/pvc-protection");
                }
                if has(AdmissionPlugin::DefaultStorageClass) {
                    self.set_default_class(
                        object,
                        "storageClassName",
                        ("storage.k8s.io", "storageclasses"),
                        "storageclass.kubernetes.io/is-default-class",
                    );
                }
            }
            ("networking.k8s.io", "Ingress") if has(AdmissionPlugin::DefaultIngressClass) => self
                .set_default_class(
                    object,
                    "ingressClassName",
                    ("networking.k8s.io", "ingressclasses"),
                    "ingressclass.kubernetes.io/is-default-class",
                ),
            _ => {}
        }
        Ok(())
    }

    /// `NamespaceLifecycle`: a new object needs a namespace that exists and is not terminating.
    fn check_namespace(&self, resource: &Resource, object: &Object) -> Result<(), Status> {
        let catalogue = self.store.registry.catalogue();
        let namespaces = catalogue.find("", "v1", "namespaces").expect("built in");
        let name = object.namespace();
        match self.store.storage.get(&namespaces.table, &Key::new("", name)) {
            None => Err(Status::not_found(namespaces, name)),
            Some(entry) if entry.object.is_deleting() => {
                Err(Status::namespace_terminating(resource, object.name(), name))
            }
            Some(_) => Ok(()),
        }
    }

    /// `ServiceAccount`: a pod runs as a service account that exists, and has its token mounted. A mirror pod has none
    /// and stays unchanged, because the kubelet would treat any difference as an error.
    fn admit_service_account(&self, resource: &Resource, pod: &mut Object) -> Result<(), Status> {
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
        let Some(account) = self
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
                &format!("kube-api-access-{}", self.store.environment.name_suffix()),
            );
        }
        Ok(())
    }

    /// `Priority`: a pod's priority is that of its class, or of the cluster's default class.
    fn admit_priority(&self, resource: &Resource, pod: &mut Object) -> Result<(), Status> {
        let name = pod.text_at("spec.priorityClassName");
        let (class, value, policy) = if name.is_empty() {
            let default = self.default_priority_class();
            let class = default.as_ref().map_or("", |class| class.name()).to_owned();
            let (value, policy) = default.as_ref().map_or((0, None), class_priority);
            (class, value, policy)
        } else {
            let system = SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name);
            match (
                self.store
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

    fn default_priority_class(&self) -> Option<Object> {
        let classes = self
            .store
            .builtin_objects(("scheduling.k8s.io", "priorityclasses"));
        let defaults =
            classes.filter(|class| class.fields().get("globalDefault") == Some(&Value::Bool(true)));
        // If several are marked as the default, the one with the lowest value wins.
        defaults.min_by_key(|class| class_priority(class).0)
    }

    /// Sets the class marked as the default if the object names none.
    fn set_default_class(&self, object: &mut Object, field: &str, resource: (&str, &str), mark: &str) {
        let spec = object.fields().get("spec");
        if spec.is_none_or(|spec| !spec[field].is_null()) {
            return;
        }
        let marked = |class: &Object| {
            let annotations = class.metadata().get("annotations");
            annotations.is_some_and(|annotations| annotations[mark] == "true")
        };
        // If several are marked as the default, the newest wins.
        let class = self
            .store
            .builtin_objects(resource)
            .filter(marked)
            .max_by_key(|class| class.meta("creationTimestamp").to_owned());
        if let Some(class) = class {
            let name = Value::from(class.name());
            object.fields_mut()["spec"][field] = name;
        }
    }
}

/// Applies the admission plugins to an updated object.
pub(crate) fn admit_update(resource: &Resource, object: &mut Object) {
    if !resource.is_custom && (&*resource.group, &*resource.kind) == ("", "Pod") {
        add_default_tolerations(object);
    }
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
    if used {
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
fn add_default_tolerations(pod: &mut Object) {
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

/// `TaintNodesByCondition`: nothing is scheduled onto a new node before it is ready.
fn add_not_ready_taint(node: &mut Object) {
    let spec = node.fields_mut().entry("spec").or_insert_with(|| json!({}));
    let mut taints = spec["taints"].as_array().cloned().unwrap_or_default();
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    if taints
        .iter()
        .all(|known| known["key"] != taint["key"] || known["effect"] != taint["effect"])
    {
        taints.push(taint);
    }
    spec["taints"] = taints.into();
}

fn add_finalizer(object: &mut Object, finalizer: &str) {
    let finalizers: Vec<_> = object.finalizers().map(str::to_owned).collect();
    if !finalizers.iter().any(|known| known == finalizer) {
        let all: Vec<_> = finalizers.into_iter().chain([finalizer.to_owned()]).collect();
        object.set_meta("finalizers", all);
    }
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
