//! Kinds about which the server knows little more than data.

use super::{
    defaulting::DefaultValue::Number,
    strategy::{Facts, METADATA, NameAndAge, Path, Plain, SPEC, Strategy},
};
use crate::object::Object;

/// A write to the status ignores the metadata too.
const STATUS_ONLY: &[(&str, &[Path])] = &[("status", &[METADATA, SPEC])];

pub(super) const COMPONENT_STATUS: Plain = Plain(Facts {
    deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
    columns: Some("Name Status Message Error"),
    ..Facts::DEFAULT
});

pub(super) const SERVICE_ACCOUNT: NameAndAge = NameAndAge(Facts::RETURNS_DELETED);

pub(super) const API_SERVICE: Plain = Plain(Facts {
    unconditional_update: false,
    defaults: &[("spec.service.port", Number(443))],
    subresource_reset_fields: STATUS_ONLY,
    columns: Some("Name Service Available Age"),
    ..Facts::DEFAULT
});

pub(super) const IP_ADDRESS: Plain = Plain(Facts {
    columns: Some("Name ParentRef"),
    ..Facts::DEFAULT
});

pub(super) const SERVICE_CIDR: Plain = Plain(Facts {
    subresource_reset_fields: STATUS_ONLY,
    columns: Some("Name CIDRs Age"),
    ..Facts::DEFAULT
});

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

pub(super) const RESOURCE_SLICE: Plain = Plain(Facts {
    has_generation: true,
    columns: Some("Name Node Driver Pool Age"),
    ..RESOURCE
});

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
