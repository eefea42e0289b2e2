//! The constant defaults, by kind.

use super::{
    DefaultRule,
    DefaultValue::{Empty, Flag, Number, Text},
};

/// The rules of a kind, in the order in which they apply.
pub(super) fn for_kind(group: &str, kind: &str) -> &'static [DefaultRule] {
    match (group, kind) {
        ("", kind) => core(kind),
        ("apps", kind) => apps(kind),
        ("batch", "Job") => &[
            ("spec.completionMode", Text("NonIndexed")),
            ("spec.suspend", Flag(false)),
            ("spec.manualSelector", Flag(false)),
            (
                "spec.podFailurePolicy.rules[].onPodConditions[].status",
                Text("True"),
            ),
        ],
        ("batch", "CronJob") => &[
            ("spec.concurrencyPolicy", Text("Allow")),
            ("spec.suspend", Flag(false)),
            ("spec.successfulJobsHistoryLimit", Number(3)),
            ("spec.failedJobsHistoryLimit", Number(1)),
        ],
        ("networking.k8s.io", "IngressClass") => &[("spec.parameters.scope", Text("Cluster"))],
        ("networking.k8s.io", "NetworkPolicy") => &[
            ("spec.ingress[].ports[].protocol", Text("TCP")),
            ("spec.egress[].ports[].protocol", Text("TCP")),
        ],
        ("discovery.k8s.io", "EndpointSlice") => {
            &[("ports[].name", Text("")), ("ports[].protocol", Text("TCP"))]
        }
        ("storage.k8s.io", "StorageClass") => &[
            ("reclaimPolicy", Text("Delete")),
            ("volumeBindingMode", Text("Immediate")),
        ],
        ("storage.k8s.io", "CSIDriver") => &[
            ("spec.attachRequired", Flag(true)),
            ("spec.podInfoOnMount", Flag(false)),
            ("spec.storageCapacity", Flag(false)),
            ("spec.fsGroupPolicy", Text("ReadWriteOnceWithFSType")),
            ("spec.requiresRepublish", Flag(false)),
            ("spec.seLinuxMount", Flag(false)),
        ],
        ("scheduling.k8s.io", "PriorityClass") => &[("preemptionPolicy", Text("PreemptLowerPriority"))],
        ("apiregistration.k8s.io", "APIService") => &[("spec.service.port", Number(443))],
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => &[
            ("spec.limited.nominalConcurrencyShares", Number(30)),
            ("spec.limited.lendablePercent", Number(0)),
            ("spec.limited.limitResponse.queuing.queues", Number(64)),
            ("spec.limited.limitResponse.queuing.handSize", Number(8)),
            ("spec.limited.limitResponse.queuing.queueLengthLimit", Number(50)),
            ("spec.exempt.nominalConcurrencyShares", Number(0)),
            ("spec.exempt.lendablePercent", Number(0)),
        ],
        ("admissionregistration.k8s.io", kind) => admission(kind),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            &[("spec.conversion.webhook.clientConfig.service.port", Number(443))]
        }
        _ => &[],
    }
}

fn core(kind: &str) -> &'static [DefaultRule] {
    match kind {
        "ReplicationController" => &[("spec.replicas", Number(1))],
        "Secret" => &[("type", Text("Opaque"))],
        "Endpoints" => &[("subsets[].ports[].protocol", Text("TCP"))],
        "PersistentVolume" => &[
            ("spec.persistentVolumeReclaimPolicy", Text("Retain")),
            ("spec.volumeMode", Text("Filesystem")),
        ],
        "PersistentVolumeClaim" => &[("spec.volumeMode", Text("Filesystem"))],
        _ => &[],
    }
}

fn apps(kind: &str) -> &'static [DefaultRule] {
    match kind {
        "Deployment" => &[
            ("spec.replicas", Number(1)),
            ("spec.strategy.type", Text("RollingUpdate")),
            ("spec.revisionHistoryLimit", Number(10)),
            ("spec.progressDeadlineSeconds", Number(600)),
        ],
        "ReplicaSet" => &[("spec.replicas", Number(1))],
        "StatefulSet" => &[
            ("spec.replicas", Number(1)),
            ("spec.podManagementPolicy", Text("OrderedReady")),
            ("spec.updateStrategy.type", Text("RollingUpdate")),
            ("spec.revisionHistoryLimit", Number(10)),
            ("spec.persistentVolumeClaimRetentionPolicy", Empty),
            (
                "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
                Text("Retain"),
            ),
            (
                "spec.persistentVolumeClaimRetentionPolicy.whenScaled",
                Text("Retain"),
            ),
            ("spec.volumeClaimTemplates[].kind", Text("PersistentVolumeClaim")),
            ("spec.volumeClaimTemplates[].apiVersion", Text("v1")),
            ("spec.volumeClaimTemplates[].spec.volumeMode", Text("Filesystem")),
            ("spec.volumeClaimTemplates[].status.phase", Text("Pending")),
        ],
        "DaemonSet" => &[
            ("spec.updateStrategy.type", Text("RollingUpdate")),
            ("spec.revisionHistoryLimit", Number(10)),
        ],
        _ => &[],
    }
}

fn admission(kind: &str) -> &'static [DefaultRule] {
    match kind {
        "MutatingWebhookConfiguration" => &[
            ("webhooks[].failurePolicy", Text("Fail")),
            ("webhooks[].matchPolicy", Text("Equivalent")),
            ("webhooks[].namespaceSelector", Empty),
            ("webhooks[].objectSelector", Empty),
            ("webhooks[].timeoutSeconds", Number(10)),
            ("webhooks[].reinvocationPolicy", Text("Never")),
            ("webhooks[].rules[].scope", Text("*")),
            ("webhooks[].clientConfig.service.port", Number(443)),
        ],
        "ValidatingWebhookConfiguration" => &[
            ("webhooks[].failurePolicy", Text("Fail")),
            ("webhooks[].matchPolicy", Text("Equivalent")),
            ("webhooks[].namespaceSelector", Empty),
            ("webhooks[].objectSelector", Empty),
            ("webhooks[].timeoutSeconds", Number(10)),
            ("webhooks[].rules[].scope", Text("*")),
            ("webhooks[].clientConfig.service.port", Number(443)),
        ],
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => &[
            ("spec.failurePolicy", Text("Fail")),
            ("spec.matchConstraints.matchPolicy", Text("Equivalent")),
            ("spec.matchConstraints.namespaceSelector", Empty),
            ("spec.matchConstraints.objectSelector", Empty),
            ("spec.matchConstraints.resourceRules[].scope", Text("*")),
            ("spec.matchConstraints.excludeResourceRules[].scope", Text("*")),
        ],
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => &[
            ("spec.matchResources.matchPolicy", Text("Equivalent")),
            ("spec.matchResources.namespaceSelector", Empty),
            ("spec.matchResources.objectSelector", Empty),
            ("spec.matchResources.resourceRules[].scope", Text("*")),
            ("spec.matchResources.excludeResourceRules[].scope", Text("*")),
        ],
        _ => &[],
    }
}
