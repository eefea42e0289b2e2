//! A strict parser of the Prometheus text format: anything unknown is an error.
//!
//! Rules: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::{BTreeMap, HashSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

pub(crate) struct Family {
    pub(crate) kind: Kind,
    pub(crate) samples: Vec<Sample>,
}

pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Parses the families by name. Panics with the offending line.
pub(crate) fn parse(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line has an end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut series = HashSet::new();
    let mut helped = None;
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
            assert!(!help.is_empty(), "{line}");
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
            assert_eq!(helped.take().as_deref(), Some(name), "help comes first: {line}");
            let kind = match kind {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                "histogram" => Kind::Histogram,
                _ => panic!("unknown type: {line}"),
            };
            let family = Family {
                kind,
                samples: Vec::new(),
            };
            assert!(
                families.insert(name.to_owned(), family).is_none(),
                "twice: {line}"
            );
            name.clone_into(&mut current);
        } else {
            assert!(!line.starts_with('#'), "an unknown comment: {line}");
            let sample = Sample::parse(line);
            let family = families
                .get_mut(&current)
                .unwrap_or_else(|| panic!("no family: {line}"));
            let suffix = sample
                .name
                .strip_prefix(&*current)
                .unwrap_or_else(|| panic!("in {current}: {line}"));
            match family.kind {
                // OpenMetrics names the family without the suffix.
                Kind::Counter => {
                    assert!(
                        suffix == "_total" || current.ends_with("_total") && suffix.is_empty(),
                        "{line}"
                    );
                }
                Kind::Gauge => assert_eq!(suffix, "", "{line}"),
                Kind::Histogram => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
            }
            assert!(
                series.insert((sample.name.clone(), sample.labels.clone())),
                "twice: {line}"
            );
            family.samples.push(sample);
        }
    }
    for (name, family) in &families {
        assert!(!family.samples.is_empty(), "{name} has no series");
        if family.kind == Kind::Histogram {
            check_histogram(name, &family.samples);
        }
    }
    families
}

/// For each label set, bounds and counts ascend, and the last bucket equals the count.
fn check_histogram(name: &str, samples: &[Sample]) {
    let mut groups: BTreeMap<BTreeMap<String, String>, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        groups.entry(labels).or_default().push(sample);
    }
    for (labels, samples) in groups {
        let buckets: Vec<_> = samples
            .iter()
            .filter_map(|sample| Some((number(sample.labels.get("le")?), sample.value)))
            .collect();
        assert!(
            buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{name} {labels:?}: {buckets:?}"
        );
        let (bound, all) = *buckets.last().expect("a bucket");
        assert!(bound.is_infinite(), "{name} {labels:?}");
        let count = samples.iter().find(|sample| sample.name.ends_with("_count"));
        assert!(
            (count.expect("a count").value - all).abs() < f64::EPSILON,
            "{name} {labels:?}"
        );
    }
}

impl Sample {
    fn parse(line: &str) -> Self {
        let end = line
            .find(['{', ' '])
            .unwrap_or_else(|| panic!("no value: {line}"));
        let name = line[..end].to_owned();
        assert!(is_name(&name), "{line}");
        let mut labels = BTreeMap::new();
        let mut rest = &line[end..];
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                let (label, after) = rest
                    .split_once("=\"")
                    .unwrap_or_else(|| panic!("no label: {line}"));
                assert!(is_name(label), "{line}");
                let (value, after) = quoted(after, line);
                assert!(labels.insert(label.to_owned(), value).is_none(), "twice: {line}");
                rest = after;
                match rest.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break,
                }
            }
            rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("no end: {line}"));
        }
        let value = rest
            .strip_prefix(' ')
            .unwrap_or_else(|| panic!("no value: {line}"));
        Self {
            name,
            labels,
            value: number(value),
        }
    }
}

/// The text up to the closing quote, and the rest.
fn quoted<'a>(text: &'a str, line: &str) -> (String, &'a str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next() {
            Some((at, '"')) => return (value, &text[at + 1..]),
            Some((_, '\\')) => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('\\' | '"'))) => escaped,
                _ => panic!("an unknown escape: {line}"),
            }),
            Some((_, other)) => value.push(other),
            None => panic!("an open quote: {line}"),
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|other| other.is_ascii_alphanumeric() || other == '_')
}

fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        _ => {
            assert!(
                text.starts_with(|first: char| first.is_ascii_digit() || first == '-'),
                "{text}"
            );
            text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
        }
    }
}
