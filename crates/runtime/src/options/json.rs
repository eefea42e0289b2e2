//! Logs as one JSON object per line.

use std::{
    error::Error,
    fmt::{self, Write as _},
    io::Write as _,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    fmt::MakeWriter,
    layer::Context,
    registry::{LookupSpan, Scope},
};

/// Fields of every line. A user field of the same name gets the prefix `field.`, as in `field.level`.
const RESERVED_FIELDS: [&str; 4] = ["timestamp", "level", "target", "message"];

/// A tracing layer that writes each event as one line of JSON: `timestamp`, `level`, `target`, `message`, and then, flat, the
/// fields of the event and of its spans, so that every line of a reconcile has its controller, object and id. If names
/// collide, the innermost wins.
///
/// Unlike the JSON of tracing-subscriber it needs no further dependencies and does not nest spans, so log stores can query
/// the fields easily.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry().with(windlass_runtime::JsonLines::new(std::io::stderr));
/// tracing::subscriber::with_default(subscriber, || tracing::info!(replicas = 3, "scaled"));
/// ```
#[derive(Clone, Debug)]
pub struct JsonLines<W> {
    writer: W,
}

impl<W> JsonLines<W> {
    /// Writes to this writer, for example `std::io::stderr`.
    pub fn new(writer: W) -> Self {
        Self { writer }
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            record.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut all = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(Fields(fields)) = span.extensions().get::<Fields>() {
                all.0
                    .extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        // A span's `message` field is not the message of the event.
        if let Some(value) = all.0.remove("message") {
            all.0.insert("field.message".to_owned(), value);
        }
        event.record(&mut all);
        let Fields(mut fields) = all;
        let metadata = event.metadata();
        // Always with milliseconds, so that lines sort as text.
        let timestamp = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string();
        let message = fields.remove("message").unwrap_or_else(|| "".into());
        let first = [
            Value::from(timestamp),
            metadata.level().as_str().into(),
            metadata.target().into(),
            message,
        ];
        let mut line = "{".to_owned();
        let rest = fields.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in RESERVED_FIELDS.into_iter().zip(&first).chain(rest) {
            let comma = if line.len() > 1 { "," } else { "" };
            write!(line, "{comma}{}:{value}", Value::from(name)).expect("writing to a String succeeds");
        }
        line.push_str("}\n");
        // A failure to write the log cannot be reported.
        let _ = self.writer.make_writer_for(metadata).write_all(line.as_bytes());
    }
}

/// The fields of an event or a span.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        // Removes the prefix of raw identifiers.
        let name = field.name().trim_start_matches("r#");
        let name = match name {
            "timestamp" | "level" | "target" => format!("field.{name}"),
            _ => name.to_owned(),
        };
        self.0.insert(name, value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinities: such a field is null, which is of every type, so that a field has one type in all lines.
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, value.to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn logged(log: impl FnOnce()) -> Vec<String> {
        let lines = tempfile::NamedTempFile::new().expect("temporary file");
        let subscriber = tracing_subscriber::registry().with(JsonLines::new(
            lines.reopen().map(Arc::new).expect("temporary file"),
        ));
        tracing::subscriber::with_default(subscriber, log);
        let text = std::fs::read_to_string(lines.path()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn json_line_has_the_fields_of_the_event_and_its_spans() {
        let lines = logged(|| {
            let outer = tracing::info_span!(
                "controller",
                controller = "foo",
                object = "outer",
                late = tracing::field::Empty
            );
            let inner = tracing::info_span!(parent: &outer, "reconcile", object = %"n/a", id = 7);
            outer.record("late", true);
            inner.in_scope(|| tracing::warn!(ratio = 0.5, infinite = f64::INFINITY, "it \"said\"\n{}", "no"));
            tracing::info!(level = "mine", r#type = "t", "outside");
        });
        let mut first: Value = serde_json::from_str(&lines[0]).expect("one object per line");
        let time = first["timestamp"].take();
        assert_eq!(
            time.as_str().map(str::len),
            Some("2026-01-02T03:04:05.678Z".len())
        );
        time.as_str().expect("text").parse::<Timestamp>().expect("a time");
        assert_eq!(
            first,
            json!({
                "timestamp": null, "level": "WARN", "target": "windlass_runtime::options::json::tests",
                "message": "it \"said\"\nno", "controller": "foo", "object": "n/a", "id": 7, "late": true,
                "ratio": 0.5, "infinite": null,
            })
        );
        assert!(
            lines[0].starts_with("{\"timestamp\":\"")
                && lines[0].contains("Z\",\"level\":\"WARN\",\"target\":")
        );
        let second: Value = serde_json::from_str(&lines[1]).expect("one object per line");
        assert_eq!(
            (&second["level"], &second["field.level"], &second["type"]),
            (&json!("INFO"), &json!("mine"), &json!("t"))
        );
        assert!(second.get("controller").is_none());
        assert_eq!(lines.len(), 2);
    }

    /// A log store that has seen a number rejects a line with a text in the same field.
    #[test]
    fn field_has_one_type_in_all_lines() {
        let lines = logged(|| {
            for seconds in [0.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, 1e300] {
                let span = tracing::info_span!("wait", seconds, count = 1_u64, object = %"n/a");
                span.in_scope(|| tracing::info!(retry_after = seconds, failures = -1, done = true, "waited"));
            }
        });
        let mut types = std::collections::BTreeMap::new();
        for line in &lines {
            let Value::Object(fields) = serde_json::from_str(line).expect("one object per line") else {
                panic!("an object: {line}")
            };
            for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
                let kind = std::mem::discriminant(&value);
                assert_eq!(*types.entry(name).or_insert(kind), kind, "{line}");
            }
        }
        assert_eq!((lines.len(), types.len()), (6, 10));
    }
}
