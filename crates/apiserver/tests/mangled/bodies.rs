//! Generates request bodies: valid ones, nearly valid ones and noise.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::junk;

/// Objects that every server starts with, and the paths to which they are posted.
pub(crate) fn initial_objects() -> Vec<(&'static str, Value)> {
    let mut initial_objects = vec![(
        "/api/v1/namespaces/default/serviceaccounts",
        json!({"metadata": {"name": "default"}}),
    )];
    initial_objects.extend(
        objects()
            .into_iter()
            .filter(|(path, _)| !path.ends_with("/widgets")),
    );
    initial_objects.extend(
        objects()
            .into_iter()
            .filter(|(path, _)| path.ends_with("/widgets")),
    );
    initial_objects
}

/// Valid objects of the kinds with the most validation rules.
#[expect(clippy::too_many_lines, reason = "a table of objects")]
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let pod_spec = json!({
        "containers": [{
            "name": "main", "image": "i", "ports": [{"containerPort": 80, "name": "http"}],
            "env": [{"name": "A", "value": "1"}], "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }],
        "initContainers": [{"name": "init", "image": "i"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}], "terminationGracePeriodSeconds": 5,
    });
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": pod_spec});
    let selector = json!({"matchLabels": {"app": "web"}});
    let mut job_template = template.clone();
    job_template["spec"]["restartPolicy"] = "Never".into();
    vec![
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": {"name": "settings", "labels": {"app": "web"}}, "data": {"a": "1"}, "binaryData": {"b": "AAE="}}),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "hidden"}, "type": "Opaque", "data": {"a": "AAE="}, "stringData": {"c": "d"}}),
        ),
        (
            "/api/v1/namespaces/default/pods",
            json!({"metadata": {"name": "one", "labels": {"app": "web"}}, "spec": template["spec"]}),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "web"}, "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}}),
        ),
        (
            "/api/v1/nodes",
            json!({"metadata": {"name": "node"}, "spec": {"podCIDR": "10.1.0.0/24"}}),
        ),
        (
            "/api/v1/namespaces",
            json!({"metadata": {"name": "other", "finalizers": ["a.io/b"]}}),
        ),
        (
            "/api/v1/namespaces/default/events",
            json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "one", "namespace": "default"}, "reason": "R", "type": "Normal"}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": selector, "template": template, "strategy": {"rollingUpdate": {"maxSurge": "25%"}}}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            json!({"metadata": {"name": "web"}, "spec": {"serviceName": "web", "selector": selector, "template": template}}),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            json!({"metadata": {"name": "job"}, "spec": {"template": job_template}}),
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            json!({"metadata": {"name": "cron"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": job_template}}}}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            json!({"metadata": {"name": "web"}, "spec": {"minAvailable": "50%", "selector": selector}}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"metadata": {"name": "lease"}, "spec": {"renewTime": "2024-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}}),
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"metadata": {"name": "web"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}}}),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"metadata": {"name": "web"}, "spec": {"rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({
                "metadata": {"name": "widgets.example.com"},
                "spec": {
                    "group": "example.com", "scope": "Namespaced",
                    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                            "spec": {"type": "object", "required": ["size"], "properties": {
                                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                                "replicas": {"type": "integer"},
                                "name": {"type": "string", "pattern": "^[a-z]+$", "default": "x"},
                                "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                                    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
                                "any": {"x-kubernetes-preserve-unknown-fields": true},
                                "port": {"x-kubernetes-int-or-string": true},
                            }},
                            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                        }}},
                    }],
                },
            }),
        ),
        (
            "/apis/example.com/v1/namespaces/default/widgets",
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one", "finalizers": ["a.io/b"]}, "spec": {"size": 3, "list": [{"k": "a"}], "port": "80"}}),
        ),
    ]
}

/// Bodies of requests that do not write whole objects.
pub(crate) fn others() -> Vec<Value> {
    vec![
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5, "propagationPolicy": "Foreground", "preconditions": {"uid": "u", "resourceVersion": "3"}, "dryRun": ["All"]}),
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 3}}),
        json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": "one"}, "target": {"kind": "Node", "name": "node"}}),
        json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "one"}, "deleteOptions": {"gracePeriodSeconds": 0}}),
        json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": ["a"], "expirationSeconds": 600}}),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}, {"op": "remove", "path": "/spec/replicas"}]),
        json!([{"op": "move", "from": "/spec", "path": "/spec/a"}, {"op": "copy", "from": "/metadata", "path": "/status"}, {"op": "test", "path": "", "value": 1}]),
        json!([{"op": "replace", "path": "", "value": []}, {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "n"}}]),
        json!({"metadata": {"labels": {"a": "b", "c": null}, "finalizers": null}, "spec": {"replicas": 4}}),
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "j", "$patch": "merge"}], "$setElementOrder/containers": [{"name": "main"}], "volumes": [{"$patch": "replace"}, {"name": "w", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"]}]}}}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/b"], "$setElementOrder/finalizers": ["a.io/b"]}}),
    ]
}

pub(crate) fn body() -> impl Strategy<Value = Vec<u8>> {
    let right: Vec<Value> = objects()
        .into_iter()
        .map(|(_, object)| object)
        .chain(others())
        .collect();
    let tree = prop_oneof![
        8 => (prop::sample::select(right), prop::collection::vec(junk::mutation(), 0..5)).prop_map(|(mut tree, changes)| {
            for change in &changes {
                change.apply(&mut tree);
            }
            tree
        }),
        1 => junk::value(),
    ];
    let text = prop_oneof![
        5 => tree.clone().prop_map(|tree| tree.to_string().into_bytes()),
        1 => tree.prop_map(|tree| serde_yaml_ng::to_string(&tree).unwrap_or_default().into_bytes()),
        1 => protobuf(),
        1 => prop::collection::vec(any::<u8>(), 0..64),
        1 => Just(Vec::new()),
        1 => nested(),
    ];
    let byte_mutations =
        prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(junk::byte_mutation(), 1..4)];
    (text, byte_mutations).prop_map(|(mut bytes, byte_mutations)| {
        for mutation in &byte_mutations {
            mutation.apply(&mut bytes);
        }
        bytes
    })
}

fn nested() -> impl Strategy<Value = Vec<u8>> {
    (
        1..3_000_usize,
        prop::sample::select(vec![("[", "]"), ("{\"a\":", "}"), ("- ", ""), ("{a: ", "}")]),
    )
        .prop_map(|(depth, (open, close))| {
            format!("{}1{}", open.repeat(depth), close.repeat(depth)).into_bytes()
        })
}

/// Generates a protobuf envelope of a served kind around a message that barely fits it.
fn protobuf() -> impl Strategy<Value = Vec<u8>> {
    let kinds = vec![
        ("v1", "Pod"),
        ("v1", "ConfigMap"),
        ("apps/v1", "Deployment"),
        ("v1", "DeleteOptions"),
        ("batch/v1", "Job"),
        ("", ""),
    ];
    (prop::sample::select(kinds), message(4)).prop_map(|((version, kind), raw)| {
        let head = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &head), field(2, &raw)].concat()
    })
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    field.extend(varint(bytes.len() as u64));
    field.extend_from_slice(bytes);
    field
}

/// Encodes a protobuf varint.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = value.to_le_bytes()[0] & 127;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 128);
    }
}

fn message(depth: u32) -> BoxedStrategy<Vec<u8>> {
    let scalar = prop_oneof![
        (1..16_u8, any::<u64>()).prop_map(|(number, value)| {
            let mut bytes = vec![number << 3];
            bytes.extend(varint(value));
            bytes
        }),
        (1..16_u8, ".{0,6}").prop_map(|(number, text)| field(number, text.as_bytes())),
        (1..16_u8, any::<[u8; 8]>())
            .prop_map(|(number, bytes)| [vec![number << 3 | 1], bytes.to_vec()].concat()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    if depth == 0 {
        return scalar.boxed();
    }
    let inner = (1..16_u8, message(depth - 1)).prop_map(|(number, bytes)| field(number, &bytes));
    prop::collection::vec(prop_oneof![scalar, inner], 0..4)
        .prop_map(|parts| parts.concat())
        .boxed()
}
