//! Sets of fields, and their JSON form `fieldsV1`.
//!
//! ```text
//!   {"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{}}}
//!                               ▲ the map itself is in the set, not only its field
//! ```

use std::{borrow::Cow, cmp::Ordering, fmt};

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::PathElement;

/// A set of fields: a tree, sorted by path element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet<'a>(Vec<Node<'a>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node<'a> {
    element: PathElement<'a>,
    branch: Branch<'a>,
}

/// One path in a set: whether it is a member, and its children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Branch<'a> {
    pub(crate) member: bool,
    pub(crate) children: FieldSet<'a>,
}

impl Branch<'_> {
    pub(crate) const MEMBER: Branch<'static> = Branch {
        member: true,
        children: FieldSet(Vec::new()),
    };

    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl<'a> FieldSet<'a> {
    /// Whether the set has no members. Invariant: no node is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a branch, which must sort after all others. An empty one is ignored.
    pub(super) fn push(&mut self, element: PathElement<'a>, branch: Branch<'a>) {
        debug_assert!(self.0.last().is_none_or(|last| last.element < element));
        if !branch.is_empty() {
            self.0.push(Node { element, branch });
        }
    }

    /// The set of one field, given by its path of names.
    pub(crate) fn from_path(path: &[&'a str]) -> Self {
        let mut set = Self::default();
        if let Some((last, outer)) = path.split_last() {
            set.push(PathElement::field(last), Branch::MEMBER);
            for name in outer.iter().rev() {
                let children = std::mem::take(&mut set);
                set.push(
                    PathElement::field(name),
                    Branch {
                        member: false,
                        children,
                    },
                );
            }
        }
        set
    }

    /// The set of several fields.
    pub(crate) fn from_paths(paths: &[&[&'a str]]) -> Self {
        Self::union_all(paths.iter().map(|path| Self::from_path(path)))
    }

    /// The union of all sets.
    pub(crate) fn union_all(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut sets: Vec<_> = sets.into_iter().collect();
        // In pairs, so that a large set is not walked again for each small one.
        while sets.len() > 1 {
            let (mut left, mut pairs) = (sets.into_iter(), Vec::new());
            while let Some(set) = left.next() {
                pairs.push(match left.next() {
                    Some(other) => set.union(other),
                    None => set,
                });
            }
            sets = pairs;
        }
        sets.pop().unwrap_or_default()
    }

    /// The set of unsorted nodes. Duplicates are merged.
    fn from_nodes(mut nodes: Vec<Node<'a>>) -> Self {
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            let mut joined: Vec<Node<'a>> = Vec::with_capacity(nodes.len());
            let (mut below, mut last): (Vec<Self>, usize) = (Vec::new(), 0);
            for node in nodes {
                match joined.last_mut().filter(|known| known.element == node.element) {
                    Some(known) => {
                        known.branch.member |= node.branch.member;
                        below.push(node.branch.children);
                    }
                    None => {
                        merge_children(&mut joined, last, &mut below);
                        last = joined.len();
                        joined.push(node);
                    }
                }
            }
            merge_children(&mut joined, last, &mut below);
            nodes = joined;
        }
        Self(nodes)
    }

    pub(super) fn get(&self, element: &PathElement<'_>) -> Option<&Branch<'a>> {
        let index = self.0.binary_search_by(|node| node.element.cmp(element)).ok()?;
        Some(&self.0[index].branch)
    }

    pub(super) fn branches(&self) -> impl Iterator<Item = (&PathElement<'a>, &Branch<'a>)> {
        self.0.iter().map(|node| (&node.element, &node.branch))
    }

    /// Whether the field at a path of names is in the set.
    pub(crate) fn has_path(&self, path: &[&str]) -> bool {
        let Some((last, outer)) = path.split_last() else {
            return false;
        };
        let mut set = self;
        for name in outer {
            match set.get(&PathElement::field(name)) {
                Some(branch) => set = &branch.children,
                None => return false,
            }
        }
        set.get(&PathElement::field(last))
            .is_some_and(|branch| branch.member)
    }

    /// The union of both sets.
    pub(crate) fn union(self, other: Self) -> Self {
        if self.is_empty() || other.is_empty() {
            return if self.is_empty() { other } else { self };
        }
        let mut merged = Vec::with_capacity(self.0.len().max(other.0.len()));
        let (mut ours, mut theirs) = (self.0.into_iter().peekable(), other.0.into_iter().peekable());
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            match a.element.cmp(&b.element) {
                Ordering::Less => merged.extend(ours.next()),
                Ordering::Greater => merged.extend(theirs.next()),
                Ordering::Equal => {
                    let (Some(mut a), Some(b)) = (ours.next(), theirs.next()) else {
                        break;
                    };
                    a.branch.member |= b.branch.member;
                    a.branch.children = a.branch.children.union(b.branch.children);
                    merged.push(a);
                }
            }
        }
        merged.extend(ours);
        merged.extend(theirs);
        Self(merged)
    }

    /// The intersection of both sets.
    pub(crate) fn intersection(&self, other: &FieldSet<'_>) -> Self {
        let mut common = Self::default();
        for node in &self.0 {
            if let Some(branch) = other.get(&node.element) {
                let both = Branch {
                    member: node.branch.member && branch.member,
                    children: node.branch.children.intersection(&branch.children),
                };
                common.push(node.element.clone(), both);
            }
        }
        common
    }

    /// Removes the members of the other set, but not their children.
    pub(crate) fn subtract(&mut self, other: &FieldSet<'_>) {
        if other.is_empty() {
            return;
        }
        self.0.retain_mut(|node| {
            if let Some(branch) = other.get(&node.element) {
                node.branch.member &= !branch.member;
                node.branch.children.subtract(&branch.children);
            }
            !node.branch.is_empty()
        });
    }

    /// Removes the members of the other set with all their children.
    pub(crate) fn subtract_recursive(&mut self, other: &FieldSet<'_>) {
        if other.is_empty() {
            return;
        }
        self.0.retain_mut(|node| {
            match other.get(&node.element) {
                Some(branch) if branch.member => return false,
                Some(branch) => node.branch.children.subtract_recursive(&branch.children),
                None => {}
            }
            !node.branch.is_empty()
        });
    }

    /// Whether the other set is a subset of this one.
    pub(super) fn contains(&self, other: &FieldSet<'_>) -> bool {
        other.branches().all(|(element, theirs)| {
            self.get(element)
                .is_some_and(|ours| ours.member >= theirs.member && ours.children.contains(&theirs.children))
        })
    }

    /// Calls a function with each top-level branch, to change it.
    pub(super) fn for_each_branch_mut(&mut self, mut change: impl FnMut(&PathElement<'a>, &mut Branch<'a>)) {
        for node in &mut self.0 {
            change(&node.element, &mut node.branch);
        }
    }

    /// The paths for error messages: at each level the fields, then their children. Stops after the path that uses up
    /// `room`, a number of bytes.
    pub(crate) fn paths(&self, room: &mut usize) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths, room);
        paths
    }

    fn collect_paths(&self, outer: &str, paths: &mut Vec<String>, room: &mut usize) {
        for node in self.0.iter().filter(|node| node.branch.member) {
            if *room == 0 {
                return;
            }
            let path = format!("{outer}{}", node.element);
            *room = room.saturating_sub(path.len());
            paths.push(path);
        }
        for node in &self.0 {
            if *room == 0 {
                return;
            }
            if !node.branch.children.is_empty() {
                let outer = format!("{outer}{}", node.element);
                node.branch.children.collect_paths(&outer, paths, room);
            }
        }
    }

    /// Writes the set as `fieldsV1`.
    pub(crate) fn write(&self, json: &mut Vec<u8>) {
        json.push(b'{');
        self.write_fields(json, true);
        json.push(b'}');
    }

    fn write_fields(&self, json: &mut Vec<u8>, mut first: bool) {
        for Node { element, branch } in &self.0 {
            if !first {
                json.push(b',');
            }
            first = false;
            element.write(json);
            json.extend_from_slice(b":{");
            if branch.member && !branch.children.is_empty() {
                json.extend_from_slice(b"\".\":{}");
            }
            branch.children.write_fields(json, !branch.member);
            json.push(b'}');
        }
    }
}

/// Merges the children of duplicate nodes into one node.
fn merge_children<'a>(nodes: &mut [Node<'a>], index: usize, below: &mut Vec<FieldSet<'a>>) {
    if let Some(node) = nodes.get_mut(index).filter(|_| !below.is_empty()) {
        below.push(std::mem::take(&mut node.branch.children));
        node.branch.children = FieldSet::union_all(below.drain(..));
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for FieldSet<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Branch::deserialize(deserializer).map(|branch| branch.children)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Branch<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Branch<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a set of fields")
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Branch::MEMBER)
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let (mut branch, mut nodes) = (Branch::default(), Vec::new());
                while let Some(Name(name)) = map.next_key()? {
                    if name == "." {
                        branch.member = true;
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    match PathElement::parse(name).map_err(M::Error::custom)? {
                        Some(element) => nodes.push(Node {
                            element,
                            branch: map.next_value()?,
                        }),
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                branch.children = FieldSet::from_nodes(nodes);
                // A path without children is itself a member.
                branch.member |= branch.children.is_empty();
                Ok(branch)
            }
        }
        deserializer.deserialize_any(Fields)
    }
}

/// A name that is borrowed from the text where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> FieldSet<'_> {
        serde_json::from_str(text).expect("a set")
    }

    fn written(set: &FieldSet<'_>) -> String {
        let mut json = Vec::new();
        set.write(&mut json);
        String::from_utf8(json).expect("JSON is text")
    }

    #[test]
    fn set_round_trips_through_json() {
        let text = r#"{"f:metadata":{"f:labels":{".":{},"f:a\"b":{}}},"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"k:{\"port\":443,\"protocol\":\"TCP\"}":{}},"f:set":{"v:\"x\"":{},"v:true":{}}}}"#;
        assert_eq!(written(&read(text)), text);
        let shuffled =
            r#"{"f:b":{},"f:a":{"k:{\"n\":10}":{},"k:{\"n\":9}":{},"z:unknown":{}},"f:b":{"f:c":{}}}"#;
        assert_eq!(
            written(&read(shuffled)),
            r#"{"f:a":{"k:{\"n\":9}":{},"k:{\"n\":10}":{}},"f:b":{".":{},"f:c":{}}}"#
        );
        for broken in [
            r#"{"f":{}}"#,
            r#"{"fx:":{}}"#,
            r#"{"k:{":{}}"#,
            r#"{"f:a":1}"#,
            "[]",
        ] {
            assert!(serde_json::from_str::<FieldSet<'_>>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn subtract_keeps_children_and_recursive_subtract_removes_them() {
        let set = read(r#"{"f:a":{".":{},"f:b":{}},"f:c":{"f:d":{}}}"#);
        let out = read(r#"{"f:a":{},"f:c":{"f:d":{}}}"#);
        let (mut some, mut all) = (set.clone(), set.clone());
        some.subtract(&out);
        all.subtract_recursive(&out);
        assert_eq!(written(&some), r#"{"f:a":{"f:b":{}}}"#);
        assert_eq!(written(&all), "{}");
        assert_eq!(written(&set.intersection(&out)), r#"{"f:a":{},"f:c":{"f:d":{}}}"#);
        assert_eq!(some.union(out), set);
    }

    #[test]
    fn unsorted_and_duplicate_fields_read_as_the_same_set() {
        let ordered = r#"{"f:a":{},"f:b":{".":{},"f:x":{},"f:y":{},"f:z":{}},"v:2":{},"v:10":{}}"#;
        let mixed = r#"{"v:10":{},"f:b":{"f:y":{}},"f:a":{},"f:b":{".":{},"f:x":{}},"v:2":{},"f:b":{"f:z":{},"f:y":{}}}"#;
        assert_eq!(read(mixed), read(ordered));
        let keys = [
            r#"{"k:{\"a\":1,\"b\":2}":{}}"#,
            r#"{"k:{\"b\":1,\"a\":1,\"b\":2}":{}}"#,
        ];
        assert_eq!(read(keys[0]), read(keys[1]));
    }

    #[test]
    fn paths_list_fields_before_their_children() {
        let set =
            read(r#"{"f:a":{"f:x":{}},"f:b":{".":{},"k:{\"name\":\"n\"}":{".":{},"f:c":{}},"v:1":{}}}"#);
        assert_eq!(
            set.paths(&mut 1000),
            [".b", ".a.x", r#".b[name="n"]"#, ".b[=1]", r#".b[name="n"].c"#]
        );
    }
}
