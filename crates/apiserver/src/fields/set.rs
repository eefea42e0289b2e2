//! Sets of fields, as `fieldsV1` writes them.
//!
//! ```text
//!   {"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:replicas":{}}}
//!                               ▲ the map itself is in the set, not only its field
//! ```

use std::{borrow::Cow, cmp::Ordering, fmt};

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::Element;

/// A set of fields: a tree, in the order in which it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set<'a>(Vec<Node<'a>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node<'a> {
    element: Element<'a>,
    branch: Branch<'a>,
}

/// What a set says of one place: whether it is in it, and what below it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Branch<'a> {
    pub(crate) member: bool,
    pub(crate) below: Set<'a>,
}

impl Branch<'_> {
    pub(crate) const MEMBER: Branch<'static> = Branch {
        member: true,
        below: Set(Vec::new()),
    };

    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl<'a> Set<'a> {
    /// No node of a set is empty, so that an empty one has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what comes after all that is there; nothing if the branch is empty.
    pub(super) fn push(&mut self, element: Element<'a>, branch: Branch<'a>) {
        debug_assert!(self.0.last().is_none_or(|last| last.element < element));
        if !branch.is_empty() {
            self.0.push(Node { element, branch });
        }
    }

    /// The set of one field, by the names on the way to it.
    pub(crate) fn of_path(path: &[&'a str]) -> Self {
        let mut set = Self::default();
        if let Some((last, outer)) = path.split_last() {
            set.push(Element::field(last), Branch::MEMBER);
            for name in outer.iter().rev() {
                let below = std::mem::take(&mut set);
                set.push(Element::field(name), Branch { member: false, below });
            }
        }
        set
    }

    /// The set of several fields.
    pub(crate) fn of_paths(paths: &[&[&'a str]]) -> Self {
        Self::union_all(paths.iter().map(|path| Self::of_path(path)))
    }

    /// What is in any of the sets.
    pub(crate) fn union_all(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut sets: Vec<_> = sets.into_iter().collect();
        // In pairs, so that what is large is not gone through again for each that is small.
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

    /// The set of places in any order; what is said twice of one is taken together.
    fn of_nodes(mut nodes: Vec<Node<'a>>) -> Self {
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            let mut joined: Vec<Node<'a>> = Vec::with_capacity(nodes.len());
            let (mut below, mut last): (Vec<Self>, usize) = (Vec::new(), 0);
            for node in nodes {
                match joined.last_mut().filter(|known| known.element == node.element) {
                    Some(known) => {
                        known.branch.member |= node.branch.member;
                        below.push(node.branch.below);
                    }
                    None => {
                        join_below(&mut joined, last, &mut below);
                        last = joined.len();
                        joined.push(node);
                    }
                }
            }
            join_below(&mut joined, last, &mut below);
            nodes = joined;
        }
        Self(nodes)
    }

    pub(super) fn get(&self, element: &Element<'_>) -> Option<&Branch<'a>> {
        let place = self.0.binary_search_by(|node| node.element.cmp(element)).ok()?;
        Some(&self.0[place].branch)
    }

    pub(super) fn branches(&self) -> impl Iterator<Item = (&Element<'a>, &Branch<'a>)> {
        self.0.iter().map(|node| (&node.element, &node.branch))
    }

    /// Whether the field at a path of names is in the set.
    pub(crate) fn has(&self, path: &[&str]) -> bool {
        let Some((last, outer)) = path.split_last() else {
            return false;
        };
        let mut set = self;
        for name in outer {
            match set.get(&Element::field(name)) {
                Some(branch) => set = &branch.below,
                None => return false,
            }
        }
        set.get(&Element::field(last)).is_some_and(|branch| branch.member)
    }

    /// What is in either set.
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
                    a.branch.below = a.branch.below.union(b.branch.below);
                    merged.push(a);
                }
            }
        }
        merged.extend(ours);
        merged.extend(theirs);
        Self(merged)
    }

    /// What is in both sets.
    pub(crate) fn intersection(&self, other: &Set<'_>) -> Self {
        let mut common = Self::default();
        for node in &self.0 {
            if let Some(branch) = other.get(&node.element) {
                let both = Branch {
                    member: node.branch.member && branch.member,
                    below: node.branch.below.intersection(&branch.below),
                };
                common.push(node.element.clone(), both);
            }
        }
        common
    }

    /// Takes out what is in the other set. What is below a field that goes stays.
    pub(crate) fn subtract(&mut self, other: &Set<'_>) {
        if other.is_empty() {
            return;
        }
        self.0.retain_mut(|node| {
            if let Some(branch) = other.get(&node.element) {
                node.branch.member &= !branch.member;
                node.branch.below.subtract(&branch.below);
            }
            !node.branch.is_empty()
        });
    }

    /// Takes out what is in the other set, and everything below it.
    pub(crate) fn subtract_whole(&mut self, other: &Set<'_>) {
        if other.is_empty() {
            return;
        }
        self.0.retain_mut(|node| {
            match other.get(&node.element) {
                Some(branch) if branch.member => return false,
                Some(branch) => node.branch.below.subtract_whole(&branch.below),
                None => {}
            }
            !node.branch.is_empty()
        });
    }

    /// Whether everything of another set is in this one.
    pub(super) fn contains(&self, other: &Set<'_>) -> bool {
        other.branches().all(|(element, theirs)| {
            self.get(element)
                .is_some_and(|ours| ours.member >= theirs.member && ours.below.contains(&theirs.below))
        })
    }

    /// Changes what the set says of each of its places.
    pub(super) fn change(&mut self, mut change: impl FnMut(&Element<'a>, &mut Branch<'a>)) {
        for node in &mut self.0 {
            change(&node.element, &mut node.branch);
        }
    }

    /// The paths as messages name them: at each place its fields, then what is below them. No more than `room` bytes of
    /// them, and one path.
    pub(crate) fn paths(&self, room: &mut usize) -> Vec<String> {
        let mut paths = Vec::new();
        self.list("", &mut paths, room);
        paths
    }

    fn list(&self, outer: &str, paths: &mut Vec<String>, room: &mut usize) {
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
            if !node.branch.below.is_empty() {
                let outer = format!("{outer}{}", node.element);
                node.branch.below.list(&outer, paths, room);
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
            if branch.member && !branch.below.is_empty() {
                json.extend_from_slice(b"\".\":{}");
            }
            branch.below.write_fields(json, !branch.member);
            json.push(b'}');
        }
    }
}

/// Adds what else was said to be below a place.
fn join_below<'a>(nodes: &mut [Node<'a>], place: usize, below: &mut Vec<Set<'a>>) {
    if let Some(node) = nodes.get_mut(place).filter(|_| !below.is_empty()) {
        below.push(std::mem::take(&mut node.branch.below));
        node.branch.below = Set::union_all(below.drain(..));
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Set<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Branch::deserialize(deserializer).map(|branch| branch.below)
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
                    match Element::parse(name).map_err(M::Error::custom)? {
                        Some(element) => nodes.push(Node {
                            element,
                            branch: map.next_value()?,
                        }),
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                branch.below = Set::of_nodes(nodes);
                // Nothing below says that it is the place itself that is meant.
                branch.member |= branch.below.is_empty();
                Ok(branch)
            }
        }
        deserializer.deserialize_any(Fields)
    }
}

/// A name that is not copied where it stands in the text as it is.
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

    fn read(text: &str) -> Set<'_> {
        serde_json::from_str(text).expect("a set")
    }

    fn written(set: &Set<'_>) -> String {
        let mut json = Vec::new();
        set.write(&mut json);
        String::from_utf8(json).expect("JSON is text")
    }

    #[test]
    fn a_set_is_written_as_it_was_read() {
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
            assert!(serde_json::from_str::<Set<'_>>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn what_is_taken_out_leaves_what_is_below_it_unless_it_goes_whole() {
        let set = read(r#"{"f:a":{".":{},"f:b":{}},"f:c":{"f:d":{}}}"#);
        let out = read(r#"{"f:a":{},"f:c":{"f:d":{}}}"#);
        let (mut some, mut all) = (set.clone(), set.clone());
        some.subtract(&out);
        all.subtract_whole(&out);
        assert_eq!(written(&some), r#"{"f:a":{"f:b":{}}}"#);
        assert_eq!(written(&all), "{}");
        assert_eq!(written(&set.intersection(&out)), r#"{"f:a":{},"f:c":{"f:d":{}}}"#);
        assert_eq!(some.union(out), set);
    }

    #[test]
    fn fields_in_any_order_and_more_than_once_are_one_set() {
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
    fn paths_name_fields_before_what_is_below_them() {
        let set =
            read(r#"{"f:a":{"f:x":{}},"f:b":{".":{},"k:{\"name\":\"n\"}":{".":{},"f:c":{}},"v:1":{}}}"#);
        assert_eq!(
            set.paths(&mut 1000),
            [".b", ".a.x", r#".b[name="n"]"#, ".b[=1]", r#".b[name="n"].c"#]
        );
    }
}
