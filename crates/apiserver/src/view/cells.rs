//! What stands in the cells of a kind's table.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{JsonPath, age, pods, quota};
use crate::{registry::Resource, selector::LabelSelector};

/// The cells of one object, one for each column of its kind.
pub(super) fn of(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    if resource.custom {
        return custom(resource, object, now);
    }
    let shown = Shown { object, now };
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

struct Shown<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl Shown<'_> {
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

    fn of(&self, part: &str, whole: &str) -> Value {
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

    /// A text that may be absent.
    fn or(&self, pointer: &str, otherwise: &str) -> Value {
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
                self.of("/status/readyReplicas", "/spec/replicas"),
                self.number("/status/updatedReplicas").into(),
                self.number("/status/availableReplicas").into(),
                age,
                containers,
                images,
                // A Deployment's selector is shown as a selector, so that an empty one is empty.
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
                    self.of("/status/readyReplicas", "/spec/replicas"),
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
                    self.or("/spec/timeZone", "<none>"),
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
                self.or("/spec/minAvailable", "N/A"),
                self.or("/spec/maxUnavailable", "N/A"),
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
                    self.or("/reclaimPolicy", "Delete"),
                    self.or("/volumeBindingMode", "Immediate"),
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
                self.or("/preemptionPolicy", "PreemptLowerPriority"),
            ],
            ("coordination.k8s.io", "Lease") => vec![name, self.text("/spec/holderIdentity").into(), age],
            ("node.k8s.io", "RuntimeClass") => vec![name, self.text("/handler").into(), age],
            ("discovery.k8s.io", "EndpointSlice") => self.slice(),
            // The kinds without a table of their own show when they were made.
            _ => vec![name, self.text("/metadata/creationTimestamp").into()],
        }
    }

    fn node(&self) -> Vec<Value> {
        let ready = items(self.object, "/status/conditions").find(|c| c["type"] == "Ready");
        let mut status = match ready.map(|c| c["status"] == "True") {
            Some(true) => "Ready",
            Some(false) => "NotReady",
            None => "Unknown",
        }
        .to_owned();
        if self.object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
            status.push_str(",SchedulingDisabled");
        }
        let labels = self.object.pointer("/metadata/labels").and_then(Value::as_object);
        let mut roles: Vec<&str> = labels
            .into_iter()
            .flatten()
            .filter_map(
                |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                    Some(role) => Some(role),
                    None if key == "kubernetes.io/role" => value.as_str(),
                    None => None,
                },
            )
            .filter(|role| !role.is_empty())
            .collect();
        roles.sort_unstable();
        roles.dedup();
        let address = |kind: &str| {
            let found = items(self.object, "/status/addresses").find(|a| a["type"] == kind);
            or_none(found.map_or("", |a| text(a, "/address")))
        };
        let known = |pointer: &str| match self.text(pointer) {
            "" => "<unknown>".to_owned(),
            text => text.to_owned(),
        };
        let kernel = match self.text("/status/nodeInfo/architecture") {
            "" => known("/status/nodeInfo/kernelVersion"),
            architecture => format!("{} ({architecture})", known("/status/nodeInfo/kernelVersion")),
        };
        vec![
            self.text("/metadata/name").into(),
            status.into(),
            or_none(&roles.join(",")),
            self.age(),
            self.text("/status/nodeInfo/kubeletVersion").into(),
            address("InternalIP"),
            address("ExternalIP"),
            known("/status/nodeInfo/osImage").into(),
            kernel.into(),
            known("/status/nodeInfo/containerRuntimeVersion").into(),
        ]
    }

    fn service(&self) -> Vec<Value> {
        let external: Vec<_> = items(self.object, "/spec/externalIPs")
            .filter_map(Value::as_str)
            .collect();
        let balancer = items(self.object, "/status/loadBalancer/ingress").map(|i| match text(i, "/ip") {
            "" => text(i, "/hostname"),
            ip => ip,
        });
        let outside = match self.text("/spec/type") {
            "ClusterIP" | "NodePort" => or_none(&external.join(",")),
            "LoadBalancer" => match balancer.chain(external).collect::<Vec<_>>().join(",") {
                none if none.is_empty() => "<pending>".into(),
                list => list.into(),
            },
            "ExternalName" => self.text("/spec/externalName").into(),
            _ => "<unknown>".into(),
        };
        let ports: Vec<_> = items(self.object, "/spec/ports")
            .map(|port| {
                let (number, protocol) = (number(port, "/port"), text(port, "/protocol"));
                match port["nodePort"].as_i64().filter(|p| *p > 0) {
                    Some(node) => format!("{number}:{node}/{protocol}"),
                    None => format!("{number}/{protocol}"),
                }
            })
            .collect();
        vec![
            self.text("/metadata/name").into(),
            self.text("/spec/type").into(),
            or_none(self.text("/spec/clusterIPs/0")),
            outside,
            or_none(&ports.join(",")),
            self.age(),
            labels(self.object.pointer("/spec/selector")).into(),
        ]
    }

    fn endpoints(&self) -> String {
        let mut all = Vec::new();
        for subset in items(self.object, "/subsets") {
            for address in items(subset, "/addresses") {
                let ip = text(address, "/ip");
                let ports: Vec<_> = items(subset, "/ports")
                    .map(|p| format!("{ip}:{}", number(p, "/port")))
                    .collect();
                all.extend(if ports.is_empty() {
                    vec![ip.to_owned()]
                } else {
                    ports
                });
            }
        }
        shortened(&all, 3)
    }

    fn slice(&self) -> Vec<Value> {
        let ports: Vec<_> = items(self.object, "/ports")
            .map(|port| port["port"].as_i64().map_or("*".to_owned(), |p| p.to_string()))
            .collect();
        let ports = match self.object.pointer("/ports") {
            None | Some(Value::Null) => "<unset>".to_owned(),
            Some(_) => shortened(&ports, 3),
        };
        let addresses: Vec<_> = items(self.object, "/endpoints")
            .flat_map(|endpoint| items(endpoint, "/addresses"))
            .filter_map(|address| address.as_str().map(str::to_owned))
            .collect();
        let endpoints = if addresses.is_empty() {
            "<unset>".to_owned()
        } else {
            shortened(&addresses, 3)
        };
        vec![
            self.text("/metadata/name").into(),
            self.text("/addressType").into(),
            ports.into(),
            endpoints.into(),
            self.age(),
        ]
    }

    fn ingress(&self) -> Vec<Value> {
        let rules = self.count("/spec/rules");
        let hosts: Vec<_> = items(self.object, "/spec/rules")
            .map(|r| text(r, "/host"))
            .filter(|h| !h.is_empty())
            .collect();
        let hosts = match hosts.len() {
            0 => "*".to_owned(),
            4.. => format!("{} + {} more...", hosts[..3].join(","), rules - 3),
            _ => hosts.join(","),
        };
        let addresses: Vec<_> = items(self.object, "/status/loadBalancer/ingress")
            .map(|i| {
                if text(i, "/ip").is_empty() {
                    text(i, "/hostname")
                } else {
                    text(i, "/ip")
                }
            })
            .collect();
        vec![
            self.text("/metadata/name").into(),
            self.or("/spec/ingressClassName", "<none>"),
            hosts.into(),
            addresses.join(",").into(),
            if self.count("/spec/tls") > 0 {
                "80, 443"
            } else {
                "80"
            }
            .into(),
            self.age(),
        ]
    }

    fn job_status(&self) -> Value {
        let holds = |kind: &str| {
            items(self.object, "/status/conditions").any(|c| c["type"] == kind && c["status"] == "True")
        };
        let deleting = !self.text("/metadata/deletionTimestamp").is_empty();
        [
            (holds("Complete"), "Complete"),
            (holds("Failed"), "Failed"),
            (deleting, "Terminating"),
            (holds("Suspended"), "Suspended"),
            (holds("FailureTarget"), "FailureTarget"),
            (holds("SuccessCriteriaMet"), "SuccessCriteriaMet"),
        ]
        .into_iter()
        .find(|(holds, _)| *holds)
        .map_or("Running", |(_, status)| status)
        .into()
    }

    fn job_completions(&self) -> Value {
        let succeeded = self.number("/status/succeeded");
        let parallelism = self.number("/spec/parallelism");
        match self.object.pointer("/spec/completions").and_then(Value::as_i64) {
            Some(wanted) => format!("{succeeded}/{wanted}"),
            None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            None => format!("{succeeded}/1"),
        }
        .into()
    }

    fn job_duration(&self) -> Value {
        let time = |pointer: &str| self.text(pointer).parse::<Timestamp>().ok();
        let Some(start) = time("/status/startTime") else {
            return "".into();
        };
        let end = time("/status/completionTime").unwrap_or(self.now);
        age::human(end.as_second() - start.as_second()).into()
    }

    fn autoscaler(&self) -> Vec<Value> {
        let metrics: Vec<_> = items(self.object, "/spec/metrics").collect();
        let shown: Vec<_> = metrics
            .iter()
            .enumerate()
            .map(|(index, metric)| self.metric(index, metric))
            .collect();
        let targets = match shown.len() {
            0 => "<none>".to_owned(),
            3.. => format!("{} + {} more...", shown[..2].join(", "), shown.len() - 2),
            _ => shown.join(", "),
        };
        vec![
            self.text("/metadata/name").into(),
            format!(
                "{}/{}",
                self.text("/spec/scaleTargetRef/kind"),
                self.text("/spec/scaleTargetRef/name")
            )
            .into(),
            targets.into(),
            self.or("/spec/minReplicas", "<unset>"),
            self.number("/spec/maxReplicas").into(),
            self.number("/status/currentReplicas").into(),
            self.age(),
        ]
    }

    fn metric(&self, index: usize, metric: &Value) -> String {
        let kind = text(metric, "/type");
        let mut field = kind.to_owned();
        if let Some(first) = field.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        let source = &metric[&*field];
        let current = self
            .object
            .pointer(&format!("/status/currentMetrics/{index}/{field}/current"));
        let now = |key: &str| current.and_then(|c| c.get(key)).map(shown_quantity);
        let target = &source["target"];
        let named = if matches!(kind, "Resource" | "ContainerResource") {
            format!("{}: ", text(source, "/name"))
        } else {
            String::new()
        };
        let unknown = || "<unknown>".to_owned();
        if let Some(wanted) = target.get("averageValue") {
            let average = if matches!(kind, "External" | "Object") {
                " (avg)"
            } else {
                ""
            };
            let current = now("averageValue").unwrap_or_else(unknown);
            return format!("{named}{current}/{}{average}", shown_quantity(wanted));
        }
        if matches!(kind, "Resource" | "ContainerResource") {
            let percent = |value: Option<&Value>| value.and_then(Value::as_i64).map(|p| format!("{p}%"));
            let current = percent(current.and_then(|c| c.get("averageUtilization"))).unwrap_or_else(unknown);
            let wanted = percent(target.get("averageUtilization")).unwrap_or_else(|| "<auto>".to_owned());
            return format!("{named}{current}/{wanted}");
        }
        let current = now("value").unwrap_or_else(unknown);
        format!(
            "{current}/{}",
            target.get("value").map(shown_quantity).unwrap_or_default()
        )
    }

    fn binding(&self) -> Vec<Value> {
        let of = |kind: &str| {
            let subjects = items(self.object, "/subjects").filter(|s| s["kind"] == kind);
            let names = subjects.map(|s| match text(s, "/namespace") {
                namespace if kind == "ServiceAccount" => format!("{namespace}/{}", text(s, "/name")),
                _ => text(s, "/name").to_owned(),
            });
            Value::from(names.collect::<Vec<_>>().join(", "))
        };
        vec![
            self.text("/metadata/name").into(),
            format!("{}/{}", self.text("/roleRef/kind"), self.text("/roleRef/name")).into(),
            self.age(),
            of("User"),
            of("Group"),
            of("ServiceAccount"),
        ]
    }

    fn phase(&self) -> Value {
        if self.text("/metadata/deletionTimestamp").is_empty() {
            self.text("/status/phase").into()
        } else {
            "Terminating".into()
        }
    }

    fn volume(&self) -> Vec<Value> {
        let claim = match self.object.pointer("/spec/claimRef") {
            Some(claim) if claim.is_object() => {
                format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
            }
            _ => String::new(),
        };
        vec![
            self.text("/metadata/name").into(),
            self.or("/spec/capacity/storage", "0"),
            access_modes(self.object.pointer("/spec/accessModes")).into(),
            self.text("/spec/persistentVolumeReclaimPolicy").into(),
            self.phase(),
            claim.into(),
            self.text("/spec/storageClassName").into(),
            self.or("/spec/volumeAttributesClassName", "<unset>"),
            self.text("/status/reason").into(),
            self.age(),
            self.or("/spec/volumeMode", "<unset>"),
        ]
    }

    fn claim(&self) -> Vec<Value> {
        let bound = !self.text("/spec/volumeName").is_empty();
        let modes = access_modes(self.object.pointer("/status/accessModes"));
        vec![
            self.text("/metadata/name").into(),
            self.phase(),
            self.text("/spec/volumeName").into(),
            if bound {
                self.or("/status/capacity/storage", "0")
            } else {
                "".into()
            },
            if bound { modes.into() } else { "".into() },
            self.text("/spec/storageClassName").into(),
            self.or("/spec/volumeAttributesClassName", "<unset>"),
            self.age(),
            self.or("/spec/volumeMode", "<unset>"),
        ]
    }

    fn event(&self) -> Vec<Value> {
        let since = |pointer: &str| age::since(self.text(pointer), self.now);
        let first = match self.text("/firstTimestamp") {
            "" => since("/eventTime"),
            _ => since("/firstTimestamp"),
        };
        let (last, count) = match self.object.pointer("/series") {
            Some(series) if series.is_object() => {
                (since("/series/lastObservedTime"), number(series, "/count"))
            }
            _ if self.text("/lastTimestamp").is_empty() => (first.clone(), self.number("/count").max(1)),
            _ => (since("/lastTimestamp"), self.number("/count").max(1)),
        };
        let kind = self.text("/involvedObject/kind").to_lowercase();
        let target = match self.text("/involvedObject/name") {
            "" => kind,
            name => format!("{kind}/{name}"),
        };
        let (component, instance) = match self.text("/source/component") {
            "" => (self.text("/reportingComponent"), self.text("/reportingInstance")),
            component => (component, self.text("/source/host")),
        };
        let source = if instance.is_empty() {
            component.to_owned()
        } else {
            format!("{component}, {instance}")
        };
        vec![
            last.into(),
            self.text("/type").into(),
            self.text("/reason").into(),
            target.into(),
            self.text("/involvedObject/fieldPath").into(),
            source.into(),
            self.text("/message").trim().into(),
            first.into(),
            count.into(),
            self.text("/metadata/name").into(),
        ]
    }
}

fn custom(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = json!(text(object, "/metadata/name"));
    if resource.printer_columns.is_empty() {
        return vec![
            name,
            age::since(text(object, "/metadata/creationTimestamp"), now).into(),
        ];
    }
    let own = resource.printer_columns.iter().map(|column| {
        let found = JsonPath::parse(&column.json_path)
            .map(|path| path.find(object))
            .unwrap_or_default();
        match found.first() {
            None => Value::Null,
            Some(value) => typed(value, &column.kind, now),
        }
    });
    std::iter::once(name).chain(own).collect()
}

/// A value as a column of a type shows it; `null` where it is of another type.
fn typed(value: &Value, kind: &str, now: Timestamp) -> Value {
    match (kind, value) {
        ("integer", Value::Number(number)) if number.is_i64() => value.clone(),
        #[expect(clippy::cast_possible_truncation, reason = "as Go converts it")]
        ("integer", Value::Number(number)) => (number.as_f64().unwrap_or_default() as i64).into(),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::String(text)) => text.as_str().into(),
        ("string", Value::Null) => "<no value>".into(),
        ("string", other) => other.to_string().into(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => age::since(text, now).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
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

/// A label selector as people write it.
fn label_selector(selector: Option<&Value>) -> String {
    match selector.map(|selector| LabelSelector::of(selector).to_string()) {
        Some(text) if !text.is_empty() => text,
        _ => "<none>".to_owned(),
    }
}

fn access_modes(modes: Option<&Value>) -> String {
    let has = |mode: &str| {
        modes
            .and_then(Value::as_array)
            .is_some_and(|m| m.iter().any(|x| x == mode))
    };
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    short
        .iter()
        .filter(|(mode, _)| has(mode))
        .map(|(_, short)| *short)
        .collect::<Vec<_>>()
        .join(",")
}

fn shortened(list: &[String], most: usize) -> String {
    if list.len() > most {
        format!("{} + {} more...", list[..most].join(","), list.len() - most)
    } else {
        list.join(",")
    }
}

fn shown_quantity(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
