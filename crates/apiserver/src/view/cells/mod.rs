//! The cells of table rows.

mod cluster;
mod custom;
mod network;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_api::labels;

use super::{JsonPath, age, pods, quota};
use crate::registry::Resource;

/// The cells of one object, one per column of its kind.
pub(super) fn row_cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    if resource.is_custom {
        return custom::cells(resource, object, now);
    }
    let shown = Row { object, now };
    match (&*resource.group, &*resource.kind) {
        ("", "Pod") => pods::cells(object, now),
        ("" | "events.k8s.io", "Event") => shown.event(),
        _ => shown.built_in(&resource.group, &resource.kind),
    }
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn items<'a>(value: &'a Value, pointer: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

pub(super) fn or_none(text: &str) -> Value {
    if text.is_empty() {
        "<none>".into()
    } else {
        text.into()
    }
}

struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl Row<'_> {
    fn text(&self, pointer: &str) -> &str {
        text(self.object, pointer)
    }

    fn number(&self, pointer: &str) -> i64 {
        number(self.object, pointer)
    }

    fn count(&self, pointer: &str) -> usize {
        match self.object.pointer(pointer) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(fields)) => fields.len(),
            _ => 0,
        }
    }

    fn age(&self) -> Value {
        age::since(self.text("/metadata/creationTimestamp"), self.now).into()
    }

    fn ratio(&self, part: &str, whole: &str) -> Value {
        format!("{}/{}", self.number(part), self.number(whole)).into()
    }

    fn joined(&self, list: &str, field: &str) -> String {
        let names: Vec<_> = items(self.object, list).map(|item| text(item, field)).collect();
        names.join(",")
    }

    fn containers(&self, pod_spec: &str) -> [Value; 2] {
        let list = format!("{pod_spec}/containers");
        [
            self.joined(&list, "/name").into(),
            self.joined(&list, "/image").into(),
        ]
    }

    /// A value as text, or a default if it is absent.
    fn text_or(&self, pointer: &str, otherwise: &str) -> Value {
        match self.object.pointer(pointer) {
            None | Some(Value::Null) => otherwise.into(),
            Some(Value::String(text)) => text.as_str().into(),
            Some(other) => other.to_string().into(),
        }
    }

    #[expect(clippy::too_many_lines, reason = "one table: a kind a line or two")]
    fn built_in(&self, group: &str, kind: &str) -> Vec<Value> {
        let name = json!(self.text("/metadata/name"));
        let age = self.age();
        let [containers, images] = self.containers("/spec/template/spec");
        let selector = json!(label_selector(self.object.pointer("/spec/selector")));
        match (group, kind) {
            ("", "ConfigMap") => vec![
                name,
                (self.count("/data") + self.count("/binaryData")).into(),
                age,
            ],
            ("", "Namespace") => vec![name, self.text("/status/phase").into(), age],
            ("", "Node") => self.node(),
            ("", "PersistentVolume") => self.volume(),
            ("", "PersistentVolumeClaim") => self.claim(),
            ("", "PodTemplate") => {
                let [containers, images] = self.containers("/template/spec");
                vec![
                    name,
                    containers,
                    images,
                    labels(self.object.pointer("/template/metadata/labels")).into(),
                ]
            }
            ("", "ResourceQuota") => {
                let [requests, limits] = quota::columns(self.object);
                vec![name, requests, limits, age]
            }
            ("", "ReplicationController") => vec![
                name,
                self.number("/spec/replicas").into(),
                self.number("/status/replicas").into(),
                self.number("/status/readyReplicas").into(),
                age,
                containers,
                images,
                labels(self.object.pointer("/spec/selector")).into(),
            ],
            ("", "Secret") => vec![name, self.text("/type").into(), self.count("/data").into(), age],
            ("", "ServiceAccount") | ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => {
                vec![name, age]
            }
            ("", "Service") => self.service(),
            ("", "Endpoints") => vec![name, or_none(&self.endpoints()), age],
            ("apps", "Deployment") => vec![
                name,
                self.ratio("/status/readyReplicas", "/spec/replicas"),
                self.number("/status/updatedReplicas").into(),
                self.number("/status/availableReplicas").into(),
                age,
                containers,
                images,
                // A Deployment shows an empty selector as empty.
                if selector == "<none>" { "".into() } else { selector },
            ],
            ("apps", "ReplicaSet") => vec![
                name,
                self.number("/spec/replicas").into(),
                self.number("/status/replicas").into(),
                self.number("/status/readyReplicas").into(),
                age,
                containers,
                images,
                selector,
            ],
            ("apps", "StatefulSet") => {
                vec![
                    name,
                    self.ratio("/status/readyReplicas", "/spec/replicas"),
                    age,
                    containers,
                    images,
                ]
            }
            ("apps", "DaemonSet") => vec![
                name,
                self.number("/status/desiredNumberScheduled").into(),
                self.number("/status/currentNumberScheduled").into(),
                self.number("/status/numberReady").into(),
                self.number("/status/updatedNumberScheduled").into(),
                self.number("/status/numberAvailable").into(),
                labels(self.object.pointer("/spec/template/spec/nodeSelector")).into(),
                age,
                containers,
                images,
                selector,
            ],
            ("apps", "ControllerRevision") => {
                let owner = items(self.object, "/metadata/ownerReferences").find(|o| o["controller"] == true);
                let owner = owner.map_or("<none>".to_owned(), |o| {
                    let version = text(o, "/apiVersion");
                    let group = version
                        .split_once('/')
                        .map_or(String::new(), |(group, _)| format!(".{group}"));
                    format!("{}{group}/{}", text(o, "/kind").to_lowercase(), text(o, "/name"))
                });
                vec![name, owner.into(), self.number("/revision").into(), age]
            }
            ("autoscaling", "HorizontalPodAutoscaler") => self.autoscaler(),
            ("batch", "CronJob") => {
                let [containers, images] = self.containers("/spec/jobTemplate/spec/template/spec");
                let last = match self.text("/status/lastScheduleTime") {
                    "" => "<none>".to_owned(),
                    last => age::since(last, self.now),
                };
                vec![
                    name,
                    self.text("/spec/schedule").into(),
                    self.text_or("/spec/timeZone", "<none>"),
                    match self.object.pointer("/spec/suspend") {
                        Some(Value::Bool(true)) => "True".into(),
                        Some(Value::Bool(false)) => "False".into(),
                        _ => "<unset>".into(),
                    },
                    self.count("/status/active").into(),
                    last.into(),
                    age,
                    containers,
                    images,
                    label_selector(self.object.pointer("/spec/jobTemplate/spec/selector")).into(),
                ]
            }
            ("batch", "Job") => {
                vec![
                    name,
                    self.job_status(),
                    self.job_completions(),
                    self.job_duration(),
                    age,
                    containers,
                    images,
                    selector,
                ]
            }
            ("networking.k8s.io", "Ingress") => self.ingress(),
            ("networking.k8s.io", "IngressClass") => {
                let parameters = match self.object.pointer("/spec/parameters") {
                    Some(p) if p.is_object() => {
                        let group = text(p, "/apiGroup");
                        let group = if group.is_empty() {
                            String::new()
                        } else {
                            format!(".{group}")
                        };
                        format!("{}{group}/{}", text(p, "/kind"), text(p, "/name"))
                    }
                    _ => "<none>".to_owned(),
                };
                vec![name, self.text("/spec/controller").into(), parameters.into(), age]
            }
            ("networking.k8s.io", "NetworkPolicy") => {
                vec![
                    name,
                    label_selector(self.object.pointer("/spec/podSelector")).into(),
                    age,
                ]
            }
            ("policy", "PodDisruptionBudget") => vec![
                name,
                self.text_or("/spec/minAvailable", "N/A"),
                self.text_or("/spec/maxUnavailable", "N/A"),
                self.number("/status/disruptionsAllowed").into(),
                age,
            ],
            ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => self.binding(),
            ("storage.k8s.io", "StorageClass") => {
                const DEFAULT: &str = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
                let suffix = if self.text(DEFAULT) == "true" {
                    " (default)"
                } else {
                    ""
                };
                vec![
                    format!("{}{suffix}", self.text("/metadata/name")).into(),
                    self.text("/provisioner").into(),
                    self.text_or("/reclaimPolicy", "Delete"),
                    self.text_or("/volumeBindingMode", "Immediate"),
                    (self.object.pointer("/allowVolumeExpansion") == Some(&Value::Bool(true))).into(),
                    age,
                ]
            }
            ("storage.k8s.io", "CSINode") => vec![name, self.count("/spec/drivers").into(), age],
            ("storage.k8s.io", "VolumeAttributesClass") => vec![name, self.text("/driverName").into(), age],
            (
                "admissionregistration.k8s.io",
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
            ) => {
                vec![name, self.count("/webhooks").into(), age]
            }
            ("scheduling.k8s.io", "PriorityClass") => vec![
                name,
                self.number("/value").into(),
                (self.object.pointer("/globalDefault") == Some(&Value::Bool(true))).into(),
                age,
                self.text_or("/preemptionPolicy", "PreemptLowerPriority"),
            ],
            ("coordination.k8s.io", "Lease") => vec![name, self.text("/spec/holderIdentity").into(), age],
            ("node.k8s.io", "RuntimeClass") => vec![name, self.text("/handler").into(), age],
            ("discovery.k8s.io", "EndpointSlice") => self.slice(),
            // Kinds without a table of their own show the creation time.
            _ => vec![name, self.text("/metadata/creationTimestamp").into()],
        }
    }
}

/// `a=b,c=d`, or `<none>`.
fn labels(map: Option<&Value>) -> String {
    let pairs: Vec<_> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        "<none>".to_owned()
    } else {
        pairs.join(",")
    }
}

/// A label selector as text, or `<none>`.
fn label_selector(selector: Option<&Value>) -> String {
    match selector.map(|selector| labels::Selector::from_json(selector).to_string()) {
        Some(text) if !text.is_empty() => text,
        _ => "<none>".to_owned(),
    }
}
