//! The two text formats for scrapers.
//!
//! `prometheus_client` writes OpenMetrics. The older Prometheus text format is the default, as in controller-runtime. The
//! formats differ in names: in Prometheus text a counter's family has the suffix `_total`, and a bucket is `le="1"` rather
//! than `le="1.0"`, which may be another series. In each format, bounds are written as Go programs write them.

use std::fmt::Write as _;

use prometheus_client::registry::Registry;

/// Text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4: the default.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Negotiates the format from an `Accept` header: OpenMetrics if it is accepted and plain text is not preferred.
    ///
    /// ```
    /// use windlass_runtime::metrics::Format;
    ///
    /// assert_eq!(Format::accepted("*/*"), Format::Prometheus);
    /// assert_eq!(Format::accepted("application/openmetrics-text;version=1.0.0"), Format::OpenMetrics);
    /// ```
    pub fn accepted(accept: &str) -> Self {
        let weight = |wanted: &str| {
            accept
                .split(',')
                .map(|media| media.split(';').map(str::trim))
                .filter_map(|mut media| media.next().is_some_and(|name| name == wanted).then_some(media))
                .filter_map(|mut parameters| {
                    let weight = parameters.find_map(|parameter| parameter.strip_prefix("q="));
                    weight.map_or(Some(1.0), |weight| weight.parse().ok())
                })
                .fold(0.0, f64::max)
        };
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The `Content-Type` of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

pub(super) fn encode(registry: &Registry, format: Format) -> String {
    let mut text = String::new();
    // Writing to a String succeeds; only a user metric can fail, and the metrics before it are still useful.
    if prometheus_client::encoding::text::encode(&mut text, registry).is_err() {
        tracing::warn!("cannot encode a metric: it and those after it are missing");
    }
    match format {
        Format::OpenMetrics => open_metrics(&text),
        Format::Prometheus => prometheus(&text),
    }
}

/// The library's text, with bucket bounds as Go programs write them, because bounds are labels.
fn open_metrics(text: &str) -> String {
    let mut rewritten = String::with_capacity(text.len());
    for line in text.lines() {
        // The library writes `le` first.
        let found = line
            .split_once("{le=\"")
            .filter(|(name, _)| !name.contains([' ', '{']))
            .and_then(|(name, rest)| Some((name, rest.split_once('"')?)));
        let _ = match found {
            Some((name, (le, rest))) => {
                let mut le = bound(le);
                if !le.contains(['.', 'e', 'I']) {
                    le.push_str(".0");
                }
                writeln!(rewritten, "{name}{{le=\"{le}\"{rest}")
            }
            None => writeln!(rewritten, "{line}"),
        };
    }
    rewritten
}

/// Converts OpenMetrics to Prometheus text, with families, series and labels sorted by name.
fn prometheus(open_metrics: &str) -> String {
    let mut families = families(open_metrics);
    families.sort_by_key(|family| family.name);
    let mut text = String::with_capacity(open_metrics.len());
    for family in families {
        family.write(&mut text);
    }
    text
}

/// Parses OpenMetrics, as the library and `open_metrics` write it.
pub(crate) fn families(open_metrics: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            families.push(Family {
                name,
                help,
                kind: "unknown",
                series: Vec::new(),
            });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            if let (Some(family), Some((_, kind))) = (families.last_mut(), rest.split_once(' ')) {
                family.kind = kind;
            }
        } else if !line.starts_with('#')
            && let Some(sample) = Sample::parse(line)
            && let Some(family) = families.last_mut()
        {
            family.series.push(sample);
        }
    }
    families
}

/// A metric, without the suffixes of its samples.
pub(crate) struct Family<'a> {
    pub(crate) name: &'a str,
    /// Escaped, as the values of labels.
    pub(crate) help: &'a str,
    /// In the words of OpenMetrics.
    pub(crate) kind: &'a str,
    pub(crate) series: Vec<Sample<'a>>,
}

impl Family<'_> {
    fn write(mut self, text: &mut String) {
        // Prometheus text has fewer types.
        let (suffix, kind) = match self.kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            "gauge" | "histogram" | "summary" => ("", self.kind),
            "stateset" => ("", "gauge"),
            _ => ("", "untyped"),
        };
        let name = self.name;
        let _ = writeln!(text, "# HELP {name}{suffix} {}", self.help);
        let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        // The sort is stable, so a histogram's buckets keep their order.
        self.series.sort_by(|a, b| a.labels.cmp(&b.labels));
        for sample in self.series {
            sample.write(text);
        }
    }
}

pub(crate) struct Sample<'a> {
    pub(crate) name: &'a str,
    /// Sorted by name, without `le`. Values are still escaped; both formats escape alike.
    pub(crate) labels: Vec<(&'a str, &'a str)>,
    pub(crate) le: Option<&'a str>,
    pub(crate) value: &'a str,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        let mut le = None;
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (label, value) = rest.split_once("=\"")?;
                let end = closing_quote(value)?;
                match label {
                    "le" => le = Some(&value[..end]),
                    _ => labels.push((label, &value[..end])),
                }
                rest = &value[end + 1..];
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            rest = &rest[1..];
        }
        labels.sort_unstable();
        Some(Self {
            name,
            labels,
            le,
            // A timestamp or an exemplar may follow.
            value: rest.split_whitespace().next()?,
        })
    }

    fn write(&self, text: &mut String) {
        text.push_str(self.name);
        let le = self.le.map(bound);
        let labels = self.labels.iter().copied();
        for (index, (label, value)) in labels.chain(le.as_deref().map(|le| ("le", le))).enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(text, "{before}{label}=\"{value}\"");
        }
        if !self.labels.is_empty() || self.le.is_some() {
            text.push('}');
        }
        let value = match self.value {
            "inf" => "+Inf",
            "-inf" => "-Inf",
            // Whole numbers have no fraction.
            value => value.strip_suffix(".0").unwrap_or(value),
        };
        let _ = writeln!(text, " {value}");
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// A bucket's bound in Go's notation. It is a label, so `1` and `1.0` would be two series.
fn bound(le: &str) -> String {
    let Ok(number) = le.parse::<f64>() else {
        return le.to_owned();
    };
    if number.is_infinite() {
        return "+Inf".to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        // Go's shortest form: below 1e-4 and from 1e6 on, an exponent with a sign and two digits.
        Ok(exponent) if !(-4..6).contains(&exponent) => format!("{digits}e{exponent:+03}"),
        _ => number.to_string(),
    }
}
