//! Removes from outcomes what differs between any two servers, and nothing else.
//!
//! - UIDs become `U1`, `U2`, … in order of appearance, suffixes of generated names `G1`, …, cluster IPs `IP1`, …
//! - Resource versions of objects become their rank in the scenario, `R1`, `R2`, …, which keeps order and equality. The
//!   resource version of a list, bookmark or continue token becomes that of the newest object it can contain, because a
//!   real server's own writes advance it at any time.
//! - Times near now become `T` with their precision; times that the scenario wrote itself stay.
//! - `managedFields` are removed, unless the scenario is about them; then they are sorted by manager.
//! - `selfType` with a number, in errors of validation rules, becomes `selfType1`.
//! - Requests to webhooks whose order and number are unpredictable are sorted, without duplicates.
//! - The address of the resolver in errors of name resolution is removed.
//! - Ages in tables become `AGE`; tokens are decoded to their claims; random values of kubectl become `CHANCE`.
//!
//! Absent, null and empty stay different.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

use crate::{Scenario, run::group};

/// A time further from now than this was not created during the run.
const MAX_TIME_DISTANCE: SignedDuration = SignedDuration::from_hours(48);

/// Suffix of the scenarios' API groups; groups of other scenarios are ignored.
const SCENARIO_GROUP_SUFFIX: &str = ".example.com";

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant")
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d+))?(?:Z|[+-]\d\d:\d\d)"));
/// A time in a text of Go, as in warnings about managed fields.
static GO_TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC"));
static GENERATE_NAME: LazyLock<Regex> = LazyLock::new(|| pattern(r#"generateName"?: *"?([^"},\s]+)"#));
/// Hash of a schema document.
static HASH: LazyLock<Regex> = LazyLock::new(|| pattern("hash=[0-9A-F]+"));
/// The name of the type of `self` in errors of validation rules; its number depends on the time.
static SELF_TYPE: LazyLock<Regex> = LazyLock::new(|| pattern(r"selfType\d+"));
/// The resolver that a lookup asked.
static RESOLVER: LazyLock<Regex> = LazyLock::new(|| pattern(r"(dial tcp: lookup \S+) on \S+:53: "));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:\d+[smhdy])+$"));
static AGE_IN_TEXT: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(?:\d+m)?\d+s\b"));
static IP: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d+\.\d+\.\d+\.\d+$"));
static REVISION_LINE: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(resourceVersion"?: ")(\d+)"#));
/// Folder names and times in the output of diff.
static DIFF: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(LIVE|MERGED)-\d+|\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}"));
/// Prefix of kubectl's log lines: time and process.
static LOG: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ "));
/// Resource versions in messages.
static REVISION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(current: |in record \(|too old resource version: \d+ \()(\d+)"));

/// Normalises the outcomes of one run, so that they can be compared with those of another one.
pub fn normalise(scenario: &Scenario, outcomes: Vec<Value>) -> Vec<Value> {
    let mut normaliser = Normaliser {
        scenario,
        group: group(&scenario.name),
        now: Timestamp::now(),
        name_prefixes: name_prefixes(&scenario.text),
        uids: BTreeMap::new(),
        generated: BTreeMap::new(),
        addresses: BTreeMap::new(),
        revisions: Vec::new(),
    };
    let mut revisions = BTreeSet::new();
    for outcome in &outcomes {
        normaliser.collect(outcome, &mut revisions);
    }
    normaliser.revisions = revisions.into_iter().collect();
    outcomes
        .into_iter()
        .map(|outcome| sort_distinct(normaliser.replace("", outcome)))
        .collect()
}

/// Sorts the requests of an outcome that are recorded as a set.
fn sort_distinct(mut outcome: Value) -> Value {
    if let Some(Value::Array(requests)) = outcome.get_mut("distinct") {
        requests.sort_by_cached_key(Value::to_string);
        requests.dedup();
    }
    outcome
}

/// The replacements of one scenario.
struct Normaliser<'a> {
    scenario: &'a Scenario,
    group: String,
    now: Timestamp,
    /// Prefixes of generated names, with a pattern for each.
    name_prefixes: Vec<(String, Regex)>,
    uids: BTreeMap<String, String>,
    generated: BTreeMap<String, String>,
    addresses: BTreeMap<String, String>,
    /// Resource versions of objects, ascending.
    revisions: Vec<u64>,
}

impl Normaliser<'_> {
    fn collect(&mut self, value: &Value, revisions: &mut BTreeSet<u64>) {
        match value {
            Value::String(text) => {
                for found in UID.find_iter(text) {
                    number(&mut self.uids, found.as_str(), "U");
                }
                self.collect_generated(text);
            }
            Value::Array(items) => {
                for item in items {
                    self.collect(item, revisions);
                }
            }
            Value::Object(fields) => {
                if let Some(metadata) = fields.get("metadata") {
                    revisions.extend(revision_of_object(metadata));
                }
                for key in ["clusterIP", "clusterIPs"] {
                    self.collect_addresses(fields.get(key).unwrap_or(&Value::Null));
                }
                // The numbering must not depend on the order of a server's keys.
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                for (key, value) in sorted {
                    if key != "managedFields" || self.scenario.managed {
                        self.collect(value, revisions);
                    }
                }
            }
            _ => {}
        }
    }

    /// Collects generated names from any text: the name of a rejected object occurs only in the message.
    fn collect_generated(&mut self, text: &str) {
        for (base, pattern) in &self.name_prefixes {
            for found in pattern.find_iter(text) {
                if !self.generated.contains_key(found.as_str()) {
                    let replacement = format!("{base}G{}", self.generated.len() + 1);
                    self.generated.insert(found.as_str().to_owned(), replacement);
                }
            }
        }
    }

    fn collect_addresses(&mut self, value: &Value) {
        match value {
            Value::String(text) if IP.is_match(text) => number(&mut self.addresses, text, "IP"),
            Value::Array(items) => items.iter().for_each(|item| self.collect_addresses(item)),
            _ => {}
        }
    }

    fn replace(&self, key: &str, value: Value) -> Value {
        match value {
            Value::String(text) => self.replace_text(key, &text),
            Value::Number(_) if key == "nodePort" || key == "healthCheckNodePort" => "PORT".into(),
            Value::Array(items) => items
                .into_iter()
                .filter(|item| !self.is_foreign(item))
                .map(|item| match key {
                    "cells" if item.as_str().is_some_and(|cell| AGE.is_match(cell)) => "AGE".into(),
                    "stdout" | "stderr" => self.replace_line(item),
                    "columnDefinitions" => self.replace(key, self.without_descriptions(item)),
                    _ => self.replace(key, item),
                })
                .collect(),
            // The last part of a pointer too, for picked parts of requests.
            Value::Object(fields) if key.rsplit('/').next() == Some("metadata") => {
                self.replace_metadata(fields)
            }
            Value::Object(_) if key == "picked" => self.replace("", self.without_descriptions(value)),
            Value::Object(fields) => self.replace_fields(fields),
            other => other,
        }
    }

    fn replace_fields(&self, fields: Map<String, Value>) -> Value {
        let is_schema = fields.contains_key("openapi");
        // An operation of a JSON patch.
        let is_revision = fields
            .get("path")
            .is_some_and(|path| path == "/metadata/resourceVersion");
        let fields = fields
            .into_iter()
            .filter(|(key, _)| !self.is_foreign_name(key))
            .map(|(key, value)| {
                let value = if is_schema {
                    self.without_descriptions(value)
                } else {
                    value
                };
                let name = self.replace_names(&key);
                match value {
                    Value::String(text) if is_revision && key == "value" => {
                        (name, self.revision(&text, true))
                    }
                    value => (name, self.replace(&key, value)),
                }
            });
        Value::Object(fields.collect())
    }

    fn replace_metadata(&self, mut fields: Map<String, Value>) -> Value {
        if !self.scenario.managed {
            fields.remove("managedFields");
        }
        if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
            // The server sorts them by time in seconds, which differs from run to run.
            entries.sort_by_cached_key(|entry| {
                ["operation", "manager", "apiVersion", "subresource"].map(|key| entry[key].to_string())
            });
        }
        let is_object = fields.contains_key("uid");
        let mut replaced = Map::new();
        for (key, value) in fields {
            let value = match (key.as_str(), &value) {
                ("resourceVersion", Value::String(text)) => self.revision(text, is_object),
                ("continue", Value::String(token)) => self.token(token),
                _ => self.replace(&key, value),
            };
            replaced.insert(key, value);
        }
        Value::Object(replaced)
    }

    fn replace_text(&self, key: &str, text: &str) -> Value {
        match key {
            "resourceVersion" => return self.revision(text, false),
            "serverAddress" => return "ADDRESS".into(),
            // kubectl randomises the timeouts of its watches.
            "timeoutSeconds" => return "CHANCE".into(),
            "token" => return self.claims(text),
            _ => {}
        }
        let replaced = self.replace_names(&self.replace_quoted(text));
        let replaced = REVISION.replace_all(&replaced, |found: &Captures<'_>| {
            format!("{}{}", &found[1], self.rank(&found[2]))
        });
        Value::String(replaced.into_owned())
    }

    /// Normalises whole objects that messages quote as JSON; the order of their keys does not matter.
    fn replace_quoted(&self, text: &str) -> String {
        let Some(start) = text.find(r#""{\""#) else {
            return text.to_owned();
        };
        let mut literals = serde_json::Deserializer::from_str(&text[start..]).into_iter::<String>();
        let Some(Ok(literal)) = literals.next() else {
            return text.to_owned();
        };
        let end = start + literals.byte_offset();
        match serde_json::from_str::<Value>(&literal) {
            Ok(object) => {
                let object = self.replace("", object).to_string();
                let quoted = Value::String(object).to_string();
                format!("{}{quoted}{}", &text[..start], self.replace_quoted(&text[end..]))
            }
            Err(_) => text.to_owned(),
        }
    }

    /// Normalises a line of kubectl's output; its tables contain ages too.
    fn replace_line(&self, line: Value) -> Value {
        match line {
            Value::String(text) => {
                let text = self.replace_names(&text);
                let text = REVISION_LINE.replace_all(&text, |found: &Captures<'_>| {
                    format!("{}{}", &found[1], self.rank(&found[2]))
                });
                let text = DIFF.replace_all(&text, "$1");
                let text = LOG.replace(&text, "$1 ");
                AGE_IN_TEXT.replace_all(&text, "AGE").into_owned().into()
            }
            other => other,
        }
    }

    fn replace_names(&self, text: &str) -> String {
        let replaced = UID.replace_all(text, |found: &Captures<'_>| {
            self.uids.get(&found[0]).unwrap_or(&found[0].to_owned()).clone()
        });
        let replaced = TIME.replace_all(&replaced, |found: &Captures<'_>| self.time(found));
        let replaced = GO_TIME.replace_all(&replaced, "T");
        let replaced = HASH.replace_all(&replaced, "hash=HASH");
        let replaced = SELF_TYPE.replace_all(&replaced, "selfType1");
        let replaced = RESOLVER.replace_all(&replaced, "$1: ");
        let mut replaced = replaced.into_owned();
        // The longest first: an address such as 10.0.0.5 is also the beginning of 10.0.0.54.
        let mut names: Vec<_> = self.generated.iter().chain(&self.addresses).collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, replacement) in names {
            if replaced.contains(name.as_str()) {
                replaced = replaced.replace(name.as_str(), replacement);
            }
        }
        replaced
    }

    fn time(&self, found: &Captures<'_>) -> String {
        let near = found[0]
            .parse::<Timestamp>()
            .is_ok_and(|time| time.duration_since(self.now).abs() < MAX_TIME_DISTANCE);
        match (near, found.get(1).map(|digits| digits.len())) {
            (false, _) => found[0].to_owned(),
            (true, None) => "T".to_owned(),
            (true, Some(6)) => "T.micro".to_owned(),
            (true, Some(digits)) => format!("T.{digits}"),
        }
    }

    /// Values that are not a real resource version, such as `0` and the empty string, stay.
    fn revision(&self, text: &str, is_object: bool) -> Value {
        match text.parse::<u64>() {
            Ok(1..) if is_object => self.rank(text).into(),
            Ok(revision) if revision >= self.revisions.first().copied().unwrap_or(1) => {
                self.rank(text).into()
            }
            Ok(1..) => "R0".into(),
            _ => text.into(),
        }
    }

    /// Returns the number of object resource versions up to this one.
    fn rank(&self, text: &str) -> String {
        let revision = text.parse().unwrap_or(0);
        format!("R{}", self.revisions.partition_point(|known| *known <= revision))
    }

    /// Decodes tokens of the server; tokens from the scenario stay.
    fn token(&self, token: &str) -> Value {
        let opened = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        match opened {
            Some(Value::Object(mut fields)) => {
                if let Some(revision) = fields.get("rv").and_then(Value::as_i64).filter(|rv| *rv > 0) {
                    fields.insert("rv".to_owned(), self.rank(&revision.to_string()).into());
                }
                // A leading slash only shows whether the page came from the watch cache or from etcd.
                if let Some(Value::String(start)) = fields.get_mut("start") {
                    *start = start.trim_start_matches('/').to_owned();
                }
                self.replace_fields(fields)
            }
            _ => token.into(),
        }
    }

    /// Returns the claims of a signed token, without its signature.
    fn claims(&self, token: &str) -> Value {
        let opened = token
            .split('.')
            .nth(1)
            .and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok())
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let Some(Value::Object(mut claims)) = opened else {
            return token.into();
        };
        if let Some(time) = claims
            .get_mut("kubernetes.io")
            .and_then(|about| about.get_mut("warnafter"))
        {
            *time = "T".into();
        }
        for (key, replacement) in [("exp", "T"), ("iat", "T"), ("nbf", "T"), ("jti", "UNIQUE")] {
            if let Some(value) = claims.get_mut(key) {
                *value = replacement.into();
            }
        }
        self.replace_fields(claims)
    }

    /// Removes descriptions of built-in kinds, columns and schemas, whose text is not ours to ship. Descriptions
    /// written in the scenario stay, and so do those derived from it.
    fn without_descriptions(&self, value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let kept = fields.into_iter().filter(|(key, value)| {
                    key != "description"
                        || value.as_str().is_none_or(|text| {
                            !text.is_empty() && self.scenario.text.contains(text)
                                || text.starts_with("Custom resource definition")
                        })
                });
                Value::Object(
                    kept.map(|(key, value)| (key, self.without_descriptions(value)))
                        .collect(),
                )
            }
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.without_descriptions(item))
                .collect(),
            other => other,
        }
    }

    /// Whether a discovery entry belongs to another scenario on the same server.
    fn is_foreign(&self, item: &Value) -> bool {
        let name = match item {
            Value::String(path) if path.starts_with('/') => Some(path.as_str()),
            Value::Object(fields) if fields.contains_key("versions") => item["metadata"]["name"]
                .as_str()
                .or_else(|| item["name"].as_str()),
            _ => None,
        };
        name.is_some_and(|name| self.is_foreign_name(name))
    }

    fn is_foreign_name(&self, name: &str) -> bool {
        name.contains(SCENARIO_GROUP_SUFFIX) && !name.contains(&self.group)
    }
}

/// Returns the resource version of an object. Objects have a UID; lists and bookmarks do not.
fn revision_of_object(metadata: &Value) -> Option<u64> {
    let revision = metadata["resourceVersion"].as_str()?;
    metadata["uid"].as_str().and(revision.parse().ok())
}

/// Returns the scenario's `generateName` prefixes, truncated so that names stay within 63 characters.
fn name_prefixes(text: &str) -> Vec<(String, Regex)> {
    let cut = |base: String| {
        let base = base.get(..58).unwrap_or(&base).to_owned();
        let looks = pattern(&format!(
            r"{}[bcdfghjklmnpqrstvwxz2456789]{{5}}\b",
            regex::escape(&base)
        ));
        (base, looks)
    };
    let own = GENERATE_NAME.captures_iter(text).map(|found| found[1].to_owned());
    // The service account volume that admission adds to pods.
    own.chain(["kube-api-access-".to_owned()]).map(cut).collect()
}

fn number(names: &mut BTreeMap<String, String>, text: &str, letter: &str) {
    if !names.contains_key(text) {
        names.insert(text.to_owned(), format!("{letter}{}", names.len() + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn normalised(text: &str, outcomes: Value) -> Value {
        let text = format!("about: a test\nsteps: []\n# {text}\n");
        let scenario = Scenario::parse("s", text).expect("a scenario");
        let Value::Array(outcomes) = outcomes else {
            panic!("a list");
        };
        normalise(&scenario, outcomes).into()
    }

    #[test]
    fn address_that_begins_another_is_not_replaced_in_it() {
        let outcomes = json!([
            {"spec": {"clusterIP": "10.0.0.5"}},
            {"spec": {"clusterIP": "10.0.0.54"}},
            {"message": "10.0.0.54 and 10.0.0.5 are allocated"}
        ]);
        let replaced = normalised("", outcomes);
        assert_eq!(replaced[2]["message"], "IP2 and IP1 are allocated");
    }

    #[test]
    fn revisions_keep_their_order_and_equality() {
        let uid = "11111111-1111-1111-1111-111111111111";
        let object = |revision: &str| json!({"metadata": {"uid": uid, "resourceVersion": revision}});
        let list = |revision: &str| json!({"metadata": {"resourceVersion": revision}});
        let outcomes = json!([
            object("100"),
            object("90"),
            object("100"),
            list("95"),
            list("70"),
            list("0"),
            list("")
        ]);
        let revisions: Vec<_> = normalised("", outcomes)
            .as_array()
            .expect("a list")
            .iter()
            .map(|outcome| outcome["metadata"]["resourceVersion"].clone())
            .collect();
        assert_eq!(json!(revisions), json!(["R2", "R1", "R2", "R1", "R0", "0", ""]));
    }

    #[test]
    fn only_times_near_now_are_replaced_keeping_their_precision() {
        let now = Timestamp::now();
        let second = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let micro = now.strftime("%Y-%m-%dT%H:%M:%S.000001Z").to_string();
        let outcomes =
            json!([{"a": second, "b": micro, "c": "2020-01-01T00:00:00Z", "d": format!("at {second}!")}]);
        let expected = json!([{"a": "T", "b": "T.micro", "c": "2020-01-01T00:00:00Z", "d": "at T!"}]);
        assert_eq!(normalised("", outcomes), expected);
    }

    #[test]
    fn generated_names_are_numbered_everywhere() {
        let outcomes = json!([{"metadata": {"name": "gen-bcdfg"}}, {"message": "x \"gen-bcdfg\" and gen-xxxxx, not gen-other-things"}]);
        let expected = json!([{"metadata": {"name": "gen-G1"}}, {"message": "x \"gen-G1\" and gen-G2, not gen-other-things"}]);
        assert_eq!(normalised("generateName: gen-", outcomes), expected);
    }

    #[test]
    fn server_descriptions_are_removed_and_scenario_descriptions_stay() {
        let column = |text: &str| json!([{"columnDefinitions": [{"name": "A", "description": text}]}]);
        let without = json!([{"columnDefinitions": [{"name": "A"}]}]);
        assert_eq!(normalised("how many", column("Long prose.")), without);
        assert_eq!(normalised("how many", column("")), without);
        assert_eq!(normalised("how many", column("how many")), column("how many"));
        let elsewhere = json!([{"description": "data, not prose"}]);
        assert_eq!(normalised("", elsewhere.clone()), elsewhere);
    }

    #[test]
    fn object_quoted_in_a_message_is_normalised() {
        let quoted = |text: &str| json!([{"message": format!("patch: {}: no", Value::from(text))}]);
        let a = quoted(r#"{"b":1,"a":2,"metadata":{"managedFields":[]}}"#);
        let b = quoted(r#"{"metadata":{},"a":2,"b":1}"#);
        assert_eq!(normalised("", a), normalised("", b.clone()));
        assert_ne!(normalised("", quoted(r#"{"a":2}"#)), normalised("", b));
    }

    #[test]
    fn distinct_requests_are_sorted_without_duplicates() {
        let uid = |n: usize| format!("11111111-1111-1111-1111-11111111111{n}");
        let outcomes = json!([{"a": uid(1), "b": uid(2)}, {"distinct": [uid(2), uid(1), uid(2)]}]);
        assert_eq!(
            normalised("", outcomes),
            json!([{"a": "U1", "b": "U2"}, {"distinct": ["U1", "U2"]}])
        );
    }

    #[test]
    fn continue_tokens_are_decoded() {
        let token = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"a"}"#);
        let outcomes = json!([{"metadata": {"continue": token}}, {"metadata": {"continue": "made-up"}}]);
        let expected = json!([
            {"metadata": {"continue": {"v": "meta.k8s.io/v1", "rv": "R0", "start": "a"}}},
            {"metadata": {"continue": "made-up"}},
        ]);
        assert_eq!(normalised("", outcomes), expected);
    }

    #[test]
    fn groups_of_other_scenarios_are_removed() {
        let group = |name: &str| json!({"name": name, "versions": []});
        let outcomes =
            json!([{"groups": [group("apps"), group("s.example.com"), group("other.example.com")]}]);
        let expected = json!([{"groups": [group("apps"), group("s.example.com")]}]);
        assert_eq!(normalised("", outcomes), expected);
    }
}
