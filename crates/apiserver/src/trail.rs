//! The way from a document's root to a place in it, kept on the stack: it costs nothing until somebody has to be told
//! where something is wrong.

use std::fmt;

/// A place in a document, as a chain back to the root. Shown as `spec.containers[0].name`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trail<'a> {
    Root,
    Field(&'a Trail<'a>, &'a str),
    Item(&'a Trail<'a>, usize),
}

impl Trail<'_> {
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
        assert_eq!(Trail::Root.to_string(), "");
        assert_eq!(Trail::Item(&Trail::Root, 0).to_string(), "[0]");
    }
}
