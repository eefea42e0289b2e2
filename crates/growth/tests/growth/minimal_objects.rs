//! The fields that minimal objects of some kinds need beyond those required by their schemas.

use serde_json::{Value, json};

/// Merged over an object that has the fields its schema requires.
pub(crate) fn extra_fields(kind: &str) -> Value {
    let containers = json!([{"name": "x0", "image": "x0"}]);
    let pod = json!({"containers": containers});
    let template = json!({"metadata": {"labels": {"x0": "x0"}}, "spec": pod});
    let selected = json!({"selector": {"matchLabels": {"x0": "x0"}}, "template": template});
    let ending = json!({"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}});
    let rule =
        json!({"apiGroups": ["x0"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x0"]});
    let constraints = json!({"matchPolicy": "Exact", "resourceRules": [rule]});
    match kind {
        "Event" => json!({
            "reportingController": "x0", "reportingInstance": "x0", "action": "x0", "reason": "x0", "type": "Normal",
            "involvedObject": {"namespace": "default"},
        }),
        "ControllerRevision" => json!({"data": {"x0": "x0"}}),
        "PersistentVolumeClaim" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}})
        }
        "PersistentVolume" => json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1"}, "hostPath": {"path": "/x0"},
        }}),
        "Pod" => json!({"spec": pod}),
        "PodTemplate" => json!({"template": template}),
        "ReplicationController" => json!({"spec": {"selector": {"x0": "x0"}, "template": template}}),
        "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet" => json!({"spec": selected}),
        "Job" => json!({"spec": ending}),
        "CronJob" => json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": ending}}}),
        "Service" => json!({"spec": {"ports": [{"name": "x0", "port": 1}]}}),
        "HorizontalPodAutoscaler" => {
            json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment"}}})
        }
        "ValidatingAdmissionPolicy" => json!({"spec": {
            "failurePolicy": "Fail", "matchConstraints": constraints, "validations": [{"expression": "true"}],
        }}),
        "MutatingAdmissionPolicy" => json!({"spec": {
            "failurePolicy": "Fail", "matchConstraints": constraints, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
        }}),
        "ValidatingAdmissionPolicyBinding" => {
            json!({"spec": {"policyName": "x0", "validationActions": ["Deny"]}})
        }
        "MutatingAdmissionPolicyBinding" => json!({"spec": {"policyName": "x0"}}),
        "IngressClass" => json!({"spec": {"controller": "example.com/x0"}}),
        "Ingress" => json!({"spec": {"defaultBackend": {"service": {"name": "x0", "port": {"number": 1}}}}}),
        "ClusterRoleBinding" | "RoleBinding" => {
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}})
        }
        "CustomResourceDefinition" => json!({"spec": {
            "group": "x0.example.com", "scope": "Namespaced", "names": {"kind": "X0", "plural": "x0s"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        }}),
        "LocalSubjectAccessReview" => json!({
            "metadata": {"name": null},
            "spec": {"user": "x0", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}},
        }),
        "SelfSubjectAccessReview" => {
            json!({"metadata": {"name": null}, "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})
        }
        "SubjectAccessReview" => json!({
            "metadata": {"name": null}, "spec": {"user": "x0", "resourceAttributes": {"verb": "get", "resource": "pods"}},
        }),
        "SelfSubjectRulesReview" => json!({"spec": {"namespace": "default"}}),
        _ => json!({}),
    }
}

/// Applies a merge patch.
pub(crate) fn merge(place: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *place = patch.clone();
        return;
    };
    if !place.is_object() {
        *place = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            place.as_object_mut().expect("set above").remove(key);
        } else {
            merge(&mut place[key], value);
        }
    }
}
