//! Reads YAML bodies as JSON trees, like the real server's library but with limits; and writes trees as YAML.
//!
//! ```text
//!   bytes ─► events ─► tree (aliases expanded, `<<` merged, plain scalars resolved as in YAML 1.1)
//!                └────► errors, with that library's messages
//! ```
//!
//! A few kilobytes of YAML can expand to any amount of data, because an alias repeats the value of its anchor. So the
//! memory of what anchors and aliases copy is limited in proportion to the body ([`copy_cost`]); everything else is read
//! once, and takes as much as in JSON. Nothing nests deeper than any other document ([`crate::depth`]).

mod error;
mod scalars;
mod write;

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Value};

pub(crate) use write::{append_item, to_yaml};

use crate::depth;

/// Limit on the memory of all copies, in bytes per byte of the body. The densest JSON takes more than this.
const MAX_COPIED_PER_BYTE: usize = 64;

/// The memory of all copies that is allowed for any body, however small.
const MIN_COPIED: usize = 1024 * 1024;

/// Reads the first document of a body. Returns its value and the errors for duplicate keys, or why it is invalid.
pub(crate) fn read(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = error::to_utf8(body)?;
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.emit_unresolved_aliases = true;
    // The parser does not recurse; the depth is checked while building the tree.
    options.flow_nesting_limit = depth::MAX + 1;
    options.block_nesting_limit = depth::MAX + 1;
    let mut tree = TreeBuilder {
        events: Parser::new_from_str_with_options(text, options),
        text,
        anchors: HashMap::new(),
        lines: HashMap::new(),
        budget: MIN_COPIED + text.len().saturating_mul(MAX_COPIED_PER_BYTE),
        duplicates: Vec::new(),
    };
    let value = tree.document()?;
    Ok((value, tree.duplicates))
}

/// The error for duplicate keys in strict mode.
pub(crate) fn strict_error(twice: &[String]) -> String {
    format!("yaml: unmarshal errors:\n  {}", twice.join("\n  "))
}

/// The line of each value of a map.
type Lines = HashMap<String, usize>;

/// Builds a tree.
struct TreeBuilder<'a> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
    /// By the parser's anchor ID.
    anchors: HashMap<usize, Value>,
    /// The lines of the values of anchored maps, for merges.
    lines: HashMap<usize, Lines>,
    /// Bytes of memory that anchors and aliases may still copy.
    budget: usize,
    /// Errors for duplicate keys.
    duplicates: Vec<String>,
}

impl<'a> TreeBuilder<'a> {
    fn document(&mut self) -> Result<Value, String> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd, _) => return Ok(Value::Null),
                (event, span) => {
                    let value = self.node(event, span, 0)?;
                    // Further documents are ignored, but the first must end properly.
                    self.next()?;
                    return Ok(value);
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(error::go_error_message(self.text, &error)),
            None => Err("yaml: attempted to go past the end of stream; corrupted value?".to_owned()),
        }
    }

    /// Checks that a value may be copied.
    fn spend(budget: &mut usize, value: &Value) -> Result<(), String> {
        let left = budget.checked_sub(copy_cost(value));
        *budget = left.ok_or("yaml: document contains excessive aliasing")?;
        Ok(())
    }

    /// Builds the value that starts with an event.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Value, String> {
        let depth = match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => check_depth(depth + 1)?,
            _ => depth,
        };
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref())?),
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.node(event, span, depth)?),
                    }
                }
                (anchor, items.into())
            }
            Event::MappingStart(_, anchor, _) => {
                let (fields, lines) = self.mapping(depth)?;
                if anchor != 0 {
                    self.lines.insert(anchor, lines);
                }
                (anchor, fields.into())
            }
            Event::Alias(id) => {
                let name = span.slice(self.text).unwrap_or_default().trim_start_matches('*');
                let value = self
                    .anchors
                    .get(&id)
                    .ok_or_else(|| format!("yaml: anchor '{name}' value contains itself"))?;
                Self::spend(&mut self.budget, value)?;
                check_depth(depth + depth::of_value(value))?;
                (0, value.clone())
            }
            Event::UnresolvedAlias(name) => return Err(format!("yaml: unknown anchor '{name}' referenced")),
            _ => return Err("yaml: unknown problem parsing YAML content".to_owned()),
        };
        if anchor != 0 {
            Self::spend(&mut self.budget, &value)?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn mapping(&mut self, depth: usize) -> Result<(Map<String, Value>, Lines), String> {
        let mut fields = Map::new();
        let mut lines = Lines::new();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok((fields, lines)),
                Event::Scalar(text, ScalarStyle::Plain, 0, None) if text == "<<" => {
                    self.merge(&mut fields, depth)?;
                    continue;
                }
                event => self.node(event, span, depth)?,
            };
            let (event, span) = self.next()?;
            let line = span.start.line();
            let value = self.node(event, span, depth)?;
            let key = scalars::map_key(&key, &value)?;
            lines.insert(key.clone(), line);
            self.set(&mut fields, key, value, line);
        }
    }

    /// `<<`: merges the fields of one or several maps; the first map wins.
    fn merge(&mut self, fields: &mut Map<String, Value>, depth: usize) -> Result<(), String> {
        let mut maps = Vec::new();
        match self.next()? {
            (Event::SequenceStart(_, 0, _), _) => loop {
                match self.next()? {
                    (Event::SequenceEnd, _) => break,
                    (event, span) => maps.push(self.merge_source(event, span, depth)?),
                }
            },
            (event, span) => maps.push(self.merge_source(event, span, depth)?),
        }
        for (map, lines) in maps.into_iter().rev() {
            for (key, value) in map {
                let line = lines.get(&key).copied().unwrap_or_default();
                self.set(fields, key, value, line);
            }
        }
        Ok(())
    }

    fn merge_source(
        &mut self,
        event: Event<'a>,
        span: Span,
        depth: usize,
    ) -> Result<(Map<String, Value>, Lines), String> {
        const MERGE_ERROR: &str = "yaml: map merge requires map or sequence of maps as the value";
        match event {
            Event::MappingStart(_, 0, _) => {
                let depth = check_depth(depth + 1)?;
                self.mapping(depth)
            }
            Event::Alias(id) => {
                let lines = self.lines.get(&id).cloned().unwrap_or_default();
                match self.node(event, span, depth)? {
                    Value::Object(map) => Ok((map, lines)),
                    _ => Err(MERGE_ERROR.to_owned()),
                }
            }
            _ => Err(MERGE_ERROR.to_owned()),
        }
    }

    /// Sets a key; the last of several values wins.
    fn set(&mut self, fields: &mut Map<String, Value>, key: String, value: Value, line: usize) {
        /// Further duplicate keys are not reported.
        const MAX_REPORTED: usize = 100;
        if fields.contains_key(&key) && self.duplicates.len() < MAX_REPORTED {
            self.duplicates
                .push(format!("line {line}: key {key:?} already set in map"));
        }
        fields.insert(key, value);
    }
}

/// Checks a nesting depth and returns it.
fn check_depth(depth: usize) -> Result<usize, String> {
    let refuse = |_| format!("yaml: exceeded max depth of {}", depth::MAX);
    depth::check(depth).map(|()| depth).map_err(refuse)
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    match tag {
        None if style == ScalarStyle::Plain => scalars::resolve("", text),
        None => Ok(text.into()),
        Some(tag) => match tag.suffix_in_namespace("tag:yaml.org,2002:") {
            Some(suffix) => scalars::resolve(&suffix, text),
            None => Ok(text.into()),
        },
    }
}

/// The memory of a copy of a value in bytes, at most: a map's nodes have room for eleven entries, and at least five of
/// them are used, except in a small map.
fn copy_cost(value: &Value) -> usize {
    const MAP_NODE: usize = 640;
    const MAP_ENTRY: usize = 128;
    const TEXT: usize = 16;
    size_of::<Value>()
        + match value {
            Value::String(text) => TEXT + text.len(),
            Value::Array(items) => items.iter().map(copy_cost).sum(),
            Value::Object(fields) if fields.is_empty() => 0,
            Value::Object(fields) => {
                let entry = |(key, value): (&String, &Value)| MAP_ENTRY + TEXT + key.len() + copy_cost(value);
                MAP_NODE + fields.iter().map(entry).sum::<usize>()
            }
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn decode(text: &str) -> Result<Value, String> {
        read(text.as_bytes()).map(|(value, _)| value)
    }

    #[test]
    fn yaml_reads_as_the_equivalent_json() {
        let yaml = "a: 1\nb: [x, 'y', 1.5, null, true]\nc: &c {d: e}\nf: *c\n'4': -2\n";
        let json =
            json!({"a": 1, "b": ["x", "y", 1.5, null, true], "c": {"d": "e"}, "f": {"d": "e"}, "4": -2});
        assert_eq!(decode(yaml), Ok(json));
        assert_eq!(decode(""), Ok(Value::Null));
        assert_eq!(decode("a: 1\n---\na: [\n"), Ok(json!({"a": 1})));
    }

    #[test]
    fn merge_fills_in_and_the_first_map_wins() {
        let yaml = "a: &a {p: 1, q: 1}\nb: &b {q: 2, r: 2}\nc: {<<: *a, p: 3}\nd: {<<: [*a, *b]}\n";
        let value = decode(yaml).expect("YAML");
        assert_eq!(value["c"], json!({"p": 3, "q": 1}));
        assert_eq!(value["d"], json!({"p": 1, "q": 1, "r": 2}));
        assert!(decode("a: {<<: 1}").unwrap_err().contains("map merge requires"));
    }

    #[test]
    fn last_of_two_keys_wins_and_its_line_is_reported() {
        let (value, twice) = read(b"a: 1\nb: 2\na: 3\n").expect("YAML");
        assert_eq!(value, json!({"a": 3, "b": 2}));
        assert_eq!(twice, ["line 3: key \"a\" already set in map"]);
    }

    #[test]
    fn alias_expansion_is_limited() {
        let list = |aliases: usize| {
            format!(
                "a: &a [{}]\nb: [{}]\n",
                "x, ".repeat(1_000),
                "*a, ".repeat(aliases)
            )
        };
        assert!(decode(&list(10)).is_ok());
        assert!(decode(&list(1_000)).unwrap_err().contains("excessive aliasing"));
        assert!(decode("a: *b").unwrap_err().contains("unknown anchor 'b'"));
        assert!(decode("a: &a [*a]").unwrap_err().contains("contains itself"));
    }

    /// Maps with one entry take a hundred times as much memory as text.
    #[test]
    fn alias_of_nested_maps_is_limited_by_memory() {
        let nested = format!("{}1{}", "{\"\": ".repeat(30), "}".repeat(30));
        let body = |aliases: usize| format!("a: &a {nested}\nb: [{}]\n", "*a, ".repeat(aliases));
        assert!(decode(&body(20)).is_ok());
        // 400 MB in maps, but only 600,000 nodes.
        let body = body(20_000);
        assert!(decode(&body).unwrap_err().contains("excessive aliasing"));
    }

    #[test]
    fn cost_of_a_copy_is_at_least_its_memory() {
        // The nodes of a `BTreeMap`: eleven keys and values, a pointer, and two small numbers.
        let node = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
        assert!(copy_cost(&json!({"": null})) >= node + size_of::<Value>());
        let many: Map<_, _> = (0..1000).map(|index| (index.to_string(), Value::Null)).collect();
        // Entries that are inserted in order leave nodes half full.
        assert!(copy_cost(&many.into()) >= 1000 / 5 * node);
        assert!(copy_cost(&json!(["a", [], 1])) >= 4 * size_of::<Value>());
    }

    #[test]
    fn bracket_nesting_is_limited() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(decode(&nested(100)).is_ok());
        assert!(decode(&nested(500_000)).is_err());
    }

    /// JSON reads a number with an exponent as a float. Go first converts YAML to JSON, and writes whole floats as
    /// integers.
    fn as_go_writes(value: Value) -> Value {
        match value {
            Value::Number(number) if number.is_f64() => {
                let float = number.as_f64().expect("checked by the guard");
                let whole = format!("{float:.0}").parse::<i64>().ok();
                let whole = whole.filter(|_| float.fract() == 0.0 && float.abs() < 1e15);
                whole.map_or(Value::Number(number), Value::from)
            }
            Value::Array(items) => items.into_iter().map(as_go_writes).collect(),
            Value::Object(fields) => {
                let fields = fields
                    .into_iter()
                    .map(|(name, value)| (name, as_go_writes(value)));
                Value::Object(fields.collect())
            }
            other => other,
        }
    }

    proptest! {
        #[test]
        fn json_is_valid_yaml(text in "[a-z0-9 \\[\\]{}:,\"-]{0,40}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(decode(&text).map(as_go_writes), Ok(as_go_writes(value)));
            }
        }
    }

    #[test]
    fn whole_number_with_exponent_is_an_integer() {
        for text in ["0e0", "[0e0, 1e2]", "{\"a\": 5e1}"] {
            let json = serde_json::from_str::<Value>(text).expect("JSON");
            assert_eq!(decode(text).map(as_go_writes), Ok(as_go_writes(json)), "{text}");
        }
    }
}
