//! YAML: bodies as JSON trees, as the real server's library reads them, with limits; and trees as YAML.
//!
//! ```text
//!   bytes ─► events ─► tree (aliases filled in, `<<` merged, plain words taken for what YAML 1.1 takes them)
//!                └────► what is wrong, in that library's words
//! ```
//!
//! A YAML text of a few kilobytes can stand for any amount of data (an alias repeats what its anchor holds). What a body
//! becomes may be ten times as large as the body, and no deeper than any other document ([`crate::depth`]).

mod problem;
mod words;
mod write;

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Value};

pub(crate) use write::{item, to_text};

use crate::depth;

/// How much a body may become, in nodes and bytes of text, for each of its own bytes.
const GROWTH: usize = 10;

/// What any body may become, however small it is.
const LEAST: usize = 64 * 1024;

/// The first document of a body, and where it has a key twice; or why it is none.
pub(crate) fn read(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = problem::as_text(body)?;
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.emit_unresolved_aliases = true;
    // The parser does not recurse; the tree that is built from its events is checked.
    options.flow_nesting_limit = depth::MAX + 1;
    options.block_nesting_limit = depth::MAX + 1;
    let mut tree = Tree {
        events: Parser::new_from_str_with_options(text, options),
        text,
        anchors: HashMap::new(),
        lines: HashMap::new(),
        budget: LEAST + text.len().saturating_mul(GROWTH),
        twice: Vec::new(),
    };
    let value = tree.document()?;
    Ok((value, tree.twice))
}

/// Keys that are there twice, as one refusal.
pub(crate) fn strictly(twice: &[String]) -> String {
    format!("yaml: unmarshal errors:\n  {}", twice.join("\n  "))
}

/// The line of each value of a map.
type Lines = HashMap<String, usize>;

/// Builds a tree as long as the budget lasts.
struct Tree<'a> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
    /// By the parser's number for each.
    anchors: HashMap<usize, Value>,
    /// Where the values of an anchored map stand, for those who merge it.
    lines: HashMap<usize, Lines>,
    budget: usize,
    /// Keys that a map has already.
    twice: Vec<String>,
}

impl<'a> Tree<'a> {
    fn document(&mut self) -> Result<Value, String> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd, _) => return Ok(Value::Null),
                (event, span) => {
                    let value = self.node(event, span, 0)?;
                    // What comes after the first document is not read, but the document must end well.
                    self.next()?;
                    return Ok(value);
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(problem::in_go(self.text, &error)),
            None => Err("yaml: attempted to go past the end of stream; corrupted value?".to_owned()),
        }
    }

    fn spend(&mut self, cost: usize) -> Result<(), String> {
        let left = self.budget.checked_sub(cost);
        self.budget = left.ok_or("yaml: document contains excessive aliasing")?;
        Ok(())
    }

    /// The value that begins with an event.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Value, String> {
        let depth = match event {
            Event::SequenceStart(..) | Event::MappingStart(..) => within(depth + 1)?,
            _ => depth,
        };
        self.spend(1)?;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.spend(text.len())?;
                (anchor, scalar(&text, style, tag.as_deref())?)
            }
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
                let value = value.clone();
                self.spend(size(&value))?;
                within(depth + depth::of_value(&value))?;
                (0, value)
            }
            Event::UnresolvedAlias(name) => return Err(format!("yaml: unknown anchor '{name}' referenced")),
            _ => return Err("yaml: unknown problem parsing YAML content".to_owned()),
        };
        if anchor != 0 {
            self.spend(size(&value))?;
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
            let key = words::key(&key, &value)?;
            lines.insert(key.clone(), line);
            self.set(&mut fields, key, value, line);
        }
    }

    /// `<<`: the fields of another map, or of several, the first of which wins.
    fn merge(&mut self, fields: &mut Map<String, Value>, depth: usize) -> Result<(), String> {
        let mut maps = Vec::new();
        match self.next()? {
            (Event::SequenceStart(_, 0, _), _) => loop {
                match self.next()? {
                    (Event::SequenceEnd, _) => break,
                    (event, span) => maps.push(self.merged(event, span, depth)?),
                }
            },
            (event, span) => maps.push(self.merged(event, span, depth)?),
        }
        for (map, lines) in maps.into_iter().rev() {
            for (key, value) in map {
                let line = lines.get(&key).copied().unwrap_or_default();
                self.set(fields, key, value, line);
            }
        }
        Ok(())
    }

    fn merged(
        &mut self,
        event: Event<'a>,
        span: Span,
        depth: usize,
    ) -> Result<(Map<String, Value>, Lines), String> {
        const WRONG: &str = "yaml: map merge requires map or sequence of maps as the value";
        match event {
            Event::MappingStart(_, 0, _) => {
                let depth = within(depth + 1)?;
                self.mapping(depth)
            }
            Event::Alias(id) => {
                let lines = self.lines.get(&id).cloned().unwrap_or_default();
                match self.node(event, span, depth)? {
                    Value::Object(map) => Ok((map, lines)),
                    _ => Err(WRONG.to_owned()),
                }
            }
            _ => Err(WRONG.to_owned()),
        }
    }

    /// The last of two values for one key counts.
    fn set(&mut self, fields: &mut Map<String, Value>, key: String, value: Value, line: usize) {
        /// Whoever repeats more keys than these has been told enough.
        const TOLD: usize = 100;
        if fields.contains_key(&key) && self.twice.len() < TOLD {
            self.twice
                .push(format!("line {line}: key {key:?} already set in map"));
        }
        fields.insert(key, value);
    }
}

/// Passes a depth, if a document may have it.
fn within(depth: usize) -> Result<usize, String> {
    let refuse = |_| format!("yaml: exceeded max depth of {}", depth::MAX);
    depth::check(depth).map(|()| depth).map_err(refuse)
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    match tag {
        None if style == ScalarStyle::Plain => words::resolve("", text),
        None => Ok(text.into()),
        Some(tag) => match tag.suffix_in_namespace("tag:yaml.org,2002:") {
            Some(suffix) => words::resolve(&suffix, text),
            None => Ok(text.into()),
        },
    }
}

/// What a value costs that is there once more.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + size(value)).sum(),
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
    fn a_body_reads_as_the_json_that_it_stands_for() {
        let yaml = "a: 1\nb: [x, 'y', 1.5, null, true]\nc: &c {d: e}\nf: *c\n'4': -2\n";
        let json =
            json!({"a": 1, "b": ["x", "y", 1.5, null, true], "c": {"d": "e"}, "f": {"d": "e"}, "4": -2});
        assert_eq!(decode(yaml), Ok(json));
        assert_eq!(decode(""), Ok(Value::Null));
        assert_eq!(decode("a: 1\n---\na: [\n"), Ok(json!({"a": 1})));
    }

    #[test]
    fn a_merge_fills_in_and_the_first_of_several_wins() {
        let yaml = "a: &a {p: 1, q: 1}\nb: &b {q: 2, r: 2}\nc: {<<: *a, p: 3}\nd: {<<: [*a, *b]}\n";
        let value = decode(yaml).expect("YAML");
        assert_eq!(value["c"], json!({"p": 3, "q": 1}));
        assert_eq!(value["d"], json!({"p": 1, "q": 1, "r": 2}));
        assert!(decode("a: {<<: 1}").unwrap_err().contains("map merge requires"));
    }

    #[test]
    fn the_last_of_two_keys_counts_and_its_line_is_named() {
        let (value, twice) = read(b"a: 1\nb: 2\na: 3\n").expect("YAML");
        assert_eq!(value, json!({"a": 3, "b": 2}));
        assert_eq!(twice, ["line 3: key \"a\" already set in map"]);
    }

    #[test]
    fn an_alias_may_repeat_a_little_and_not_without_end() {
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

    #[test]
    fn brackets_nest_to_a_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(decode(&nested(100)).is_ok());
        assert!(decode(&nested(500_000)).is_err());
    }

    /// A number that is written with an exponent is a float in JSON; Go makes JSON of YAML first, and writes one without a
    /// fraction as an integer.
    fn as_go_writes(value: Value) -> Value {
        match value {
            Value::Number(number) if number.is_f64() => {
                let float = number.as_f64().expect("it is one");
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
        fn what_json_can_say_yaml_says_too(text in "[a-z0-9 \\[\\]{}:,\"-]{0,40}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(decode(&text).map(as_go_writes), Ok(as_go_writes(value)));
            }
        }
    }

    #[test]
    fn an_exponent_makes_no_float_of_a_whole_number() {
        for text in ["0e0", "[0e0, 1e2]", "{\"a\": 5e1}"] {
            let json = serde_json::from_str::<Value>(text).expect("JSON");
            assert_eq!(decode(text).map(as_go_writes), Ok(as_go_writes(json)), "{text}");
        }
    }
}
