//! Builds the schema graph from the reduced documents of built-in kinds and from CRDs.

use std::{mem, sync::Arc};

use serde_json::{Map, Value};

use super::{
    Additional, GoField, Graph, ListType, MapType, Nested, Node, NodeId, PatchStrategy, Patterns, Schema,
    SchemaView, Type, ValueLimits, decode, formats, time,
};

impl Schema {
    /// The schema of a CRD version (`openAPIV3Schema`).
    #[cfg(test)]
    pub(crate) fn from_crd(document: &Value) -> Result<Self, String> {
        Self::from_crd_version(document, &mut Patterns::default())
    }

    /// The schema of a CRD version (`openAPIV3Schema`), which shares patterns with the others.
    pub(crate) fn from_crd_version(document: &Value, patterns: &mut Patterns) -> Result<Self, String> {
        let (graph, root) = Graph::from_crd(document, &Dialect::CRD, patterns)?;
        Ok(Self {
            graph: Arc::new(graph),
            root,
        })
    }

    /// The schema for validating defaults: an int-or-string may have any default.
    pub(crate) fn for_crd_defaults(document: &Value, patterns: &mut Patterns) -> Result<Self, String> {
        let (graph, root) = Graph::from_crd(document, &Dialect::DEFAULTS, patterns)?;
        Ok(Self {
            graph: Arc::new(graph),
            root,
        })
    }
}

impl Graph {
    fn from_crd(
        document: &Value,
        dialect: &Dialect,
        patterns: &mut Patterns,
    ) -> Result<(Self, NodeId), String> {
        let mut graph = Self {
            patterns: mem::take(patterns),
            ..Self::default()
        };
        let root = graph.add(document, dialect);
        *patterns = mem::take(&mut graph.patterns);
        Ok((graph, root?))
    }

    /// Builds the schemas of the built-in kinds from the reduced documents.
    pub(crate) fn from_built_ins(
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
                .node(document, &Dialect::BUILT_IN)
                .map_err(|e| format!("schema {name}: {e}"))?;
            let short = name.rsplit('.').next().unwrap_or_default();
            node.name = Some(short.into());
            node.time_precision = time::Precision::of_struct(short);
            for (field, id) in node.properties.iter() {
                let go = types.get(name).and_then(|fields| GoField::parse(&fields[field]));
                graph.nodes[id as usize].go = go;
            }
            let id = graph.names[name.as_str()];
            graph.nodes[id as usize] = node;
        }
        for id in graph.names.values().copied().collect::<Vec<_>>() {
            let schema = SchemaView::new(&graph, id);
            graph.nodes[id as usize].always_written = decode::always_written(schema).collect();
        }
        Ok(graph)
    }

    pub(crate) fn named(self: &Arc<Self>, name: &str) -> Option<Schema> {
        self.names.get(name).map(|root| Schema {
            graph: self.clone(),
            root: *root,
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
            enum_values: document["enum"].as_array().cloned().unwrap_or_default(),
            default: document.get("default").cloned(),
            nullable: flag("nullable"),
            preserve_unknown: flag(dialect.preserve_unknown),
            embedded: flag("x-kubernetes-embedded-resource"),
            list_type: match text(dialect.list_type) {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(strings(&document[dialect.list_map_keys])),
                _ => ListType::Atomic,
            },
            map_type: MapType::from_keyword(text(dialect.map_type)),
            plain_text: matches!(text("format"), None | Some("byte")),
            patch_strategy: PatchStrategy::from_document(document),
            limits: ValueLimits::from_document(document, &mut self.patterns)?.map(Box::new),
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
            Some(Value::Bool(true)) => Some(Additional::Schema(self.reserve())),
            Some(Value::Bool(false)) => Some(Additional::Forbidden(self.reserve())),
            Some(schema @ Value::Object(_)) => Some(Additional::Schema(self.add(schema, dialect)?)),
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
            node.reference = Some(
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

/// The keywords of the two sources.
struct Dialect {
    has_references: bool,
    int_or_string: &'static str,
    preserve_unknown: &'static str,
    list_type: &'static str,
    map_type: &'static str,
    list_map_keys: &'static str,
}

impl Dialect {
    const BUILT_IN: Self = Self {
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

impl Graph {
    pub(super) fn is_built_in(&self) -> bool {
        !self.names.is_empty()
    }
}

fn strings(list: &Value) -> Vec<Box<str>> {
    list.as_array()
        .map(|l| l.iter().filter_map(Value::as_str).map(Into::into).collect())
        .unwrap_or_default()
}
