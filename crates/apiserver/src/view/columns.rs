//! The columns of a kind's table.

use serde_json::{Value, json};

use crate::registry::Resource;

/// The column definitions, without the real server's `description`.
pub(super) fn definitions(resource: &Resource) -> Value {
    if resource.is_custom {
        return custom(resource);
    }
    let columns = built_in(&resource.group, &resource.kind).unwrap_or("Name Created_At:date");
    columns.split(' ').map(column).collect()
}

/// Whether a built-in kind has a table of its own.
pub(super) fn has_own_table(resource: &Resource) -> bool {
    built_in(&resource.group, &resource.kind).is_some()
}

/// Parses `Name[:type]`, with a leading `+` for columns of wide output only; `_` is a space.
fn column(text: &str) -> Value {
    let (priority, text) = text.strip_prefix('+').map_or((0, text), |text| (1, text));
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    let name = name.replace('_', " ");
    let format = if matches!(&*name, "Name" | "Attacher") {
        "name"
    } else {
        ""
    };
    json!({"name": name, "type": kind, "format": format, "priority": priority})
}

/// The columns of built-in kinds in Kubernetes 1.36.
fn built_in(group: &str, kind: &str) -> Option<&'static str> {
    Some(match (group, kind) {
        ("", "ComponentStatus") => "Name Status Message Error",
        ("", "ConfigMap") => "Name Data Age",
        ("", "Endpoints") => "Name Endpoints Age",
        ("" | "events.k8s.io", "Event") => {
            "Last_Seen Type Reason Object +Subobject +Source Message +First_Seen +Count +Name"
        }
        ("", "Namespace") => "Name Status Age",
        ("", "Node") => {
            "Name Status Roles Age Version +Internal-IP +External-IP +OS-Image +Kernel-Version +Container-Runtime"
        }
        ("", "PersistentVolumeClaim") => {
            "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age +VolumeMode"
        }
        ("", "PersistentVolume") => {
            "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age +VolumeMode"
        }
        ("", "Pod") => "Name Ready Status Restarts Age +IP +Node +Nominated_Node +Readiness_Gates",
        ("", "PodTemplate") => "Name Containers Images Pod_Labels",
        ("", "ReplicationController") | ("apps", "ReplicaSet") => {
            "Name Desired:integer Current:integer Ready:integer Age +Containers +Images +Selector"
        }
        ("", "ResourceQuota") => "Name Request Limit Age",
        ("", "Secret") => "Name Type Data Age",
        ("", "Service") => "Name Type Cluster-IP External-IP Port(s) Age +Selector",
        ("apiregistration.k8s.io", "APIService") => "Name Service Available Age",
        ("apps", "ControllerRevision") => "Name Controller Revision Age",
        ("apps", "DaemonSet") => {
            "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age +Containers +Images +Selector"
        }
        ("apps", "Deployment") => "Name Ready Up-to-date Available Age +Containers +Images +Selector",
        ("apps", "StatefulSet") => "Name Ready Age +Containers +Images",
        ("autoscaling", "HorizontalPodAutoscaler") => "Name Reference Targets MinPods MaxPods Replicas Age",
        ("batch", "CronJob") => {
            "Name Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age +Containers +Images +Selector"
        }
        ("batch", "Job") => "Name Status Completions Duration Age +Containers +Images +Selector",
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            "Name Age SignerName Requestor RequestedDuration Condition"
        }
        ("networking.k8s.io", "IngressClass") => "Name Controller Parameters Age",
        ("networking.k8s.io", "Ingress") => "Name Class Hosts Address Ports Age",
        ("networking.k8s.io", "IPAddress") => "Name ParentRef",
        ("networking.k8s.io", "NetworkPolicy") => "Name Pod-Selector Age",
        ("networking.k8s.io", "ServiceCIDR") => "Name CIDRs Age",
        ("policy", "PodDisruptionBudget") => {
            "Name Min_Available Max_Unavailable Allowed_Disruptions:integer Age"
        }
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => {
            "Name Role Age +Users +Groups +ServiceAccounts"
        }
        ("storage.k8s.io", "CSINode") => "Name Drivers:integer Age",
        ("storage.k8s.io", "StorageClass") => {
            "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age"
        }
        ("storage.k8s.io", "VolumeAttributesClass") => "Name DriverName Age",
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => "Name Webhooks:integer Age",
        ("scheduling.k8s.io", "PriorityClass") => {
            "Name Value:integer Global-Default:boolean Age PreemptionPolicy"
        }
        ("coordination.k8s.io", "Lease") => "Name Holder Age",
        ("node.k8s.io", "RuntimeClass") => "Name Handler Age",
        ("discovery.k8s.io", "EndpointSlice") => "Name AddressType Ports Endpoints Age",
        ("", "ServiceAccount") | ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => "Name Age",
        ("resource.k8s.io", "ResourceSlice") => "Name Node Driver Pool Age",
        _ => return None,
    })
}

/// The name and a CRD's printer columns, or the age if it has none.
fn custom(resource: &Resource) -> Value {
    let name = column("Name");
    if resource.printer_columns.is_empty() {
        return json!([name, column("Age:date")]);
    }
    let own = resource.printer_columns.iter().map(|column| {
        json!({
            "name": &*column.name,
            "type": &*column.kind,
            "format": &*column.format,
            "description": match &*column.description {
                "" => format!("Custom resource definition column (in JSONPath format): {}", column.json_path),
                description => description.to_owned(),
            },
            "priority": column.priority,
        })
    });
    std::iter::once(name).chain(own).collect()
}
