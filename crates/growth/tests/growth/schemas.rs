//! Objects generated from the schemas of built-in kinds: small ones, and ones with long fields.

use std::{
    collections::{BTreeSet, VecDeque},
    io::Read,
};

use serde_json::{Map, Value, json};

/// The data that the server is built from.
pub(crate) struct Schemas {
    data: Value,
}

/// A resource whose objects clients can create.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
    /// Whether its objects are stored, so that they can be updated.
    pub(crate) stored: bool,
}

/// A field that can be long, and its path from the root of a kind.
#[derive(Clone, Debug)]
pub(crate) struct LongField {
    pub(crate) path: Vec<String>,
    pub(crate) shape: Shape,
}

impl LongField {
    /// The styles of its entries. Map keys cannot be identical, and for strings `Identical` equals `Distinct`.
    pub(crate) fn styles(&self) -> &'static [Style] {
        match self.shape {
            Shape::Map | Shape::Strings => &[Style::Distinct, Style::Invalid],
            Shape::List => &[Style::Distinct, Style::Identical, Style::Invalid],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    List,
    Map,
    /// All strings of one object.
    Strings,
}

/// The style of the entries of a long field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Distinct, with the required fields.
    Distinct,
    /// Identical.
    Identical,
    /// Distinct, with all fields set, mostly to invalid values.
    Invalid,
}

/// A path element that stands for the entries of a list or map.
const ANY: &str = "*";

impl Schemas {
    pub(crate) fn read() -> Self {
        let packed = include_bytes!("../../../apiserver/data/kinds.json.gz");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_string(&mut text)
            .expect("text");
        Self {
            data: serde_json::from_str(&text).expect("JSON"),
        }
    }

    pub(crate) fn resources(&self) -> Vec<Resource> {
        let all = self.data["resources"].as_array().expect("a list");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter()
            .filter(|one| !text(&one["name"]).contains('/'))
            .map(|one| {
                let verbs = one["verbs"].as_array().expect("a list");
                (one, verbs)
            })
            .filter(|(_, verbs)| verbs.contains(&"create".into()))
            .map(|(one, verbs)| Resource {
                group: text(&one["apiGroup"]),
                version: text(&one["apiVersion"]),
                kind: text(&one["kind"]),
                plural: text(&one["name"]),
                namespaced: one["namespaced"] == true,
                stored: verbs.contains(&"update".into()),
            })
            .collect()
    }

    fn root(&self, resource: &Resource) -> &Value {
        let Resource {
            group, version, kind, ..
        } = resource;
        let name = &self.data["kinds"][format!("{group}/{version}/{kind}")];
        self.named(name.as_str().unwrap_or_default())
    }

    fn named(&self, name: &str) -> &Value {
        &self.data["schemas"][name]
    }

    /// The schema that a schema refers to, or itself.
    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema["ref"].as_str() {
            Some(name) => self.named(name),
            None => schema,
        }
    }

    /// All fields that can be long, each once: a field of a type shared by many kinds is tried in the first of them.
    /// The server also looks up fields by type.
    pub(crate) fn long_fields(&self, resources: &[Resource]) -> Vec<(Resource, LongField)> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        // Stored kinds first: they can also be updated, and a kind that is not may be rejected before it is read.
        let (stored, others): (Vec<_>, Vec<_>) = resources.iter().partition(|resource| resource.stored);
        let mut open: VecDeque<_> = stored
            .into_iter()
            .chain(others)
            .map(|resource| {
                let name = format!("{}/{}/{}", resource.group, resource.version, resource.kind);
                let root = self.data["kinds"][name].as_str().unwrap_or_default();
                (resource, Vec::new(), root)
            })
            .collect();
        while let Some((resource, path, name)) = open.pop_front() {
            // Metadata is in every kind and handled the same way.
            if !seen.insert(name) {
                continue;
            }
            let mut take = |path: &[String], shape| {
                let path = path.to_vec();
                found.push((resource.clone(), LongField { path, shape }));
            };
            let mut inner = Vec::new();
            let schema = self.named(name);
            if schema["properties"].is_object() {
                take(&path, Shape::Strings);
            }
            for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
                // Clients that may write the status subresource are trusted.
                if path.is_empty() && matches!(&**field, "status" | "kind" | "apiVersion") {
                    continue;
                }
                let mut path = path.clone();
                path.push(field.clone());
                self.collect(schema, path, &mut take, &mut inner);
            }
            open.extend(inner.into_iter().map(|(path, name)| (resource, path, name)));
        }
        found
    }

    fn collect<'a>(
        &'a self,
        schema: &'a Value,
        mut path: Vec<String>,
        take: &mut impl FnMut(&[String], Shape),
        inner: &mut Vec<(Vec<String>, &'a str)>,
    ) {
        if let Some(name) = schema["ref"].as_str() {
            if self.named(name)["properties"].is_object() {
                inner.push((path, name));
            } else if self.named(name)["type"] == "object" {
                take(&path, Shape::Map);
            }
            return;
        }
        let within = match (&schema["items"], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) => return,
            (Value::Null, values) => {
                take(&path, Shape::Map);
                values
            }
            (items, _) => {
                take(&path, Shape::List);
                items
            }
        };
        path.push(ANY.to_owned());
        self.collect(within, path, take, inner);
    }

    /// The schema of a field.
    pub(crate) fn at<'a>(&'a self, resource: &Resource, path: &[String]) -> &'a Value {
        path.iter().fold(self.root(resource), |schema, part| {
            let own = self.resolve(schema);
            match (&**part, own["items"].is_object()) {
                (ANY, true) => &own["items"],
                (ANY, false) => &own["additionalProperties"],
                (field, _) => &own["properties"][field],
            }
        })
    }

    /// A value of a schema with the required fields; `index` makes it distinct.
    pub(crate) fn value(&self, schema: &Value, index: usize, style: Style, depth: usize) -> Value {
        let name = schema["ref"].as_str().unwrap_or_default();
        let own = self.resolve(schema);
        let last = name.rsplit('.').next().unwrap_or_default();
        let number = if style == Style::Identical { 0 } else { index };
        match last {
            "Time" | "MicroTime" => return "2024-01-01T00:00:00.000000Z".into(),
            "Quantity" => return (number + 100).to_string().into(),
            "IntOrString" => return (number + 1).into(),
            _ => {}
        }
        if let Some(choices) = own["enum"].as_array().or_else(|| schema["enum"].as_array()) {
            return choices[number % choices.len()].clone();
        }
        match own["type"].as_str().unwrap_or_default() {
            "string" if own["format"] == "byte" => "eA==".into(),
            "string" if style == Style::Invalid => format!("-X {number:03}/é").into(),
            "string" if number == 0 => "x0".into(),
            "string" => format!("x{number:03}").into(),
            "integer" if style == Style::Invalid => (-1 - number.cast_signed()).into(),
            "integer" => (number + 1).into(),
            "number" => json!(1.5),
            "boolean" => true.into(),
            "array" => {
                let items = &own["items"];
                (0..usize::from(depth > 0))
                    .map(|_| self.value(items, index, style, depth - 1))
                    .collect()
            }
            "object" if own["properties"].is_object() => {
                let mut fields = Map::new();
                let required = own["required"].as_array();
                for (field, schema) in own["properties"].as_object().into_iter().flatten() {
                    let must = required.is_some_and(|required| required.contains(&field.as_str().into()))
                        || matches!(&**field, "name" | "key" | "op" | "ip");
                    let may = style == Style::Invalid && depth > 0;
                    if must || may {
                        let value = self.value(schema, index, style, depth.saturating_sub(1));
                        fields.insert(field.clone(), value);
                    }
                }
                fields.into()
            }
            "object" => json!({}),
            _ => format!("x{number}").into(),
        }
    }

    /// `count` entries of a list or map, or strings of that length.
    pub(crate) fn entries(&self, schema: &Value, shape: Shape, count: usize, style: Style) -> Value {
        let own = self.resolve(schema);
        let depth = if style == Style::Invalid { 2 } else { 4 };
        match shape {
            Shape::List => (0..count)
                .map(|index| self.value(&own["items"], index, style, depth))
                .collect(),
            Shape::Map => {
                let values = &own["additionalProperties"];
                let key = |index| match style {
                    Style::Invalid => format!("-X {index:03}/é"),
                    _ if index == 0 => "x0".to_owned(),
                    _ => format!("x{index:03}"),
                };
                let entries = (0..count).map(|index| (key(index), self.value(values, index, style, depth)));
                Value::Object(entries.collect())
            }
            Shape::Strings => {
                let mut fields = self.value(schema, 0, Style::Distinct, 4);
                let pattern = match style {
                    Style::Distinct | Style::Identical => "a",
                    Style::Invalid => "/a,=$( %{!\u{e9}",
                };
                let long: String = pattern.chars().cycle().take(count).collect();
                for (field, schema) in own["properties"].as_object().into_iter().flatten() {
                    let is_text = self.resolve(schema)["type"] == "string" && schema["enum"].is_null();
                    // An object needs its name and kind to be processed.
                    let names = matches!(&**field, "name" | "namespace" | "kind" | "apiVersion");
                    if is_text
                        && !(names && own["properties"]["metadata"].is_object())
                        && !(names && own["properties"]["managedFields"].is_object())
                    {
                        fields[field] = long.as_str().into();
                    }
                }
                fields
            }
        }
    }

    /// Sets the field at `path` to `what`, creating its parents.
    pub(crate) fn put(
        &self,
        resource: &Resource,
        object: &mut Value,
        path: &[String],
        what: &dyn Fn(&Value) -> Value,
    ) {
        self.put_at(self.root(resource), object, path, what);
    }

    fn put_at(&self, schema: &Value, place: &mut Value, path: &[String], what: &dyn Fn(&Value) -> Value) {
        let own = self.resolve(schema);
        let Some((first, rest)) = path.split_first() else {
            let new = what(schema);
            match (place, new) {
                (Value::Object(old), Value::Object(new)) => old.extend(new),
                (place, new) => *place = new,
            }
            return;
        };
        let (inner, within) = if first == ANY {
            if own["items"].is_object() {
                if place.as_array().is_none_or(Vec::is_empty) {
                    *place = json!([self.value(&own["items"], 0, Style::Distinct, 4)]);
                }
                (&mut place[0], &own["items"])
            } else {
                if !place.is_object() {
                    *place = json!({});
                }
                (&mut place["x0"], &own["additionalProperties"])
            }
        } else {
            if !place.is_object() {
                *place = self.value(schema, 0, Style::Distinct, 4);
            }
            (&mut place[first], &own["properties"][first])
        };
        if inner.is_null() && !rest.is_empty() {
            *inner = self.value(within, 0, Style::Distinct, 4);
        }
        self.put_at(within, inner, rest, what);
    }

    /// Makes all lists and maps of a kind this long; nested ones in the first entry.
    pub(crate) fn fill(&self, resource: &Resource, object: &mut Value, count: usize) {
        self.fill_at(self.root(resource), object, count, &mut Vec::new());
    }

    fn fill_at<'a>(&'a self, schema: &'a Value, place: &mut Value, count: usize, above: &mut Vec<&'a str>) {
        let name = schema["ref"].as_str().unwrap_or_default();
        if above.contains(&name) || above.len() > 9 {
            return;
        }
        let own = self.resolve(schema);
        if !name.is_empty() {
            above.push(name);
        }
        if own["items"].is_object() {
            *place = self.entries(schema, Shape::List, count, Style::Distinct);
            self.fill_at(&own["items"], &mut place[0], count, above);
        } else if own["additionalProperties"].is_object() {
            *place = self.entries(schema, Shape::Map, count, Style::Distinct);
        } else if own["properties"].is_object() {
            if !place.is_object() {
                *place = self.value(schema, 0, Style::Distinct, 4);
            }
            for (field, schema) in own["properties"].as_object().into_iter().flatten() {
                let skipped = matches!(&**field, "status" | "managedFields" | "ownerReferences");
                let resolved = self.resolve(schema);
                let can_be_long = !resolved["items"].is_null()
                    || !resolved["additionalProperties"].is_null()
                    || !resolved["properties"].is_null();
                if !skipped && can_be_long {
                    self.fill_at(schema, &mut place[field], count, above);
                }
            }
        }
        if !name.is_empty() {
            above.pop();
        }
    }

    /// The smallest object of a kind according to its schema.
    pub(crate) fn small(&self, resource: &Resource, name: &str) -> Value {
        let mut object = self.value(self.root(resource), 0, Style::Distinct, 4);
        let Resource {
            group, version, kind, ..
        } = resource;
        let version = if group.is_empty() {
            version.clone()
        } else {
            format!("{group}/{version}")
        };
        object["apiVersion"] = version.into();
        object["kind"] = kind.as_str().into();
        object["metadata"] = json!({"name": name});
        object
    }
}
