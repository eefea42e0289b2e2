//! Schemas of the Kubernetes types that most custom resources embed.
//!
//! [`k8s_openapi`] has a schema for every type, and the feature `built-in-schemas` compiles them all,
//! which takes a minute in a release build. These few need no feature, and have what controller-gen writes for Go types
//! and `k8s_openapi` leaves out: list types and limits.
//!
//! ```
//! use windlass::k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
//!
//! #[windlass::api_type]
//! #[serde(default)]
//! #[derive(Default)]
//! pub struct WebsiteStatus {
//!     #[schemars(schema_with = "windlass::schemas::conditions")]
//!     pub conditions: Vec<Condition>,
//!     #[schemars(schema_with = "windlass::schemas::label_selector")]
//!     pub selector: Option<LabelSelector>,
//! }
//! let schema = windlass::schemars::schema_for!(WebsiteStatus);
//! let conditions = schema.pointer("/properties/conditions").expect("a property");
//! assert_eq!(conditions["x-kubernetes-list-type"], "map");
//! ```
//!
//! `schema_with` hides that a field is an `Option`: it needs `#[serde(default)]` to be optional, and
//! `extend("nullable" = true)` to accept `null`.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The schema of a `Vec<Condition>`: a list with one condition per type, so that several field managers can each apply
/// their own conditions.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "type": {
                    "description": "The type, in CamelCase, optionally with a domain: `example.com/CamelCase`.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "description": "True, False or Unknown.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": {
                    "description": "The `metadata.generation` of the object that this condition describes.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "reason": {
                    "description": "Why, as one CamelCase word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Details for people. May be empty.",
                    "type": "string",
                    "maxLength": 32768,
                },
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// The schema of a `LabelSelector`.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels that an object must have, with these values.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": {
                "description": "Requirements that an object's labels must all fulfil.",
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "key": {
                            "description": "The label.",
                            "type": "string",
                        },
                        "operator": {
                            "description": "In, NotIn, Exists or DoesNotExist.",
                            "type": "string",
                        },
                        "values": {
                            "description": "The values of In and NotIn.",
                            "type": "array",
                            "items": { "type": "string" },
                            "x-kubernetes-list-type": "atomic",
                        },
                    },
                    "required": ["key", "operator"],
                },
                "x-kubernetes-list-type": "atomic",
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// The schema of an `IntOrString`.
pub fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true })
}

/// The schema of a `Time`.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}
