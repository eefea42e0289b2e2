//! The way from a document's root to a place in it, kept on the stack: it costs nothing until somebody has to be told
//! where something is wrong.

use std::fmt;

/// A place in a document, as a chain back to the root. Shown as `spec.containers[0].name`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trail<'a> {
    Root,
    Field(&'a Trail<'a>, &'a str),
    Item(&'a Trail<'a>, usize),
    /// An entry of a map: `limits[cpu]`.
    Entry(&'a Trail<'a>, &'a str),
}

impl<'a> Trail<'a> {
    /// A place that begins at the root: `spec.template`.
    pub(crate) fn from_root(path: &'a str) -> Self {
        Trail::Field(&Trail::Root, path)
    }

    pub(crate) fn at(&'a self, field: &'a str) -> Self {
        Trail::Field(self, field)
    }

    pub(crate) fn item(&'a self, index: usize) -> Self {
        Trail::Item(self, index)
    }

    pub(crate) fn entry(&'a self, key: &'a str) -> Self {
        Trail::Entry(self, key)
    }

    fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(outer, name) if outer.is_root() => f.write_str(name),
            Self::Field(outer, name) => write!(f, "{outer}.{name}"),
            Self::Item(outer, index) => write!(f, "{outer}[{index}]"),
            Self::Entry(outer, key) => write!(f, "{outer}[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_reads_as_a_path() {
        let list = Trail::Field(&Trail::Root, "containers");
        let item = Trail::Item(&list, 3);
        assert_eq!(Trail::Field(&item, "name").to_string(), "containers[3].name");
        let limits = Trail::from_root("spec.resources");
        assert_eq!(
            limits.at("limits").entry("cpu").to_string(),
            "spec.resources.limits[cpu]"
        );
        assert_eq!(Trail::Root.to_string(), "");
        assert_eq!(Trail::Item(&Trail::Root, 0).to_string(), "[0]");
    }
}
