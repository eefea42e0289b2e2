//! Access to one schema of a graph, with references resolved.

use super::{Additional, Graph, MapType, Node, NodeId, SchemaView, Type, properties};

/// See [`SchemaView::sorted_lookup`].
#[derive(Debug)]
pub(crate) struct SortedLookup<'a> {
    graph: &'a Graph,
    properties: properties::SortedLookup<'a>,
}

impl<'a> SortedLookup<'a> {
    pub(crate) fn get(&mut self, name: &str) -> Option<SchemaView<'a>> {
        self.properties
            .get(name)
            .map(|id| SchemaView::new(self.graph, id))
    }
}

impl<'a> SchemaView<'a> {
    pub(super) fn new(graph: &'a Graph, id: NodeId) -> Self {
        Self {
            graph,
            node: &graph.nodes[id as usize],
        }
    }

    /// The node itself, with its own default instead of that of the schema it refers to.
    pub(crate) fn own_node(self) -> &'a Node {
        self.node
    }

    /// The node of the schema it refers to, or its own.
    pub(crate) fn node(self) -> &'a Node {
        self.resolved().node
    }

    fn resolved(self) -> Self {
        let mut view = self;
        while let Some(base) = view.node.reference {
            view = Self::new(self.graph, base);
        }
        view
    }

    /// The name of the Go struct of a built-in schema (`PodSpec`).
    pub(crate) fn struct_name(self) -> Option<&'a str> {
        self.node().name.as_deref()
    }

    pub(crate) fn property(self, name: &str) -> Option<SchemaView<'a>> {
        self.node()
            .properties
            .get(name)
            .map(|id| Self::new(self.graph, id))
    }

    /// Looks up properties by sorted names, like those of an object's fields.
    pub(crate) fn sorted_lookup(self) -> SortedLookup<'a> {
        SortedLookup {
            graph: self.graph,
            properties: self.node().properties.sorted_lookup(),
        }
    }

    pub(crate) fn properties(self) -> impl Iterator<Item = (&'a str, SchemaView<'a>)> {
        let graph = self.graph;
        self.node()
            .properties
            .iter()
            .map(move |(name, id)| (name, Self::new(graph, id)))
    }

    pub(crate) fn additional(self) -> Option<SchemaView<'a>> {
        let (Additional::Schema(id) | Additional::Forbidden(id)) = self.node().additional?;
        Some(Self::new(self.graph, id))
    }

    pub(crate) fn items(self) -> Option<SchemaView<'a>> {
        self.node().items.map(|id| Self::new(self.graph, id))
    }

    /// The schema of an object's field `name`: a property, or the additional properties.
    pub(crate) fn field(self, name: &str) -> Option<SchemaView<'a>> {
        self.property(name).or_else(|| self.additional())
    }

    /// Whether an object may have unspecified fields. A CRD has to enable that explicitly.
    pub(crate) fn preserves_unknown(self) -> bool {
        let facts = self.node();
        // A bare `type: object`, like FieldsV1 and RawExtension, may contain anything.
        let bare = || facts.kind == Type::Object && facts.properties.is_empty() && facts.additional.is_none();
        facts.preserve_unknown || (self.graph.is_built_in() && (facts.kind == Type::Any || bare()))
    }

    /// Whether a field manager owns a map or struct as a whole.
    pub(crate) fn is_atomic_map(self) -> bool {
        let said = match self.own_node().map_type {
            MapType::Unspecified => self.node().map_type,
            said => said,
        };
        said == MapType::Atomic
    }

    /// Whether it is any string, rather than a time.
    pub(crate) fn is_plain_text(self) -> bool {
        self.node().plain_text
    }

    /// Whether it is an object of an arbitrary kind (`RawExtension`).
    pub(crate) fn is_raw(self) -> bool {
        self.node().name.as_deref() == Some("RawExtension")
    }

    /// Whether it does not constrain its values.
    pub(crate) fn is_untyped(self) -> bool {
        let facts = self.node();
        facts.kind == Type::Any
            && facts.properties.is_empty()
            && facts.items.is_none()
            && facts.additional.is_none()
    }

    pub(crate) fn has_properties(self) -> bool {
        !self.node().properties.is_empty()
    }

    /// Whether it is `additionalProperties: true` or `false`, which does not specify the values.
    pub(super) fn is_boolean_additional(self) -> bool {
        let facts = self.node();
        facts.kind == Type::Any
            && !facts.preserve_unknown
            && facts.properties.is_empty()
            && facts.items.is_none()
            && facts.additional.is_none()
    }

    /// The JSON types allowed; empty if any is.
    pub(super) fn types(self) -> &'static [&'static str] {
        match self.node().kind {
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
