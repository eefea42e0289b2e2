//! Descriptors of protobuf messages, from data that `hack/registry/reduce-protobuf` extracts.
//!
//! ```text
//!   data/protobuf.json.gz ──► Descriptors (at the first protobuf body) ──► transcode
//!                  "1": ["replicas", "*int32", "omitempty"]
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    io::Read,
    sync::LazyLock,
};

use serde::Deserialize;

/// Index of a message in [`Descriptors`].
pub(super) type MessageId = usize;

#[derive(Debug)]
pub(super) struct Descriptors {
    messages: Vec<Message>,
    /// `apps/v1/Deployment` → its message.
    kinds: HashMap<String, MessageId>,
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
    pub(super) form: JsonForm,
    /// Field number → index in `fields` plus one; numbers are small and dense.
    positions: Vec<u8>,
}

/// How a message is represented in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum JsonForm {
    /// An object of its fields.
    #[default]
    Object,
    /// Its only field, a list.
    List,
    /// A schema, or `allows`.
    SchemaOrBool,
    /// A schema, or a list of them.
    SchemaOrArray,
    /// A schema, or a list of property names.
    SchemaOrStrings,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: Box<str>,
    pub(super) shape: Shape,
    pub(super) kind: Type,
    pub(super) rule: JsonRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Always present in Go, whether it is on the wire or not.
    Value,
    /// Present if it is on the wire: zero differs from absent.
    Pointer,
    List,
    /// With string keys.
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Float64,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// Bytes that contain JSON.
    Json,
    Message(MessageId),
}

/// How Go's JSON encoder treats a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonRule {
    /// Always written.
    Keep,
    /// Omitted if it is an empty scalar, list, map or pointer. A struct is never empty.
    OmitEmpty,
    /// Omitted if it is zero, even if it is a struct.
    OmitZero,
    /// Its fields are inlined into the enclosing message.
    Inline,
}

impl Descriptors {
    pub(super) fn built_in() -> &'static Self {
        static SHIPPED: LazyLock<Descriptors> = LazyLock::new(|| {
            let packed = include_bytes!("../../data/protobuf.json.gz");
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&packed[..])
                .read_to_end(&mut text)
                .expect("shipped with the crate");
            let facts: DescriptorData = serde_json::from_slice(&text).expect("shipped with the crate");
            facts.descriptors().expect("shipped with the crate")
        });
        &SHIPPED
    }

    /// The message of a kind. `DeleteOptions` belongs to every group, including those of CRDs.
    pub(super) fn find_kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        let api_version = match kind {
            "DeleteOptions" => "meta.k8s.io/v1",
            _ => api_version,
        };
        self.kinds.get(&format!("{api_version}/{kind}")).copied()
    }

    pub(super) fn message(&self, id: MessageId) -> &Message {
        &self.messages[id]
    }

    #[cfg(test)]
    pub(super) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }
}

impl Message {
    /// The index of the field with this number.
    pub(super) fn position(&self, number: u32) -> Option<usize> {
        let place = *self.positions.get(usize::try_from(number).ok()?)?;
        usize::from(place).checked_sub(1)
    }
}

#[derive(Deserialize)]
struct DescriptorData {
    kinds: HashMap<String, String>,
    forms: HashMap<String, JsonForm>,
    /// Name → its fields by number.
    messages: BTreeMap<String, BTreeMap<u8, FieldData>>,
}

/// JSON name, Go type, rule.
type FieldData = (Box<str>, String, String);

impl DescriptorData {
    fn descriptors(self) -> Result<Descriptors, String> {
        let ids: HashMap<String, MessageId> = self.messages.keys().cloned().zip(0..).collect();
        let id = |name: &str| ids.get(name).copied().ok_or_else(|| format!("no message {name}"));
        let mut messages = Vec::with_capacity(ids.len());
        for (name, facts) in self.messages {
            let highest = facts.keys().next_back().copied().unwrap_or(0);
            let mut positions = vec![0; usize::from(highest) + 1];
            let mut fields = Vec::with_capacity(facts.len());
            for (number, (name, kind, rule)) in facts {
                let (shape, kind) = split_type(&kind);
                fields.push(Field {
                    name,
                    shape,
                    kind: match Type::parse_leaf(kind) {
                        Some(leaf) => leaf,
                        None => Type::Message(id(kind)?),
                    },
                    rule: JsonRule::parse(&rule)?,
                });
                positions[usize::from(number)] =
                    u8::try_from(fields.len()).map_err(|_| "more fields than numbers")?;
            }
            messages.push(Message {
                fields,
                form: self.forms.get(&name).copied().unwrap_or_default(),
                positions,
            });
        }
        let kinds = self
            .kinds
            .into_iter()
            .map(|(kind, name)| Ok((kind, id(&name)?)))
            .collect::<Result<_, String>>()?;
        Ok(Descriptors { messages, kinds })
    }
}

/// `*int32` → a pointer, `int32`
fn split_type(kind: &str) -> (Shape, &str) {
    for (prefix, shape) in [
        ("*", Shape::Pointer),
        ("[]", Shape::List),
        ("map[string]", Shape::Map),
    ] {
        if let Some(rest) = kind.strip_prefix(prefix) {
            return (shape, rest);
        }
    }
    (Shape::Value, kind)
}

impl Type {
    fn parse_leaf(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "bool" => Self::Bool,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "float64" => Self::Float64,
            "bytes" => Self::Bytes,
            "Time" => Self::Time,
            "MicroTime" => Self::MicroTime,
            "Quantity" => Self::Quantity,
            "IntOrString" => Self::IntOrString,
            "JSON" => Self::Json,
            _ => return None,
        })
    }
}

impl JsonRule {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "" => Self::Keep,
            "omitempty" => Self::OmitEmpty,
            "omitzero" => Self::OmitZero,
            "inline" => Self::Inline,
            other => return Err(format!("no rule {other:?}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_read_from_the_data() {
        let descriptors = Descriptors::built_in();
        let spec = descriptors.message(descriptors.find_kind("apps/v1", "Deployment").expect("served"));
        let field = &spec.fields[spec.position(2).expect("spec")];
        assert_eq!(
            (&*field.name, field.shape, field.rule),
            ("spec", Shape::Value, JsonRule::OmitEmpty)
        );
        let Type::Message(id) = field.kind else {
            panic!("spec is a message")
        };
        let spec = descriptors.message(id);
        let replicas = &spec.fields[spec.position(1).expect("replicas")];
        assert_eq!(
            (&*replicas.name, replicas.shape, replicas.kind, replicas.rule),
            ("replicas", Shape::Pointer, Type::Int32, JsonRule::OmitEmpty)
        );
        assert_eq!(spec.position(8), None, "a reserved number");
        assert_eq!(spec.position(u32::MAX), None);
    }

    #[test]
    fn every_writable_kind_has_a_message() {
        let descriptors = Descriptors::built_in();
        for resource in &crate::registry::Registry::new().catalogue().resources {
            assert!(
                descriptors
                    .find_kind(&resource.api_version(), &resource.kind)
                    .is_some(),
                "{} {}",
                resource.api_version(),
                resource.kind
            );
        }
        for (api_version, kind) in [
            ("policy/v1", "Eviction"),
            ("autoscaling/v1", "Scale"),
            ("authentication.k8s.io/v1", "TokenRequest"),
            ("v1", "Binding"),
            ("example.com/v1", "DeleteOptions"),
        ] {
            assert!(descriptors.find_kind(api_version, kind).is_some(), "{kind}");
        }
    }
}
