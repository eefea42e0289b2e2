//! The cells of nodes, volumes, RBAC bindings and events.

use serde_json::Value;
use windlass_api::conditions;

use super::{Row, age, items, number, or_none, text};

impl Row<'_> {
    pub(super) fn node(&self) -> Vec<Value> {
        let ready = conditions::find(self.object, "Ready");
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

    pub(super) fn binding(&self) -> Vec<Value> {
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

    pub(super) fn volume(&self) -> Vec<Value> {
        let claim = match self.object.pointer("/spec/claimRef") {
            Some(claim) if claim.is_object() => {
                format!("{}/{}", text(claim, "/namespace"), text(claim, "/name"))
            }
            _ => String::new(),
        };
        vec![
            self.text("/metadata/name").into(),
            self.text_or("/spec/capacity/storage", "0"),
            access_modes(self.object.pointer("/spec/accessModes")).into(),
            self.text("/spec/persistentVolumeReclaimPolicy").into(),
            self.phase(),
            claim.into(),
            self.text("/spec/storageClassName").into(),
            self.text_or("/spec/volumeAttributesClassName", "<unset>"),
            self.text("/status/reason").into(),
            self.age(),
            self.text_or("/spec/volumeMode", "<unset>"),
        ]
    }

    pub(super) fn claim(&self) -> Vec<Value> {
        let bound = !self.text("/spec/volumeName").is_empty();
        let modes = access_modes(self.object.pointer("/status/accessModes"));
        vec![
            self.text("/metadata/name").into(),
            self.phase(),
            self.text("/spec/volumeName").into(),
            if bound {
                self.text_or("/status/capacity/storage", "0")
            } else {
                "".into()
            },
            if bound { modes.into() } else { "".into() },
            self.text("/spec/storageClassName").into(),
            self.text_or("/spec/volumeAttributesClassName", "<unset>"),
            self.age(),
            self.text_or("/spec/volumeMode", "<unset>"),
        ]
    }

    pub(super) fn event(&self) -> Vec<Value> {
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
