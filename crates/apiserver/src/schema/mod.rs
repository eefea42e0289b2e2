//! Schemas of built-in kinds and CRDs, in one representation.
//!
//! ```text
//!   data/kinds.json.gz ─┐
//!                       ├─► Graph: nodes that point at nodes ──► prune, default, validate, merge
//!   CRD openAPIV3Schema ┘
//! ```
//!
//! Schemas may refer to themselves (`JSONSchemaProps` does), so they form a graph of indexes, not a tree.
//!
//! A CRD's validation rules (`x-kubernetes-validations`) are not part of it: the crate `windlass-cel` has them.

mod decode;
mod defaults;
mod formats;
mod go_field;
mod graph;
mod limits;
mod lists;
mod number;
mod pattern;
mod properties;
#[cfg(test)]
mod property_tests;
mod prune;
pub(crate) mod quantity;
mod report;
mod result;
mod strict;
pub(crate) mod time;
mod validate;
mod view;

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

pub(crate) use decode::{Source, decode, renormalize};
pub(crate) use defaults::{drop_nulls, fill_defaults};
pub(crate) use formats::is_known as is_known_format;
use go_field::GoField;
use limits::ValueLimits;
pub(crate) use lists::check_lists;
use pattern::Pattern;
pub(crate) use pattern::Patterns;
use properties::Properties;
pub(crate) use prune::{prune, prune_object};
pub(crate) use report::ErrorReport;
pub(crate) use strict::problems_in_order;
pub(crate) use validate::validate;
pub(crate) use view::SortedLookup;
pub(crate) use windlass_api::field_error::{FieldError, MAX_ERROR_BYTES, MAX_ERRORS, Problem};

/// A set of schemas that may refer to each other.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    /// Empty when the graph is built.
    patterns: Patterns,
    /// The named schemas; empty for a CRD.
    names: HashMap<Box<str>, NodeId>,
}

type NodeId = u32;

/// A handle on one schema that keeps its graph alive.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    graph: Arc<Graph>,
    root: NodeId,
}

/// One schema, with references resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchemaView<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

/// The JSON type that a schema requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// No type given: any value.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// An integer or a string, like `IntOrString`.
    IntOrString,
    /// A number or a string, like `Quantity`.
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

/// Whether field managers own the entries of a map separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MapType {
    /// Granular, unless the referenced schema says otherwise.
    #[default]
    Unspecified,
    Granular,
    Atomic,
}

impl MapType {
    fn from_keyword(text: Option<&str>) -> Self {
        match text {
            Some("atomic") => Self::Atomic,
            Some("granular") => Self::Granular,
            _ => Self::Unspecified,
        }
    }
}

/// How a strategic merge patch treats an existing field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// Maps are merged, lists replaced.
    #[default]
    Plain,
    /// Lists are merged: by this key of their items, or as sets.
    Merge(Option<Box<str>>),
    /// Maps are replaced too.
    Replace,
}

impl PatchStrategy {
    fn from_document(document: &Value) -> Self {
        let strategies = document["patchStrategy"].as_str().unwrap_or_default();
        // `retainKeys` concerns only clients that build patches.
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
    /// The name of the Go struct of a built-in kind's schema (`PodSpec`).
    name: Option<Box<str>>,
    pub(crate) kind: Type,
    /// The precision of a timestamp, if it is one.
    time_precision: Option<time::Precision>,
    properties: Properties,
    /// The properties that Go's encoder writes even if unset.
    always_written: Box<[(Box<str>, NodeId)]>,
    additional: Option<Additional>,
    items: Option<NodeId>,
    /// The named schema that this one refers to; its own default and patch strategy take precedence.
    reference: Option<NodeId>,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) enum_values: Vec<Value>,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) list_type: ListType,
    map_type: MapType,
    /// Whether a built-in kind's string has no special format such as a time.
    plain_text: bool,
    pub(crate) patch_strategy: PatchStrategy,
    /// Go type information of a built-in kind's field.
    go: Option<GoField>,
    limits: Option<Box<ValueLimits>>,
    /// The format, if it is checked for the type.
    pub(crate) format: Option<Box<str>>,
    nested: Option<Box<Nested>>,
}

/// The schema of fields that are not properties.
#[derive(Clone, Copy, Debug)]
enum Additional {
    Schema(NodeId),
    /// They are forbidden: kept by pruning, then rejected by validation.
    Forbidden(NodeId),
}

impl Node {
    pub(crate) fn forbids_additional(&self) -> bool {
        matches!(self.additional, Some(Additional::Forbidden(_)))
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
    pub(crate) fn view(&self) -> SchemaView<'_> {
        SchemaView::new(&self.graph, self.root)
    }
}
