//! Realistic pods: about 7 KB each, including what a scheduler, a kubelet and two field managers add; all different.

use serde_json::{Value, json};

/// Pods per service; they share a template.
pub(super) const REPLICAS: usize = 12;

/// Label with the service's name.
pub(super) const SERVICE: &str = "app.kubernetes.io/name";

/// A small random generator (`SplitMix64`), so that the same number always gives the same pod.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn choose(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or_default()
    }

    fn hex(&mut self, digits: usize) -> String {
        let parts: Vec<_> = (0..digits.div_ceil(16))
            .map(|_| format!("{:016x}", self.next()))
            .collect();
        let mut text = parts.concat();
        text.truncate(digits);
        text
    }

    fn uid(&mut self) -> String {
        let hex = self.hex(32);
        format!(
            "{}-{}-4{}-a{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..]
        )
    }

    fn letters(&mut self, count: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..count)
            .map(|_| char::from(*ALPHABET.get(self.choose(27)).unwrap_or(&b'x')))
            .collect()
    }
}

/// Returns the namespace of a pod; the services are spread over twenty namespaces.
pub(super) fn namespace(number: usize) -> String {
    format!("team-{}", number / REPLICAS % 20)
}

/// Returns the name of a service.
pub(super) fn service(service: usize) -> String {
    service_name_and_rng(service).0
}

/// Returns a service's name and the generator for the rest of it.
fn service_name_and_rng(service: usize) -> (String, SplitMix64) {
    let mut rng = SplitMix64(service as u64 * 7919 + 1);
    (format!("{}-{}-{service}", word(&mut rng), word(&mut rng)), rng)
}

fn word(rng: &mut SplitMix64) -> &'static str {
    const WORDS: [&str; 10] = [
        "orders", "billing", "search", "media", "ledger", "mail", "stock", "session", "report", "audit",
    ];
    WORDS[rng.choose(WORDS.len())]
}

/// Creates the pod with this number, at this version.
pub(super) fn pod(number: usize, version: u64) -> Value {
    let service = number / REPLICAS;
    let mut pod_rng = SplitMix64(number as u64 * 104_729 + 3);
    let (name, mut service_rng) = service_name_and_rng(service);
    let hash = service_rng.letters(10);
    let pod_name = format!("{name}-{hash}-{}", pod_rng.letters(5));
    let namespace = namespace(number);
    let node = format!(
        "ip-10-{}-{}-{}.eu-west-1.compute.internal",
        pod_rng.below(4),
        pod_rng.below(200),
        pod_rng.below(250)
    );
    let second = pod_rng.below(60);
    let at = |minute: u64| {
        format!(
            "2026-11-{:02}T{:02}:{minute:02}:{second:02}Z",
            1 + number % 14,
            number % 24
        )
    };
    let zone = format!("eu-west-1{}", ["a", "b", "c"][number % 3]);
    let tier = ["web", "batch", "data"][service % 3];
    let count = 1 + service_rng.below(2);
    let access = format!("kube-api-access-{}", pod_rng.letters(5));
    let mut containers = Vec::new();
    let mut statuses = Vec::new();
    for index in 0..count {
        let container = if index == 0 {
            name.clone()
        } else {
            format!("{}-sidecar-{index}", word(&mut service_rng))
        };
        let image = format!(
            "registry.example.com/{}/{container}:v{}.{}.{}",
            word(&mut service_rng),
            service_rng.below(4),
            service_rng.below(30),
            service_rng.below(100)
        );
        let env: Vec<_> = (0..2 + service_rng.below(5) + 3 * (3 - count)).map(|n| {
            let key = format!("{}_{}_{n}", word(&mut service_rng).to_uppercase(), ["URL", "TOKEN_PATH", "LIMIT", "MODE"][service_rng.choose(4)]);
            match n % 4 {
                0 => json!({"name": key, "valueFrom": {"secretKeyRef": {"name": format!("{name}-{}", word(&mut service_rng)), "key": word(&mut service_rng)}}}),
                1 => json!({"name": key, "value": format!("http://{}.{namespace}.svc.cluster.local:{}", word(&mut service_rng), 8000 + service_rng.below(999))}),
                _ => json!({"name": key, "value": service_rng.letters(12)}),
            }
        }).collect();
        containers.push(json!({
            "name": container, "image": image, "imagePullPolicy": "IfNotPresent",
            "args": ["--verbose", format!("--shard={}", service_rng.below(64))], "env": env,
            "ports": [{"name": "http", "containerPort": 8080 + index, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": format!("{}m", 50 * (1 + service_rng.below(9))), "memory": format!("{}Mi", 64 * (1 + service_rng.below(15)))}, "limits": {"memory": format!("{}Mi", 1024 + 64 * service_rng.below(15))}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5 + service_rng.below(10), "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
            "livenessProbe": {"httpGet": {"path": "/live", "port": "http", "scheme": "HTTP"}, "initialDelaySeconds": 10, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
            "volumeMounts": [{"name": "settings", "mountPath": "/etc/settings", "readOnly": true}, {"name": access, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        }));
        statuses.push(json!({
            "name": container, "image": image, "imageID": format!("registry.example.com/{container}@sha256:{}", service_rng.hex(64)),
            "containerID": format!("containerd://{}", pod_rng.hex(64)), "ready": true, "started": true,
            "restartCount": pod_rng.below(3), "lastState": {}, "state": {"running": {"startedAt": at(7)}},
        }));
    }
    let ip = format!(
        "10.{}.{}.{}",
        pod_rng.below(4),
        pod_rng.below(250),
        pod_rng.below(250)
    );
    let condition = |kind: &str, minute| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": at(minute)});
    let fields = json!({"f:metadata": {"f:annotations": {".": {}, "f:checksum/config": {}, "f:kubectl.kubernetes.io/restartedAt": {}}, "f:generateName": {}, "f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:app.kubernetes.io/instance": {}, "f:pod-template-hash": {}, "f:tier": {}}, "f:ownerReferences": {".": {}, (format!("k:{{\"uid\":\"{}\"}}", pod_rng.uid())): {}}}, "f:spec": {"f:containers": {(format!("k:{{\"name\":\"{name}\"}}")): {".": {}, "f:args": {}, "f:env": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:livenessProbe": {}, "f:name": {}, "f:ports": {}, "f:readinessProbe": {}, "f:resources": {}, "f:securityContext": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}}, "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:serviceAccount": {}, "f:serviceAccountName": {}, "f:terminationGracePeriodSeconds": {}, "f:volumes": {}}});
    let kubelet = json!({"f:status": {"f:conditions": {"k:{\"type\":\"ContainersReady\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}, "k:{\"type\":\"Initialized\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}, "k:{\"type\":\"Ready\"}": {".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}}, "f:containerStatuses": {}, "f:hostIP": {}, "f:phase": {}, "f:podIP": {}, "f:podIPs": {}, "f:startTime": {}}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name, "generateName": format!("{name}-{hash}-"), "namespace": namespace, "uid": pod_rng.uid(), "resourceVersion": version.to_string(), "generation": 1, "creationTimestamp": at(5),
            "labels": {SERVICE: name, "app.kubernetes.io/instance": format!("{name}-{namespace}"), "pod-template-hash": hash, "tier": tier},
            "annotations": {"checksum/config": service_rng.hex(64), "kubectl.kubernetes.io/restartedAt": at(2)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-{hash}"), "uid": service_rng.uid(), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": at(5), "fieldsType": "FieldsV1", "fieldsV1": fields}, {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": at(9), "fieldsType": "FieldsV1", "fieldsV1": kubelet, "subresource": "status"}],
        },
        "spec": {
            "containers": containers, "nodeName": node, "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "schedulerName": "default-scheduler", "securityContext": {}, "serviceAccount": name, "serviceAccountName": name, "terminationGracePeriodSeconds": 30,
            "nodeSelector": {"topology.kubernetes.io/zone": zone},
            "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}, {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}],
            "volumes": [{"name": "settings", "configMap": {"name": format!("{name}-settings"), "defaultMode": 420}}, {"name": access, "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}, {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}}, {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]}}]}}],
        },
        "status": {
            "phase": "Running", "hostIP": node.replace("ip-", "").split('.').next().unwrap_or_default().replace('-', "."), "podIP": ip, "podIPs": [{"ip": ip}], "qosClass": "Burstable", "startTime": at(5),
            "conditions": [condition("PodReadyToStartContainers", 6), condition("Initialized", 5), condition("Ready", 9), condition("ContainersReady", 9), condition("PodScheduled", 5)],
            "containerStatuses": statuses,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_about_seven_kilobytes_and_differ() {
        let sizes: Vec<_> = (0..200).map(|number| pod(number, 1).to_string().len()).collect();
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((6_500..7_500).contains(&mean), "{mean}");
        assert_ne!(pod(0, 1), pod(1, 1));
        assert_eq!(pod(5, 1), pod(5, 1));
    }
}
