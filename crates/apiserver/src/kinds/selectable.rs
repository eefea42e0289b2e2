//! Selectable fields: what field selectors may name, and the value that they compare.

use std::borrow::Cow;

use crate::object::Object;

/// A field that field selectors may name. They compare what Go's structs hold: a number that is absent is `0`, a boolean
/// `false`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SelectableField {
    /// The name in selectors.
    pub(crate) name: Cow<'static, str>,
    /// The paths of the value; the first that is not empty counts. Mostly the name itself.
    paths: &'static [&'static str],
    /// The value where the object has none.
    absent: &'static str,
}

impl SelectableField {
    /// A string.
    pub(crate) const fn text(name: &'static str) -> Self {
        Self::built_in(name, "")
    }

    /// A boolean.
    pub(crate) const fn flag(name: &'static str) -> Self {
        Self::built_in(name, "false")
    }

    /// A number.
    pub(crate) const fn number(name: &'static str) -> Self {
        Self::built_in(name, "0")
    }

    const fn built_in(name: &'static str, absent: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            paths: &[],
            absent,
        }
    }

    /// A field of a custom resource.
    pub(crate) fn custom(path: &str) -> Self {
        Self {
            name: Cow::Owned(path.to_owned()),
            paths: &[],
            absent: "",
        }
    }

    /// Reads the value at other paths than the name.
    pub(super) const fn at(mut self, paths: &'static [&'static str]) -> Self {
        self.paths = paths;
        self
    }

    /// The object's value, as selectors compare it.
    pub(crate) fn value(&self, object: &Object) -> String {
        let found = match self.paths {
            [] => object.text_at(&self.name),
            paths => paths
                .iter()
                .map(|path| object.text_at(path))
                .find(|value| !value.is_empty())
                .unwrap_or_default(),
        };
        if found.is_empty() {
            self.absent.to_owned()
        } else {
            found
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_values_are_those_of_gos_structs() {
        let object = |value| Object::new(value).expect("an object");
        let empty = object(json!({}));
        let full = object(json!({"spec": {"a": true, "b": 2, "c": "x"}, "other": "y"}));
        let other = SelectableField::text("spec.d").at(&["spec.e", "other"]);
        for (field, absent, present) in [
            (SelectableField::flag("spec.a"), "false", "true"),
            (SelectableField::number("spec.b"), "0", "2"),
            (SelectableField::text("spec.c"), "", "x"),
            (SelectableField::custom("spec.c"), "", "x"),
            (other, "", "y"),
        ] {
            assert_eq!(field.value(&empty), absent, "{field:?}");
            assert_eq!(field.value(&full), present, "{field:?}");
        }
    }
}
