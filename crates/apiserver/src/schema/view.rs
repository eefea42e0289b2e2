//! Looking at one schema of a graph, with what it refers to resolved.

use super::{Additional, Graph, MapType, Node, NodeId, Type, View, properties};

/// See [`View::in_order`].
#[derive(Debug)]
pub(crate) struct InOrder<'a> {
    graph: &'a Graph,
    properties: properties::InOrder<'a>,
}

impl<'a> InOrder<'a> {
    pub(crate) fn get(&mut self, name: &str) -> Option<View<'a>> {
        self.properties.get(name).map(|id| View::new(self.graph, id))
    }
}

impl<'a> View<'a> {
    pub(super) fn new(graph: &'a Graph, id: NodeId) -> Self {
        Self {
            graph,
            node: &graph.nodes[id as usize],
        }
    }

    /// The facts of this place itself: its default, not that of the schema it refers to.
    pub(crate) fn here(self) -> &'a Node {
        self.node
    }

    /// The facts of the schema it refers to, or its own.
    pub(crate) fn facts(self) -> &'a Node {
        self.resolved().node
    }

    fn resolved(self) -> Self {
        let mut view = self;
        while let Some(base) = view.node.base {
            view = Self::new(self.graph, base);
        }
        view
    }

    /// What Go calls the struct that a built-in schema stands for (`PodSpec`).
    pub(crate) fn struct_name(self) -> Option<&'a str> {
        self.facts().name.as_deref()
    }

    pub(crate) fn property(self, name: &str) -> Option<View<'a>> {
        self.facts()
            .properties
            .get(name)
            .map(|id| Self::new(self.graph, id))
    }

    /// Finds properties by names that come in their order, as those of an object's fields do.
    pub(crate) fn in_order(self) -> InOrder<'a> {
        InOrder {
            graph: self.graph,
            properties: self.facts().properties.in_order(),
        }
    }

    pub(crate) fn properties(self) -> impl Iterator<Item = (&'a str, View<'a>)> {
        let graph = self.graph;
        self.facts()
            .properties
            .iter()
            .map(move |(name, id)| (name, Self::new(graph, id)))
    }

    pub(crate) fn additional(self) -> Option<View<'a>> {
        let (Additional::Like(id) | Additional::None(id)) = self.facts().additional?;
        Some(Self::new(self.graph, id))
    }

    pub(crate) fn items(self) -> Option<View<'a>> {
        self.facts().items.map(|id| Self::new(self.graph, id))
    }

    /// What an object's field `name` must look like: a property, or what all further fields look like.
    pub(crate) fn field(self, name: &str) -> Option<View<'a>> {
        self.property(name).or_else(|| self.additional())
    }

    /// Whether an object may hold fields that nothing describes. In a CRD that must be said.
    pub(crate) fn is_open(self) -> bool {
        let facts = self.facts();
        // A bare `type: object`, as FieldsV1 and RawExtension, holds anything.
        let bare = || facts.kind == Type::Object && facts.properties.is_empty() && facts.additional.is_none();
        facts.preserve_unknown || (self.graph.is_built_in() && (facts.kind == Type::Any || bare()))
    }

    /// Whether whoever writes a map or struct owns it as one field.
    pub(crate) fn is_atomic_map(self) -> bool {
        let said = match self.here().map {
            MapType::Unsaid => self.facts().map,
            said => said,
        };
        said == MapType::Atomic
    }

    /// Whether it is text of any form, rather than a time.
    pub(crate) fn is_plain_text(self) -> bool {
        self.facts().plain_text
    }

    /// Whether it holds an object of some other kind, of which nothing is known.
    pub(crate) fn is_raw(self) -> bool {
        self.facts().name.as_deref() == Some("RawExtension")
    }

    /// Whether it says nothing of what its values look like.
    pub(crate) fn is_untyped(self) -> bool {
        let facts = self.facts();
        facts.kind == Type::Any
            && facts.properties.is_empty()
            && facts.items.is_none()
            && facts.additional.is_none()
    }

    pub(crate) fn has_properties(self) -> bool {
        !self.facts().properties.is_empty()
    }

    /// Whether it stands for `additionalProperties: true` or `false`, which say nothing about the values.
    pub(super) fn is_unsaid(self) -> bool {
        let facts = self.facts();
        facts.kind == Type::Any
            && !facts.preserve_unknown
            && facts.properties.is_empty()
            && facts.items.is_none()
            && facts.additional.is_none()
    }

    /// The JSON types that fit; empty where any does.
    pub(super) fn types(self) -> &'static [&'static str] {
        match self.facts().kind {
            Type::Any => &[],
            Type::Object => &["object"],
            Type::Array => &["array"],
            Type::String => &["string"],
            Type::Integer => &["integer"],
            Type::Number => &["number"],
            Type::Boolean => &["boolean"],
            Type::IntOrString => &["integer", "string"],
            Type::NumberOrString => &["number", "string"],
        }
    }

    pub(super) fn at(self, id: NodeId) -> Self {
        Self::new(self.graph, id)
    }
}
