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
mod graph;
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
mod view;

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

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
pub(crate) use view::InOrder;

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

    /// Whether a CRD asks for checks in CEL, which are not made.
    pub(crate) fn has_rules(&self) -> bool {
        self.has_rules
    }
}
