//! Short strings with their own grammar: field paths, and flags and annotations of operators. The first line of an
//! input names the parser.

use std::{fmt, str::FromStr};

use fastrand::Rng;
use http::Method;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity};
use serde::{Serialize, de::DeserializeOwned};
use windlass_cache::{FieldPath, FieldSelector, ObjectKey};
use windlass_podwatch::{
    KindRef,
    sinks::{SinkSpec, Template},
};
use windlass_reboot::{
    GoDuration, RebootPolicySpec, parse_alerts, state,
    state_machine::{self, DrainRule, NodeView, RebootRules, Step, StepInput},
    window::Windows,
};
use windlass_rights::{Access, Rule};
use windlass_runtime::Telemetry;
use windlass_secretsync::{SecretSyncSpec, api::check_consent};

use super::digest;
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
    mutate::{bytes, dictionary},
};

/// Parses a string. Returns the error with which it was rejected, or `None`. `Err` means that an accepted string fails
/// its round trip.
type Parser = fn(&str) -> Result<Option<String>, String>;

const FIELD_PATHS: &[(&str, Parser, &[&str])] = &[
    (
        "path",
        round_trip::<FieldPath>,
        &[
            "spec.nodeName",
            "metadata.labels['app.kubernetes.io/name']",
            ".a.b",
            "['a']['b']",
            "a['b'].c",
            "a..b",
            "a[0]",
            "['']",
        ],
    ),
    (
        "fields",
        |text| Ok(text.parse::<FieldSelector>().err().map(|error| error.to_string())),
        &["spec.a=1,metadata.name!=x", "a==b", "a['x,y']=z", "=", "a"],
    ),
    (
        "access",
        |text| {
            let (path, query) = text.split_once('?').unwrap_or((text, ""));
            for method in [Method::GET, Method::DELETE, Method::POST] {
                let access = Access::of(&method, path, Some(query));
                let _ = access.to_string();
            }
            Ok(None)
        },
        &[
            "/api/v1/namespaces/a/pods/b/log?x=y",
            "/apis/apps/v1/deployments?watch=true&fieldSelector=metadata.name%3Dx",
            "/api/v1/watch/pods",
            "//a//b",
            "/api/v1/namespaces/a%2Fb/pods/%ff",
            "/healthz",
            "/api/v1/proxy/nodes/a/b",
        ],
    ),
];

const OPERATORS: &[(&str, Parser, &[&str])] = &[
    (
        "span",
        round_trip::<GoDuration>,
        &[
            "1h30m",
            "90s",
            "0s",
            "500ms",
            "7d",
            "1.5h",
            "-1s",
            "106751d",
            "99999999999h",
        ],
    ),
    (
        "kind",
        round_trip::<KindRef>,
        &["pods", "deployments.apps", "deployments.v1.apps", "a..b", "Ä"],
    ),
    (
        "sink",
        |text| Ok(text.parse::<SinkSpec>().err().map(|error| error.to_string())),
        &[
            "stdout",
            "file:/tmp/x",
            "audit=file:/tmp/x?retry=5s",
            "https://example.com/hook?secret=a",
            "hook=http://127.0.0.1:1/x?queue=10&timeout=1s",
            "=",
            "stdout?x=y",
        ],
    ),
    (
        "template",
        |text| Ok(text.parse::<Template>().err().map(|error| error.to_string())),
        &[
            r#"{"text":"{{event}} {{kind|slack}} {{object.spec.a[0].b|markdown}} {{text}}"}"#,
            r#"{"a":[{"b":"{{object['x.y/z'][9]}}"}],"c":"{{reason}}: {{message}}"}"#,
            r#"{"text":"{{"}"#,
            r#"{"text":"{{object[99999999999999999999]}}"}"#,
            r#"["{{name|html}}"]"#,
        ],
    ),
    (
        "alerts",
        |text| Ok(parse_alerts(text.as_bytes()).err()),
        &[
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"alertname":"DiskFull"},"value":[1,"1"]}]}}"#,
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"ALERTS"}},{}]}}"#,
            r#"{"status":"error","error":"parse error at char 7"}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
        ],
    ),
    (
        "quantity",
        quantity,
        &[
            "1",
            "100m",
            "1Ki",
            "1.5Gi",
            "1e3",
            "-5",
            "999999999999999999999Ei",
            "0.000000001n",
            "1E",
            "+.5",
        ],
    ),
    (
        "policy",
        policy,
        &[
            r#"{"windows":[{"days":["Mon"],"start":"22:00","end":"04:00","timeZone":"Europe/Berlin"}],"exclusions":[{"from":"2026-12-24","to":"2026-12-26"}]}"#,
            r#"{"windows":[{"start":"00:00","end":"24:00"}],"maxUnavailable":"25%"}"#,
            r#"{"windows":[{"days":[],"start":"25:00","end":"x","timeZone":"Nowhere"}]}"#,
            r#"{"windows":[{"start":"02:30","end":"02:30","timeZone":"America/New_York"}],"exclusions":[{"from":"-9999-01-01","to":"9999-12-31"}]}"#,
        ],
    ),
    (
        "state",
        json_round_trip::<state::State>,
        &[
            r#"{"phase":"Draining","policy":"p","epoch":7,"attempt":2,"since":"2026-01-02T03:04:05Z","cordoned":true,"mood":{"good":[1]}}"#,
        ],
    ),
    (
        "progress",
        json_round_trip::<state::Progress>,
        &[
            r#"{"epoch":7,"attempt":1,"at":"2026-01-02T03:04:05Z","proved":"b","x":[{}]}"#,
            r#"{"bootID":"a","epoch":7,"attemptedAt":"2026-01-02T03:04:05Z","newBootID":"b","checkedBootID":"b","failureReason":"x","y":[{}]}"#,
        ],
    ),
    (
        "command",
        json_round_trip::<state::RebootCommand>,
        &[r#"{"epoch":7,"bootID":"b","notBefore":"2026-01-02T03:04:05Z","notAfter":"2026-01-02T04:04:05Z"}"#],
    ),
    (
        "node",
        node,
        &[
            r#"{"metadata":{"name":"n","annotations":{"reboot.windlass.dev/reboot-needed":"kernel","reboot.windlass.dev/cordoned":"true"}},"spec":{"unschedulable":true},"status":{"nodeInfo":{"bootID":"b"},"conditions":[{"type":"Ready","status":"True"}]}}"#,
            r#"{"metadata":{"name":"n","annotations":{"reboot.windlass.dev/state":"{\"phase\":\"Rebooting\",\"policy\":\"p\",\"epoch\":7,\"attempt\":2,\"since\":\"2026-01-02T03:04:05Z\",\"bootID\":\"a\"}","reboot.windlass.dev/reboot-now":"{\"epoch\":7,\"attempt\":2,\"bootID\":\"a\"}","reboot.windlass.dev/reboot-in-progress":"{\"bootID\":\"a\",\"epoch\":7,\"attemptedAt\":\"2026-01-02T03:04:05Z\",\"newBootID\":\"b\"}"}},"status":{"nodeInfo":{"bootID":"b"}}}"#,
            r#"{"metadata":{"name":"n","annotations":{"reboot.windlass.dev/state":"{\"phase\":\"Backoff\",\"policy\":\"p\",\"epoch\":18446744073709551615,\"attempt\":4294967295,\"since\":\"9999-12-31T23:59:59Z\"}"}}}"#,
        ],
    ),
    (
        "consent",
        |text| Ok(check_consent(text).err()),
        &[
            "true",
            "false",
            "*",
            "",
            "shop,tools",
            "shop, ,x",
            "None",
            "Ä",
            "a..b",
        ],
    ),
    (
        "sync",
        |text| match serde_json::from_str::<SecretSyncSpec>(text) {
            Ok(spec) => match spec.validate() {
                Ok(()) => json_round_trip::<SecretSyncSpec>(text),
                Err(error) => Ok(Some(error)),
            },
            Err(error) => Ok(Some(error.to_string())),
        },
        &[
            r#"{"kind":"ConfigMap","names":["a","b"],"namespaceSelector":{"matchExpressions":[{"key":"team","operator":"In","values":["x"]}]}}"#,
            r#"{"sourceSelector":{"matchLabels":{"sync":"yes"}},"keys":{"include":["tls.*"],"exclude":["*"]},"adoptionPolicy":"IfIdentical","paused":true}"#,
            r#"{"names":["Ä"],"namespaceSelector":{"matchExpressions":[{"key":"a b","operator":"Gt"}]}}"#,
        ],
    ),
    (
        "telemetry",
        |text| {
            let telemetry = Telemetry::from_variables("fuzz", |name| variable(text, name));
            Ok(telemetry.err().map(|error| error.to_string()))
        },
        &[
            "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318\nOTEL_EXPORTER_OTLP_HEADERS=a=b,authorization=Bearer%20x\nOTEL_EXPORTER_OTLP_TIMEOUT=500",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://[::1]/x?y\nOTEL_TRACES_SAMPLER=parentbased_traceidratio\nOTEL_TRACES_SAMPLER_ARG=0.5",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://a\nOTEL_METRIC_EXPORT_INTERVAL=1\nOTEL_RESOURCE_ATTRIBUTES=a=b,service.name=%C3%A4\nOTEL_SERVICE_NAME=x",
            "OTEL_SDK_DISABLED=TRUE",
            "OTEL_EXPORTER_OTLP_ENDPOINT=http://a\nOTEL_EXPORTER_OTLP_PROTOCOL=grpc\nOTEL_TRACES_EXPORTER=none",
            "OTEL_EXPORTER_OTLP_ENDPOINT=ftp://a\nOTEL_EXPORTER_OTLP_HEADERS==",
        ],
    ),
    (
        "rule",
        |text| match serde_json::from_str::<Rule>(text) {
            Ok(rule) => {
                let access = Access::resource("get", "apps", "deployments");
                let _ = (rule.allows(&access), rule.compact_string());
                json_round_trip::<Rule>(text)
            }
            Err(error) => Ok(Some(error.to_string())),
        },
        &[
            r#"{"apiGroups":["","apps"],"resources":["pods","pods/log"],"verbs":["get","*"],"resourceNames":["a"]}"#,
            r#"{"nonResourceURLs":["/healthz","/api/*"],"verbs":["get"]}"#,
            r#"{"verbs":null}"#,
        ],
    ),
    (
        "key",
        |text| {
            let key = match text.split_once('/') {
                Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
                None => ObjectKey::cluster_scoped(text),
            };
            let _ = key.to_string();
            Ok(None)
        },
        &["shop/web", "node", "/", ""],
    ),
];

fn round_trip<T: FromStr<Err: fmt::Display> + fmt::Display + PartialEq>(
    text: &str,
) -> Result<Option<String>, String> {
    let value: T = match text.parse() {
        Ok(value) => value,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let written = value.to_string();
    match written.parse::<T>() {
        Ok(again) if again == value => Ok(None),
        Ok(_) => Err(format!(
            "{text:?} is printed as {written:?}, which parses to a different value"
        )),
        Err(error) => Err(format!("{text:?} is printed as {written:?}: {error}")),
    }
}

fn json_round_trip<T: DeserializeOwned + Serialize + PartialEq>(
    text: &str,
) -> Result<Option<String>, String> {
    let value: T = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let written = serde_json::to_string(&value).map_err(|error| error.to_string())?;
    match serde_json::from_str::<T>(&written) {
        Ok(again) if again == value => Ok(None),
        Ok(_) => Err(format!(
            "{text} is printed as {written}, which parses to a different value"
        )),
        Err(error) => Err(format!("{text} is printed as {written}: {error}")),
    }
}

fn quantity(text: &str) -> Result<Option<String>, String> {
    let one = [Quantity(text.to_owned())];
    match windlass_api::quantity::sum(&one) {
        Err(error) => Ok(Some(error.to_string())),
        Ok(sum) => match windlass_api::quantity::sum([&sum]) {
            Ok(again) if again == sum => Ok(None),
            Ok(again) => Err(format!("{text:?} sums up to {sum:?}, and that to {again:?}")),
            Err(error) => Err(format!("{text:?} sums up to {sum:?}: {error}")),
        },
    }
}

/// Evaluates a policy's windows around one instant.
fn policy(text: &str) -> Result<Option<String>, String> {
    let spec: RebootPolicySpec = match serde_json::from_str(text) {
        Ok(spec) => spec,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let windows = match Windows::parse(&spec.windows, &spec.exclusions) {
        Ok(windows) => windows,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let now = "2026-03-29T01:30:00Z"
        .parse::<jiff::Timestamp>()
        .map_err(|error| error.to_string())?;
    for instant in [
        now,
        jiff::Timestamp::UNIX_EPOCH,
        jiff::Timestamp::MAX,
        jiff::Timestamp::MIN,
    ] {
        let _ = (windows.open_since(instant), windows.closes_after(instant));
        if let Some(next) = windows.next_opening(instant)
            && !windows.open_at(next)
        {
            return Err(format!(
                "the next opening after {instant} is {next}, but the window is not open then"
            ));
        }
    }
    Ok(None)
}

/// Computes the next steps of a node, for the controller and for its agent. Its annotations may be anyone's.
fn node(text: &str) -> Result<Option<String>, String> {
    let node: Node = match serde_json::from_str(text) {
        Ok(node) => node,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let keys = state::AnnotationKeys::default();
    let view = NodeView::from_node(&node, &keys);
    let minute = std::time::Duration::from_mins(1);
    let rules = RebootRules {
        before_hook: Some(minute),
        drain: Some(DrainRule {
            timeout: minute,
            force: true,
        }),
        reboot_timeout: minute,
        health_check_timeout: minute,
        soak: minute,
        backoff: minute,
    };
    for now in [
        jiff::Timestamp::UNIX_EPOCH,
        jiff::Timestamp::MAX,
        jiff::Timestamp::MIN,
    ] {
        for slot in [None, Some(7), Some(u64::MAX)] {
            let input = StepInput {
                now,
                policy: "p",
                rules: &rules,
                slot,
                halt: None,
            };
            let changes = [
                match state_machine::step(&view, &input) {
                    Step::Write(change) | Step::WriteIfSlotHeld(change) => Some(change),
                    _ => None,
                },
                state_machine::prepared(&view, &input),
                state_machine::hook_failed(&view, &input, text),
                state_machine::drained(&view, &input, text),
                state_machine::verified(&view, &input),
                state_machine::expired(&view, &input, text),
            ];
            for change in changes.into_iter().flatten() {
                let patch = change.patch(&view, &keys).to_string();
                // The API server rejects annotations of more than 256 KiB, and they may be full already.
                if patch.len() > 16 * 1024 + text.len() {
                    return Err(format!("a patch of {} bytes", patch.len()));
                }
            }
        }
        let _ = state_machine::agent::step(&view, "a", now);
    }
    let _ = state_machine::agent::pending_check(&view, "b");
    Ok(None)
}

/// Returns the value of an environment variable, of which there is one per line.
fn variable(lines: &str, name: &str) -> Option<String> {
    let mut variables = lines.lines().filter_map(|line| line.split_once('='));
    variables.find_map(|(known, value)| (known == name).then(|| value.to_owned()))
}

pub(super) struct Texts(&'static [(&'static str, Parser, &'static [&'static str])]);

impl Texts {
    pub(super) fn field_paths() -> Self {
        Self(FIELD_PATHS)
    }

    pub(super) fn operators() -> Self {
        Self(OPERATORS)
    }
}

impl Target for Texts {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let readers = self.0.iter();
        readers
            .flat_map(|(name, _, texts)| {
                texts
                    .iter()
                    .map(move |text| format!("{name}\n{text}").into_bytes())
            })
            .collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let cut = |bytes: &[u8]| {
            bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(0, |position| position + 1)
        };
        let (name, text) = input.split_at(cut(input));
        let donor = &donor[cut(donor)..];
        let text = if rng.u8(..6) == 0 {
            dictionary::text(rng).into_bytes()
        } else {
            bytes::mutate(text, donor, rng)
        };
        [name, &text].concat()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let text = String::from_utf8_lossy(input);
        let (name, text) = text.split_once('\n').unwrap_or_default();
        let Some((_, read, _)) = self.0.iter().find(|(known, ..)| *known == name) else {
            return Ok(Outcome::default());
        };
        let meter = Meter::start();
        let rejection = read(text);
        let allocated = meter.check(input.len())?;
        let rejection = rejection.map_err(|detail| Invariant::ReadableAgain.violated(detail))?;
        Ok(Outcome {
            accepted: rejection.is_none(),
            fingerprint: format!(
                "{name} {}",
                rejection.as_deref().map_or_else(|| digest(text), digest)
            ),
            allocated,
        })
    }
}
