//! Converts wire fields to the tree that Go's JSON encoder would write.
//!
//! A message is decoded in two steps. First all occurrences of each field are collected, in any order: the last scalar
//! wins, parts of a message are merged, elements and entries are appended. Then the fields are written in the order of
//! the descriptors, including absent ones, because Go writes zeros.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

use super::{
    Fault, MAX_DEPTH, MAX_VALUES, bytes,
    descriptors::{Descriptors, Field, JsonForm, JsonRule, MessageId, Shape, Type},
    leaf,
    wire::{Reader, Wire},
    wrong_wire_type,
};

type Fields = Map<String, Value>;

pub(super) struct Transcoder<'d> {
    descriptors: &'d Descriptors,
    /// The number of values that may still be created.
    budget: usize,
}

/// What the wire contains of a field.
enum Slot<'a> {
    Absent,
    Scalar(Value),
    Part(&'a [u8]),
    Parts(Vec<&'a [u8]>),
    /// Never empty.
    List(Vec<Value>),
    /// Never empty.
    Map(Fields),
}

impl<'d> Transcoder<'d> {
    pub(super) fn new(descriptors: &'d Descriptors) -> Self {
        Self {
            descriptors,
            budget: MAX_VALUES,
        }
    }

    /// The fields of a whole object.
    pub(super) fn object(mut self, raw: &[u8], id: MessageId) -> Result<Fields, Fault> {
        let mut out = Fields::new();
        self.fields(&[raw], id, &mut out, 1)?;
        Ok(out)
    }

    fn spend(&mut self) -> Result<(), Fault> {
        self.budget = self.budget.checked_sub(1).ok_or(Fault::TooManyValues)?;
        Ok(())
    }

    fn message(&mut self, parts: &[&[u8]], id: MessageId, depth: usize) -> Result<Value, Fault> {
        let mut fields = Fields::new();
        self.fields(parts, id, &mut fields, depth)?;
        Ok(self.descriptors.message(id).form.into_json(fields))
    }

    fn fields(
        &mut self,
        parts: &[&[u8]],
        id: MessageId,
        out: &mut Fields,
        depth: usize,
    ) -> Result<(), Fault> {
        if depth > MAX_DEPTH {
            return Err(Fault::TooDeep);
        }
        self.spend()?;
        let message = self.descriptors.message(id);
        let mut slots: Vec<Slot> = message.fields.iter().map(|_| Slot::Absent).collect();
        for part in parts {
            let mut reader = Reader::new(part);
            while let Some((number, wire)) = reader.next_field()? {
                if let Some(place) = message.position(number) {
                    self.collect(&message.fields[place], wire, &mut slots[place], depth)?;
                }
            }
        }
        for (field, slot) in message.fields.iter().zip(slots) {
            self.write(field, slot, out, depth)?;
        }
        Ok(())
    }

    fn collect<'a>(
        &mut self,
        field: &Field,
        wire: Wire<'a>,
        slot: &mut Slot<'a>,
        depth: usize,
    ) -> Result<(), Fault> {
        match field.shape {
            Shape::Value | Shape::Pointer => match scalar(field.kind, wire, field)? {
                Some(value) => *slot = Slot::Scalar(value),
                None => slot.add_part(bytes(wire, &field.name)?),
            },
            Shape::List => {
                if let (Type::Bool | Type::Int32 | Type::Int64, Wire::Bytes(packed)) = (field.kind, wire) {
                    let mut reader = Reader::new(packed);
                    while !reader.is_done() {
                        self.spend()?;
                        let wire = Wire::Varint(reader.varint()?);
                        slot.list().extend(scalar(field.kind, wire, field)?);
                    }
                } else {
                    self.spend()?;
                    slot.list().push(self.element(field, wire, depth + 2)?);
                }
            }
            Shape::Map => {
                self.spend()?;
                let (key, value) = self.entry(field, bytes(wire, &field.name)?, depth + 2)?;
                slot.map().insert(key, value);
            }
        }
        Ok(())
    }

    fn element(&mut self, field: &Field, wire: Wire<'_>, depth: usize) -> Result<Value, Fault> {
        match scalar(field.kind, wire, field)? {
            Some(value) => Ok(value),
            None => self.message_value(field.kind, &[bytes(wire, &field.name)?], depth),
        }
    }

    /// A map entry is a message of a key and a value, each of which is zero if absent.
    fn entry(&mut self, field: &Field, entry: &[u8], depth: usize) -> Result<(String, Value), Fault> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(entry);
        while let Some((number, wire)) = reader.next_field()? {
            match number {
                1 => key = String::from_utf8_lossy(bytes(wire, &field.name)?).into_owned(),
                2 => value = Some(wire),
                _ => {}
            }
        }
        let value = match (value, field.kind) {
            (Some(wire), _) => self.element(field, wire, depth)?,
            (None, Type::Bytes) => "".into(),
            (None, kind) => self.zero(kind, depth)?,
        };
        Ok((key, value))
    }

    fn write(&mut self, field: &Field, slot: Slot<'_>, out: &mut Fields, depth: usize) -> Result<(), Fault> {
        if let (JsonRule::Inline, Type::Message(id)) = (field.rule, field.kind) {
            return self.fields(slot.parts(), id, out, depth);
        }
        let is_absent = matches!(slot, Slot::Absent);
        let value = match slot {
            Slot::Absent if field.shape == Shape::Value => self.zero(field.kind, depth + 1)?,
            Slot::Absent => Value::Null,
            Slot::Scalar(value) => value,
            Slot::Part(_) | Slot::Parts(_) => self.message_value(field.kind, slot.parts(), depth + 1)?,
            Slot::List(list) => list.into(),
            Slot::Map(map) => map.into(),
        };
        let is_left_out = match field.rule {
            JsonRule::Keep | JsonRule::Inline => false,
            JsonRule::OmitEmpty if field.shape == Shape::Value => self.is_empty(field.kind, &value),
            JsonRule::OmitEmpty => is_absent,
            // Only times have this rule, and their zero is null.
            JsonRule::OmitZero => value.is_null(),
        };
        if !is_left_out {
            self.spend()?;
            out.insert(field.name.to_string(), value);
        }
        Ok(())
    }

    /// Decodes a value that is a message on the wire.
    fn message_value(&mut self, kind: Type, parts: &[&[u8]], depth: usize) -> Result<Value, Fault> {
        match kind {
            Type::Time => leaf::time(parts, false),
            Type::MicroTime => leaf::time(parts, true),
            Type::Quantity => leaf::quantity(parts),
            Type::IntOrString => leaf::int_or_string(parts),
            Type::Json => {
                let value = leaf::json(parts)?;
                if depth + self.measure(&value)? > MAX_DEPTH {
                    return Err(Fault::TooDeep);
                }
                Ok(value)
            }
            Type::Message(id) => self.message(parts, id, depth),
            Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Float64 | Type::Bytes => {
                unreachable!("scalars are not messages")
            }
        }
    }

    /// Go's zero value, for fields that are not on the wire.
    fn zero(&mut self, kind: Type, depth: usize) -> Result<Value, Fault> {
        match kind {
            Type::String => Ok("".into()),
            Type::Bool => Ok(false.into()),
            Type::Int32 | Type::Int64 | Type::Float64 => Ok(0.into()),
            Type::Bytes => Ok(Value::Null),
            kind => self.message_value(kind, &[], depth),
        }
    }

    /// Whether `omitempty` omits a value that is not behind a pointer: scalars and lists, never structs.
    fn is_empty(&self, kind: Type, value: &Value) -> bool {
        match kind {
            Type::String | Type::Bytes => value.as_str().is_none_or(str::is_empty),
            Type::Bool => value == false,
            Type::Int32 | Type::Int64 | Type::Float64 => value.as_f64() == Some(0.0),
            Type::Message(id) => self.descriptors.message(id).form == JsonForm::List && value.is_null(),
            Type::Time | Type::MicroTime | Type::Quantity | Type::IntOrString | Type::Json => false,
        }
    }

    /// The depth of embedded JSON; its values count towards the limit.
    fn measure(&mut self, value: &Value) -> Result<usize, Fault> {
        let mut deepest = 0;
        let mut open = vec![(value, 0)];
        while let Some((value, depth)) = open.pop() {
            self.spend()?;
            deepest = deepest.max(depth);
            match value {
                Value::Array(list) => open.extend(list.iter().map(|v| (v, depth + 1))),
                Value::Object(fields) => open.extend(fields.values().map(|v| (v, depth + 1))),
                _ => {}
            }
        }
        Ok(deepest)
    }
}

/// Decodes a scalar. `None` if the type is encoded as a message.
fn scalar(kind: Type, wire: Wire<'_>, field: &Field) -> Result<Option<Value>, Fault> {
    Ok(Some(match (kind, wire) {
        (Type::String, Wire::Bytes(bytes)) => leaf::string(bytes),
        (Type::Bytes, Wire::Bytes(bytes)) => BASE64_STANDARD.encode(bytes).into(),
        (Type::Bool, Wire::Varint(value)) => (value != 0).into(),
        (Type::Int32, Wire::Varint(value)) => leaf::int32(value).into(),
        (Type::Int64, Wire::Varint(value)) => value.cast_signed().into(),
        (Type::Float64, Wire::Fixed64(bits)) => leaf::float(bits)?,
        (Type::String | Type::Bytes | Type::Bool | Type::Int32 | Type::Int64 | Type::Float64, wire) => {
            return Err(wrong_wire_type(wire, &field.name));
        }
        _ => return Ok(None),
    }))
}

impl<'a> Slot<'a> {
    fn add_part(&mut self, part: &'a [u8]) {
        match self {
            Self::Part(first) => *self = Self::Parts(vec![first, part]),
            Self::Parts(parts) => parts.push(part),
            _ => *self = Self::Part(part),
        }
    }

    fn parts(&self) -> &[&'a [u8]] {
        match self {
            Self::Part(part) => std::slice::from_ref(part),
            Self::Parts(parts) => parts,
            _ => &[],
        }
    }

    fn list(&mut self) -> &mut Vec<Value> {
        if !matches!(self, Self::List(_)) {
            *self = Self::List(Vec::new());
        }
        let Self::List(list) = self else {
            unreachable!("set above")
        };
        list
    }

    fn map(&mut self) -> &mut Fields {
        if !matches!(self, Self::Map(_)) {
            *self = Self::Map(Fields::new());
        }
        let Self::Map(map) = self else {
            unreachable!("set above")
        };
        map
    }
}

impl JsonForm {
    /// The JSON of a message with these fields.
    fn into_json(self, mut fields: Fields) -> Value {
        let mut take = |name: &str| fields.remove(name).unwrap_or_default();
        match self {
            Self::Object => fields.into(),
            Self::List => take("items"),
            Self::SchemaOrBool => match take("schema") {
                Value::Null => take("allows"),
                schema => schema,
            },
            Self::SchemaOrArray => match take("jSONSchemas") {
                Value::Null => take("schema"),
                schemas => schemas,
            },
            Self::SchemaOrStrings => match take("property") {
                Value::Null => take("schema"),
                names => names,
            },
        }
    }
}
