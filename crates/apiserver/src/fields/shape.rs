//! How an object falls into fields that can be owned one by one: as its schema says, or as it looks.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::Element;
use crate::{
    registry,
    schema::{InOrder, ListType, Type, View},
};

/// What is known of a place in an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape<'a> {
    /// A schema. Custom resources' may be `open`: inside them everything keeps what is unknown.
    Known {
        view: View<'a>,
        open: bool,
        /// Whether it has a kind and metadata that its schema need not mention.
        resource: bool,
    },
    /// Nothing: a map falls into its fields, and a list is one thing.
    Deduced,
    /// Nothing, and it is one thing whatever it is.
    Whole,
}

/// How the value at a place is owned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    /// As one thing, though it may have an inside.
    Leaf(Kind),
    Map,
    /// By item: the names of the fields that make its items differ, none for a set.
    List(&'a [Box<str>]),
}

/// What a value at a place should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Text,
    Truth,
    Scalar,
    List,
    Map,
}

/// What stands in a map under a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) shape: Shape<'a>,
    /// Whether the schema knows the name, rather than that there are such fields.
    pub(super) named: bool,
}

/// What stands in a map, by names that come in their order.
pub(super) struct Fields<'a> {
    shape: Shape<'a>,
    properties: Option<InOrder<'a>>,
}

impl<'a> Fields<'a> {
    pub(super) fn get(&mut self, name: &str) -> Option<Field<'a>> {
        let Self { shape, properties } = self;
        shape.found(name, |_| properties.as_mut()?.get(name))
    }
}

impl<'a> Shape<'a> {
    /// A whole object of a kind.
    pub(crate) fn of_resource(schema: Option<View<'a>>, custom: bool) -> Self {
        schema.map_or(Self::Deduced, |view| Self::Known {
            view,
            open: false,
            resource: custom,
        })
    }

    fn known(view: View<'a>, open: bool) -> Self {
        let facts = view.facts();
        // Most are scalars, about which there is nothing to ask.
        if matches!(facts.kind, Type::Any | Type::Object) {
            if view.is_raw() {
                return Self::Whole;
            }
            if view.is_untyped() {
                return Self::Deduced;
            }
        }
        Self::Known {
            view,
            open: open || facts.preserve_unknown,
            resource: facts.embedded,
        }
    }

    /// Whether the schema is one that may be changed while there are objects of it.
    pub(super) fn may_change(self) -> bool {
        matches!(self, Self::Known { resource: true, .. })
    }

    /// Whether the schema says that what has an inside is one field.
    pub(super) fn is_one_field(self) -> bool {
        matches!(self, Self::Known { .. })
            && matches!(self.form(&Value::Null), Form::Leaf(Kind::List | Kind::Map))
    }

    pub(super) fn form(self, value: &Value) -> Form<'a> {
        let by_value = |whole: bool| match value {
            Value::Array(_) => Form::Leaf(Kind::List),
            Value::Object(_) | Value::Null if whole => Form::Leaf(Kind::Map),
            Value::Object(_) | Value::Null => Form::Map,
            _ => Form::Leaf(Kind::Scalar),
        };
        let Self::Known { view, .. } = self else {
            return by_value(matches!(self, Self::Whole));
        };
        match view.facts().kind {
            Type::Object if view.is_atomic_map() => Form::Leaf(Kind::Map),
            Type::Object => Form::Map,
            Type::Array => match &view.facts().list {
                ListType::Atomic => Form::Leaf(Kind::List),
                ListType::Set => Form::List(&[]),
                ListType::Map(keys) => Form::List(keys),
            },
            Type::Integer | Type::Number => Form::Leaf(Kind::Number),
            Type::Boolean => Form::Leaf(Kind::Truth),
            Type::String if view.is_plain_text() => Form::Leaf(Kind::Text),
            Type::String | Type::IntOrString | Type::NumberOrString => Form::Leaf(Kind::Scalar),
            Type::Any => match by_value(view.is_atomic_map()) {
                Form::Leaf(Kind::List) => match &view.facts().list {
                    ListType::Atomic => Form::Leaf(Kind::List),
                    ListType::Set => Form::List(&[]),
                    ListType::Map(keys) => Form::List(keys),
                },
                form => form,
            },
        }
    }

    /// What stands under a name; none if nothing may.
    pub(super) fn field(self, name: &str) -> Option<Field<'a>> {
        self.found(name, |view| view.property(name))
    }

    /// As [`Self::field`], by names that come in their order.
    pub(super) fn fields(self) -> Fields<'a> {
        Fields {
            shape: self,
            properties: match self {
                Self::Known { view, .. } => Some(view.in_order()),
                _ => None,
            },
        }
    }

    fn found(self, name: &str, property: impl FnOnce(View<'a>) -> Option<View<'a>>) -> Option<Field<'a>> {
        let field = |shape, named| Some(Field { shape, named });
        let (view, open, resource) = match self {
            Self::Known { view, open, resource } => (view, open, resource),
            Self::Deduced => return field(Self::Deduced, false),
            Self::Whole => return field(Self::Whole, false),
        };
        if resource {
            match name {
                "metadata" => return field(Self::known(registry::object_meta().view(), false), true),
                // Texts, of which nothing more needs to be known.
                "apiVersion" | "kind" => return field(Self::Deduced, true),
                _ => {}
            }
        }
        let open = open || view.facts().preserve_unknown;
        if let Some(property) = property(view) {
            return field(Self::known(property, open), true);
        }
        if view.facts().is_closed() {
            return None;
        }
        match view.additional() {
            Some(additional) => field(Self::known(additional, open), false),
            None if open || !view.has_properties() => field(Self::Deduced, false),
            None => None,
        }
    }

    /// What a list's items look like.
    pub(super) fn items(self) -> Self {
        match self {
            Self::Known { view, open, .. } => {
                view.items().map_or(Self::Whole, |items| Self::known(items, open))
            }
            _ => Self::Whole,
        }
    }

    /// What tells an item of a list from the others, or why it cannot be told.
    pub(super) fn identity<'v>(self, keys: &'v [Box<str>], item: &'v Value) -> Result<Element<'v>, String>
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
                scalar => Ok(Element::Item(Cow::Borrowed(scalar))),
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
            .filter_map(|name| Some((Cow::Borrowed(&**name), Cow::Borrowed(items.key(name, fields)?))))
            .collect();
        if key.is_empty() {
            let names: Vec<_> = keys.iter().map(|name| format!("{name:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        key.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Element::Key(key))
    }

    /// A field of an item's key: what the item says, or the default.
    pub(super) fn key<'v>(self, name: &str, fields: &'v Map<String, Value>) -> Option<&'v Value>
    where
        'a: 'v,
    {
        fields.get(name).or_else(|| match self {
            Self::Known { view, .. } => view.property(name)?.here().default.as_ref(),
            _ => None,
        })
    }
}
