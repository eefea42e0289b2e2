//! The standard `OTEL_*` variables, checked strictly: a value that cannot be used is an error at the start.

use std::{str::FromStr, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use opentelemetry::KeyValue;
use opentelemetry_sdk::{
    Resource,
    resource::TelemetryResourceDetector,
    trace::{Sampler, ShouldSample},
};
use percent_encoding::percent_decode_str;

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The value of an environment variable is invalid.
    #[error("invalid {variable}: {reason}")]
    Variable {
        /// The variable.
        variable: String,
        /// What is wrong, and what would be valid. Never contains the value of a header.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS for the collector: {0}")]
    Tls(String),
}

/// What is exported: the two signals of OTLP that this crate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    /// As in `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
    fn in_variable(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }
}

/// Where a signal is sent.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) url: Uri,
    /// May contain credentials.
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
}

pub(super) struct Config {
    /// `None`: not exported.
    pub(super) traces: Option<Target>,
    pub(super) metrics: Option<Target>,
    pub(super) metric_interval: Duration,
    pub(super) sampler: Sampler,
    pub(super) resource: Resource,
}

/// The specification's defaults.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_METRIC_INTERVAL: Duration = Duration::from_mins(1);

impl Config {
    /// Reads the configuration; `None` if nothing is to be exported. Without an endpoint no other variable is looked at.
    pub(super) fn read(
        program: &str,
        get: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TelemetryError> {
        let variables = Variables { get };
        if variables.is_disabled()? {
            return Ok(None);
        }
        let traces = variables.target(Signal::Traces)?;
        let metrics = variables.target(Signal::Metrics)?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            traces,
            metrics,
            metric_interval: variables
                .milliseconds("OTEL_METRIC_EXPORT_INTERVAL")?
                .unwrap_or(DEFAULT_METRIC_INTERVAL),
            sampler: variables.sampler()?,
            resource: variables.resource(program)?,
        }))
    }
}

struct Variables<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

impl Variables<'_> {
    /// Returns the value; an empty one counts as unset.
    fn get(&self, variable: &str) -> Option<String> {
        let value = (self.get)(variable)?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// Returns the value and name of `OTEL_EXPORTER_OTLP_<SIGNAL>_<NAME>`, else of `OTEL_EXPORTER_OTLP_<NAME>`.
    fn of_signal(&self, signal: Signal, name: &str) -> Option<(String, String)> {
        let specific = format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.in_variable());
        let general = format!("OTEL_EXPORTER_OTLP_{name}");
        [specific, general]
            .into_iter()
            .find_map(|variable| Some((self.get(&variable)?, variable)))
    }

    fn is_disabled(&self) -> Result<bool, TelemetryError> {
        let variable = "OTEL_SDK_DISABLED";
        match self.get(variable) {
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
            Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
            Some(value) => Err(invalid(
                variable,
                format!("{value:?} is neither `true` nor `false`"),
            )),
        }
    }

    fn target(&self, signal: Signal) -> Result<Option<Target>, TelemetryError> {
        let Some((endpoint, variable)) = self.of_signal(signal, "ENDPOINT") else {
            return Ok(None);
        };
        let exporter = format!("OTEL_{}_EXPORTER", signal.in_variable());
        match self.get(&exporter).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                return Err(invalid(
                    &exporter,
                    format!("{other:?} is not supported: use `otlp` or `none`"),
                ));
            }
        }
        if let Some((protocol, variable)) = self.of_signal(signal, "PROTOCOL")
            && protocol != "http/protobuf"
        {
            return Err(invalid(
                &variable,
                format!(
                    "{protocol:?} is not supported: use `http/protobuf`, which collectors serve on port 4318"
                ),
            ));
        }
        let is_whole = variable.contains(signal.in_variable());
        let url = endpoint_url(&endpoint, (!is_whole).then_some(signal))
            .map_err(|reason| invalid(&variable, reason))?;
        let headers = match self.of_signal(signal, "HEADERS") {
            Some((list, variable)) => headers(&list).map_err(|reason| invalid(&variable, reason))?,
            None => HeaderMap::new(),
        };
        let timeout = match self.of_signal(signal, "TIMEOUT") {
            Some((_, variable)) => self.milliseconds(&variable)?,
            None => None,
        };
        Ok(Some(Target {
            url,
            headers,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        }))
    }

    fn milliseconds(&self, variable: &str) -> Result<Option<Duration>, TelemetryError> {
        let Some(value) = self.get(variable) else {
            return Ok(None);
        };
        match value.parse::<u32>() {
            Ok(milliseconds @ 1..) => Ok(Some(Duration::from_millis(milliseconds.into()))),
            _ => Err(invalid(
                variable,
                format!("{value:?} is not a positive number of milliseconds, such as `10000`"),
            )),
        }
    }

    fn sampler(&self) -> Result<Sampler, TelemetryError> {
        let variable = "OTEL_TRACES_SAMPLER";
        let name = self.get(variable);
        let name = name.as_deref().unwrap_or("parentbased_always_on");
        let (is_parent_based, root) = match name.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, name),
        };
        let root = match root {
            "always_on" => Sampler::AlwaysOn,
            "always_off" => Sampler::AlwaysOff,
            "traceidratio" => Sampler::TraceIdRatioBased(self.sampler_ratio()?),
            _ => {
                let known =
                    "`always_on`, `always_off` or `traceidratio`, each also with the prefix `parentbased_`";
                return Err(invalid(
                    variable,
                    format!("{name:?} is not supported: use {known}"),
                ));
            }
        };
        Ok(if is_parent_based {
            Sampler::ParentBased(Box::new(root) as Box<dyn ShouldSample>)
        } else {
            root
        })
    }

    fn sampler_ratio(&self) -> Result<f64, TelemetryError> {
        let variable = "OTEL_TRACES_SAMPLER_ARG";
        let Some(value) = self.get(variable) else {
            return Ok(1.0);
        };
        let ratio = value.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.ok_or_else(|| invalid(variable, format!("{value:?} is not a number from 0 to 1")))
    }

    /// The name of the service is `OTEL_SERVICE_NAME`, else `service.name` of `OTEL_RESOURCE_ATTRIBUTES`, else the program's.
    /// An instance ID tells the metrics of two replicas apart.
    fn resource(&self, program: &str) -> Result<Resource, TelemetryError> {
        let variable = "OTEL_RESOURCE_ATTRIBUTES";
        let list = self.get(variable).unwrap_or_default();
        let mut attributes = pairs(&list).map_err(|reason| invalid(variable, reason))?;
        if let Some(name) = self.get("OTEL_SERVICE_NAME") {
            attributes.push(("service.name".to_owned(), name));
        }
        Ok(Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_attribute(KeyValue::new("service.name", program.to_owned()))
            .with_attribute(KeyValue::new(
                "service.instance.id",
                uuid::Uuid::new_v4().to_string(),
            ))
            .with_attributes(
                attributes
                    .into_iter()
                    .map(|(key, value)| KeyValue::new(key, value)),
            )
            .build())
    }
}

fn invalid(variable: &str, reason: String) -> TelemetryError {
    TelemetryError::Variable {
        variable: variable.to_owned(),
        reason,
    }
}

/// Returns the URL that a signal is posted to. An endpoint for all signals gets the signal's path appended.
fn endpoint_url(endpoint: &str, append: Option<Signal>) -> Result<Uri, String> {
    let example = "write it as in `http://collector:4318`";
    // Not quoted before this check: it may be a password.
    if endpoint.contains('@') {
        return Err("a URL with credentials is not supported: use OTEL_EXPORTER_OTLP_HEADERS".to_owned());
    }
    let url =
        Uri::from_str(endpoint).map_err(|error| format!("{endpoint:?} is not a URL: {error}; {example}"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
        return Err(format!(
            "{endpoint:?} is not an http:// or https:// URL: {example}"
        ));
    }
    let Some(signal) = append else {
        return Ok(url);
    };
    if url.query().is_some() {
        return Err(format!(
            "{endpoint:?} has a query, so no path can be appended: set OTEL_EXPORTER_OTLP_{}_ENDPOINT instead",
            signal.in_variable()
        ));
    }
    let whole = format!("{}/v1/{}", endpoint.trim_end_matches('/'), signal.name());
    Uri::from_str(&whole).map_err(|error| format!("{endpoint:?} is not a URL: {error}; {example}"))
}

/// Parses `name=value,name=value`. Errors name headers, never their values.
fn headers(list: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(list)? {
        let header =
            HeaderName::from_str(&name).map_err(|_| format!("{name:?} is not the name of a header"))?;
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| format!("the value of {name:?} has characters that a header cannot have"))?;
        value.set_sensitive(true);
        headers.append(header, value);
    }
    Ok(headers)
}

/// Parses `key=value,key=value` with percent-encoded values, in the format of W3C baggage. Errors have no values.
fn pairs(list: &str) -> Result<Vec<(String, String)>, String> {
    let entries = list.split(',').map(str::trim).enumerate();
    entries
        .filter(|(_, entry)| !entry.is_empty())
        .map(|(index, entry)| {
            let Some((key, value)) = entry.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
                return Err(format!("entry {} is not of the form `key=value`", index + 1));
            };
            let value = percent_decode_str(value.trim())
                .decode_utf8()
                .map_err(|_| format!("the value of {:?} is not percent-encoded UTF-8", key.trim()))?;
            Ok((key.trim().to_owned(), value.into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

    fn read(variables: &[(&str, &str)]) -> Result<Option<Config>, String> {
        let get = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        Config::read("settings", &get).map_err(|error| error.to_string())
    }

    fn enabled(variables: &[(&str, &str)]) -> Config {
        let config = read(variables).unwrap_or_else(|error| panic!("{variables:?}: {error}"));
        config.unwrap_or_else(|| panic!("{variables:?}: nothing is exported"))
    }

    fn urls(variables: &[(&str, &str)]) -> [Option<String>; 2] {
        let config = enabled(variables);
        [config.traces, config.metrics].map(|target| Some(target?.url.to_string()))
    }

    #[test]
    fn nothing_is_exported_without_an_endpoint_or_when_disabled() {
        for variables in [
            &[][..],
            &[(ENDPOINT, " ")],
            &[
                ("OTEL_TRACES_SAMPLER", "odd"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ],
            &[(ENDPOINT, "http://a:4318"), ("OTEL_SDK_DISABLED", "True")],
            &[
                (ENDPOINT, "http://a:4318"),
                ("OTEL_TRACES_EXPORTER", "none"),
                ("OTEL_METRICS_EXPORTER", "none"),
            ],
        ] {
            assert!(read(variables).expect("valid").is_none(), "{variables:?}");
        }
    }

    #[test]
    fn endpoint_of_a_signal_is_used_as_it_is_and_has_precedence() {
        let both = |path: &str| ["traces", "metrics"].map(|signal| Some(format!("{path}/v1/{signal}")));
        assert_eq!(urls(&[(ENDPOINT, "http://a:4318")]), both("http://a:4318"));
        assert_eq!(urls(&[(ENDPOINT, "https://a/otlp/")]), both("https://a/otlp"));
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:1/spans?key=1");
        assert_eq!(urls(&[traces]), [Some(traces.1.to_owned()), None]);
        let [_, metrics] = both("http://a:4318");
        assert_eq!(
            urls(&[traces, (ENDPOINT, "http://a:4318")]),
            [Some(traces.1.to_owned()), metrics.clone()]
        );
        assert_eq!(
            urls(&[(ENDPOINT, "http://a:4318"), ("OTEL_TRACES_EXPORTER", "none")]),
            [None, metrics]
        );
    }

    #[test]
    fn variables_set_headers_times_sampler_and_resource() {
        let config = enabled(&[
            (ENDPOINT, "http://a:4318"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20abc, x-tenant = shop",
            ),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-tenant=other"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "250"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team=a%2Cb,service.name=other"),
        ]);
        let (traces, metrics) = (config.traces.expect("traces"), config.metrics.expect("metrics"));
        assert_eq!(traces.headers["authorization"], "Bearer abc");
        assert_eq!(traces.headers["x-tenant"], "shop");
        assert_eq!(metrics.headers["x-tenant"], "other");
        assert_eq!(metrics.headers.len(), 1);
        assert_eq!(traces.timeout, Duration::from_millis(1500));
        assert_eq!(config.metric_interval, Duration::from_millis(250));
        let sampler = format!("{:?}", config.sampler);
        assert!(
            sampler.contains("ParentBased") && sampler.contains("0.25"),
            "{sampler}"
        );
        let attribute =
            |resource: &Resource, key: &'static str| resource.get(&key.into()).map(|value| value.to_string());
        assert_eq!(attribute(&config.resource, "team").as_deref(), Some("a,b"));
        assert_eq!(
            attribute(&config.resource, "service.name").as_deref(),
            Some("other")
        );

        let service = |variables: &[(&str, &str)]| attribute(&enabled(variables).resource, "service.name");
        let endpoint = (ENDPOINT, "http://a:4318");
        assert_eq!(service(&[endpoint]).as_deref(), Some("settings"), "the program");
        let name = ("OTEL_SERVICE_NAME", "shop");
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other");
        assert_eq!(service(&[endpoint, name, attributes]).as_deref(), Some("shop"));
        assert_eq!(enabled(&[endpoint]).metric_interval, DEFAULT_METRIC_INTERVAL);
    }

    #[test]
    fn invalid_values_are_rejected_with_the_variable_and_a_hint() {
        for (variable, value, hint) in [
            (
                ENDPOINT,
                "collector:4317",
                "\"collector:4317\" is not an http:// or https:// URL",
            ),
            (ENDPOINT, "collector", "write it as in `http://collector:4318`"),
            (ENDPOINT, "ftp://collector", "is not an http:// or https:// URL"),
            (ENDPOINT, "http://a b", "is not a URL"),
            (ENDPOINT, "http://", "is not a URL"),
            (
                ENDPOINT,
                "http://a?x=1",
                "set OTEL_EXPORTER_OTLP_TRACES_ENDPOINT instead",
            ),
            (ENDPOINT, "http://u:pass@a", "use OTEL_EXPORTER_OTLP_HEADERS"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "4318", "write it as in"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "use `http/protobuf`"),
            (
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
                "http/json",
                "use `http/protobuf`",
            ),
            ("OTEL_TRACES_EXPORTER", "jaeger", "use `otlp` or `none`"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "token",
                "entry 1 is not of the form `key=value`",
            ),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "a=1,=2",
                "entry 2 is not of the form `key=value`",
            ),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "a b=1",
                "\"a b\" is not the name of a header",
            ),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "a=1%0a",
                "the value of \"a\" has characters",
            ),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%ff", "not percent-encoded UTF-8"),
            (
                "OTEL_EXPORTER_OTLP_TIMEOUT",
                "10s",
                "not a positive number of milliseconds",
            ),
            (
                "OTEL_EXPORTER_OTLP_TIMEOUT",
                "0",
                "not a positive number of milliseconds",
            ),
            (
                "OTEL_METRIC_EXPORT_INTERVAL",
                "-1",
                "not a positive number of milliseconds",
            ),
            ("OTEL_TRACES_SAMPLER", "sometimes", "use `always_on`"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "team",
                "entry 1 is not of the form `key=value`",
            ),
            ("OTEL_SDK_DISABLED", "yes", "neither `true` nor `false`"),
        ] {
            let error = read(&[(variable, value), (ENDPOINT, "http://a:4318")]).err();
            let error = error.unwrap_or_else(|| panic!("{variable}={value} is accepted"));
            assert!(
                error.starts_with(&format!("invalid {variable}: ")) && error.contains(hint),
                "{error}"
            );
            assert!(!error.contains("pass@"), "{error}");
        }
        let ratio = [
            (ENDPOINT, "http://a:4318"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ];
        assert_eq!(
            read(&ratio).err().as_deref(),
            Some("invalid OTEL_TRACES_SAMPLER_ARG: \"2\" is not a number from 0 to 1")
        );
    }
}
