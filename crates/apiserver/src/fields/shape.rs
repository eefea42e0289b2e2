//! How an object divides into fields that can be owned separately: by its schema, or deduced from its value.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::PathElement;
use crate::{
    registry,
    schema::{ListType, SchemaView, SortedLookup, Type},
};

/// The schema at one path of an object, as far as it matters for ownership.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape<'a> {
    /// A schema. `open` is whether it preserves unknown fields, as those of custom resources may.
    Known {
        view: SchemaView<'a>,
        preserves_unknown: bool,
        /// Whether it has a kind and metadata even if its schema does not declare them.
        is_resource: bool,
    },
    /// No schema: maps divide into their fields, lists are atomic.
    Deduced,
    /// No schema, and atomic whatever the value is.
    Atomic,
}

/// How the value at a path is owned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Granularity<'a> {
    /// As a whole: a scalar, or an atomic list or map.
    Leaf(ValueType),
    /// By field.
    Map,
    /// By item. Has the names of the key fields; none for a set.
    List(&'a [Box<str>]),
}

/// The type that the schema asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Number,
    String,
    Boolean,
    Scalar,
    List,
    Map,
}

/// A field of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) shape: Shape<'a>,
    /// Whether the schema declares this name, rather than additional properties.
    pub(super) declared: bool,
}

/// Looks up fields of a map by ascending names.
pub(super) struct FieldLookup<'a> {
    shape: Shape<'a>,
    properties: Option<SortedLookup<'a>>,
}

impl<'a> FieldLookup<'a> {
    pub(super) fn get(&mut self, name: &str) -> Option<Field<'a>> {
        let Self { shape, properties } = self;
        shape.find_field(name, |_| properties.as_mut()?.get(name))
    }
}

impl<'a> Shape<'a> {
    /// The shape of a whole object.
    pub(crate) fn for_resource(schema: Option<SchemaView<'a>>, custom: bool) -> Self {
        schema.map_or(Self::Deduced, |view| Self::Known {
            view,
            preserves_unknown: false,
            is_resource: custom,
        })
    }

    fn from_view(view: SchemaView<'a>, open: bool) -> Self {
        let facts = view.node();
        // Most are scalars, which need no further checks.
        if matches!(facts.kind, Type::Any | Type::Object) {
            if view.is_raw() {
                return Self::Atomic;
            }
            if view.is_untyped() {
                return Self::Deduced;
            }
        }
        Self::Known {
            view,
            preserves_unknown: open || facts.preserve_unknown,
            is_resource: facts.embedded,
        }
    }

    /// Whether the schema may change while objects exist: only a custom resource's does.
    pub(super) fn may_change(self) -> bool {
        matches!(
            self,
            Self::Known {
                is_resource: true,
                ..
            }
        )
    }

    /// Whether the schema makes this list or map atomic.
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::Known { .. })
            && matches!(
                self.granularity(&Value::Null),
                Granularity::Leaf(ValueType::List | ValueType::Map)
            )
    }

    pub(super) fn granularity(self, value: &Value) -> Granularity<'a> {
        let by_value = |whole: bool| match value {
            Value::Array(_) => Granularity::Leaf(ValueType::List),
            Value::Object(_) | Value::Null if whole => Granularity::Leaf(ValueType::Map),
            Value::Object(_) | Value::Null => Granularity::Map,
            _ => Granularity::Leaf(ValueType::Scalar),
        };
        let Self::Known { view, .. } = self else {
            return by_value(matches!(self, Self::Atomic));
        };
        match view.node().kind {
            Type::Object if view.is_atomic_map() => Granularity::Leaf(ValueType::Map),
            Type::Object => Granularity::Map,
            Type::Array => match &view.node().list_type {
                ListType::Atomic => Granularity::Leaf(ValueType::List),
                ListType::Set => Granularity::List(&[]),
                ListType::Map(keys) => Granularity::List(keys),
            },
            Type::Integer | Type::Number => Granularity::Leaf(ValueType::Number),
            Type::Boolean => Granularity::Leaf(ValueType::Boolean),
            Type::String if view.is_plain_text() => Granularity::Leaf(ValueType::String),
            Type::String | Type::IntOrString | Type::NumberOrString => Granularity::Leaf(ValueType::Scalar),
            Type::Any => match by_value(view.is_atomic_map()) {
                Granularity::Leaf(ValueType::List) => match &view.node().list_type {
                    ListType::Atomic => Granularity::Leaf(ValueType::List),
                    ListType::Set => Granularity::List(&[]),
                    ListType::Map(keys) => Granularity::List(keys),
                },
                form => form,
            },
        }
    }

    /// The field with a name; none if the schema does not allow it.
    pub(super) fn field(self, name: &str) -> Option<Field<'a>> {
        self.find_field(name, |view| view.property(name))
    }

    /// Like [`Self::field`], for names in ascending order.
    pub(super) fn field_lookup(self) -> FieldLookup<'a> {
        FieldLookup {
            shape: self,
            properties: match self {
                Self::Known { view, .. } => Some(view.sorted_lookup()),
                _ => None,
            },
        }
    }

    fn find_field(
        self,
        name: &str,
        property: impl FnOnce(SchemaView<'a>) -> Option<SchemaView<'a>>,
    ) -> Option<Field<'a>> {
        let field = |shape, declared| Some(Field { shape, declared });
        let (view, open, resource) = match self {
            Self::Known {
                view,
                preserves_unknown,
                is_resource,
            } => (view, preserves_unknown, is_resource),
            Self::Deduced => return field(Self::Deduced, false),
            Self::Atomic => return field(Self::Atomic, false),
        };
        if resource {
            match name {
                "metadata" => return field(Self::from_view(registry::object_meta().view(), false), true),
                // Strings, which need no schema.
                "apiVersion" | "kind" => return field(Self::Deduced, true),
                _ => {}
            }
        }
        let open = open || view.node().preserve_unknown;
        if let Some(property) = property(view) {
            return field(Self::from_view(property, open), true);
        }
        if view.node().forbids_additional() {
            return None;
        }
        match view.additional() {
            Some(additional) => field(Self::from_view(additional, open), false),
            None if open || !view.has_properties() => field(Self::Deduced, false),
            None => None,
        }
    }

    /// The shape of a list's items.
    pub(super) fn items(self) -> Self {
        match self {
            Self::Known {
                view,
                preserves_unknown,
                ..
            } => view
                .items()
                .map_or(Self::Atomic, |items| Self::from_view(items, preserves_unknown)),
            _ => Self::Atomic,
        }
    }

    /// The identity of a list's item, or why it has none.
    pub(super) fn identity<'v>(self, keys: &'v [Box<str>], item: &'v Value) -> Result<PathElement<'v>, String>
    where
        'a: 'v,
    {
        if keys.is_empty() {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".into())
                }
                scalar => Ok(PathElement::Item(Cow::Borrowed(scalar))),
            };
        }
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let items = self.items();
        let mut key: Vec<_> = keys
            .iter()
            .filter_map(|name| {
                Some((
                    Cow::Borrowed(&**name),
                    Cow::Borrowed(items.key_value(name, fields)?),
                ))
            })
            .collect();
        if key.is_empty() {
            let names: Vec<_> = keys.iter().map(|name| format!("{name:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        key.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(PathElement::Key(key))
    }

    /// The value of a key field: the item's, or the default.
    pub(super) fn key_value<'v>(self, name: &str, fields: &'v Map<String, Value>) -> Option<&'v Value>
    where
        'a: 'v,
    {
        fields.get(name).or_else(|| match self {
            Self::Known { view, .. } => view.property(name)?.own_node().default.as_ref(),
            _ => None,
        })
    }
}
