//! What the fields of a message are, from the facts that `hack/registry/reduce-protobuf` found.
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

/// Where a message stands in [`Descriptors`].
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
    pub(super) form: Form,
    /// Field number → place in `fields`, plus one; numbers are small and dense.
    places: Vec<u8>,
}

/// How the fields of a message become JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Form {
    /// An object of them.
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
    pub(super) rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Always there in Go, whether the wire has it or not.
    Value,
    /// There if the wire has it: a zero is something else than nothing.
    Pointer,
    List,
    /// From strings.
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
    /// Bytes that are JSON.
    Json,
    Message(MessageId),
}

/// What Go's JSON does with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Written always.
    Keep,
    /// Left out if it is an empty scalar, list, map or pointer. A struct is never empty.
    OmitEmpty,
    /// Left out if it is zero, a struct too.
    OmitZero,
    /// Its fields stand among those of the message around it.
    Inline,
}

impl Descriptors {
    pub(super) fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Descriptors> = LazyLock::new(|| {
            let packed = include_bytes!("../../data/protobuf.json.gz");
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&packed[..])
                .read_to_end(&mut text)
                .expect("shipped with the crate");
            let facts: Facts = serde_json::from_slice(&text).expect("shipped with the crate");
            facts.descriptors().expect("shipped with the crate")
        });
        &SHIPPED
    }

    /// The message of a kind. `DeleteOptions` belong to every group, defined by a CRD or not.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
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
    /// The place of the field with this number.
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        let place = *self.places.get(usize::try_from(number).ok()?)?;
        usize::from(place).checked_sub(1)
    }
}

#[derive(Deserialize)]
struct Facts {
    kinds: HashMap<String, String>,
    forms: HashMap<String, Form>,
    /// Name → its fields by number.
    messages: BTreeMap<String, BTreeMap<u8, FieldFacts>>,
}

/// JSON name, Go type, rule.
type FieldFacts = (Box<str>, String, String);

impl Facts {
    fn descriptors(self) -> Result<Descriptors, String> {
        let ids: HashMap<String, MessageId> = self.messages.keys().cloned().zip(0..).collect();
        let id = |name: &str| ids.get(name).copied().ok_or_else(|| format!("no message {name}"));
        let mut messages = Vec::with_capacity(ids.len());
        for (name, facts) in self.messages {
            let highest = facts.keys().next_back().copied().unwrap_or(0);
            let mut places = vec![0; usize::from(highest) + 1];
            let mut fields = Vec::with_capacity(facts.len());
            for (number, (name, kind, rule)) in facts {
                let (shape, kind) = split(&kind);
                fields.push(Field {
                    name,
                    shape,
                    kind: match Type::of_leaf(kind) {
                        Some(leaf) => leaf,
                        None => Type::Message(id(kind)?),
                    },
                    rule: Rule::of(&rule)?,
                });
                places[usize::from(number)] =
                    u8::try_from(fields.len()).map_err(|_| "more fields than numbers")?;
            }
            messages.push(Message {
                fields,
                form: self.forms.get(&name).copied().unwrap_or_default(),
                places,
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
fn split(kind: &str) -> (Shape, &str) {
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
    fn of_leaf(name: &str) -> Option<Self> {
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

impl Rule {
    fn of(text: &str) -> Result<Self, String> {
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
    fn the_facts_are_read() {
        let descriptors = Descriptors::shipped();
        let spec = descriptors.message(descriptors.of_kind("apps/v1", "Deployment").expect("served"));
        let field = &spec.fields[spec.place(2).expect("spec")];
        assert_eq!(
            (&*field.name, field.shape, field.rule),
            ("spec", Shape::Value, Rule::OmitEmpty)
        );
        let Type::Message(id) = field.kind else {
            panic!("spec is a message")
        };
        let spec = descriptors.message(id);
        let replicas = &spec.fields[spec.place(1).expect("replicas")];
        assert_eq!(
            (&*replicas.name, replicas.shape, replicas.kind, replicas.rule),
            ("replicas", Shape::Pointer, Type::Int32, Rule::OmitEmpty)
        );
        assert_eq!(spec.place(8), None, "a number that was given up");
        assert_eq!(spec.place(u32::MAX), None);
    }

    #[test]
    fn every_served_kind_that_can_be_written_has_a_message() {
        let descriptors = Descriptors::shipped();
        for resource in &crate::registry::Registry::new().catalogue().resources {
            assert!(
                descriptors
                    .of_kind(&resource.api_version(), &resource.kind)
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
            assert!(descriptors.of_kind(api_version, kind).is_some(), "{kind}");
        }
    }
}
