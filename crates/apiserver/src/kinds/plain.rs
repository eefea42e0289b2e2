//! Kinds about which the server knows little more than data.

use serde_json::Value;
use windlass_api::conditions;

use super::{
    defaulting::DefaultValue::Number,
    row::{self, Row, text},
    selectable::SelectableField,
    strategy::{Facts, METADATA, NameAndAge, Path, Plain, SPEC, Strategy},
};
use crate::{object::Object, registry::Resource};

/// A write to the status ignores the metadata too.
const STATUS_ONLY: &[(&str, &[Path])] = &[("status", &[METADATA, SPEC])];

pub(super) struct ComponentStatus;

impl Strategy for ComponentStatus {
    fn facts(&self) -> Facts {
        Facts {
            deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
            columns: Some("Name Status Message Error"),
            ..Facts::DEFAULT
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let mut conditions = row::items(row.object, "/conditions");
        let (status, message, error) = match conditions.find(|condition| condition["type"] == "Healthy") {
            Some(healthy) => {
                let status = if healthy["status"] == "True" {
                    "Healthy"
                } else {
                    "Unhealthy"
                };
                (status, text(healthy, "/message"), text(healthy, "/error"))
            }
            None => ("Unknown", "", ""),
        };
        vec![row.name(), status.into(), message.into(), error.into()]
    }
}

pub(super) const SERVICE_ACCOUNT: NameAndAge = NameAndAge(Facts::RETURNS_DELETED);

pub(super) struct ApiService;

impl Strategy for ApiService {
    fn facts(&self) -> Facts {
        Facts {
            unconditional_update: false,
            defaults: &[("spec.service.port", Number(443))],
            subresource_reset_fields: STATUS_ONLY,
            columns: Some("Name Service Available Age"),
            ..Facts::DEFAULT
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let service = match row.object.pointer("/spec/service") {
            Some(service) if service.is_object() => {
                format!("{}/{}", text(service, "/namespace"), text(service, "/name"))
            }
            _ => "Local".to_owned(),
        };
        let available = match conditions::find(row.object, "Available") {
            Some(condition) if condition["status"] == "True" => "True".to_owned(),
            Some(condition) => format!("{} ({})", text(condition, "/status"), text(condition, "/reason")),
            None => "Unknown".to_owned(),
        };
        vec![row.name(), service.into(), available.into(), row.age()]
    }
}

pub(super) struct IpAddress;

impl Strategy for IpAddress {
    fn facts(&self) -> Facts {
        Facts {
            // The real server has no column for the age in its rows.
            columns: Some("Name ParentRef"),
            ..Facts::DEFAULT
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let parent = match row.object.pointer("/spec/parentRef") {
            Some(parent) if parent.is_object() => {
                let (group, resource) = (text(parent, "/group"), text(parent, "/resource"));
                let kind = if group.is_empty() {
                    resource.to_lowercase()
                } else {
                    format!("{resource}.{group}").to_lowercase()
                };
                let namespace = match text(parent, "/namespace") {
                    "" => String::new(),
                    namespace => format!("/{namespace}"),
                };
                format!("{kind}{namespace}/{}", text(parent, "/name"))
            }
            _ => "<none>".to_owned(),
        };
        vec![row.name(), parent.into(), row.age()]
    }
}

pub(super) struct ServiceCidr;

impl Strategy for ServiceCidr {
    fn facts(&self) -> Facts {
        Facts {
            subresource_reset_fields: STATUS_ONLY,
            columns: Some("Name CIDRs Age"),
            ..Facts::DEFAULT
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let cidrs: Vec<_> = row::items(row.object, "/spec/cidrs")
            .filter_map(Value::as_str)
            .collect();
        vec![row.name(), cidrs.join(",").into(), row.age()]
    }
}

/// What the kinds of dynamic resource allocation have in common.
const RESOURCE: Facts = Facts {
    subresource_reset_fields: STATUS_ONLY,
    ..Facts::RETURNS_DELETED
};

pub(super) const DEVICE_CLASS: NameAndAge = NameAndAge(Facts {
    has_generation: true,
    ..RESOURCE
});

pub(super) const RESOURCE_CLAIM: Plain = Plain(RESOURCE);

pub(super) const RESOURCE_CLAIM_TEMPLATE: NameAndAge = NameAndAge(RESOURCE);

pub(super) struct ResourceSlice;

impl Strategy for ResourceSlice {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            selects_namespace: false,
            selectable_fields: const {
                &[
                    SelectableField::text("spec.nodeName"),
                    SelectableField::text("spec.driver"),
                ]
            },
            columns: Some("Name Node Driver Pool Age"),
            ..RESOURCE
        }
    }

    fn unknown_field(&self, resource: &Resource, field: &str) -> String {
        let version = resource.api_version();
        format!("field label not supported for {version}, Kind=ResourceSlice: {field}")
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name(),
            row.text("/spec/nodeName").into(),
            row.text("/spec/driver").into(),
            row.text("/spec/pool/name").into(),
            row.age(),
        ]
    }
}

/// What the kinds of API priority and fairness have in common.
const FLOW_CONTROL: Facts = Facts {
    has_generation: true,
    subresource_reset_fields: STATUS_ONLY,
    ..Facts::DEFAULT
};

pub(super) const PRIORITY_LEVEL: Plain = Plain(Facts {
    defaults: &[
        ("spec.limited.nominalConcurrencyShares", Number(30)),
        ("spec.limited.lendablePercent", Number(0)),
        ("spec.limited.limitResponse.queuing.queues", Number(64)),
        ("spec.limited.limitResponse.queuing.handSize", Number(8)),
        ("spec.limited.limitResponse.queuing.queueLengthLimit", Number(50)),
        ("spec.exempt.nominalConcurrencyShares", Number(0)),
        ("spec.exempt.lendablePercent", Number(0)),
    ],
    ..FLOW_CONTROL
});

pub(super) struct FlowSchema;

impl Strategy for FlowSchema {
    fn facts(&self) -> Facts {
        FLOW_CONTROL
    }

    fn set_defaults(&self, schema: &mut Object) {
        // Zero is not a valid precedence, but is serialized.
        let schema = schema.tree_mut();
        if schema["spec"]["matchingPrecedence"] == 0 {
            schema["spec"]["matchingPrecedence"] = 1000.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    #[test]
    fn row_of_an_api_service_names_its_service_and_why_it_is_unavailable() {
        let catalogue = Registry::new().catalogue();
        let mut resources = catalogue.resources.iter();
        let resource = resources
            .find(|resource| &*resource.kind == "APIService")
            .expect("it is served");
        let service = json!({"namespace": "kube-system", "name": "metrics"});
        let condition = |status: &str, reason: &str| {
            json!([
                {"type": "Other", "status": "True"},
                {"type": "Available", "status": status, "reason": reason},
            ])
        };
        for (service, conditions, expected) in [
            (json!(null), json!(null), ["Local", "Unknown"]),
            (json!(null), condition("True", "Local"), ["Local", "True"]),
            (
                service.clone(),
                condition("True", "Passed"),
                ["kube-system/metrics", "True"],
            ),
            (
                service.clone(),
                condition("False", "MissingEndpoints"),
                ["kube-system/metrics", "False (MissingEndpoints)"],
            ),
            (service, json!([]), ["kube-system/metrics", "Unknown"]),
        ] {
            let object = json!({
                "metadata": {"name": "v1.a", "creationTimestamp": "1970-01-01T00:00:00Z"},
                "spec": {"service": service}, "status": {"conditions": conditions},
            });
            let row = Row {
                resource,
                object: &object,
                now: jiff::Timestamp::from_second(180).expect("a time"),
            };
            let [service, available] = expected;
            let cells = ApiService.cells(&row);
            assert_eq!(
                cells,
                [json!("v1.a"), json!(service), json!(available), json!("3m")]
            );
        }
    }
}
