//! The path of a field in a document, as Go's `field.Path`. It lives on the stack and costs nothing until an error is
//! formatted.

use std::fmt;

/// The path of a field, linked back to the root. Displayed as `spec.containers[0].name`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldPath<'a> {
    Root,
    Child(&'a FieldPath<'a>, &'a str),
    Index(&'a FieldPath<'a>, usize),
    /// An entry of a map: `limits[cpu]`.
    Key(&'a FieldPath<'a>, &'a str),
}

impl<'a> FieldPath<'a> {
    /// A path from the root: `spec.template`.
    pub(crate) fn from_root(path: &'a str) -> Self {
        FieldPath::Child(&FieldPath::Root, path)
    }

    pub(crate) fn child(&'a self, field: &'a str) -> Self {
        FieldPath::Child(self, field)
    }

    pub(crate) fn index(&'a self, index: usize) -> Self {
        FieldPath::Index(self, index)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        FieldPath::Key(self, key)
    }

    fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Child(outer, name) if outer.is_root() => f.write_str(name),
            Self::Child(outer, name) => write!(f, "{outer}.{name}"),
            Self::Index(outer, index) => write!(f, "{outer}[{index}]"),
            Self::Key(outer, key) => write!(f, "{outer}[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_path_displays_as_dotted_path() {
        let list = FieldPath::Child(&FieldPath::Root, "containers");
        let item = FieldPath::Index(&list, 3);
        assert_eq!(FieldPath::Child(&item, "name").to_string(), "containers[3].name");
        let limits = FieldPath::from_root("spec.resources");
        assert_eq!(
            limits.child("limits").key("cpu").to_string(),
            "spec.resources.limits[cpu]"
        );
        assert_eq!(FieldPath::Root.to_string(), "");
        assert_eq!(FieldPath::Index(&FieldPath::Root, 0).to_string(), "[0]");
    }
}
