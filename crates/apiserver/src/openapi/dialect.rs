//! The differences between the two versions of OpenAPI.

use serde_json::{Map, Value, json};

use super::{
    operations::{BodySchema, Operation},
    parameters::Parameter,
};

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    /// A reference to a schema.
    pub(super) fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::V2 => "definitions",
            Self::V3 => "components/schemas",
        };
        json!({"$ref": format!("#/{place}/{name}")})
    }

    fn body_schema(self, shape: &BodySchema) -> Value {
        match shape {
            BodySchema::Named(name) => self.reference(name),
            BodySchema::Text => json!({"type": "string"}),
        }
    }

    /// A path item: its operations, and the parameters they share.
    pub(super) fn item(self, operations: &[Operation]) -> Value {
        let mut shared: Vec<_> = operations
            .first()
            .map_or(&[][..], |first| &first.parameters)
            .to_vec();
        shared.retain(|parameter| operations.iter().all(|o| o.parameters.contains(parameter)));
        shared.sort_unstable();
        let mut item = Map::new();
        for operation in operations {
            item.insert(operation.method.to_owned(), self.operation(operation, &shared));
        }
        if !shared.is_empty() {
            let shared = shared.into_iter().map(|parameter| self.parameter(parameter));
            item.insert("parameters".to_owned(), shared.collect());
        }
        item.into()
    }

    fn operation(self, operation: &Operation, shared: &[Parameter]) -> Value {
        let mut own: Vec<_> = operation.parameters.clone();
        own.retain(|parameter| !shared.contains(parameter));
        own.sort_unstable();
        let mut parameters: Vec<_> = own.iter().map(|own| (own.name, self.parameter(*own))).collect();
        let mut value = json!({"operationId": operation.id, "tags": [operation.tag]});
        let answer = self.body_schema(&operation.response);
        let answer = match self {
            Self::V2 => json!({"schema": answer}),
            Self::V3 => json!({"content": content(operation.produces, &answer)}),
        };
        let success = operation
            .codes
            .iter()
            .map(|code| (code.to_string(), answer.clone()));
        let refused = ("401".to_owned(), json!({}));
        value["responses"] = success.chain([refused]).collect::<Map<_, _>>().into();
        if let Some(body) = &operation.body {
            let shape = self.body_schema(&body.schema);
            let mut entry = match self {
                Self::V2 => json!({"name": "body", "in": "body", "schema": shape}),
                Self::V3 => json!({"content": content(operation.consumes, &shape)}),
            };
            if body.required {
                entry["required"] = true.into();
            }
            match self {
                Self::V2 => parameters.push(("body", entry)),
                Self::V3 => value["requestBody"] = entry,
            }
        }
        if self == Self::V2 {
            value["consumes"] = operation.consumes.into();
            value["produces"] = operation.produces.into();
            value["schemes"] = json!(["https"]);
        }
        if !parameters.is_empty() {
            parameters.sort_by_key(|(name, _)| *name);
            let parameters = parameters.into_iter().map(|(_, parameter)| parameter);
            value["parameters"] = parameters.collect();
        }
        if !operation.action.is_empty() {
            value["x-kubernetes-action"] = operation.action.into();
            value["x-kubernetes-group-version-kind"] = operation.kind.clone();
        }
        value
    }

    fn parameter(self, parameter: Parameter) -> Value {
        let mut value = parameter.location_fields();
        match self {
            Self::V2 => {
                value["type"] = parameter.kind.into();
                value["uniqueItems"] = true.into();
            }
            Self::V3 => value["schema"] = json!({"type": parameter.kind, "uniqueItems": true}),
        }
        value
    }
}

fn content(types: &[&str], schema: &Value) -> Value {
    let entries = types
        .iter()
        .map(|name| ((*name).to_owned(), json!({"schema": schema})));
    entries.collect::<Map<_, _>>().into()
}
