//! What a kind's objects look like: one form for built-in kinds and for CRDs.
//!
//! ```text
//!   data/kinds.json.gz ─┐
//!                       ├─► Graph: nodes that point at nodes ──► prune, default, validate, merge
//!   CRD openAPIV3Schema ┘
//! ```
//!
//! Schemas may refer to themselves (`JSONSchemaProps` does), so that they form a graph of indexes, not a tree.
//!
//! A CRD's rules in CEL (`x-kubernetes-validations`) are no part of this: they are kept and published, and never
//! evaluated. All that is known of them is whether there are any ([`Schema::has_rules`]).

mod decode;
mod defaults;
mod formats;
mod go;
#[cfg(test)]
mod laws;
mod limits;
mod lists;
mod number;
mod outcome;
pub(crate) mod pattern;
mod problem;
mod properties;
mod prune;
pub(crate) mod quantity;
pub(crate) mod time;
mod validate;

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value};

pub(crate) use decode::{Source, decode, tidy};
pub(crate) use defaults::{drop_nulls, fill_defaults};
pub(crate) use formats::is_known as is_known_format;
use go::GoField;
use limits::Limits;
pub(crate) use lists::check_lists;
pub(crate) use problem::{FieldError, Problem};
use properties::Properties;
pub(crate) use prune::{prune, prune_object};
pub(crate) use validate::validate;

/// A set of schemas that may refer to each other.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    /// Where each named schema is; empty for a CRD's.
    names: HashMap<Box<str>, NodeId>,
}

type NodeId = u32;

/// A handle on one schema that keeps its graph alive.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    graph: Arc<Graph>,
    root: NodeId,
    has_rules: bool,
}

/// One schema, with what it refers to resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

/// The JSON type that a schema asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// No type is named: anything goes.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// An integer or a string, as `IntOrString`.
    IntOrString,
    /// A number or a string, as `Quantity`.
    NumberOrString,
}

/// How a list is merged, and what makes its items unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<Box<str>>),
}

/// Whether those who write a map own its fields one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MapType {
    /// They do, unless the schema that is referred to says otherwise.
    #[default]
    Unsaid,
    Granular,
    Atomic,
}

impl MapType {
    fn of(text: Option<&str>) -> Self {
        match text {
            Some("atomic") => Self::Atomic,
            Some("granular") => Self::Granular,
            _ => Self::Unsaid,
        }
    }
}

/// What a strategic merge patch does with a field that is there already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// Maps are merged, lists replaced.
    #[default]
    Plain,
    /// Lists are merged: by this key of their items, or as sets.
    Merge(Option<Box<str>>),
    /// Even maps are replaced.
    Replace,
}

impl PatchStrategy {
    fn of(document: &Value) -> Self {
        let strategies = document["patchStrategy"].as_str().unwrap_or_default();
        // `retainKeys` speaks to those who make patches.
        match strategies.split(',').find(|strategy| *strategy != "retainKeys") {
            Some("merge") => Self::Merge(document["patchMergeKey"].as_str().map(Into::into)),
            Some("replace") => Self::Replace,
            _ => Self::Plain,
        }
    }

    pub(crate) fn merge_key(&self) -> Option<&str> {
        match self {
            Self::Merge(key) => key.as_deref(),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a schema, each read in one place"
)]
pub(crate) struct Node {
    /// What Go calls the struct that a built-in kind's schema stands for (`PodSpec`).
    name: Option<Box<str>>,
    pub(crate) kind: Type,
    /// How exact a moment is, where the schema stands for one.
    time: Option<time::Precision>,
    properties: Properties,
    /// The properties that Go's encoder writes though nobody has set them.
    ever: Box<[(Box<str>, NodeId)]>,
    additional: Option<Additional>,
    items: Option<NodeId>,
    /// The named schema that this one stands for; its own facts (a default, a patch strategy) come first.
    base: Option<NodeId>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) choices: Vec<Value>,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) list: ListType,
    map: MapType,
    /// Of a built-in kind's text: whether it is no time or such.
    plain_text: bool,
    pub(crate) patch_strategy: PatchStrategy,
    /// What Go says of a built-in kind's field.
    go: Option<GoField>,
    limits: Option<Box<Limits>>,
    /// Of the formats that are checked for the type; others are as good as none.
    pub(crate) format: Option<Box<str>>,
    nested: Option<Box<Nested>>,
}

/// What is said of the fields that are no properties.
#[derive(Clone, Copy, Debug)]
enum Additional {
    Like(NodeId),
    /// There must be none: they are kept when pruning, and then refused.
    None(NodeId),
}

impl Node {
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.additional, Some(Additional::None(_)))
    }
}

/// Further schemas for the same value.
#[derive(Debug, Default)]
struct Nested {
    all_of: Vec<NodeId>,
    any_of: Vec<NodeId>,
    one_of: Vec<NodeId>,
    not: Option<NodeId>,
}

impl Schema {
    pub(crate) fn view(&self) -> View<'_> {
        View::new(&self.graph, self.root)
    }

    /// The schema of a CRD version (`openAPIV3Schema`).
    pub(crate) fn of_crd(document: &Value) -> Result<Self, String> {
        let mut graph = Graph::default();
        let root = graph.add(document, &Dialect::CRD)?;
        Ok(Self {
            graph: Arc::new(graph),
            root,
            has_rules: has_rules(document),
        })
    }

    /// The same schema as defaults are held to: of what may be an integer or a string, they may be anything.
    pub(crate) fn of_crd_defaults(document: &Value) -> Result<Self, String> {
        let mut graph = Graph::default();
        let root = graph.add(document, &Dialect::DEFAULTS)?;
        Ok(Self {
            graph: Arc::new(graph),
            root,
            has_rules: false,
        })
    }

    /// Whether a CRD asks for checks in CEL, which are not made.
    pub(crate) fn has_rules(&self) -> bool {
        self.has_rules
    }
}

impl Graph {
    /// The built-in kinds' schemas, from the reduced documents.
    pub(crate) fn of_built_ins(
        schemas: &Map<String, Value>,
        types: &Map<String, Value>,
    ) -> Result<Self, String> {
        let mut graph = Self::default();
        for name in schemas.keys() {
            let id = graph.reserve();
            graph.names.insert(name.as_str().into(), id);
        }
        for (name, document) in schemas {
            let mut node = graph
                .node(document, &Dialect::REDUCED)
                .map_err(|e| format!("schema {name}: {e}"))?;
            let short = name.rsplit('.').next().unwrap_or_default();
            node.name = Some(short.into());
            node.time = time::Precision::of(short);
            for (field, id) in node.properties.iter() {
                let go = types.get(name).and_then(|fields| GoField::of(&fields[field]));
                graph.nodes[id as usize].go = go;
            }
            let id = graph.names[name.as_str()];
            graph.nodes[id as usize] = node;
        }
        for id in graph.names.values().copied().collect::<Vec<_>>() {
            let schema = View::new(&graph, id);
            graph.nodes[id as usize].ever = decode::written_ever(schema).collect();
        }
        Ok(graph)
    }

    pub(crate) fn named(self: &Arc<Self>, name: &str) -> Option<Schema> {
        self.names.get(name).map(|root| Schema {
            graph: self.clone(),
            root: *root,
            has_rules: false,
        })
    }

    fn reserve(&mut self) -> NodeId {
        self.nodes.push(Node::default());
        NodeId::try_from(self.nodes.len() - 1).expect("fewer than 2^32 schemas")
    }

    fn add(&mut self, document: &Value, dialect: &Dialect) -> Result<NodeId, String> {
        let id = self.reserve();
        let node = self.node(document, dialect)?;
        self.nodes[id as usize] = node;
        Ok(id)
    }

    fn node(&mut self, document: &Value, dialect: &Dialect) -> Result<Node, String> {
        let text = |key: &str| document.get(key).and_then(Value::as_str);
        let flag = |key: &str| document.get(key).and_then(Value::as_bool).unwrap_or(false);
        let mut node = Node {
            kind: match text("type") {
                _ if flag(dialect.int_or_string) => Type::IntOrString,
                None if document.get("oneOf").is_some() && dialect.has_references => {
                    match document["oneOf"][0].as_str() {
                        Some("integer") => Type::IntOrString,
                        _ => Type::NumberOrString,
                    }
                }
                None => Type::Any,
                Some("object") => Type::Object,
                Some("array") => Type::Array,
                Some("string") => Type::String,
                Some("integer") => Type::Integer,
                Some("number") => Type::Number,
                Some("boolean") => Type::Boolean,
                Some(other) => return Err(format!("unknown type {other:?}")),
            },
            required: strings(&document["required"]),
            choices: document["enum"].as_array().cloned().unwrap_or_default(),
            default: document.get("default").cloned(),
            nullable: flag("nullable"),
            preserve_unknown: flag(dialect.preserve_unknown),
            embedded: flag("x-kubernetes-embedded-resource"),
            list: match text(dialect.list_type) {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(strings(&document[dialect.list_map_keys])),
                _ => ListType::Atomic,
            },
            map: MapType::of(text(dialect.map_type)),
            plain_text: matches!(text("format"), None | Some("byte")),
            patch_strategy: PatchStrategy::of(document),
            limits: Limits::of(document)?.map(Box::new),
            ..Node::default()
        };
        if let Some(properties) = document["properties"].as_object() {
            node.properties = properties
                .iter()
                .map(|(name, property)| Ok((name.as_str().into(), self.add(property, dialect)?)))
                .collect::<Result<_, String>>()?;
        }
        node.items = document
            .get("items")
            .map(|items| self.add(items, dialect))
            .transpose()?;
        node.additional = match document.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Additional::Like(self.reserve())),
            Some(Value::Bool(false)) => Some(Additional::None(self.reserve())),
            Some(schema @ Value::Object(_)) => Some(Additional::Like(self.add(schema, dialect)?)),
            _ => None,
        };
        if !dialect.has_references {
            node.nested = self.nested(document, dialect)?;
            let kind = text("type").unwrap_or_default();
            node.format = text("format")
                .filter(|format| formats::is_known(kind, format) && node.kind != Type::IntOrString)
                .map(Into::into);
        }
        if let Some(reference) = text("ref").filter(|_| dialect.has_references) {
            node.base = Some(
                *self
                    .names
                    .get(reference)
                    .ok_or_else(|| format!("no schema {reference}"))?,
            );
        }
        Ok(node)
    }
}

impl Graph {
    fn nested(&mut self, document: &Value, dialect: &Dialect) -> Result<Option<Box<Nested>>, String> {
        if !["allOf", "anyOf", "oneOf", "not"]
            .iter()
            .any(|key| document.get(key).is_some())
        {
            return Ok(None);
        }
        let mut all = |key: &str| -> Result<Vec<NodeId>, String> {
            let schemas = document[key].as_array().into_iter().flatten();
            schemas.map(|schema| self.add(schema, dialect)).collect()
        };
        let (all_of, any_of, one_of) = (all("allOf")?, all("anyOf")?, all("oneOf")?);
        let not = document
            .get("not")
            .map(|schema| self.add(schema, dialect))
            .transpose()?;
        Ok(Some(Box::new(Nested {
            all_of,
            any_of,
            one_of,
            not,
        })))
    }
}

/// Whether there are rules in CEL anywhere in a CRD's schema.
fn has_rules(document: &Value) -> bool {
    match document {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            (key == "x-kubernetes-validations" && value.as_array().is_some_and(|rules| !rules.is_empty()))
                || has_rules(value)
        }),
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

/// The names that the two sources use for the same facts.
struct Dialect {
    has_references: bool,
    int_or_string: &'static str,
    preserve_unknown: &'static str,
    list_type: &'static str,
    map_type: &'static str,
    list_map_keys: &'static str,
}

impl Dialect {
    const REDUCED: Self = Self {
        has_references: true,
        int_or_string: "intOrString",
        preserve_unknown: "preserveUnknownFields",
        list_type: "listType",
        map_type: "mapType",
        list_map_keys: "listMapKeys",
    };
    const DEFAULTS: Self = Self {
        int_or_string: "",
        ..Self::CRD
    };
    const CRD: Self = Self {
        has_references: false,
        int_or_string: "x-kubernetes-int-or-string",
        preserve_unknown: "x-kubernetes-preserve-unknown-fields",
        list_type: "x-kubernetes-list-type",
        map_type: "x-kubernetes-map-type",
        list_map_keys: "x-kubernetes-list-map-keys",
    };
}

impl<'a> View<'a> {
    fn new(graph: &'a Graph, id: NodeId) -> Self {
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
    fn is_unsaid(self) -> bool {
        let facts = self.facts();
        facts.kind == Type::Any
            && !facts.preserve_unknown
            && facts.properties.is_empty()
            && facts.items.is_none()
            && facts.additional.is_none()
    }

    /// The JSON types that fit; empty where any does.
    fn types(self) -> &'static [&'static str] {
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

    fn at(self, id: NodeId) -> Self {
        Self::new(self.graph, id)
    }
}

impl Graph {
    fn is_built_in(&self) -> bool {
        !self.names.is_empty()
    }
}

fn strings(list: &Value) -> Vec<Box<str>> {
    list.as_array()
        .map(|l| l.iter().filter_map(Value::as_str).map(Into::into).collect())
        .unwrap_or_default()
}
